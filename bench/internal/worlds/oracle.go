package worlds

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// An oracle is a client that knows the limit of its world. It sends a request when the
// limit accepts it, in the order of the calls, and drops a call when it is too late for a
// response before the deadline. Workers get the error at the deadline, because they would
// otherwise make more calls that fail. The oracle retries failures that no limit has caused,
// like go-retryablehttp, but a POST only after a 429.
type oracle struct{ s *Server }

var errTooLate = errors.New("worlds: the limit does not accept the request before its deadline")

const (
	oracleAttempts   = 5
	oracleBackoff    = time.Second
	oracleMaxBackoff = 30 * time.Second
)

// RoundTrip implements http.RoundTripper.
func (o oracle) RoundTrip(req *http.Request) (*http.Response, error) {
	call := req.Context().Value(callKey{}).(int)
	began := time.Now()
	for attempt := 1; ; attempt++ {
		if err := o.s.acquire(req, call, attempt, began); err != nil {
			if l := o.s.w.Load; l.Callers > 0 && l.Deadline > 0 {
				_ = wait(req, l.Deadline-time.Since(began))
			}
			return nil, err
		}
		resp, err := o.s.roundTrip(withBody(req, attempt), true)
		if attempt == oracleAttempts || !retryable(req, resp, err) {
			return resp, err
		}
		delay := min(oracleBackoff<<(attempt-1), oracleMaxBackoff)
		if resp != nil {
			if d, ok := parseRetryAfter(resp.Header.Get("Retry-After")); ok {
				delay = d
			}
		}
		if d := o.s.w.Load.Deadline; d > 0 && time.Since(began)+delay > d {
			return resp, err
		}
		if resp != nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		if err := wait(req, delay); err != nil {
			return nil, err
		}
	}
}

// withBody returns req with a body that was not read.
func withBody(req *http.Request, attempt int) *http.Request {
	if attempt == 1 || req.GetBody == nil {
		return req
	}
	again := req.WithContext(req.Context())
	again.Body, _ = req.GetBody()
	return again
}

// retryable reports whether an attempt may be repeated. A POST may have been processed,
// unless it was rejected with 429.
func retryable(req *http.Request, resp *http.Response, err error) bool {
	if req.Context().Err() != nil {
		return false
	}
	if resp != nil && resp.StatusCode == http.StatusTooManyRequests {
		return true
	}
	return req.Method != http.MethodPost && (err != nil || resp.StatusCode >= 500)
}

// parseRetryAfter returns the delay that a Retry-After header states.
func parseRetryAfter(value string) (time.Duration, bool) {
	if value == "" {
		return 0, false
	}
	if d, err := time.ParseDuration(value + "s"); err == nil && d >= 0 {
		return d, true
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(time.Until(at), 0), true
	}
	return 0, false
}

// A queue holds the requests that wait for a limiter, in the order in which they began to.
type queue struct {
	waiters []*waiter
	wake    time.Duration // the time of the next timer, since 1970; zero means none
}

// A waiter is a request that waits for a limiter.
type waiter struct {
	granted chan bool     // false means that it cannot be granted in time
	latest  time.Duration // time since 1970 after which it is too late; zero means never
	gone    bool          // the caller has ended it
}

// acquire waits until the limit of an attempt accepts it, and counts it.
func (s *Server) acquire(req *http.Request, call, attempt int, began time.Time) error {
	s.mu.Lock()
	l := s.limiter(call, int(s.sent[call])+1)
	if l == nil {
		s.mu.Unlock()
		return nil
	}
	n := &waiter{granted: make(chan bool, 1)}
	if d := s.w.Load.Deadline; d > 0 {
		needed := min(s.w.Latency.typical(), d*19/20)
		n.latest = time.Duration(began.UnixNano()) + d - needed
	}
	l.waiting.waiters = append(l.waiting.waiters, n)
	s.grantWaiting(l)
	s.mu.Unlock()
	select {
	case ok := <-n.granted:
		if !ok {
			return errTooLate
		}
		return nil
	case <-req.Context().Done():
	case <-req.Cancel: //nolint:staticcheck // see wait
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n.gone = true
	return context.Cause(req.Context())
}

// grantWaiting grants the requests that l accepts now, ends those that it cannot accept in
// time, and sets a timer for the others.
func (s *Server) grantWaiting(l *limiter) {
	q := &l.waiting
	for len(q.waiters) > 0 {
		first, now := q.waiters[0], s.unix(s.at())
		next := l.next(now)
		switch {
		case first.gone:
		case next <= now && l.admit(now):
			first.granted <- true
		case first.latest > 0 && now > first.latest:
			first.granted <- false
		default:
			if first.latest > 0 {
				next = min(next, first.latest+time.Microsecond)
			}
			s.wakeAt(l, max(next, now+time.Microsecond), now)
			return
		}
		q.waiters = q.waiters[1:]
	}
}

// wakeAt calls grantWaiting at a time since 1970.
func (s *Server) wakeAt(l *limiter, at, now time.Duration) {
	q := &l.waiting
	if q.wake > now && q.wake <= at {
		return
	}
	q.wake = at
	time.AfterFunc(at-now, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if q.wake == at {
			q.wake = 0
		}
		s.grantWaiting(l)
	})
}
