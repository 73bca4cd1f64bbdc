package throttlehttp

import (
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// A Middleware lets a request through to the next handler, or refuses it:
//
//	request ─▶ what must it pass? ─▶ Reserve, or wait ─┬─ granted ─▶ next ─▶ Settle, Observe
//	           Limiter, Rules,       in line           ├─ refused ─▶ 429, Retry-After
//	           Limits                                  └─ no decision ─▶ FailClosed?
//
// Every answer says how the limit stands, so that a client can stay inside it
// and need not find it by being refused. See [Middleware.Handler] for the words.
//
// What limits do is said by limiters, not by fields of this struct: throttle.Concurrency
// bounds what is served at a time, throttle.Shadow tries a limit out, throttle.SoftLimit
// and Elastic lend, keyed.Ban shuts out who does not heed refusals.
//
// The zero Middleware lets everything through. Fields must not change after
// Handler was called.
type Middleware struct {
	// Limiter is one limit that all requests share, at one unit each. It is a
	// shorthand for a Rule with nothing else. Nil: none.
	Limiter throttle.Limiter

	// Rules are limits with keys and prices. Nil: none.
	Rules []Rule

	// Limits adds in code what a request must pass. The hook has the shape of the
	// client's, so one function can serve both. It must not keep the ticket. Nil: nothing.
	//
	// A request passes all that Limiter, Rules and Limits ask for, or takes nothing.
	// That may be queue.MaxDemands limits; for more, nest a second Middleware.
	Limits func(*http.Request, *queue.Ticket)

	// Queue delays requests instead of rejecting them, in a fair queue for each limit
	// and key. Its bounds: MaxWait is the longest delay, MaxLine the most requests in one
	// queue, and MaxAll the most in all queues, together with all others that share the
	// Queue. A request that finds a queue full, or a limit that is closed for longer than
	// MaxWait, is rejected immediately. A MaxAll of zero means 1,024, because Handler calls
	// SetDefaultMaxTotal; a negative one means no bound.
	//
	// A client that leaves gives up its place. A server of net/http notices that only once
	// the body of the request was read, so MaxWait ends the others. Nil means that no
	// request is delayed.
	//
	// What nginx calls burst=20 is a TokenBucket with Burst 1 and a MaxLine of 20.
	// Limiters are not asked to book ahead, as LeakyBucket could: a booking is lost when
	// the client leaves or another limit has closed meanwhile.
	Queue *queue.Queue

	// Dialect is how answers say how the limits stand. 0: headers.XRateLimit and
	// XResetAfter, since a bucket may be full again long before a second is over.
	// With headers.Draft10 the names of limits (Decision.Policy) are seen by clients.
	// With headers.XRetryAfter alone, nothing is said but when to come back.
	Dialect headers.Dialect

	// RetryAfterJitter is how much later than necessary a refused client may be told to come
	// back: each by a random part of it, so that they do not come together. Nobody is
	// told to come earlier than would be of use. 0: not at all.
	RetryAfterJitter time.Duration

	// OnReject answers a request that was refused; RejectionFrom tells it why. The headers
	// are set by then, and may be changed. Nil: Rejection.ServeHTTP.
	OnReject http.Handler

	// FailClosed decides what happens to a request when a limiter returns an error, mostly
	// because the store that it asks is down: false serves the request without limit, true
	// responds with status 503. It fails open by default because the service would be down
	// with the store otherwise; Trace.Failed reports each such request. To keep a limit
	// meanwhile, put the limiter into a throttle.Fallback with a local one.
	//
	// Failures that a client can cause at will never let a request through: a client that
	// has left, a cost below zero, a timeout of the store when less than a second is left
	// until the deadline of the request. Neither does a Queue that is closed. Limiters of this module
	// reject keys that clients invent and return no error for them, see Source of package
	// rules/source.
	// Still, a flood of requests can overload a store: limits that protect against floods
	// should be local, or have a Fallback that is.
	FailClosed bool

	// Trace is told what happens. Nil: nobody is.
	Trace *Trace
}

// A Trace is a set of functions that are called, each if it is not nil, on the
// goroutine of the request. They must not keep the request.
type Trace struct {
	// Decided is called once for each decision on a request, granted or not. If
	// several limits granted, d is that of the one with the fewest such requests left,
	// Over and Degraded if any of them was. If it was no limit that refused, d.Policy
	// says why, see Refusal.
	Decided func(r *http.Request, d throttle.Decision)

	// Failed is called when no decision was reached. open says whether the
	// request was let through all the same.
	Failed func(r *http.Request, err error, open bool)
}

// Handler returns a handler that limits what reaches next. It panics if m can never
// work.
//
// Answers carry X-RateLimit-Limit (the most requests at once), -Remaining and
// -Reset (whole seconds until Remaining is Limit again), of the limit that
// refused, or else of the one that is nearest to it; Draft10 has room for all.
// Reset is a delay and not a date, so that nobody's clock matters. A refusal
// carries Retry-After in whole seconds. Both are rounded up, so that who waits
// that long is not early. There is no Retry-After if waiting does not help or
// the time is not known.
//
// next gets the ResponseWriter of the server itself, with all that it can do. Only if
// a Rule has a Settle is there another in between, which can do the same.
// When next returns or panics, the limits are told once; a hijacked connection
// counts as in use until the handler returns.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	m.check()
	if m.Queue != nil {
		m.Queue.SetDefaultMaxTotal(defaultMaxTotal)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := requestStates.Get().(*requestState)
		if !m.addDemands(r, p) {
			p.release()
			m.reject(w, r, missingKey)
			return
		}
		d, err := p.reserve(m, r)
		if err == nil && d.OK {
			p.serve(m, w, r, next)
			return
		}
		p.release()
		if err != nil {
			m.handleFailure(w, r, err, next)
		} else {
			m.reject(w, r, rejectionOf(d))
		}
	})
}

// defaultMaxTotal is how many requests a Queue without a MaxTotal delays at a time: the default
// of Envoy's circuit breakers for pending requests.
const defaultMaxTotal = 1024

// check panics if m can never work.
func (m *Middleware) check() {
	n := len(m.Rules)
	if m.Limiter != nil {
		n++
	}
	if n > queue.MaxDemands {
		panic("throttlehttp: Middleware: " + strconv.Itoa(n) + " limits: a request can pass " +
			strconv.Itoa(queue.MaxDemands) + " at once: nest a second Middleware")
	}
	for i := range m.Rules {
		m.Rules[i].check(i)
	}
}

// addDemands adds to p what r must pass. It is false if a Rule turns r away.
func (m *Middleware) addDemands(r *http.Request, p *requestState) bool {
	if m.Limiter != nil {
		p.ticket.Add(throttle.Demand{Limiter: m.Limiter})
		p.n++
	}
	for i := range m.Rules {
		if !p.add(&m.Rules[i], r) {
			return false
		}
	}
	if m.Limits != nil {
		m.Limits(r, &p.ticket)
	}
	return true
}

// reject answers a request that was refused.
func (m *Middleware) reject(w http.ResponseWriter, r *http.Request, f Rejection) {
	m.traceDecision(r, f.Decision)
	m.writeRejected(w.Header(), f.Decision)
	if m.OnReject != nil {
		m.OnReject.ServeHTTP(w, f.attachTo(r))
		return
	}
	f.ServeHTTP(w, r)
}

// handleFailure deals with a request on which no decision was reached. The error may
// name hosts and stores, so it goes to the Trace and never to the client.
func (m *Middleware) handleFailure(w http.ResponseWriter, r *http.Request, err error, next http.Handler) {
	open := !m.FailClosed && !causedByRequest(r, err) && !errors.Is(err, queue.ErrClosed)
	if m.Trace != nil && m.Trace.Failed != nil {
		m.Trace.Failed(r, err, open)
	}
	if open {
		next.ServeHTTP(w, r)
		return
	}
	unavailable.ServeHTTP(w, r)
}

// minTimeLeft is how much of a request's deadline must be left after a store has timed out
// for the store to be the cause: stores are given half of what is left, or less.
const minTimeLeft = time.Second

// causedByRequest reports whether a limiter failed because of what the client did: it has
// left, its request has an impossible cost, or a deadline that is too short for a store to
// respond.
func causedByRequest(r *http.Request, err error) bool {
	if r.Context().Err() != nil || errors.Is(err, throttle.ErrCost) {
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
