package worlds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/bench/clients"
)

// The names of the clients that Run knows.
const (
	Plain             = "plain"              // http.Client
	RetryableHTTP     = "retryablehttp"      // go-retryablehttp with its defaults
	RetryableHTTPSafe = "retryablehttp-safe" // the same, but a POST is repeated only after a 429
	Heed              = "heed"               // the zero heed.Transport
	HeedFull          = "heed-full"          // with quota.Full
	HeedOff           = "heed-off"           // with quota.Disabled: retries alone
	Oracle            = "oracle"             // a client that knows the limit
)

// Clients returns the names of the clients that are compared with each other.
func Clients() []string {
	return []string{Plain, RetryableHTTP, RetryableHTTPSafe, Heed, HeedFull, HeedOff, Oracle}
}

// AllClients returns the names of all clients, the oracle last.
func AllClients() []string {
	return []string{Plain, RetryableHTTP, RetryableHTTPSafe, Heed, HeedFull, HeedOff, HeedFew, HeedBucketOff, HeedBucket, HeedInFlightOff, HeedInFlight, Oracle}
}

// newClient returns a client by its name.
func newClient(name string, s *Server) *http.Client {
	switch name {
	case Plain, RetryableHTTP:
		c, err := clients.New(name, s, nil)
		if err != nil {
			panic(err)
		}
		return c
	case RetryableHTTPSafe:
		reads, writes := newRetryable(s), newRetryable(s)
		writes.CheckRetry = retryRejected
		return &http.Client{Transport: safeRetries{
			reads:  &retryablehttp.RoundTripper{Client: reads},
			writes: &retryablehttp.RoundTripper{Client: writes},
		}}
	case Oracle:
		return &http.Client{Transport: oracle{s}}
	}
	v, ok := variants[name]
	if !ok {
		panic(fmt.Sprintf("worlds: no client %q", name))
	}
	return heed.NewClient(v.transport(s))
}

// newRetryable returns a go-retryablehttp client with its defaults.
func newRetryable(base http.RoundTripper) *retryablehttp.Client {
	c := retryablehttp.NewClient()
	c.Logger = nil
	c.HTTPClient = &http.Client{Transport: base}
	return c
}

// safeRetries is go-retryablehttp with a retry policy for reads and another for writes.
type safeRetries struct{ reads, writes *retryablehttp.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (r safeRetries) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodPost {
		return r.writes.RoundTrip(req)
	}
	return r.reads.RoundTrip(req)
}

// retryRejected is the retry policy of go-retryablehttp for 429, and no other outcome.
func retryRejected(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if resp == nil || resp.StatusCode != http.StatusTooManyRequests {
		return false, nil
	}
	return retryablehttp.DefaultRetryPolicy(ctx, resp, err)
}

// A Reason is how a call ended.
type Reason uint8

// The reasons.
const (
	OK         Reason = iota
	BadStatus         // the response has a status that is not the right one
	Connection        // the last attempt got no response
	Deadline          // the deadline passed while an attempt was in flight or after attempts
	Unsent            // the call ended before anything was sent
	NotMade           // the run ended before the call
)

// String returns a name.
func (r Reason) String() string {
	return [...]string{"ok", "status", "connection", "deadline", "unsent", "not made"}[r]
}

// A Result is the outcome of a call.
type Result struct {
	Start    time.Duration // since the start of the world
	Duration time.Duration
	Status   int16 // of the response; zero means that there was none
	Reason   Reason
}

// OK reports whether the call got the right response.
func (r Result) OK() bool { return r.Reason == OK }

// A Run is what a client did in a world.
type Run struct {
	World    *World
	Client   string
	Results  []Result // by the number of the call
	Waits    []Waits  // by the number of the call; nil: the client does not tell
	Attempts []Attempt
	Elapsed  time.Duration // until the last call has ended
	Cut      bool          // the run was ended early: too many attempts or too much time
	Memory   *Memory       // of the tracker; nil: the client has none
}

// Run makes the calls of w with the client of a name. It must be called in virtual time.
func (w *World) Run(name string) *Run {
	return w.run(name, func(s *Server) *http.Client { return newClient(name, s) })
}

// RunClient makes the calls of w with a client over a transport to its server. It must be
// called in virtual time.
func (w *World) RunClient(name string, client func(base http.RoundTripper) *http.Client) *Run {
	return w.run(name, func(s *Server) *http.Client { return client(s) })
}

func (w *World) run(name string, client func(*Server) *http.Client) *Run {
	time.Sleep(w.Start)
	s := newServer(w)
	r := &runner{w: w, s: s, client: client(s), results: make([]Result, len(w.calls))}
	if w.Load.ClientTimeout {
		r.client.Timeout = w.Load.Deadline
	}
	if w.Load.Callers > 0 {
		r.closed()
	} else {
		r.open()
	}
	kept := s.memory.end(w)
	s.mu.Lock()
	defer s.mu.Unlock()
	run := &Run{Memory: kept, World: w, Client: name, Results: r.results, Waits: s.waits.calls, Attempts: s.attempts, Cut: s.closed}
	for _, result := range r.results {
		run.Elapsed = max(run.Elapsed, result.Start+result.Duration)
		run.Cut = run.Cut || result.Reason == NotMade
	}
	return run
}

// A runner makes the calls of a world.
type runner struct {
	w       *World
	s       *Server
	client  *http.Client
	results []Result
}

// open makes each call at its time.
func (r *runner) open() {
	var calls sync.WaitGroup
	for i, c := range r.w.calls {
		if d := c.at - r.s.at(); d > 0 {
			time.Sleep(d)
		}
		calls.Go(func() { r.call(i) })
	}
	calls.Wait()
}

// closed makes the calls from workers.
func (r *runner) closed() {
	var workers sync.WaitGroup
	var next atomic.Int64
	for range r.w.Load.Callers {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(r.w.calls); i = int(next.Add(1)) - 1 {
				if d := r.w.calls[i].at - r.s.at(); d > 0 {
					time.Sleep(d)
				}
				ok := r.call(i)
				pause := r.w.thinking(i)
				if !ok {
					pause = max(pause, r.afterFailure(i))
				}
				if pause > 0 {
					time.Sleep(pause)
				}
			}
		})
	}
	workers.Wait()
}

// afterFailure returns the time after a failed call of a worker.
func (r *runner) afterFailure(i int) time.Duration {
	l := r.w.Load
	if l.Steady {
		return max(l.Pause, l.Deadline-r.results[i].Duration)
	}
	return l.Pause
}

// call makes call i and reports whether it succeeds.
func (r *runner) call(i int) bool {
	w, start := r.w, r.s.at()
	result := &r.results[i]
	result.Start = start
	if start >= w.horizon() {
		result.Reason = NotMade
		return false
	}
	ctx, cancel := context.WithCancel(withCall(context.Background(), i))
	if d := w.Load.Deadline; d > 0 && !w.Load.ClientTimeout {
		cancel()
		ctx, cancel = context.WithTimeout(withCall(context.Background(), i), d)
	}
	defer cancel()
	if w.Load.Deadline == 0 {
		defer time.AfterFunc(min(w.patience(), w.horizon()-start), cancel).Stop()
	}
	status, err := r.do(w.request(i).WithContext(ctx))
	result.Duration, result.Status = r.s.at()-start, int16(status)
	result.Reason = r.reason(i, status, err, result.Duration)
	return result.OK()
}

// do makes a request and reads its response.
func (r *runner) do(req *http.Request) (status int, err error) {
	resp, err := r.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

func (r *runner) reason(call, status int, err error, took time.Duration) Reason {
	deadline := r.w.Load.Deadline
	switch {
	case err == nil && (status < 400 || status == r.w.rightStatus(call)):
		return OK
	case err == nil:
		return BadStatus
	case r.attempts(call) == 0:
		return Unsent
	case deadline > 0 && took >= deadline, errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Deadline
	}
	return Connection
}

// attempts returns the number of attempts of a call.
func (r *runner) attempts(call int) int {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return int(r.s.sent[call])
}

// thinking returns the time between call i of a worker and the next.
func (w *World) thinking(i int) time.Duration {
	if w.Load.Thinking == 0 {
		return 0
	}
	return time.Duration(exponential(w.uniform(forThinking, i, 0)) * float64(w.Load.Thinking))
}
