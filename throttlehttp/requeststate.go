package throttlehttp

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// A requestState is a request on its way through.
type requestState struct {
	ticket        queue.Ticket
	rules         [queue.MaxDemands]*Rule // of the demands; nil: it is no rule's
	n             int                     // demands so far
	needsResponse bool                    // there is a rule with Settle
}

var requestStates = sync.Pool{New: func() any { return new(requestState) }}

// release ends the use of p, which holds no grant any more.
func (p *requestState) release() {
	*p = requestState{}
	requestStates.Put(p)
}

// add adds what u asks of r. It is false if r is refused.
func (p *requestState) add(u *Rule, r *http.Request) bool {
	d, ok := u.demand(r)
	if ok && d.Limiter != nil {
		p.ticket.Add(d)
		p.rules[p.n] = u
		p.n++
		p.needsResponse = p.needsResponse || u.FinalCost != nil
	}
	return ok
}

// reserve claims all demands of p. With a Queue it waits until they are granted.
func (p *requestState) reserve(m *Middleware, r *http.Request) (throttle.Decision, error) {
	if m.Queue == nil {
		d, err := p.ticket.Reserve(r.Context(), time.Time{})
		if err != nil || d.OK {
			return d, err
		}
		return p.rejectedDecision(r.Context(), d), nil
	}
	err := m.Queue.Wait(r.Context(), &p.ticket)
	if err == nil {
		return throttle.Decision{OK: true}, nil
	}
	var refused *throttle.RefusedError
	var full *queue.FullError
	switch {
	case errors.As(err, &refused):
		return p.rejectedDecision(r.Context(), refused.Decision), nil
	case errors.As(err, &full):
		// When a limit opens, its line moves on, and there is a place in it.
		return throttle.Decision{Policy: queueFull, Wait: p.longestWait(r.Context(), throttle.Decision{}).Wait}, nil
	}
	return throttle.Decision{}, err
}

// rejectedDecision returns what to say of d, the refusal by one limit: who comes back when he
// was told to should not be told of the next limit then.
func (p *requestState) rejectedDecision(ctx context.Context, d throttle.Decision) throttle.Decision {
	if p.ticket.Demands[1].Limiter == nil {
		return d
	}
	return p.longestWait(ctx, d)
}

// longestWait returns d, or the refusal of a limit of p if that opens later. Limits that
// have to ask a store are left in peace.
func (p *requestState) longestWait(ctx context.Context, d throttle.Decision) throttle.Decision {
	now := d.At
	for i := range p.ticket.Demands {
		m := &p.ticket.Demands[i]
		if !throttle.IsNonBlocking(m.Limiter) {
			continue
		}
		other, err := m.Limiter.Reserve(ctx, throttle.Claim{Key: m.Key, Cost: m.Cost, Now: now, DryRun: true})
		if err == nil && !other.OK && other.Wait > d.Wait {
			d = other
		}
	}
	return d
}

// serve calls next for a granted request and then ends the ticket, however next, or
// a hook, comes back: to the limits a panic is a failure, and so is a goroutine that
// exits.
func (p *requestState) serve(m *Middleware, w http.ResponseWriter, r *http.Request, next http.Handler) {
	f := throttle.Feedback{Outcome: throttle.Failed}
	defer func() { p.observe(m, r, f) }()
	if m.Trace != nil {
		m.traceDecision(r, p.combinedDecision())
	}
	m.writeGranted(w.Header(), p)
	if p.needsResponse {
		p.serveRecorded(w, r, next)
	} else {
		next.ServeHTTP(w, r)
	}
	f.Outcome = throttle.Accepted
}

// serveRecorded calls next and settles by what it does.
func (p *requestState) serveRecorded(w http.ResponseWriter, r *http.Request, next http.Handler) {
	a := &responseRecorder{Context: r.Context(), w: w}
	returned := false
	defer func() {
		if returned || a.status != 0 {
			p.settleCosts(r, a.response())
		}
	}()
	next.ServeHTTP(a.writer(), r.WithContext(a))
	returned = true
}

// settleCosts says to each rule that wants to know what the answer was, and to its limit
// what that costs.
func (p *requestState) settleCosts(r *http.Request, a Response) {
	for i, u := range p.rules {
		if u != nil && u.FinalCost != nil {
			p.ticket.Settle(i, u.FinalCost(r, a))
		}
	}
}

// observe tells the limits. A client that has gone away must not keep them from hearing it.
func (p *requestState) observe(m *Middleware, r *http.Request, f throttle.Feedback) {
	ctx := context.WithoutCancel(r.Context())
	if m.Queue != nil {
		m.Queue.Observe(ctx, &p.ticket, f)
	} else {
		p.ticket.Observe(ctx, f)
	}
	p.release()
}

// isHidden reports whether answers must not speak of demand i.
func (p *requestState) isHidden(i int) bool { return p.rules[i] != nil && p.rules[i].Hidden }

// lowestRemaining returns how many limits of a granted p count, and sets d to what was decided
// by the one with the fewest such requests left; of equal ones that which takes longer
// to come back. Hidden ones are left out, if they are not asked for.
func (p *requestState) lowestRemaining(hidden bool, d *throttle.Decision) (n int) {
	lowest := int64(0)
	for i := range p.ticket.Demands {
		m := &p.ticket.Demands[i]
		if m.Limiter == nil || p.isHidden(i) && !hidden {
			continue
		}
		next, ok := p.ticket.Decision(i)
		if !ok || next.Limit == 0 {
			continue
		}
		left := next.Remaining / max(m.Cost, 1)
		if n == 0 || left < lowest || left == lowest && next.ResetAfter > d.ResetAfter {
			lowest, *d = left, next
		}
		n++
	}
	return n
}

// combinedDecision returns what stands for all decisions of a granted p.
func (p *requestState) combinedDecision() throttle.Decision {
	all := throttle.Decision{OK: true}
	p.lowestRemaining(true, &all)
	for i := range p.ticket.Demands {
		d, _ := p.ticket.Decision(i)
		all.OverLimit, all.Degraded = all.OverLimit || d.OverLimit, all.Degraded || d.Degraded
	}
	return all
}
