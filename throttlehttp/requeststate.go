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

// A requestState is the state of a request in a Middleware.
type requestState struct {
	ticket        queue.Ticket
	demandSpace   []throttle.Demand // memory for the demands of ticket
	rules         []*Rule           // the rules of the first demands; nil for a demand without a rule
	needsResponse bool              // one of the rules has a FinalCost

	onWait  func() error  // beginWait of this requestState
	request *http.Request // the request, until it begins to wait; nil outside of wait
	waiting *waitingKeys  // where it is counted while it waits; nil if it is not
	counted bool          // it is counted in waiting
}

var requestStates = sync.Pool{New: func() any {
	p := new(requestState)
	p.onWait = p.beginWait
	return p
}}

// maxPooledDemands is the number of demands up to which a requestState is used again.
const maxPooledDemands = 16

// release returns p, which must not hold a grant, to the pool.
func (p *requestState) release() {
	clear(p.demandSpace[:cap(p.demandSpace)])
	clear(p.rules)
	if *p = (requestState{onWait: p.onWait, demandSpace: p.demandSpace[:0], rules: p.rules[:0]}); cap(p.demandSpace) <= maxPooledDemands {
		requestStates.Put(p)
	}
}

// add adds the demand of r on u, if any. It returns false if r is rejected.
func (p *requestState) add(u *Rule, r *http.Request) bool {
	d, ok := u.demand(r)
	if ok && d.Limiter != nil {
		p.addDemand(d, u)
		p.needsResponse = p.needsResponse || u.FinalCost != nil
	}
	return ok
}

// addDemand adds d, the demand of u, or of no rule if u is nil.
func (p *requestState) addDemand(d throttle.Demand, u *Rule) {
	p.demandSpace, p.rules = append(p.demandSpace, d), append(p.rules, u)
}

// ruleOf returns the rule of demand i, or nil.
func (p *requestState) ruleOf(i int) *Rule {
	if i < len(p.rules) {
		return p.rules[i]
	}
	return nil
}

// reserve claims all demands of p. With a Queue it waits until they are granted.
func (p *requestState) reserve(m *Middleware, waiting *waitingKeys, r *http.Request) (throttle.Decision, error) {
	if m.Queue == nil {
		d, err := p.ticket.Reserve(r.Context(), time.Time{})
		if err != nil || d.OK {
			return d, err
		}
		return p.rejectedDecision(r.Context(), d), nil
	}
	err := p.wait(m, waiting, r)
	if err == nil {
		return throttle.Decision{OK: true}, nil
	}
	var rejected *throttle.RejectedError
	var full *queue.FullError
	switch {
	case errors.As(err, &rejected):
		return p.rejectedDecision(r.Context(), rejected.Decision), nil
	case errors.As(err, &full):
		// A limit that opens admits the head of its queue, which makes a place in the queue.
		return throttle.Decision{Policy: queueFull, Wait: p.longestWait(r.Context(), throttle.Decision{}).Wait}, nil
	}
	return throttle.Decision{}, err
}

// rejectedDecision returns the decision to report for d, a rejection by one limit. It is the
// one with the longest wait, so that a client that waits that long is not rejected by another
// limit afterwards.
func (p *requestState) rejectedDecision(ctx context.Context, d throttle.Decision) throttle.Decision {
	if len(p.ticket.Demands) == 1 {
		return d
	}
	return p.longestWait(ctx, d)
}

// longestWait returns d, or the rejection by another limit of p that opens later. It does not
// ask limits that need a store.
func (p *requestState) longestWait(ctx context.Context, d throttle.Decision) throttle.Decision {
	now := d.At
	for i := range p.ticket.Demands {
		m := &p.ticket.Demands[i]
		if m.Limiter == nil || !m.Limiter.Traits().NonBlocking {
			continue
		}
		other, err := m.Limiter.Reserve(ctx, throttle.Claim{Key: m.Key, Cost: m.Cost, Now: now, DryRun: true})
		if err == nil && !other.OK && other.Wait > d.Wait {
			d = other
		}
	}
	return d
}

// serve calls next for a granted request and then ends the ticket, even if next or a hook
// panics or calls runtime.Goexit. Both count as failures.
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

// serveRecorded calls next and settles the final costs of the response. FinalCost gets the request
// that next got, in which an http.ServeMux has set the pattern and the values of the path. The pattern
// is also set in r, where the middleware outside of this one expects it.
func (p *requestState) serveRecorded(w http.ResponseWriter, r *http.Request, next http.Handler) {
	a := &responseRecorder{Context: r.Context(), w: w}
	served, returned := r.WithContext(a), false
	defer func() {
		r.Pattern = served.Pattern
		if returned || a.status != 0 {
			p.settleCosts(served, a)
		}
	}()
	next.ServeHTTP(a.writer(), served)
	returned = true
}

// settleCosts calls FinalCost of each rule that has one, and settles the result with its limit. If the
// client left before the handler sent a status, which it can do on purpose, the result is at least Cost.
func (p *requestState) settleCosts(r *http.Request, a *responseRecorder) {
	response, least := a.response(), int64(0)
	for i, u := range p.rules {
		if u == nil || u.FinalCost == nil {
			continue
		}
		if a.left {
			least = p.ticket.Demands[i].Cost
		}
		p.ticket.Settle(i, max(u.FinalCost(r, response), least))
	}
}

// observe reports the outcome to the limits. It does so even if the client has disconnected.
func (p *requestState) observe(m *Middleware, r *http.Request, f throttle.Feedback) {
	ctx := context.WithoutCancel(r.Context())
	if m.Queue != nil {
		m.Queue.Report(ctx, &p.ticket, f)
	} else {
		p.ticket.Report(ctx, f)
	}
	p.release()
}

// isHidden reports whether the limit of demand i must not appear in responses.
func (p *requestState) isHidden(i int) bool { return p.ruleOf(i) != nil && p.ruleOf(i).Hidden }

// lowestRemaining returns the number of limits of a granted p that report a state, and sets d
// to the decision of the one with the fewest such requests left; among equal ones, of the one
// with the longest ResetAfter. It skips limits that clients
// must not see unless hidden is true.
func (p *requestState) lowestRemaining(hidden bool, d *throttle.Decision) (n int) {
	var lowest int64
	for i := range p.ticket.Demands {
		m := &p.ticket.Demands[i]
		if m.Limiter == nil || p.isHidden(i) && !hidden {
			continue
		}
		next, ok := p.ticket.Decision(i)
		if !ok || next.Limit == 0 || next.Shadow && !hidden {
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

// combinedDecision returns one decision that summarizes all decisions of a granted p.
func (p *requestState) combinedDecision() throttle.Decision {
	all := throttle.Decision{OK: true}
	p.lowestRemaining(true, &all)
	for i := range p.ticket.Demands {
		d, _ := p.ticket.Decision(i)
		all.OverLimit, all.Degraded = all.OverLimit || d.OverLimit, all.Degraded || d.Degraded
	}
	return all
}
