package throttlehttp

import (
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/heed-go/heed/internal/queuelink"
	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// A Middleware is an HTTP middleware that serves a request with the next handler or
// rejects it:
//
//	request ─▶ collect demands ─▶ Reserve, or wait ─┬─ granted ─────▶ next ─▶ Report
//	           Limiter, Rules,    in Queue          ├─ rejected ────▶ 429, Retry-After
//	           Limits                               └─ no decision ─▶ FailClosed?
//
// Every response reports the state of the limits, so that a client can stay within them
// without being rejected first. [Middleware.Handler] lists the headers.
//
// The zero Middleware serves all requests. Its fields must not be changed after Handler
// has been called.
type Middleware struct {
	// Limiter is one limit that all requests share; each request costs one unit. It is
	// shorthand for a Rule that sets only Limiter. Nil means no such limit.
	Limiter throttle.Limiter

	// Rules are limits with keys and costs. Nil means no rules.
	Rules []Rule

	// Limits is a function that adds further demands of a request to the ticket. It has
	// the same type as heed.Transport.Limits, so one function can serve both. It must not
	// retain the ticket, which is reused. After an error the request is rejected with 503,
	// also if FailClosed is false, and Trace.Failed is called. Nil means no further
	// demands.
	//
	// A request must pass all demands of Limiter, Rules and Limits; if one rejects it, no
	// units are taken from the others.
	Limits func(*http.Request, *queue.Ticket) error

	// Queue delays requests instead of rejecting them, in a fair queue for each limit
	// and key. MaxWait is the longest delay, MaxPerClass the maximum number of requests in
	// one queue, and MaxTotal the maximum in all queues, including those of other users of
	// the Queue. A request is rejected immediately if its queue is full, or if its limit will
	// not grant it within MaxWait. Zero means a MaxWait of 1 minute and a MaxTotal of 1,024,
	// and a MaxPerClass of 64 for each key of a limit, so that one client cannot take all
	// places; a negative value means no bound. Nil means that no request is delayed.
	//
	// A request leaves the queue when its client disconnects. A server of net/http notices
	// that only after the body of the request has been read. Therefore a body of HTTP/1 of up
	// to 64 KiB is read into memory before its request waits, for as long as the ReadTimeout
	// of the server permits; a request with another body stays until MaxWait.
	//
	// The equivalent of burst=20 in nginx is a TokenBucket with Burst 1 and a MaxPerClass
	// of 20. Waiting requests take no units in advance.
	Queue *queue.Queue

	// Dialect is the set of headers that report the state of the limits. Zero means
	// headers.XRateLimit and headers.XResetAfter, because a bucket may be full again after
	// less than a second. headers.Draft10 sends the names of limits (Decision.Policy) to
	// clients. headers.XRetryAfter alone reports only when to retry.
	Dialect headers.Dialect

	// RetryAfterJitter is the maximum random delay that is added to Retry-After, so that
	// rejected clients do not all retry at the same time. The wait is never shortened.
	// Zero or less means no jitter.
	RetryAfterJitter time.Duration

	// OnReject responds to rejected requests; RejectionFrom returns the reason. The headers
	// about limits are already set and may be changed. Nil means Rejection.ServeHTTP.
	OnReject http.Handler

	// FailClosed is what happens to a request when a limiter returns an error, usually
	// because its store is unavailable: false serves the request without a limit, true
	// responds with status 503. The default is false so that an outage of the store does
	// not become an outage of the service; Trace.Failed reports each such request. To
	// keep a limit during an outage, combine the limiter with a local one in a
	// throttle.NewFallback.
	//
	// The request is never served without a limit if its client can cause the failure: the
	// client has disconnected, the cost is negative, or the store timed out when less than
	// a second was left until the deadline of the request. The same holds if Queue is
	// closed. Limiters of this module reject keys that clients make up and return no error
	// for them; see Source of package rules/source.
	// A flood of requests can still overload a store: limits that protect against floods
	// should be local, or have a local Fallback.
	FailClosed bool

	// Trace holds functions that are called on decisions and failures. Nil means none.
	Trace *Trace
}

// A Trace is a set of functions that a Middleware calls on the goroutine of the request.
// Nil functions are not called. The functions must not keep the request.
type Trace struct {
	// Decided is called once for each decision about a request, granted or rejected. If
	// several limits granted the request, d is the decision of the one with the fewest
	// such requests left, and OverLimit and Degraded are true if they are for any of the
	// limits. If no limit rejected the request, d.Policy is the reason: see Rejection.
	Decided func(r *http.Request, d throttle.Decision)

	// Failed is called when Limits returned an error, or a limiter returned one instead of
	// a decision. open is true if the request is served nevertheless.
	Failed func(r *http.Request, err error, open bool)
}

// Handler returns a handler that limits the requests to next. It panics if m has an invalid
// Rule, or a limiter that lacks what it needs, such as a keyed.Limiter without New.
//
// With the default Dialect, responses carry X-RateLimit-Limit (the most units that can be
// had immediately), X-RateLimit-Remaining, X-RateLimit-Reset (whole seconds until Remaining
// equals Limit again) and X-RateLimit-Reset-After (the same with three decimals). They
// describe the limit that rejected the request, or else the one with the fewest such
// requests left; headers.Draft10 reports all limits. Reset is a delay and not a date, so
// that it does not depend on clocks. A rejection carries Retry-After in whole seconds. Reset
// and Retry-After are rounded up, so that a client that waits that long is not early. There
// is no Retry-After if waiting does not help or the time is unknown.
//
// next receives the ResponseWriter of the server itself, unless a Rule has a FinalCost: then
// it receives a wrapper that supports the same optional interfaces. The outcome is reported
// to the limits once, when next returns or panics; a hijacked connection counts as in use
// until the handler returns.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	if m.Limiter != nil {
		m.Limiter.Traits() // panics now, and not at the first request, if it lacks what it needs
	}
	for i := range m.Rules {
		m.Rules[i].check(i)
	}
	if m.Queue != nil {
		queuelink.SetDefaults(m.Queue, defaultMaxTotal, defaultMaxWait)
	}
	waiting := new(waitingKeys)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := requestStates.Get().(*requestState)
		switch ok, err := m.addDemands(r, p); {
		case err != nil:
			p.release()
			m.fail(w, r, err)
			return
		case !ok:
			p.release()
			m.reject(w, r, &missingKey)
			return
		}
		d, err := p.reserve(m, waiting, r)
		if err == nil && d.OK {
			p.serve(m, w, r, next)
			return
		}
		p.release()
		if err != nil {
			m.handleFailure(w, r, err, next)
		} else {
			f := rejectionOf(&d)
			m.reject(w, r, &f)
		}
	})
}

// addDemands adds the demands of r to p. It returns false if a Rule rejects r. The error is
// that of Limits.
func (m *Middleware) addDemands(r *http.Request, p *requestState) (ok bool, err error) {
	if m.Limiter != nil {
		p.addDemand(throttle.Demand{Limiter: m.Limiter}, nil)
	}
	for i := range m.Rules {
		if !p.add(&m.Rules[i], r) {
			return false, nil
		}
	}
	p.ticket.Demands = p.demandSpace
	if m.Limits != nil {
		err = m.Limits(r, &p.ticket)
		p.demandSpace = append(p.demandSpace[:0], p.ticket.Demands...) // the hook may have assigned a slice of its own
		p.ticket.Demands = p.demandSpace
	}
	return err == nil, err
}

// reject responds to a request that was rejected with f.
func (m *Middleware) reject(w http.ResponseWriter, r *http.Request, f *Rejection) {
	m.traceDecision(r, f.Decision)
	h := w.Header()
	hasOthers := len(h) > 0
	m.writeRejected(h, &f.Decision)
	switch {
	case m.OnReject != nil:
		m.OnReject.ServeHTTP(w, f.attachTo(r))
	case hasOthers:
		f.ServeHTTP(w, r)
	default:
		f.write(w, r)
	}
}

// handleFailure serves or rejects a request for which a limiter returned an error. The error
// may contain the names of hosts and stores, so it is passed to the Trace and never to the
// client.
func (m *Middleware) handleFailure(w http.ResponseWriter, r *http.Request, err error, next http.Handler) {
	if m.FailClosed || causedByRequest(r, err) || errors.Is(err, queue.ErrClosed) {
		m.fail(w, r, err)
		return
	}
	if m.Trace != nil && m.Trace.Failed != nil {
		m.Trace.Failed(r, err, true)
	}
	next.ServeHTTP(w, r)
}

// fail rejects a request because of err, which it passes to the Trace.
func (m *Middleware) fail(w http.ResponseWriter, r *http.Request, err error) {
	if m.Trace != nil && m.Trace.Failed != nil {
		m.Trace.Failed(r, err, false)
	}
	unavailable.ServeHTTP(w, r)
}

// minTimeLeft is the time that must be left until the deadline of a request when a store has
// timed out for the store to be the cause: stores get at most half of the time that is left.
const minTimeLeft = time.Second

// causedByRequest reports whether the client caused the error of a limiter: it has
// disconnected, its request has a negative cost, or its deadline is too short for a store
// to respond.
func causedByRequest(r *http.Request, err error) bool {
	if r.Context().Err() != nil || errors.Is(err, throttle.ErrCost) || errors.Is(err, errBody) {
		return true
	}
	var timeout net.Error
	deadline, ok := r.Context().Deadline()
	return ok && errors.As(err, &timeout) && timeout.Timeout() && time.Until(deadline) < minTimeLeft
}

func (m *Middleware) traceDecision(r *http.Request, d throttle.Decision) {
	if m.Trace != nil && m.Trace.Decided != nil {
		m.Trace.Decided(r, d)
	}
}
