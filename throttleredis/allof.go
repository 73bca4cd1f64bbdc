package throttleredis

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/heed-go/heed/throttle"
)

// AllOf returns a limiter that grants a claim only if each of limits grants it, for the
// same Claim.Key. It decides as throttle.AllOf does, but in one round trip and at one
// instant: nobody else sees units that a claim holds for a moment, and what is refused has
// not even moved a clock. Cancel and Observe take one round trip as well.
//
// The limits must be of one Store, and no limit may be there twice: AllOf panics otherwise,
// or if there is none.
func AllOf(limits ...*Limiter) throttle.Limiter { return newAllOf(limits...) }

func newAllOf(limits ...*Limiter) *allOf {
	if len(limits) == 0 {
		panic("throttleredis: AllOf: there is no limit: use throttle.AllowAll for none")
	}
	algorithms := make([]string, len(limits))
	for i, l := range limits {
		switch {
		case l == nil:
			panic("throttleredis: AllOf: limit " + strconv.Itoa(i) + " is nil: leave it out")
		case l.store != limits[0].store:
			panic("throttleredis: AllOf: limit " + strconv.Itoa(i) + " is of another Store: use throttle.AllOf")
		}
		for _, other := range limits[:i] {
			if other.keyPrefix+other.keySuffix == l.keyPrefix+l.keySuffix {
				panic("throttleredis: AllOf: limit " + strconv.Itoa(i) + " is there twice: leave it out, or give it another Name")
			}
		}
		algorithms[i] = l.limit.algorithm
	}
	a := &allOf{store: limits[0].store, limits: append([]*Limiter(nil), limits...), script: scriptOf(algorithms...)}
	a.callPool.New = func() any { return newCall(a.limits...) }
	return a
}

type allOf struct {
	store     *Store
	limits    []*Limiter
	script    *script
	callPool  sync.Pool
	subGrants throttle.SubGrants
}

// callFor returns the room for a call about a key.
func (a *allOf) callFor(key string) *call {
	k := a.callPool.Get().(*call)
	tag := hashTag(key)
	for i, l := range a.limits {
		k.setKey(i, l.keyPrefix+tag+l.keySuffix)
	}
	return k
}

// Reserve implements throttle.Limiter. It does not book ahead, whatever Claim.MaxWait says,
// but for one limit with penalties.
func (a *allOf) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	n, err := c.Units()
	if err != nil {
		return throttle.Decision{}, err
	}
	k := a.callFor(c.Key)
	defer a.callPool.Put(k)
	maxWait := int64(0)
	if len(a.limits) == 2 && a.banLimit() != nil {
		maxWait = ticksWithin(c.MaxWait, a.limits[0].limit.ticksPerMicro)
	}
	r, at, err := a.store.reserve(ctx, a.script, k, c, n, maxWait)
	if err != nil {
		return throttle.Decision{}, err
	}
	d := a.decision(k.decisions, r, at)
	if d.OK && !c.DryRun {
		d = a.subGrants.Wrap(d, k.decisions)
	}
	return d, nil
}

// decision returns what the limits together say: if all grant, the one with the fewest
// units left; else the refusal that asks for the longest wait. It writes to parts what has
// to be known of grants.
func (a *allOf) decision(parts []throttle.Decision, r reply, at time.Time) (all throttle.Decision) {
	for i, l := range a.limits {
		p := r.part(i)
		d := l.limit.decision(p, r.now(), at)
		storeGrant(parts[2*i:], d, p)
		switch {
		case l.limit.isBan():
			if !d.OK {
				all = l.limit.withBan(all, d.Wait)
			}
		case i == 0, all.OK && !d.OK, !all.OK && !d.OK && waitsLonger(d, all):
			all = d
		case all.OK && d.OK && d.Limit > 0 && (all.Limit == 0 || d.Remaining < all.Remaining):
			d.At = all.At
			all = d
		}
	}
	return all
}

// banLimit returns the limit that makes penalties of what others refuse; nil: none does.
func (a *allOf) banLimit() *Limiter {
	if last := a.limits[len(a.limits)-1]; last.limit.isBan() {
		return last
	}
	return nil
}

// waitsLonger reports whether d, a refusal, asks to wait for longer than e does. A wait that
// is known is longer than one that is not.
func waitsLonger(d, e throttle.Decision) bool {
	switch {
	case d.Wait == 0 || e.Wait == throttle.Forever:
		return false
	case d.Wait == throttle.Forever || e.Wait == 0:
		return true
	}
	return d.At.Add(d.Wait).After(e.At.Add(e.Wait))
}

// Cancel implements throttle.Limiter.
func (a *allOf) Cancel(ctx context.Context, c throttle.Claim, d throttle.Decision) {
	if n, err := c.Units(); err == nil && d.OK {
		a.settle(ctx, opCancel, c, n, -n, d, c.Now)
	}
}

// Observe implements throttle.Observer: what each limit needs to hear of it, it hears.
func (a *allOf) Observe(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if extra, ends := extraUnits(c, d, f); ends {
		n, _ := c.Units()
		a.settle(ctx, opSettle, c, n, extra, d, f.Now)
	}
}

func (a *allOf) settle(ctx context.Context, op any, c throttle.Claim, n, extra int64, d throttle.Decision, now time.Time) {
	a.subGrants.Unwrap(d, false, func(parts []throttle.Decision) {
		if extra == 0 && !a.anyHolds() {
			return
		}
		k := a.callFor(c.Key)
		defer a.callPool.Put(k)
		k.setOp(op, n, clampUnits(extra))
		for i, l := range a.limits {
			l.limit.appendGrant(k, parts[2*i:])
		}
		a.store.settle(ctx, a.script, k, now)
	})
}

func (a *allOf) anyHolds() bool {
	for _, l := range a.limits {
		if l.limit.holdsUntilEnd {
			return true
		}
	}
	return false
}

// Local implements throttle.NonBlocking: it does I/O.
func (*allOf) NonBlocking() bool { return false }

// Share returns what Limiter.Share does, for all of the limits.
func (a *allOf) Share(processes, maxKeys int) throttle.Limiter {
	shares := make([]throttle.Limiter, len(a.limits))
	for i, l := range a.limits {
		shares[i] = l.Share(processes, maxKeys)
	}
	return throttle.AllOf(shares...)
}
