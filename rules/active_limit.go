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

// An activeLimit is the limiter of a limit in force. Requests that wait refer to it, so it stays
// the same object while the file and the time of day change what it allows:
//
//	the file contains                  the activeLimit
//	the same limit                     stays, with all its counts
//	the limit with other numbers       stays; the limiters of its keys change, see keyLimiter
//	the limit, not changeable in use   is retired and passes claims to its successor
//	no limit with this ID              is retired and grants everything
//
// Only requests that waited for a retired activeLimit, or that still hold units of it, refer to
// it.
type activeLimit struct {
	hook      DecisionHook
	clock     throttle.Clock
	immutable bool // the limiter cannot change what it allows
	limiter   throttle.Limiter
	successor atomic.Pointer[successor] // nil means not retired

	mu       sync.Mutex                 // held while versions is replaced
	versions atomic.Pointer[[]*version] // the latest is last; never empty; slices are not modified
}

// A version is a period of time in which an activeLimit allows the same.
type version struct {
	number     uint64
	limit      *Limit
	spec, hard Spec
	from       time.Time // zero for the first version
	until      time.Time // wall time; zero means until the file changes
}

// maxVersions is the number of versions that are kept for keys that have not seen them yet.
const maxVersions = 32

// A successor takes the claims of a retired activeLimit. Its limiter is an AllOf of another
// activeLimit, or AllowAll. A Report on a claim is passed to both limiters: an AllOf
// ignores decisions of other limiters, and the retired limiter makes no further decisions.
type successor struct{ limiter throttle.Limiter }

// newActiveLimit returns the activeLimit of l. It uses built to decide, or a local limiter if
// built is nil.
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

// build returns the limiter that Config.Build creates for l. It returns nil if there is none.
func build(l *Limit, s *Config) (throttle.Limiter, error) {
	if s.Build == nil || l.constant() {
		return nil, nil
	}
	return s.Build(l)
}

// constant reports whether l grants everything or rejects everything at all times.
func (l *Limit) constant() bool { return l.Unlimited || l.Blocked && len(l.Active) == 0 }

// newLocal returns the limiter of a in this process.
func (a *activeLimit) newLocal(l *Limit, s *Config) throttle.Limiter {
	switch {
	case l.Unlimited:
		return throttle.AllowAll
	case l.constant():
		return throttle.DenyAll
	case l.Compact:
		return &lazyBuckets{config: keyed.BucketsConfig{Limit: l.Spec.(throttle.Limit), Max: l.MaxKeys, Addr: l.clientAddr}, clock: s.Clock}
	case !l.Keyed:
		return newKeyLimiter(a)
	}
	return &keyed.Limiter{New: func(string) throttle.Limiter { return newKeyLimiter(a) }, Max: l.maxKeys(), Addr: l.clientAddr, Clock: s.Clock}
}

// wrap adds borrowing, ban and shadow mode of l to inner.
func wrap(inner throttle.Limiter, l *Limit, s *Config) throttle.Limiter {
	if l.Unlimited {
		return inner
	}
	if l.Borrow != "" {
		inner = throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: inner, CanBorrow: s.CanBorrow[l.Borrow]})
	}
	if l.Ban != nil {
		inner = throttle.WithClock(keyed.NewBan(inner, *l.Ban), s.Clock)
	}
	if l.Shadow {
		inner = throttle.Shadow(inner, nil)
	}
	return inner
}

// limit returns the current Limit of a.
func (a *activeLimit) limit() *Limit { return a.version().limit }

func (a *activeLimit) version() *version {
	all := *a.versions.Load()
	return all[len(all)-1]
}

// newVersion returns a version of l that begins at from, with the amount that applies at now.
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

// addVersion makes p the latest version of a. It drops the oldest one if there are maxVersions.
func (a *activeLimit) addVersion(p *version) {
	all := *a.versions.Load()
	all = append(slices.Clone(all[max(0, len(all)+1-maxVersions):]), p)
	a.versions.Store(&all)
}

// advance enters the versions that have begun by now. After a long pause it enters at most
// maxVersions of them, and then the one that applies at now.
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

// update makes a allow what l states from now on. If the definition of l differs, a must be
// changeable, and sameShape must be true for the old limit and l.
func (a *activeLimit) update(l *Limit, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := *a.version()
	if p.limit.definition() != l.definition() {
		a.addVersion(a.newVersion(l, p.number+1, now, now))
		return
	}
	p.limit = l // its position in the file may have changed
	all := slices.Clone(*a.versions.Load())
	all[len(all)-1] = &p
	a.versions.Store(&all)
}

// retire makes a pass all further claims to the activeLimit to. If to is nil, a grants everything.
func (a *activeLimit) retire(to *activeLimit) {
	h := &successor{limiter: throttle.AllowAll}
	if to != nil {
		h.limiter = throttle.AllOf(to)
	}
	a.successor.Store(h)
}

// Reserve implements throttle.Limiter.
func (a *activeLimit) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	c.Ahead = 0
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
			return a.reject(p, c)
		}
	}
	d, err := a.limiter.Reserve(ctx, c)
	if err != nil {
		return throttle.Decision{}, err
	}
	p.capWait(c, &d)
	if a.hook != nil && final(c, d) {
		a.report(ctx, p.limit, c, d)
	}
	return d, nil
}

// report passes the decision d of the limiter of a to the hook. If that panics, the units of a
// granted claim are returned, because the caller gets no decision with which it could return them.
func (a *activeLimit) report(ctx context.Context, l *Limit, c throttle.Claim, d throttle.Decision) {
	reported := false
	defer func() {
		if !reported && d.OK {
			a.limiter.Report(ctx, c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
		}
	}()
	a.hook.Decided(l, c, d)
	reported = true
}

// closed reports whether p, which ends at p.until, grants nothing until then.
func (p *version) closed() bool { return p.spec == nil }

// shadowGrant is the Decision.Grant of claims that shadow mode grants while p.closed. No limiter
// uses this number for claims that it grants beyond its limit.
const shadowGrant = math.MaxUint64

// tookUnits reports whether d, which was granted, came from a.limiter and not from reject.
func tookUnits(d throttle.Decision) bool {
	return !d.OverLimit || d.Grant != shadowGrant
}

// reject rejects c until p ends, or grants it in shadow mode.
func (a *activeLimit) reject(p *version, c throttle.Claim) (throttle.Decision, error) {
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

// final reports whether d is the final decision on c: c is not a dry run, and d is not a rejection
// after which the caller asks again.
func final(c throttle.Claim, d throttle.Decision) bool { return !c.DryRun && (d.OK || !c.Waits) }

// capWait shortens the wait of a rejection to the end of p. It keeps the wait of a claim that
// exceeds the capacity of all versions, which can never be granted.
func (p *version) capWait(c throttle.Claim, d *throttle.Decision) {
	if d.OK || p.until.IsZero() {
		return
	}
	if n, err := c.Units(); err == nil && n > p.limit.maxCapacity() {
		return
	}
	if left := p.until.Sub(d.At); left > 0 {
		d.Wait = min(d.Wait, left)
	}
}

// Report implements throttle.Limiter.
func (a *activeLimit) Report(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if tookUnits(d) {
		a.limiter.Report(ctx, c, d, f)
	}
	switch h := a.successor.Load(); {
	case h != nil:
		h.limiter.Report(ctx, c, d, f)
	case a.hook == nil || !d.OK:
	case f.State == throttle.Unused:
		a.hook.Cancelled(a.limit(), c, d)
	default:
		a.hook.Observed(ctx, a.limit(), c, d, f)
	}
}

// Traits implements throttle.Limiter. Claims of a may end after the response even if those of its
// successor do not.
func (a *activeLimit) Traits() throttle.Traits {
	t := a.limiter.Traits()
	if h := a.successor.Load(); h != nil {
		ends := t.EndsAtResponse
		t = h.limiter.Traits()
		t.EndsAtResponse = t.EndsAtResponse && ends
	}
	t.CountsRejected = t.CountsRejected || a.hook != nil
	t.BooksAhead, t.Parts = false, nil
	return t
}
