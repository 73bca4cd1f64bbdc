package throttlehttp

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
)

// A Middleware lets a request through to the next handler, or refuses it:
//
//	request ─▶ Limits: what must it pass? ─▶ Reserve ─┬─ granted ─▶ next ─▶ Observe
//	                                                  ├─ refused ─▶ 429, Retry-After
//	                                                  └─ no decision ─▶ FailClosed?
//
// Every answer says how the limit stands, so that a client can stay inside it
// and need not find it by being refused. See [Middleware.Handler] for the words.
//
// The zero Middleware lets everything through. Fields must not change after
// Handler was called.
type Middleware struct {
	// Limiter is one limit that all requests share, at one unit each. It is a
	// shorthand for a Limits that adds it. Nil: none.
	Limiter throttle.Limiter

	// Limits adds what a request must pass: several limits, with keys and costs.
	// A request passes all of them or takes nothing. Nil: none but Limiter.
	// The hook has the shape of the client's, so one function can serve both.
	Limits func(*http.Request, *throttle.Ticket)

	// Dialect is how answers say how the limits stand. 0: quota.XRateLimit and
	// XResetAfter, since a bucket may be full again long before a second is over.
	// With quota.Draft10 the names of limits (Decision.Policy) are seen by clients.
	Dialect quota.Dialect

	// Refused answers a request that was refused. The headers are set by then,
	// and may be changed. Nil: status 429 and a sentence.
	Refused http.Handler

	// FailClosed is what happens when no decision can be reached, because a
	// limiter's store is down: false lets the request through without limit,
	// true answers 503. To be open is the default because a broken limiter would
	// otherwise be a broken service; Trace.Failed makes it visible. Two kinds of
	// failure a client can bring about at will, so they never let it through: a
	// request that was given up by its client, and a cost below zero.
	FailClosed bool

	// Trace is told what happens. Nil: nobody is.
	Trace *Trace
}

// A Trace is a set of functions that are called, each if it is not nil, on the
// goroutine of the request. They must not keep the request.
type Trace struct {
	// Decided is called once for each decision on a request, granted or not. If
	// several limits granted, d is the one that headers speak of.
	Decided func(r *http.Request, d throttle.Decision)

	// Failed is called when no decision was reached. open says whether the
	// request was let through all the same.
	Failed func(r *http.Request, err error, open bool)
}

// Handler returns a handler that limits what reaches next.
//
// Answers carry X-RateLimit-Limit (the most requests at once), -Remaining and
// -Reset (whole seconds until Remaining is Limit again), of the limit that
// refused, or else of the one that is nearest to it; Draft10 has room for all.
// Reset is a delay and not a date, so that nobody's clock matters. A refusal
// carries Retry-After in whole seconds. Both are rounded up, so that who waits
// that long is not early. There is no Retry-After if waiting does not help or
// the time is not known.
//
// next gets the ResponseWriter of the server itself, with all that it can do.
// When next returns or panics, the limits are told once; a hijacked connection
// counts as in use until the handler returns.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &passage{ctx: uncancelled{r.Context()}}
		t := &p.ticket
		m.demand(r, t)
		d, err := t.Reserve(r.Context(), time.Time{})
		switch {
		case err != nil:
			m.failed(w, r, err, next)
		case !d.OK:
			m.decided(r, d)
			m.refuse(w, r, d)
		default:
			p.serve(m, w, r, next)
		}
	})
}

// demand adds to t what r must pass.
func (m *Middleware) demand(r *http.Request, t *throttle.Ticket) {
	if m.Limiter != nil {
		t.Add(throttle.Demand{Limiter: m.Limiter})
	}
	if m.Limits != nil {
		m.Limits(r, t)
	}
}

// A passage is a request on its way through, in one allocation.
type passage struct {
	ticket throttle.Ticket
	ctx    uncancelled
}

// uncancelled is a context that does not end: a client that has gone away must not
// keep a limiter from being told.
type uncancelled struct{ context.Context }

func (*uncancelled) Deadline() (time.Time, bool) { return time.Time{}, false }
func (*uncancelled) Done() <-chan struct{}       { return nil }
func (*uncancelled) Err() error                  { return nil }

// serve calls next for a granted request and then ends the ticket, however next, or
// a hook, comes back: to the limits a panic is a failure, and so is a goroutine that
// exits.
func (p *passage) serve(m *Middleware, w http.ResponseWriter, r *http.Request, next http.Handler) {
	f := throttle.Feedback{Outcome: throttle.Failed}
	defer func() { p.ticket.Observe(&p.ctx, f) }()
	i := tightest(&p.ticket)
	m.decided(r, granted(&p.ticket, i))
	m.writeGranted(w.Header(), &p.ticket, i)
	next.ServeHTTP(w, r)
	f.Outcome = throttle.Accepted
}

func (m *Middleware) refuse(w http.ResponseWriter, r *http.Request, d throttle.Decision) {
	m.writeRefused(w.Header(), d)
	if m.Refused != nil {
		m.Refused.ServeHTTP(w, r)
		return
	}
	again := whenAgain(d.Wait, w.Header().Get("Retry-After"))
	http.Error(w, "Too many requests."+again, http.StatusTooManyRequests)
}

// failed deals with a request on which no decision was reached. The error may
// name hosts and stores, so it goes to the Trace and never to the client.
func (m *Middleware) failed(w http.ResponseWriter, r *http.Request, err error, next http.Handler) {
	open := !m.FailClosed && r.Context().Err() == nil && !errors.Is(err, throttle.ErrCost)
	if m.Trace != nil && m.Trace.Failed != nil {
		m.Trace.Failed(r, err, open)
	}
	if open {
		next.ServeHTTP(w, r)
		return
	}
	http.Error(w, "The service cannot take this request at the moment.", http.StatusServiceUnavailable)
}

func (m *Middleware) decided(r *http.Request, d throttle.Decision) {
	if m.Trace != nil && m.Trace.Decided != nil {
		m.Trace.Decided(r, d)
	}
}

// tightest returns which demand of a granted t has the fewest such requests
// left; of equal ones that which takes longer to come back. It is -1 if none
// counts.
func tightest(t *throttle.Ticket) int {
	best, left, reset := -1, int64(0), time.Duration(0)
	for i, m := range t.Demands {
		d, ok := t.Decision(i)
		if !ok || d.Limit == 0 {
			continue
		}
		n := d.Remaining / max(m.Cost, 1)
		if best < 0 || n < left || n == left && d.ResetAfter > reset {
			best, left, reset = i, n, d.ResetAfter
		}
	}
	return best
}

// granted returns the decision on demand i of t, or just that t was granted.
func granted(t *throttle.Ticket, i int) throttle.Decision {
	if i < 0 {
		return throttle.Decision{OK: true}
	}
	d, _ := t.Decision(i)
	return d
}
