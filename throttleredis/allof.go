package throttleredis

import (
	"context"
	"slices"
	"strconv"

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
		case slices.ContainsFunc(limits[:i], func(o *Limiter) bool { return o.keySuffix == l.keySuffix }):
			panic("throttleredis: AllOf: limit " + strconv.Itoa(i) + " is there twice: leave it out, or give it another Name")
		}
	}
	a := new(allOf)
	a.init(limits[0].store, true, slices.Clone(limits)...)
	return a
}

// An allOf is the limiter of AllOf.
type allOf struct{ scripted }

// Reserve implements throttle.Limiter.
func (a *allOf) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	n, err := c.Units()
	if err != nil {
		return throttle.Decision{}, err
	}
	if !a.bansOne() {
		c.Ahead = 0
	}
	return a.ask(ctx, c, n)
}

// bansOne reports whether a is one limit, and a ban of keys after rejections of that limit.
func (a *allOf) bansOne() bool { return len(a.limits) == 2 && a.limits[1].limit.isBan() }

// Report implements throttle.Limiter. It settles the claim at each of the limits.
func (a *allOf) Report(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if ends(c, d, f) {
		a.settle(ctx, c, d, f)
	}
}

// Traits implements throttle.Limiter. One limit with a ban may book ahead.
func (a *allOf) Traits() throttle.Traits {
	return throttle.Traits{
		EndsAtResponse: !a.holds,
		BooksAhead:     a.bansOne() && a.limits[0].Traits().BooksAhead,
		CountsRejected: a.countsRejected,
	}
}

// Share returns AllOf of the shares of the limits: see Limiter.Share.
func (a *allOf) Share(processes, maxKeys int) throttle.Limiter {
	shares := make([]throttle.Limiter, len(a.limits))
	for i, l := range a.limits {
		shares[i] = l.Share(processes, maxKeys)
	}
	return throttle.AllOf(shares...)
}
