package throttlehttp

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A passage is a request on its way through, in one allocation.
type passage struct {
	ticket  throttle.Ticket
	ctx     uncancelled
	rules   [throttle.MaxDemands]*Rule // of the demands; nil: it is no rule's
	n       int                        // demands so far
	settles bool                       // there is a rule with Settle
}

// uncancelled is a context that does not end: a client that has gone away must not
// keep a limiter from being told.
type uncancelled struct{ context.Context }

func (*uncancelled) Deadline() (time.Time, bool) { return time.Time{}, false }
func (*uncancelled) Done() <-chan struct{}       { return nil }
func (*uncancelled) Err() error                  { return nil }

// add adds what u asks of r. It is false if r is refused.
func (p *passage) add(u *Rule, r *http.Request) bool {
	d, ok := u.demand(r)
	if ok && d.Limiter != nil {
		p.ticket.Add(d)
		p.rules[p.n] = u
		p.n++
		p.settles = p.settles || u.Settle != nil
	}
	return ok
}

// ask asks for all that p demands, in line if there is one.
func (p *passage) ask(m *Middleware, r *http.Request) (throttle.Decision, error) {
	if m.Waiter == nil {
		return p.ticket.Reserve(r.Context(), time.Time{})
	}
	err := m.Waiter.Wait(r.Context(), &p.ticket)
	if err == nil {
		return throttle.Decision{OK: true}, nil
	}
	var refused *throttle.RefusedError
	var full *throttle.LineError
	switch {
	case errors.As(err, &refused):
		return refused.Decision, nil
	case errors.As(err, &full):
		return fullLine, nil
	}
	return throttle.Decision{}, err
}

// serve calls next for a granted request and then ends the ticket, however next, or
// a hook, comes back: to the limits a panic is a failure, and so is a goroutine that
// exits.
func (p *passage) serve(m *Middleware, w http.ResponseWriter, r *http.Request, next http.Handler) {
	f := throttle.Feedback{Outcome: throttle.Failed}
	defer func() { p.end(m, f) }()
	if m.Trace != nil {
		m.decided(r, p.decision())
	}
	m.writeGranted(w.Header(), p)
	if p.settles {
		p.watch(w, r, next)
	} else {
		next.ServeHTTP(w, r)
	}
	f.Outcome = throttle.Accepted
}

// watch calls next and settles by what it does.
func (p *passage) watch(w http.ResponseWriter, r *http.Request, next http.Handler) {
	a := &watch{Context: r.Context(), to: w}
	returned := false
	defer func() {
		if returned || a.status != 0 {
			p.settle(r, a.answer())
		}
	}()
	next.ServeHTTP(a.writer(), r.WithContext(a))
	returned = true
}

// settle says to each rule that wants to know what the answer was, and to its limit
// what that costs.
func (p *passage) settle(r *http.Request, a Answer) {
	for i, u := range p.rules {
		if u != nil && u.Settle != nil {
			p.ticket.Settle(i, u.Settle(r, a))
		}
	}
}

func (p *passage) end(m *Middleware, f throttle.Feedback) {
	if m.Waiter != nil {
		m.Waiter.Observe(&p.ctx, &p.ticket, f)
		return
	}
	p.ticket.Observe(&p.ctx, f)
}

// hidden reports whether answers must not speak of demand i.
func (p *passage) hidden(i int) bool { return p.rules[i] != nil && p.rules[i].Hidden }

// tightest returns which demand of a granted p has the fewest such requests
// left; of equal ones that which takes longer to come back. It is -1 if none
// counts.
func (p *passage) tightest(hidden bool) int {
	best, left, reset := -1, int64(0), time.Duration(0)
	for i, m := range p.ticket.Demands {
		d, ok := p.ticket.Decision(i)
		if !ok || d.Limit == 0 || p.hidden(i) && !hidden {
			continue
		}
		n := d.Remaining / max(m.Cost, 1)
		if best < 0 || n < left || n == left && d.ResetAfter > reset {
			best, left, reset = i, n, d.ResetAfter
		}
	}
	return best
}

// decision returns what stands for all decisions of a granted p.
func (p *passage) decision() throttle.Decision {
	all := throttle.Decision{OK: true}
	if i := p.tightest(true); i >= 0 {
		all, _ = p.ticket.Decision(i)
	}
	for i := range p.ticket.Demands {
		d, _ := p.ticket.Decision(i)
		all.Over, all.Degraded = all.Over || d.Over, all.Degraded || d.Degraded
	}
	return all
}
