package rules

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// An activeLimit is a limit in force. Requests hold on to it while they wait, so it stays
// the same while the file and the time of day change what it allows:
//
//	file says the same          the gate stays, with all that it has counted
//	file says another number    the gate stays, its cells follow, see cell
//	file says something else    the gate ends and leads to its heir
//	file says nothing           the gate ends and grants everything
//
// A gate that has ended is only known to those who were waiting at it.
type activeLimit struct {
	hook      DecisionHook
	clock     throttle.Clock
	immutable bool // own cannot change what it allows
	limiter   throttle.Limiter
	successor atomic.Pointer[successor] // nil: the gate has not ended

	mu       sync.Mutex                 // held while phases is replaced
	versions atomic.Pointer[[]*version] // the latest is last; never empty, never changed
}

// A version is a stretch of time in which a gate allows the same.
type version struct {
	number     uint64
	limit      *Limit
	spec, hard Spec
	from       time.Time // zero: it is the first
	until      time.Time // wall time; zero: until the file changes
}

// maxVersions is how many phases are remembered for keys that missed them.
const maxVersions = 32

// A successor stands in for a gate that has ended. Its via tells the claims that it has
// granted from all others, so that the end of a claim can be told to both.
type successor struct{ limiter throttle.Limiter }

// newActiveLimit returns the gate of l. A limiter that was built elsewhere decides for it, or
// a local one if that is nil.
func newActiveLimit(l *Limit, s *Config, built throttle.Limiter) *activeLimit {
	a := &activeLimit{hook: s.DecisionHook, clock: throttle.ClockOr(s.Clock), immutable: built != nil || l.Compact}
	first := a.newVersion(l, 1, time.Time{}, a.clock.Now())
	a.versions.Store(&[]*version{first})
	if built == nil {
		built = a.newLocal(l, s)
	}
	a.limiter = wrap(built, l, s)
	return a
}

// build returns the limiter that the program has for l; nil: none.
func build(l *Limit, s *Config) (throttle.Limiter, error) {
	if s.Build == nil || l.constant() {
		return nil, nil
	}
	return s.Build(l)
}

// constant reports whether l always says the same.
func (l *Limit) constant() bool { return l.Unlimited || l.Blocked && len(l.Active) == 0 }

// newLocal makes what decides for g in this process.
func (a *activeLimit) newLocal(l *Limit, s *Config) throttle.Limiter {
	switch {
	case l.Unlimited:
		return throttle.AllowAll
	case l.constant():
		return throttle.DenyAll
	case l.Compact:
		return &lazyBuckets{config: keyed.BucketsConfig{Limit: l.Spec.(throttle.Limit), Max: l.MaxKeys}, clock: s.Clock}
	case !l.Keyed:
		return newKeyLimiter(a)
	}
	return &keyed.Limiter{New: func(string) throttle.Limiter { return newKeyLimiter(a) }, Max: l.MaxKeys, Clock: s.Clock}
}

// wrap puts around inner what l says of its refusals.
func wrap(inner throttle.Limiter, l *Limit, s *Config) throttle.Limiter {
	if l.Unlimited {
		return inner
	}
	if l.Borrow != "" {
		inner = &throttle.Borrowing{Limiter: inner, CanBorrow: s.CanBorrow[l.Borrow]}
	}
	if l.Ban != nil {
		inner = keyed.NewBan(inner, *l.Ban, s.Clock)
	}
	if l.Shadow {
		inner = &throttle.Shadow{Limiter: inner}
	}
	return inner
}

// limit returns what the file says of g.
func (a *activeLimit) limit() *Limit { return a.version().limit }

// version returns the phase that g is in, as far as it has noticed.
func (a *activeLimit) version() *version {
	all := *a.versions.Load()
	return all[len(all)-1]
}

// newVersion returns a phase of l that begins at from, as it is at now.
func (a *activeLimit) newVersion(l *Limit, number uint64, from, now time.Time) *version {
	p := &version{number: number, limit: l, spec: l.Spec, hard: l.Hard, from: from}
	if len(l.Active) == 0 {
		return p
	}
	if active := l.periodAt(now); active != nil {
		p.spec, p.hard = active.Spec, active.Hard
	}
	p.until = l.nextChange(now)
	return p
}

// addVersion makes p the phase that g is in.
func (a *activeLimit) addVersion(p *version) {
	all := *a.versions.Load()
	all = append(slices.Clone(all[max(0, len(all)+1-maxVersions):]), p)
	a.versions.Store(&all)
}

// advance enters the phases that have begun by now. A year of them is made up for
// without hurry: what lies long back is skipped.
func (a *activeLimit) advance(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for range maxVersions {
		p := a.version()
		if p.until.IsZero() || now.Before(p.until) {
			return
		}
		a.addVersion(a.newVersion(p.limit, p.number+1, p.until, p.until))
	}
	p := a.version()
	a.addVersion(a.newVersion(p.limit, p.number+1, now, now))
}

// update makes g allow what l says from now on. Unless it says the same, g is not rigid
// and l has the shape of what g allows.
func (a *activeLimit) update(l *Limit, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := *a.version()
	if p.limit.definition() != l.definition() {
		a.addVersion(a.newVersion(l, p.number+1, now, now))
		return
	}
	p.limit = l // in another line of the file, perhaps
	all := slices.Clone(*a.versions.Load())
	all[len(all)-1] = &p
	a.versions.Store(&all)
}

// retire makes g grant what to grants; nil: everything.
func (a *activeLimit) retire(to *activeLimit) {
	h := &successor{limiter: throttle.AllowAll}
	if to != nil {
		h.limiter = throttle.AllOf(to)
	}
	a.successor.Store(h)
}

// Reserve implements throttle.Limiter.
func (a *activeLimit) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	if h := a.successor.Load(); h != nil {
		return h.limiter.Reserve(ctx, c)
	}
	p := a.version()
	if !p.until.IsZero() {
		if c.Now.IsZero() {
			c.Now = a.clock.Now()
		}
		if !c.Now.Before(p.until) && !c.DryRun {
			a.advance(c.Now)
			p = a.version()
		}
		if p.closed() {
			return a.refuse(p, c)
		}
	}
	d, err := a.limiter.Reserve(ctx, c)
	if err != nil {
		return throttle.Decision{}, err
	}
	p.capWait(c, &d)
	if a.hook != nil && final(c, d) {
		a.hook.Decided(p.limit, c, d)
	}
	return d, nil
}

// closed reports whether nothing is granted in p, for a limit that grants something
// at other times.
func (p *version) closed() bool { return p.spec == nil && len(p.limit.Active) > 0 }

// shadowGrant is the Grant of what a shadow grants while nothing is: no limiter of ours
// uses that number for what it lends.
const shadowGrant = math.MaxUint64

// tookUnits reports whether d, which was granted, took anything from g.own.
func tookUnits(d throttle.Decision) bool {
	return !d.OverLimit || d.Limit > 0 || d.Grant != shadowGrant
}

// refuse refuses c until p is over.
func (a *activeLimit) refuse(p *version, c throttle.Claim) (throttle.Decision, error) {
	if _, err := c.Units(); err != nil {
		return throttle.Decision{}, err
	}
	d := throttle.Decision{Policy: p.limit.Policy(), At: c.Now, Wait: throttle.Forever}
	p.capWait(c, &d)
	if p.limit.Shadow {
		d.OK, d.OverLimit, d.Wait, d.Grant = true, true, 0, shadowGrant
	}
	if a.hook != nil && final(c, d) {
		a.hook.Decided(p.limit, c, d)
	}
	return d, nil
}

// final reports whether d decides about c: c is not a dry run, and no refusal after which
// the caller asks again.
func final(c throttle.Claim, d throttle.Decision) bool { return !c.DryRun && (d.OK || !c.Waits) }

// capWait makes d, the refusal of c, ask to come again when p is over, if that is
// earlier. What no phase can grant never can be.
func (p *version) capWait(c throttle.Claim, d *throttle.Decision) {
	if d.OK || d.Wait == 0 || p.until.IsZero() {
		return
	}
	if n, err := c.Units(); err == nil && n > p.limit.maxCapacity() {
		return
	}
	if left := p.until.Sub(d.At); left > 0 {
		d.Wait = min(d.Wait, left)
	}
}

// Cancel implements throttle.Limiter.
func (a *activeLimit) Cancel(ctx context.Context, c throttle.Claim, d throttle.Decision) {
	if tookUnits(d) {
		a.limiter.Cancel(ctx, c, d)
	}
	if h := a.successor.Load(); h != nil {
		h.limiter.Cancel(ctx, c, d)
	} else if a.hook != nil && d.OK {
		a.hook.Cancelled(a.limit(), c, d)
	}
}

// Observe implements throttle.Observer.
func (a *activeLimit) Observe(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if tookUnits(d) {
		throttle.Observe(ctx, a.limiter, c, d, f)
	}
	if h := a.successor.Load(); h != nil {
		throttle.Observe(ctx, h.limiter, c, d, f)
	} else if a.hook != nil && d.OK {
		a.hook.Observed(ctx, a.limit(), c, d, f)
	}
}

// Local implements throttle.NonBlocking.
func (a *activeLimit) NonBlocking() bool {
	l := a.limiter
	if h := a.successor.Load(); h != nil {
		l = h.limiter
	}
	local, ok := l.(throttle.NonBlocking)
	return ok && local.NonBlocking()
}

// CountsRefusals implements throttle.RefusalCounter: DecisionHook counts them.
func (a *activeLimit) CountsRefusals() bool {
	if a.hook != nil {
		return true
	}
	l := a.limiter
	if h := a.successor.Load(); h != nil {
		l = h.limiter
	}
	return throttle.CountsRefusals(l)
}
