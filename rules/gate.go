package rules

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A gate is a limit in force. Requests hold on to it while they wait, so it stays
// the same while the file and the time of day change what it allows:
//
//	file says the same          the gate stays, with all that it has counted
//	file says another number    the gate stays, its cells follow, see cell
//	file says something else    the gate ends and leads to its heir
//	file says nothing           the gate ends and grants everything
//
// A gate that has ended is only known to those who were waiting at it.
type gate struct {
	witness Witness
	clock   throttle.Clock
	rigid   bool // own cannot change what it allows
	own     throttle.Limiter
	heir    atomic.Pointer[heir] // nil: the gate has not ended

	mu     sync.Mutex               // held while phases is replaced
	phases atomic.Pointer[[]*phase] // the latest is last; never empty, never changed
}

// A phase is a stretch of time in which a gate allows the same.
type phase struct {
	number     uint64
	limit      *Limit
	spec, hard Spec
	from       time.Time // zero: it is the first
	until      time.Time // wall time; zero: until the file changes
}

// maxPhases is how many phases are remembered for keys that missed them.
const maxPhases = 32

// An heir stands in for a gate that has ended. Its via tells the claims that it has
// granted from all others, so that the end of a claim can be told to both.
type heir struct{ via throttle.Limiter }

// newGate returns the gate of l. A limiter that was built elsewhere decides for it, or
// a local one if that is nil.
func newGate(l *Limit, s *Setting, built throttle.Limiter) *gate {
	g := &gate{witness: s.Witness, clock: throttle.ClockOr(s.Clock), rigid: built != nil || l.Compact}
	first := g.phaseOf(l, 1, time.Time{}, g.clock.Now())
	g.phases.Store(&[]*phase{first})
	if built == nil {
		built = g.local(l, s)
	}
	g.own = wrap(built, l, s)
	return g
}

// build returns the limiter that the program has for l; nil: none.
func build(l *Limit, s *Setting) (throttle.Limiter, error) {
	if s.Build == nil || l.constant() {
		return nil, nil
	}
	return s.Build(l)
}

// constant reports whether l always says the same.
func (l *Limit) constant() bool { return l.Unlimited || l.Blocked && len(l.Active) == 0 }

// local makes what decides for g in this process.
func (g *gate) local(l *Limit, s *Setting) throttle.Limiter {
	switch {
	case l.Unlimited:
		return throttle.Unlimited
	case l.constant():
		return throttle.Blocked
	case l.Compact:
		return &compact{buckets: throttle.Buckets{Limit: l.Spec.(throttle.Limit), Max: l.MaxKeys}, clock: s.Clock}
	case !l.Keyed:
		return newCell(g)
	}
	return &throttle.Keyed{New: func(string) throttle.Limiter { return newCell(g) }, Max: l.MaxKeys, Clock: s.Clock}
}

// wrap puts around inner what l says of its refusals.
func wrap(inner throttle.Limiter, l *Limit, s *Setting) throttle.Limiter {
	if l.Unlimited {
		return inner
	}
	if l.Elastic != "" {
		inner = &throttle.Elastic{Limiter: inner, Spare: s.Spare[l.Elastic]}
	}
	if l.Penalty != nil {
		inner = throttle.NewPenalty(inner, *l.Penalty, s.Clock)
	}
	if l.Shadow {
		inner = &throttle.Shadow{Limiter: inner}
	}
	return inner
}

// limit returns what the file says of g.
func (g *gate) limit() *Limit { return g.phase().limit }

// phase returns the phase that g is in, as far as it has noticed.
func (g *gate) phase() *phase {
	all := *g.phases.Load()
	return all[len(all)-1]
}

// phaseOf returns a phase of l that begins at from, as it is at now.
func (g *gate) phaseOf(l *Limit, number uint64, from, now time.Time) *phase {
	p := &phase{number: number, limit: l, spec: l.Spec, hard: l.Hard, from: from}
	if len(l.Active) == 0 {
		return p
	}
	if active := l.periodAt(now); active != nil {
		p.spec, p.hard = active.Spec, active.Hard
	}
	p.until = l.switchAfter(now)
	return p
}

// enter makes p the phase that g is in.
func (g *gate) enter(p *phase) {
	all := *g.phases.Load()
	all = append(slices.Clone(all[max(0, len(all)+1-maxPhases):]), p)
	g.phases.Store(&all)
}

// advance enters the phases that have begun by now. A year of them is made up for
// without hurry: what lies long back is skipped.
func (g *gate) advance(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for range maxPhases {
		p := g.phase()
		if p.until.IsZero() || now.Before(p.until) {
			return
		}
		g.enter(g.phaseOf(p.limit, p.number+1, p.until, p.until))
	}
	p := g.phase()
	g.enter(g.phaseOf(p.limit, p.number+1, now, now))
}

// change makes g allow what l says from now on. Unless it says the same, g is not rigid
// and l has the shape of what g allows.
func (g *gate) change(l *Limit, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := *g.phase()
	if p.limit.definition() != l.definition() {
		g.enter(g.phaseOf(l, p.number+1, now, now))
		return
	}
	p.limit = l // in another line of the file, perhaps
	all := slices.Clone(*g.phases.Load())
	all[len(all)-1] = &p
	g.phases.Store(&all)
}

// end makes g grant what to grants; nil: everything.
func (g *gate) end(to *gate) {
	h := &heir{via: throttle.Unlimited}
	if to != nil {
		h.via = throttle.AllOf(to)
	}
	g.heir.Store(h)
}

// Reserve implements throttle.Limiter.
func (g *gate) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	if h := g.heir.Load(); h != nil {
		return h.via.Reserve(ctx, c)
	}
	p := g.phase()
	if !p.until.IsZero() {
		if c.Now.IsZero() {
			c.Now = g.clock.Now()
		}
		if !c.Now.Before(p.until) && !c.DryRun {
			g.advance(c.Now)
			p = g.phase()
		}
		if p.closed() {
			return g.refuse(p, c)
		}
	}
	d, err := g.own.Reserve(ctx, c)
	if err != nil {
		return throttle.Decision{}, err
	}
	p.shorten(c, &d)
	if g.witness != nil && final(c, d) {
		g.witness.Decided(p.limit, c, d)
	}
	return d, nil
}

// closed reports whether nothing is granted in p, for a limit that grants something
// at other times.
func (p *phase) closed() bool { return p.spec == nil && len(p.limit.Active) > 0 }

// untaken is the Grant of what a shadow grants while nothing is: no limiter of ours
// uses that number for what it lends.
const untaken = math.MaxUint64

// took reports whether d, which was granted, took anything from g.own.
func took(d throttle.Decision) bool { return !d.Over || d.Limit > 0 || d.Grant != untaken }

// refuse refuses c until p is over.
func (g *gate) refuse(p *phase, c throttle.Claim) (throttle.Decision, error) {
	if _, err := c.Units(); err != nil {
		return throttle.Decision{}, err
	}
	d := throttle.Decision{Policy: p.limit.Policy(), At: c.Now, Wait: throttle.Forever}
	p.shorten(c, &d)
	if p.limit.Shadow {
		d.OK, d.Over, d.Wait, d.Grant = true, true, 0, untaken
	}
	if g.witness != nil && final(c, d) {
		g.witness.Decided(p.limit, c, d)
	}
	return d, nil
}

// final reports whether d decides about c: c is not a dry run, and no refusal after which
// the caller asks again.
func final(c throttle.Claim, d throttle.Decision) bool { return !c.DryRun && (d.OK || !c.Waits) }

// shorten makes d, the refusal of c, ask to come again when p is over, if that is
// earlier. What no phase can grant never can be.
func (p *phase) shorten(c throttle.Claim, d *throttle.Decision) {
	if d.OK || d.Wait == 0 || p.until.IsZero() {
		return
	}
	if n, err := c.Units(); err == nil && n > p.limit.most() {
		return
	}
	if left := p.until.Sub(d.At); left > 0 {
		d.Wait = min(d.Wait, left)
	}
}

// Cancel implements throttle.Limiter.
func (g *gate) Cancel(ctx context.Context, c throttle.Claim, d throttle.Decision) {
	if took(d) {
		g.own.Cancel(ctx, c, d)
	}
	if h := g.heir.Load(); h != nil {
		h.via.Cancel(ctx, c, d)
	} else if g.witness != nil && d.OK {
		g.witness.Cancelled(g.limit(), c, d)
	}
}

// Observe implements throttle.Observer.
func (g *gate) Observe(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if took(d) {
		throttle.Observe(ctx, g.own, c, d, f)
	}
	if h := g.heir.Load(); h != nil {
		throttle.Observe(ctx, h.via, c, d, f)
	} else if g.witness != nil && d.OK {
		g.witness.Observed(ctx, g.limit(), c, d, f)
	}
}

// Local implements throttle.Local.
func (g *gate) Local() bool {
	l := g.own
	if h := g.heir.Load(); h != nil {
		l = h.via
	}
	local, ok := l.(throttle.Local)
	return ok && local.Local()
}

// CountsRefusals implements throttle.RefusalCounter: a Witness counts them.
func (g *gate) CountsRefusals() bool {
	if g.witness != nil {
		return true
	}
	l := g.own
	if h := g.heir.Load(); h != nil {
		l = h.via
	}
	return throttle.CountsRefusals(l)
}
