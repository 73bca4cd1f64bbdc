package worlds

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Cause is what determined the response of an attempt.
type Cause uint8

// The causes of responses.
const (
	Served     Cause = iota // the request was processed
	ByLimit                 // rejected by the limit
	ByTrouble               // failed or rejected by a Trouble
	ByOverload              // failed beyond the capacity
	Cancelled               // the caller ended the attempt before the response
)

// An Attempt is one request that the server received. Times are since the start of the
// world.
type Attempt struct {
	Call   int32
	Number int32 // 1 for the first of the call
	Status int16 // of the response; negative for a connection error; zero if there was none
	Cause  Cause

	// Rejected is set if the response is a rejection in the sense of the tracker: a 429, a
	// 503 with Retry-After, or a response that states a limit that was exceeded.
	Rejected bool

	Sent, Done time.Duration

	// RetryAfter is the time until which the Retry-After header of a rejection asks to wait,
	// and Reset the time at which a limit of which nothing is left is reset, by the headers of
	// a rejection. Zero means that it states none.
	RetryAfter, Reset time.Duration
}

// A Server is the server of a World. It is an http.RoundTripper, in virtual time.
type Server struct {
	w     *World
	start time.Time

	mu       sync.Mutex
	attempts []Attempt
	sent     []int32 // attempts of each call
	inFlight int
	limiters map[int]*limiter
	stated   map[[2]int]int // requests in the scopes of World.Stated
	date     string         // the Date header at dateAt
	dateAt   int64
	closed   bool // the number of attempts is exceeded
	waits    recorder
	memory   memory
}

// newServer returns the server of w. The world begins now.
func newServer(w *World) *Server {
	return &Server{
		w: w, start: time.Now(), sent: make([]int32, len(w.calls)), attempts: make([]Attempt, 0, len(w.calls)*5/4),
		limiters: map[int]*limiter{}, stated: map[[2]int]int{}, waits: recorder{n: len(w.calls)},
	}
}

type callKey struct{}

// withCall returns a context that tells the server the number of the call.
func withCall(ctx context.Context, call int) context.Context {
	return context.WithValue(ctx, callKey{}, call)
}

var (
	errCancelled = errors.New("net/http: request canceled")
	errClosed    = errors.New("worlds: too many attempts")
)

// RoundTrip implements http.RoundTripper.
func (s *Server) RoundTrip(req *http.Request) (*http.Response, error) {
	return s.roundTrip(req, false)
}

// roundTrip sends req. granted means that the limit has already counted it.
func (s *Server) roundTrip(req *http.Request, granted bool) (*http.Response, error) {
	call := req.Context().Value(callKey{}).(int)
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	s.memory.sample()
	i, number, err := s.begin(call)
	if err != nil {
		return nil, err
	}
	if err := wait(req, s.w.late(call, number)); err != nil {
		s.arrive(i, call, number, granted).cancel(s) // the server receives it nevertheless
		return nil, err
	}
	v := s.arrive(i, call, number, granted)
	v.end = s.at() + v.delay
	if err := wait(req, v.delay); err != nil {
		v.cancel(s)
		return nil, err
	}
	s.finish(v)
	if v.status < 0 {
		return nil, connectionError(v.status, s.w.hash(forFault, call, number))
	}
	return v.response(req), nil
}

// wait waits for d, or until the caller ends the request, and then returns an error.
func wait(req *http.Request, d time.Duration) error {
	ctx := req.Context()
	if err := ctx.Err(); err != nil {
		return err
	}
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-req.Cancel: //nolint:staticcheck // http.Client.Timeout uses it for a RoundTripper that is not its own
		return errCancelled
	}
}

// A verdict is what the server does with an attempt.
type verdict struct {
	attempt  int // index
	delay    time.Duration
	end      time.Duration // of the processing, since the start of the world
	status   int
	header   http.Header
	body     string
	cause    Cause
	rejected bool
	until    time.Duration // of the Retry-After header of a rejection
	reset    time.Duration // that the headers of a rejection state
	limiter  *limiter      // that the request leaves when it ends; nil means none
	state    func()        // adds the headers that state a limit when the request has been processed; nil means none
	occupies bool          // the request counts as in flight
}

// begin records that an attempt of call was sent.
func (s *Server) begin(call int) (index, number int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.attempts) >= s.w.maxAttempts() {
		s.closed = true
		return 0, 0, errClosed
	}
	s.sent[call]++
	s.attempts = append(s.attempts, Attempt{Call: int32(call), Number: s.sent[call], Sent: s.at()})
	return len(s.attempts) - 1, int(s.sent[call]), nil
}

// at returns the time since the start of the world.
func (s *Server) at() time.Duration { return time.Since(s.start) }

// unix returns a time since 1970.
func (s *Server) unix(at time.Duration) time.Duration {
	return time.Duration(s.start.UnixNano()) + at
}

// arrive decides what happens to an attempt that the server receives now.
func (s *Server) arrive(index, call, number int, granted bool) *verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, at := s.w, s.at()
	v := &verdict{attempt: index, status: http.StatusOK, delay: w.latency(call, number, at), header: s.newHeader(at)}
	l := s.limiter(call, number)
	if l != nil && !granted && !l.admit(s.unix(at)) {
		s.reject(v, l, at)
		return v
	}
	if w.Limit != nil && w.Limit.Kind == InFlight {
		v.limiter = l
	}
	s.inFlight++
	v.occupies = true
	if s.trouble(v, call, number, at) {
		return v
	}
	if right := w.rightStatus(call); right != 0 {
		v.status = right
		v.body = body(right, call)
		return v
	}
	if over := w.Latency.Capacity; over > 0 && s.inFlight > over {
		v.delay = time.Duration(float64(v.delay) * float64(s.inFlight) / float64(over))
		if w.uniform(forOverload, call, number) < w.Latency.Failing {
			s.overload(v, call)
			return v
		}
	}
	v.body = body(http.StatusOK, 0)
	if w.LateState {
		v.state = func() { s.state(v, l, call, number, s.at()) }
	} else {
		s.state(v, l, call, number, at)
	}
	return v
}

// newHeader returns the header fields that all responses have.
func (s *Server) newHeader(at time.Duration) http.Header {
	if second := int64((s.unix(at) + s.w.Skew) / time.Second); second != s.dateAt {
		s.dateAt, s.date = second, time.Unix(second, 0).UTC().Format(http.TimeFormat)
	}
	values := [...]string{s.date, "application/json"}
	return http.Header{"Date": values[0:1:1], "Content-Type": values[1:2:2]}
}

// limiter returns the state of the limit that applies to an attempt, or nil.
func (s *Server) limiter(call, number int) *limiter {
	if s.w.Limit == nil {
		return nil
	}
	n := s.w.limiterNumber(call, number)
	state := s.limiters[n]
	if state == nil {
		state = s.w.newLimiter(n, s.unix(s.at()))
		s.limiters[n] = state
	}
	return state
}

// limiterNumber returns a number for what shares the limit with an attempt.
func (w *World) limiterNumber(call, number int) int {
	n := 0
	switch w.Limit.Scope {
	case PerTenant:
		n = int(w.calls[call].tenant)
	case PerRoute:
		n = int(w.calls[call].route)
	}
	return n*w.Limit.Backends + w.backend(call, number, w.Limit.Backends)
}

// reject makes v the rejection of a limit.
func (s *Server) reject(v *verdict, l *limiter, at time.Duration) {
	w, limit, now := s.w, s.w.Limit, s.unix(at)
	v.cause, v.rejected, v.status = ByLimit, true, limit.Status
	v.delay = time.Duration(float64(v.delay) * limit.Quick)
	v.body = body(limit.Status, limit.Body)
	next := l.next(now)
	_, reset := l.meter.state(now)
	if stated := limit.Dialect.write(v.header, limit.Count, 0, limit.Window, now+w.Skew, max(reset, next)+w.Skew); stated > 0 {
		v.reset = stated - s.unix(max(w.Skew, 0)) // a client may or may not correct the clock
	}
	if banned := l.ban.until > now; limit.Retry && !banned || limit.Ban.Stated && banned {
		seconds := limit.Dialect.Rounding.round(next - now)
		if limit.Kind == InFlight && !banned {
			seconds = 1
		}
		v.header["Retry-After"] = []string{strconv.FormatInt(seconds, 10)}
		v.until = at + time.Duration(seconds)*time.Second
	}
	if limit.Status == http.StatusServiceUnavailable && v.until == 0 && limit.Dialect.Headers == NoHeaders {
		v.rejected = false // a bare 503 is a failure
	}
	v.delay = min(v.delay, w.Latency.Median)
}

// state adds the headers that state a limit to an accepted request.
func (s *Server) state(v *verdict, l *limiter, call, number int, at time.Duration) {
	now := s.unix(at)
	if l != nil && s.w.Limit.Dialect.Headers != NoHeaders {
		limit := s.w.Limit
		remaining, reset := l.meter.state(now)
		if !limit.Dialect.OnlyLow || remaining*5 < limit.Count {
			limit.Dialect.write(v.header, limit.Count, remaining, limit.Window, now+s.w.Skew, reset+s.w.Skew)
		}
	}
	if stated := s.w.Stated; stated != nil {
		scope := stated.scope(s.w.calls[call], now)
		stated.write(s.w, v.header, call, number, s.stated[scope], at, now+s.w.Skew)
		s.stated[scope]++
	}
}

// trouble reports whether a Trouble affects an attempt, and makes v its response.
func (s *Server) trouble(v *verdict, call, number int, at time.Duration) bool {
	for n := range s.w.Troubles {
		t := &s.w.Troubles[n]
		if t.Permission {
			continue
		}
		end, ok := t.active(at)
		if !ok || !s.w.affects(t, n, call, number) {
			continue
		}
		v.cause, v.status, v.rejected = ByTrouble, t.Status, t.Rejects()
		v.delay = time.Duration(float64(v.delay) * t.Slow)
		if t.Status > 0 {
			v.body = body(t.Status, t.Body)
		}
		s.retryAfter(v, t, at, end)
		return true
	}
	return false
}

// retryAfter adds the Retry-After header of t.
func (s *Server) retryAfter(v *verdict, t *Trouble, at, end time.Duration) {
	value, until := "", time.Duration(0)
	switch t.Retry {
	case NoRetryAfter:
		return
	case AfterSeconds:
		value, until = strconv.Itoa(t.Seconds), at+time.Duration(t.Seconds)*time.Second
	case AfterEnd:
		seconds := Up.round(end - at)
		value, until = strconv.FormatInt(seconds, 10), at+time.Duration(seconds)*time.Second
	case AfterDate:
		date := (s.unix(at) + s.w.Skew + time.Duration(t.Seconds)*time.Second).Truncate(time.Second)
		value, until = time.Unix(0, int64(date)).UTC().Format(http.TimeFormat), date-s.unix(max(s.w.Skew, 0))
	case AfterPast:
		value = time.Unix(0, int64(s.unix(at))).Add(-time.Hour).UTC().Format(http.TimeFormat)
	case AfterText:
		value = "soon"
	}
	v.header["Retry-After"] = []string{value}
	if v.rejected {
		v.until = until
	}
}

// overload makes v the response of a server beyond its capacity.
func (s *Server) overload(v *verdict, call int) {
	v.cause, v.status = ByOverload, s.w.Latency.OverloadStatus
	if v.status == 0 {
		v.status = Reset
	}
	v.rejected = v.status == http.StatusTooManyRequests
	if v.status > 0 {
		v.body = body(v.status, call)
	}
}

// finish adds the header fields that v gets when it has been processed, and records that the response has reached the caller.
func (s *Server) finish(v *verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.w.LateDate {
		v.header["Date"] = s.newHeader(s.at())["Date"]
	}
	if v.state != nil {
		v.state()
	}
	a := &s.attempts[v.attempt]
	a.Done, a.Status, a.Cause, a.Rejected, a.RetryAfter, a.Reset = s.at(), int16(v.status), v.cause, v.rejected, v.until, v.reset
	s.leave(v)
}

// cancel records that the caller has ended the attempt before its response.
func (v *verdict) cancel(s *Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &s.attempts[v.attempt]
	a.Done, a.Cause = s.at(), Cancelled
	if left := v.end - s.at(); s.w.Unnoticed && left > 0 && (v.occupies || v.limiter != nil) {
		time.AfterFunc(left, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.leave(v)
		})
		return
	}
	s.leave(v)
}

// leave ends the processing of a request.
func (s *Server) leave(v *verdict) {
	if v.occupies {
		s.inFlight--
	}
	if v.limiter != nil {
		v.limiter.leave()
		s.grantWaiting(v.limiter)
	}
}

// response returns the response of v.
func (v *verdict) response(req *http.Request) *http.Response {
	return &http.Response{
		Status: strconv.Itoa(v.status) + " " + http.StatusText(v.status), StatusCode: v.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: v.header, Body: io.NopCloser(strings.NewReader(v.body)), ContentLength: int64(len(v.body)), Request: req,
	}
}
