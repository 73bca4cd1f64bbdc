package throttleredis

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/heed-go/heed/throttle"
)

// AllOf returns a limiter that grants a claim only if each of limits grants it, for the
// same Claim.Key. It decides as throttle.AllOf does, but in one round trip and atomically:
// other claims never see units that a claim holds temporarily, and a rejected claim does
// not change any state. Report takes one round trip as well.
//
// All limits must be of one Store, none may be leased (Mode Leased) or in Mode Eventual, and no limit may
// occur twice. AllOf panics otherwise, or if there is no limit. throttle.AllOf accepts these limits.
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
		case l.usage != nil:
			panic("throttleredis: AllOf: limit " + strconv.Itoa(i) + " decides in memory (Mode Eventual): use throttle.AllOf")
		case l.leases != nil:
			panic("throttleredis: AllOf: limit " + strconv.Itoa(i) + " is leased (Mode Leased): use throttle.AllOf")
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
	a := &allOf{store: limits[0].store, limits: append([]*Limiter(nil), limits...), groups: &groups{store: limits[0].store, script: scriptOf(algorithms...)}}
	a.callPool.New = func() any { return newCall(a.limits...) }
	return a
}

type allOf struct {
	store     *Store
	limits    []*Limiter
	groups    *groups
	callPool  sync.Pool
	subGrants throttle.SubGrants
}

// callFor returns a call for a key.
func (a *allOf) callFor(key string) *call {
	k := a.callPool.Get().(*call)
	tag := hashTag(key)
	for i, l := range a.limits {
		k.setKey(i, l.keyPrefix+tag+l.keySuffix)
	}
	return k
}

// Reserve implements throttle.Limiter.
func (a *allOf) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	n, err := c.Units()
	if err != nil {
		return throttle.Decision{}, err
	}
	k := a.callFor(c.Key)
	defer a.callPool.Put(k)
	if len(a.limits) != 2 || a.banLimit() == nil {
		c.Ahead = 0
	}
	r, at, err := a.store.reserve(ctx, a.groups, k, c, n, waitArg(c, a.limits[0].limit.ticksPerMicro))
	if err != nil {
		return a.limits[0].limit.afterError(ctx, c, at, err)
	}
	d := a.decision(k.decisions, c, r, at)
	if d.OK && !c.DryRun {
		d = a.subGrants.Wrap(d, k.decisions)
	}
	return d, nil
}

// decision combines the decisions of the limits. If all grant, it returns the one with the
// fewest units left; otherwise the rejection with the longest wait. It stores in parts what
// a settlement needs of each grant.
func (a *allOf) decision(parts []throttle.Decision, c throttle.Claim, r reply, at time.Time) (all throttle.Decision) {
	for i, l := range a.limits {
		p := r.part(i)
		d := l.limit.decision(p, c, r.now(), at)
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

// banLimit returns the limit that bans keys after rejections of the others, or nil.
func (a *allOf) banLimit() *Limiter {
	if last := a.limits[len(a.limits)-1]; last.limit.isBan() {
		return last
	}
	return nil
}

// waitsLonger reports whether the rejection d has a longer wait than the rejection e. A
// known wait counts as longer than an unknown one.
func waitsLonger(d, e throttle.Decision) bool {
	switch {
	case d.Wait == 0 || e.Wait == throttle.Forever:
		return false
	case d.Wait == throttle.Forever || e.Wait == 0:
		return true
	}
	return d.At.Add(d.Wait).After(e.At.Add(e.Wait))
}

// Report implements throttle.Limiter. It settles the claim at each of the limits.
func (a *allOf) Report(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if ends(c, d, f) {
		n, _ := c.Units()
		a.settle(ctx, settleOp(f), c, n, f.ExtraCost(c, d), d, f.Now)
	}
}

// Traits implements throttle.Limiter. One limit with a ban may book ahead.
func (a *allOf) Traits() throttle.Traits {
	t := throttle.Traits{EndsAtResponse: !a.anyHolds(), BooksAhead: len(a.limits) == 2 && a.banLimit() != nil && a.limits[0].Traits().BooksAhead}
	for _, l := range a.limits {
		t.CountsRejected = t.CountsRejected || l.limit.countsRejections
	}
	return t
}

func (a *allOf) settle(ctx context.Context, op string, c throttle.Claim, n, extra int64, d throttle.Decision, now time.Time) {
	a.subGrants.Unwrap(d, throttle.Ended, func(parts []throttle.Decision) {
		if extra == 0 && !a.anyHolds() {
			return
		}
		k := a.callFor(c.Key)
		defer a.callPool.Put(k)
		k.setOp(op, n, clampUnits(extra))
		for i, l := range a.limits {
			l.limit.appendGrant(k, parts[2*i:])
		}
		a.store.settle(ctx, a.groups, k, now)
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

// Share returns AllOf of the shares of the limits: see Limiter.Share.
func (a *allOf) Share(processes, maxKeys int) throttle.Limiter {
	shares := make([]throttle.Limiter, len(a.limits))
	for i, l := range a.limits {
		shares[i] = l.Share(processes, maxKeys)
	}
	return throttle.AllOf(shares...)
}
