package throttleredis

import (
	"context"
	"sync"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A Limiter is one limit in a Store, for each Claim.Key of its own. It is a
// throttle.Limiter and a throttle.Observer, and is not throttle.Local.
//
// Decision.At is the local reading that the answer arrived at, or Claim.Now: Wait counts
// from it. That the server's clock shows something else does not matter.
type Limiter struct {
	store  *Store
	script *script
	limit  limit
	head   string // of Redis keys, before the tag
	tail   string // and after it
	calls  sync.Pool
}

// A limit is what a script needs to know.
type limit struct {
	algorithm string
	err       error // of the configuration
	policy    string
	most      int64         // most units at once
	per       time.Duration // in which they come back
	scale     int64         // ticks in a microsecond
	args      []any         // for the script

	// share makes a limiter in memory with the n-th part of the limit, for one key.
	share func(n int64, c throttle.Clock) throttle.Limiter
}

func policy(name, says string) string {
	if name == "" {
		return says
	}
	return name
}

// limiter returns the limiter of l. It panics if l or s is invalid.
func (s *Store) limiter(l limit) *Limiter {
	if l.err != nil {
		panic(l.err.Error())
	}
	if err := s.Validate(); err != nil {
		panic(err.Error())
	}
	r := &Limiter{store: s, limit: l, script: scriptOf(l.algorithm)}
	r.head, r.tail = s.prefix()+":{", "}:"+idOf(l)
	r.calls.New = func() any { return newCall(r) }
	return r
}

// Local implements throttle.Local: it does I/O.
func (*Limiter) Local() bool { return false }

// Reserve implements throttle.Limiter. Of the errors, those that match ErrUncertain may
// have taken the units; all others have not.
func (l *Limiter) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	n, err := c.Units()
	if err != nil {
		return throttle.Decision{}, err
	}
	k := l.calls.Get().(*call)
	defer l.calls.Put(k)
	k.keys[0] = l.redisKey(c.Key)
	k.ask(verbOf(c), n, ticksWithin(c.MaxWait, l.limit.scale))
	r, at, err := l.store.do(ctx, l.script, k, c.Now)
	if err != nil {
		return throttle.Decision{}, err
	}
	return l.limit.decision(r.part(0), r.now(), at), nil
}

// Cancel implements throttle.Limiter. An error is nobody's to know: the units are then
// lost until time gives them back.
func (l *Limiter) Cancel(ctx context.Context, c throttle.Claim, d throttle.Decision) {
	if n, err := c.Units(); err == nil && d.OK {
		l.settle(context.WithoutCancel(ctx), verbCancel, c, n, -n, d, c.Now)
	}
}

// Observe implements throttle.Observer: it settles a cost that was known only
// afterwards, as the limiter in memory does.
func (l *Limiter) Observe(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	n, err := c.Units()
	if err != nil || !d.OK || f.More {
		return
	}
	extra := int64(0)
	if f.Cost > 0 {
		extra = f.Cost - n
	}
	if extra != 0 {
		l.settle(context.WithoutCancel(ctx), verbSettle, c, n, extra, d, f.Now)
	}
}

func (l *Limiter) settle(ctx context.Context, verb any, c throttle.Claim, n, extra int64, d throttle.Decision, now time.Time) {
	k := l.calls.Get().(*call)
	defer l.calls.Put(k)
	k.keys[0] = l.redisKey(c.Key)
	k.ask(verb, n, clip(extra))
	k.grant(d.Grant, 0)
	l.store.do(ctx, l.script, k, now)
}

// decision returns what p says about a claim, if it was given a reading of the server's
// clock that belongs to the local reading at.
func (l *limit) decision(p part, given int64, at time.Time) throttle.Decision {
	d := throttle.Decision{
		OK:         p.ok(),
		Policy:     l.policy,
		At:         at,
		Wait:       duration(p.wait(), l.scale),
		Limit:      l.most,
		Remaining:  p.remaining(),
		ResetAfter: duration(p.reset(), l.scale),
		Per:        l.per,
		Grant:      p.grant(),
	}
	if ahead := p.now() - given; ahead > 0 { // a stamp of the limit is newer
		d.At = at.Add(time.Duration(ahead) * time.Microsecond)
	}
	if !d.OK {
		d.Wait = wholeMicros(d.Wait)
	}
	return d
}
