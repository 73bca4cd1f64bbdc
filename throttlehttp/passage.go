package throttlehttp

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A passage is a request on its way through.
type passage struct {
	ticket  throttle.Ticket
	rules   [throttle.MaxDemands]*Rule // of the demands; nil: it is no rule's
	n       int                        // demands so far
	settles bool                       // there is a rule with Settle
}

var passages = sync.Pool{New: func() any { return new(passage) }}

// leave ends the use of p, which holds no grant any more.
func (p *passage) leave() {
	*p = passage{}
	passages.Put(p)
}

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

// ask claims all demands of p. With a Waiter it waits until they are granted.
func (p *passage) ask(m *Middleware, r *http.Request) (throttle.Decision, error) {
	if m.Waiter == nil {
		d, err := p.ticket.Reserve(r.Context(), time.Time{})
		if err != nil || d.OK {
			return d, err
		}
		return p.refused(r.Context(), d), nil
	}
	err := m.Waiter.Wait(r.Context(), &p.ticket)
	if err == nil {
		return throttle.Decision{OK: true}, nil
	}
	var refused *throttle.RefusedError
	var full *throttle.LineError
	switch {
	case errors.As(err, &refused):
		return p.refused(r.Context(), refused.Decision), nil
	case errors.As(err, &full):
		// When a limit opens, its line moves on, and there is a place in it.
		return throttle.Decision{Policy: fullLine, Wait: p.longest(r.Context(), throttle.Decision{}).Wait}, nil
	}
	return throttle.Decision{}, err
}

// refused returns what to say of d, the refusal by one limit: who comes back when he
// was told to should not be told of the next limit then.
func (p *passage) refused(ctx context.Context, d throttle.Decision) throttle.Decision {
	if p.ticket.Demands[1].Limiter == nil {
		return d
	}
	return p.longest(ctx, d)
}

// longest returns d, or the refusal of a limit of p if that opens later. Limits that
// have to ask a store are left in peace.
func (p *passage) longest(ctx context.Context, d throttle.Decision) throttle.Decision {
	now := d.At
	for i := range p.ticket.Demands {
		m := &p.ticket.Demands[i]
		if l, ok := m.Limiter.(throttle.Local); !ok || !l.Local() {
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
func (p *passage) serve(m *Middleware, w http.ResponseWriter, r *http.Request, next http.Handler) {
	f := throttle.Feedback{Outcome: throttle.Failed}
	defer func() { p.end(m, r, f) }()
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

// end tells the limits. A client that has gone away must not keep them from hearing it.
func (p *passage) end(m *Middleware, r *http.Request, f throttle.Feedback) {
	ctx := context.WithoutCancel(r.Context())
	if m.Waiter != nil {
		m.Waiter.Observe(ctx, &p.ticket, f)
	} else {
		p.ticket.Observe(ctx, f)
	}
	p.leave()
}

// hidden reports whether answers must not speak of demand i.
func (p *passage) hidden(i int) bool { return p.rules[i] != nil && p.rules[i].Hidden }

// tightest returns how many limits of a granted p count, and sets d to what was decided
// by the one with the fewest such requests left; of equal ones that which takes longer
// to come back. Hidden ones are left out, if they are not asked for.
func (p *passage) tightest(hidden bool, d *throttle.Decision) (n int) {
	least := int64(0)
	for i := range p.ticket.Demands {
		m := &p.ticket.Demands[i]
		if m.Limiter == nil || p.hidden(i) && !hidden {
			continue
		}
		next, ok := p.ticket.Decision(i)
		if !ok || next.Limit == 0 {
			continue
		}
		left := next.Remaining / max(m.Cost, 1)
		if n == 0 || left < least || left == least && next.ResetAfter > d.ResetAfter {
			least, *d = left, next
		}
		n++
	}
	return n
}

// decision returns what stands for all decisions of a granted p.
func (p *passage) decision() throttle.Decision {
	all := throttle.Decision{OK: true}
	p.tightest(true, &all)
	for i := range p.ticket.Demands {
		d, _ := p.ticket.Decision(i)
		all.Over, all.Degraded = all.Over || d.Over, all.Degraded || d.Degraded
	}
	return all
}
