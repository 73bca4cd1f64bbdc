// Package poll waits for long-running operations: a server accepts a request, responds
// immediately, and completes the work later.
//
//	accepted, err := client.Do(req)
//	if err != nil {
//		return err
//	}
//	resp, err := (&poll.Poller{Client: client}).Follow(ctx, accepted)
//
// An [Operation] that was not followed to its end is in the returned [Error]. It can be
// stored as JSON and resumed later, also by another process, with [Poller.Resume].
package poll

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/internal/httpbody"
	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

// A Poller polls a long-running operation until it has ended, and returns its result. The
// zero Poller is ready to use. A Poller is safe for concurrent use; its fields must not
// be changed while it is used.
//
//	           202 and status URL                    succeeded
//	Follow ──▶ wait ──▶ poll ──▶ ended? ──── yes ──▶ get the result ──▶ response
//	             ▲                 │ no      │
//	             └─────────────────┘         └─ failed ──▶ *Error
//
// The status URL is the first of these that the accepted response has: the
// Azure-AsyncOperation header, the Operation-Location header, or, if its status is 202,
// the Location header. After a PUT or PATCH without any of them, the URL of the request
// is polled while properties.provisioningState in the response body states that the
// operation has not ended.
//
// Azure-AsyncOperation and Operation-Location name a status monitor. Its responses state
// the status of the operation in the JSON member "status": Succeeded, Failed and Canceled
// are final. The result is at the URL in the member resourceLocation; else, after PUT and
// PATCH, at the URL of the request; else, after POST, at the Location of the accepted
// response; else it is the last response of the monitor.
//
// A Location is polled until it responds with a status other than 202 and without a
// provisioningState that is not final. That response is the result.
//
// These are the rules of the Azure REST API guidelines. Set ParseStatus for other APIs.
//
// Each poll is a separate request through Client, so the limits and retries of Client
// apply to it.
type Poller struct {
	// Client sends the polls. Nil means heed.NewClient(nil).
	Client *http.Client

	// Interval returns the time between two polls if the server states none. If a
	// response states a Retry-After, with any status, that time plus up to 10 % is used.
	// Nil means 1 s before the first poll, 1.5 times longer before each further one, at
	// most 30 s, with a jitter of 10 % in both directions.
	Interval backoff.Policy

	// MinInterval is the shortest time between two polls. It applies to Interval and to
	// Retry-After. Zero means 1 s; a negative value means no minimum.
	MinInterval time.Duration

	// MaxInterval is the longest Retry-After that is obeyed; a longer one ends Follow
	// with heed.ErrMaxWait. Zero means 1 h; a negative value means no limit.
	MaxInterval time.Duration

	// Header is sent with each poll and with the request for the result. Only Accept,
	// Accept-Language and User-Agent are sent to other hosts than that of the request
	// that began the operation and its subdomains. For Follow, nil means the header of
	// that request, without the fields that do not apply to a GET; for Resume, nil means
	// none.
	Header http.Header

	// MaxBody is the maximum number of bytes of a response body that are read to
	// determine the status. The result may be longer. Zero or less means 1 MiB.
	MaxBody int64

	// ParseStatus returns the status of the operation from a response with a status code
	// below 400 and the first MaxBody bytes of its body. Nil means the rules of Poller.
	ParseStatus func(resp *http.Response, body []byte) (Status, error)

	// Progress is called after each poll. Nil means none.
	Progress func(Operation)

	// Clock is the source of time and of timers. Nil means the system clock. Deadlines of
	// contexts always refer to the system clock.
	Clock throttle.Clock
}

// Status is the status of an operation.
type Status struct {
	// Status is the server's name for the status.
	Status string

	// Percent is the completed part, from 0 to 100. Zero also means that it is not known.
	Percent float64

	// Done reports whether the operation has ended.
	Done bool

	// Failed reports whether an operation that is Done has failed.
	Failed bool

	// ResultURL is the URL of the result, which may be relative. Empty means the URL by
	// the rules of Poller.
	ResultURL string
}

// Follow polls the operation that the response accepted began, and returns the response
// with its result. The caller must close the body of that response. Follow reads and
// closes the body of accepted. If accepted began no operation, Follow returns it with its
// body unread.
//
// If the operation failed, or could not be followed to its end, the error is an *Error. A
// wait that would exceed the deadline of ctx, or that is longer than MaxInterval, is not
// started; the error is returned immediately.
func (p *Poller) Follow(ctx context.Context, accepted *http.Response) (*http.Response, error) {
	body, _ := p.peekBody(accepted)
	op, err := operationOf(accepted, body)
	if err != nil {
		accepted.Body.Close()
		return nil, &Error{Operation: op, Body: httpbody.Snippet(body), Err: err}
	}
	if op.URL == "" {
		return accepted, nil
	}
	accepted.Body.Close()
	f := poller{Poller: p, ctx: ctx, op: op, header: p.Header}
	if f.header == nil {
		f.header = pollHeader(accepted.Request.Header, p.Client)
	}
	f.schedule(accepted)
	return f.run()
}

// Resume continues to poll op, which is the Operation of an Error or an Operation with
// only a URL. It polls immediately unless op.Next is in the future. Its result is that of
// Follow.
func (p *Poller) Resume(ctx context.Context, op Operation) (*http.Response, error) {
	f := poller{Poller: p, ctx: ctx, op: op, header: p.Header, retryAfter: throttle.Forever}
	if op.Version > operationVersion {
		return nil, f.fail(fmt.Errorf("poll: the operation has version %d of the format: this program knows %d", op.Version, operationVersion), nil)
	}
	f.op.Version = operationVersion
	return f.run()
}

// A poller is the state of one call of Follow or Resume.
type poller struct {
	*Poller
	ctx          context.Context
	op           Operation
	header       http.Header
	client       *http.Client
	intervals    int
	lastInterval time.Duration // latest result of Interval
	retryAfter   time.Duration // stated Retry-After; 0 if there was none
}

// run polls until the operation has ended, and returns its result.
func (f *poller) run() (*http.Response, error) {
	if f.client = f.Client; f.client == nil {
		f.client = heed.NewClient(nil)
	}
	for {
		if err := f.wait(); err != nil {
			return nil, f.fail(err, nil)
		}
		resp, err := f.get(f.op.URL)
		if err != nil {
			return nil, f.fail(err, nil)
		}
		if done, resp, err := f.poll(resp); done {
			return resp, err
		}
	}
}

// wait sleeps until the time of the next poll.
func (f *poller) wait() error {
	if f.ctx.Err() != nil {
		return context.Cause(f.ctx)
	}
	d := f.op.Next.Sub(f.now())
	if d <= 0 { // also if Next is zero
		return nil
	}
	switch deadline, hasDeadline := f.ctx.Deadline(); {
	case hasDeadline && time.Until(deadline) <= d:
		return context.DeadlineExceeded
	case f.MaxInterval >= 0 && min(d, f.retryAfter) > orDefault(f.MaxInterval, time.Hour): // jitter and MinInterval do not count
		return heed.ErrMaxWait
	}
	return httpbody.Sleep(f.ctx, f.Clock, d)
}

// poll updates the operation from a response. If the operation has ended, it returns true
// with the result or an error.
func (f *poller) poll(resp *http.Response) (done bool, result *http.Response, err error) {
	f.op.Polls++
	body, err := f.peekBody(resp)
	if err != nil {
		resp.Body.Close()
		return true, nil, f.fail(err, body)
	}
	state, err := f.parseStatus(resp, body)
	f.op.Status, f.op.Percent = state.Status, state.Percent
	if f.Progress != nil {
		f.Progress(f.op)
	}
	switch {
	case err == nil && !state.Done:
		resp.Body.Close()
		f.schedule(resp)
		return false, nil, nil
	case err == nil && state.Failed:
		err = ErrFailed
	case err == nil:
		result, err = f.result(resp, state)
	}
	if err != nil {
		resp.Body.Close()
		return true, nil, f.fail(err, body)
	}
	return true, result, nil
}

// parseStatus returns the status of the operation. A response that throttles the poll
// does not change the status.
func (f *poller) parseStatus(resp *http.Response, body []byte) (Status, error) {
	if resp.StatusCode >= 400 {
		if r := headers.Parse(resp.StatusCode, resp.Header, f.now()); r.HasRetryAfter && heed.Retryable(resp.Request, resp, nil) {
			return Status{Status: f.op.Status, Percent: f.op.Percent}, nil
		}
		return Status{Status: f.op.Status, Percent: f.op.Percent}, statusError(resp.StatusCode)
	}
	if f.ParseStatus != nil {
		return f.ParseStatus(resp, body)
	}
	if err := f.op.relocate(resp); err != nil {
		return Status{}, err
	}
	return parseAzureStatus(resp, body, f.op.Monitor)
}

// result returns the result of an operation that has succeeded. resp is the last response
// of its status URL.
func (f *poller) result(resp *http.Response, s Status) (*http.Response, error) {
	target := f.op.result()
	if s.ResultURL != "" {
		var err error
		if target, err = resolve(resp, s.ResultURL); err != nil {
			return nil, err
		}
	}
	if target == "" {
		return resp, nil
	}
	resp.Body.Close()
	return f.get(target)
}

// get sends a GET request to url with the header of the polls.
func (f *poller) get(url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(f.ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header = f.op.headerFor(req.URL, f.header)
	return f.client.Do(req)
}

// schedule sets the time of the next poll after resp.
func (f *poller) schedule(resp *http.Response) {
	now, minInterval := f.now(), orDefault(f.MinInterval, time.Second)
	if report := headers.Parse(resp.StatusCode, resp.Header, now); report.HasRetryAfter {
		jitter := backoff.RetryAfterJitter{Min: 1, Spread: 0.1, Max: throttle.Forever}
		f.retryAfter = report.RetryAfter
		f.op.Next = now.Add(jitter.Delay(max(report.RetryAfter, minInterval), 1))
		return
	}
	f.retryAfter = 0
	policy := f.Interval
	if policy == nil {
		policy = backoff.Exponential{Base: time.Second, Factor: 1.5, Jitter: backoff.PlusMinus, Spread: 0.1}
	}
	f.intervals++
	f.lastInterval = policy.Delay(f.intervals, f.lastInterval)
	f.op.Next = now.Add(max(f.lastInterval, minInterval))
}

// fail returns an *Error with err, or with the cause of the context's end if it has
// ended.
func (f *poller) fail(err error, body []byte) error {
	if f.ctx.Err() != nil {
		err = context.Cause(f.ctx)
	}
	return &Error{Operation: f.op, Body: httpbody.Snippet(body), Err: err}
}

// now returns the time of Clock.
func (p *Poller) now() time.Time { return throttle.ClockOr(p.Clock).Now() }

// orDefault returns d, or otherwise if d is 0.
func orDefault(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}
