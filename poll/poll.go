// Package poll follows long-running operations, which a server begins when it accepts a
// request and completes later.
//
//	accepted, err := client.Do(req)
//	...
//	resp, err := (&poll.Poller{Client: client}).Follow(ctx, accepted)
//
// The [Operation] in an [Error] can be stored as JSON and resumed later by another process.
package poll

import (
	"context"
	"net/http"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/internal/httpbody"
	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

// Poller follows operations that servers accept now and finish later. The zero Poller
// is ready to use; it may be used by many goroutines at once.
//
//	           202, where to ask                       done
//	Follow ──▶ pause ──▶ look ──▶ not yet? ── no ──▶ look at the result ──▶ its answer
//	             ▲                   │ yes      │
//	             └───────────────────┘          └─ failed ──▶ *Error
//
// Where to ask is said by Operation-Location, Azure-AsyncOperation, or on a 202
// Location, and where none of them is by properties.provisioningState in the answer
// to a PUT or PATCH. The first two lead to a monitor, which says in its "status" how
// the operation stands: Succeeded, Failed and Canceled are its ends, anything else is
// not yet. The result is then at its resourceLocation; else, after PUT and PATCH, at
// the URL of the request; else, after POST, at Location; else it is the last answer of
// the monitor. Whatever else is asked answers 202 until it has the result. These are
// the rules of Azure's guidelines; ParseStatus is for others.
//
// Every look is a request of its own through Client, and so through its limits.
type Poller struct {
	Client *http.Client // asks; nil: heed.NewClient(nil)

	// Interval is the time between two looks where the server does not say. Nil: 1 s,
	// half as much more each time, up to 30 s, plus or minus a tenth. Where it does
	// say, by a Retry-After with any status, the pause is that and up to a tenth more.
	Interval    backoff.Policy
	MinInterval time.Duration // shortest pause, whatever anybody says; 0: 1 s
	MaxInterval time.Duration // longest pause that a server may ask for; 0: 1 h, negative: any

	// Header is sent with each look, but to another host than the one that was
	// asked at first only what names no one: Accept, Accept-Language, User-Agent.
	// Nil: that of the request that began the operation, as far as it fits a GET.
	Header http.Header

	// MaxBody is how many bytes of an answer are read to learn how the operation
	// stands; 0: 1 MiB. The result may be longer.
	MaxBody int64

	// ParseStatus tells how an operation stands by an answer below 400 and the beginning of
	// its body; nil: as said above.
	ParseStatus func(resp *http.Response, body []byte) (Status, error)

	Progress func(Operation) // is told after each look; nil: nobody
	Clock    throttle.Clock  // nil: the system clock; deadlines of contexts are always on that
}

// Status is how an operation stands.
type Status struct {
	Status    string  // as the server calls it
	Percent   float64 // done, 0 to 100; 0: not said
	Done      bool    // it has ended
	Failed    bool    // and not well
	ResultURL string  // where the result is; "": where Poller says
}

// Follow returns the result of the operation that accepted began: an answer with its
// body to be read. Accepted is read and closed. If it began none, it is returned as it
// came.
//
// An operation that ended badly, or could not be followed to its end, is an *Error.
// A pause that passes the deadline of ctx, or is longer than MaxInterval, is not begun.
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

// Resume is Follow for an operation that an Error left to be resumed, or of which
// only the URL is known. It is asked at once, unless op.Next is still to come.
func (p *Poller) Resume(ctx context.Context, op Operation) (*http.Response, error) {
	f := poller{Poller: p, ctx: ctx, op: op, header: p.Header, retryAfter: throttle.Forever}
	return f.run()
}

// A poller follows one operation.
type poller struct {
	*Poller
	ctx          context.Context
	op           Operation
	header       http.Header
	client       *http.Client
	intervals    int
	lastInterval time.Duration // what Interval returned last
	retryAfter   time.Duration // the pause that the server asked for; 0: it did not
}

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

// wait sleeps until the next look.
func (f *poller) wait() error {
	if f.ctx.Err() != nil {
		return context.Cause(f.ctx)
	}
	d := f.op.Next.Sub(f.now())
	if f.op.Next.IsZero() || d <= 0 {
		return nil
	}
	switch deadline, hasDeadline := f.ctx.Deadline(); {
	case hasDeadline && time.Until(deadline) <= d:
		return context.DeadlineExceeded
	case f.MaxInterval >= 0 && min(d, f.retryAfter) > orDefault(f.MaxInterval, time.Hour): // what is added to retryAfter is ours
		return heed.ErrMaxWait
	}
	return httpbody.Sleep(f.ctx, f.Clock, d)
}

// poll learns from an answer. If it is the last one, it returns the result.
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

// parseStatus returns how the operation stands. A server that says to slow down says
// nothing of that.
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

// result returns the result of an operation that has ended well; resp was the last
// answer about it.
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

func (f *poller) get(url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(f.ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header = f.op.headerFor(req.URL, f.header)
	return f.client.Do(req)
}

// schedule notes when to look again after resp.
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

// fail returns err, or what ended the context if that did, with what is needed to
// resume.
func (f *poller) fail(err error, body []byte) error {
	if f.ctx.Err() != nil {
		err = context.Cause(f.ctx)
	}
	return &Error{Operation: f.op, Body: httpbody.Snippet(body), Err: err}
}

func (p *Poller) now() time.Time { return throttle.ClockOr(p.Clock).Now() }

// orDefault returns d, or otherwise if d is 0.
func orDefault(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}
