package quota

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A unitQuota is the part of a quota that the server counts in a unit other than requests, such as
// the tokens of a language model. It is the throttle.Limiter of requests whose cost is known, see
// Tracker.DemandUnits; other requests do not wait for it.
//
//	received: 1000 tokens left     in flight: 400 + 300     free: 300
//	├───────────────┬───────────┼───────────┤
//	      400            300         300         a claim of 500 waits
//
// When too few units are free, claims wait for the reset, or for as long as the units were measured
// to take to come back. Then one claim is granted as a probe: its response states what is left.
type unitQuota struct {
	endpoint *endpoint
	unit     string
	policy   string // Decision.Policy

	mu          sync.Mutex // guards the fields below
	inFlight    inFlight
	extra       int64 // units of claims in flight, beyond one for each claim
	estimates   []estimate
	lastGranted time.Time // latest time of a grant; no decision is made as of an earlier time

	dropped bool // the quota was dropped: no estimates are added
}

const maxUnits = 8 // units of one quota

// DemandUnits returns the limit that must admit req because it takes n of a unit that the
// server counts in addition to requests, such as "tokens" or "points". The name of the unit is
// that of [headers.Limit.Unit]. Units that the server does not report are not limited. The
// Demand has no Limiter if n is less than 1.
func (t *Tracker) DemandUnits(req *http.Request, unit string, n int64) throttle.Demand {
	if n < 1 || t.Mode == Disabled {
		return throttle.Demand{}
	}
	u := t.endpointOf(req).quotaOf(req).unitQuota(unit)
	if u == nil {
		return throttle.Demand{}
	}
	return throttle.Demand{Limiter: u, Cost: n}
}

// unitQuota returns the part of q that is counted in unit; nil if there are too many.
func (q *quota) unitQuota(unit string) *unitQuota {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, u := range q.units {
		if u.unit == unit {
			return u
		}
	}
	if len(q.units) == maxUnits || q.dropped {
		return nil
	}
	u := &unitQuota{endpoint: q.endpoint, unit: strings.Clone(unit), policy: q.endpoint.names.quota + " of " + unit}
	if !q.endpoint.reserve(u.bytes()) {
		return nil
	}
	q.units = append(q.units, u)
	return u
}

// Reserve implements throttle.Limiter.
func (u *unitQuota) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	n, err := c.Units()
	if err != nil {
		return throttle.Decision{}, err
	}
	if c.Now.IsZero() {
		c.Now = u.endpoint.tracker.clock.Now() // not under a lock
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	now := later(c.Now, u.lastGranted)
	d := throttle.Decision{OK: true, Policy: u.policy, At: now}
	f := u.inUnits()
	for i := range u.estimates {
		e := &u.estimates[i]
		d.Limit, d.Remaining, d.ResetAfter = max(e.limit, 1), max(e.left(now)-f.open, 0), max(e.reset.Sub(now), 0)
		if d.Wait, d.OK = u.check(e, n, now, &f); !d.OK {
			d.ServerImposed = true
			return d, nil
		}
	}
	if c.DryRun {
		return d, nil
	}
	for i := range u.estimates {
		if e := &u.estimates[i]; !e.probe && !now.Before(e.reset) && u.free(e, now, &f) < n {
			e.probe, e.lastSent = true, f.sent
		}
	}
	d.Grant = u.inFlight.add()
	u.extra += n - 1
	u.lastGranted = now
	return d, nil
}

// inUnits returns the claims in flight, with open in units.
func (u *unitQuota) inUnits() inFlight {
	f := u.inFlight
	f.open += u.extra
	return f
}

// check reports whether e admits n units as of now. If not, wait is the time until it may; 0: when
// a response arrives. A claim of more than the limit is admitted when the limit is.
func (u *unitQuota) check(e *estimate, n int64, now time.Time, f *inFlight) (wait time.Duration, ok bool) {
	free := u.free(e, now, f)
	n = min(n, max(e.limit-u.endpoint.tracker.pacing.reserved(e.limit), 1))
	switch {
	case e.probe:
		return 0, f.after(e.lastSent) == 0
	case free >= n:
		return 0, true
	case !now.Before(e.reset):
		return 0, f.open == 0 || e.left(now) <= f.open
	}
	wait = e.reset.Sub(now)
	if refill := e.untilFree(free-n+1, now); refill > 0 {
		wait = min(wait, refill)
	}
	return wait, false
}

// free returns how many units of e are neither in flight nor reserved for other clients.
func (u *unitQuota) free(e *estimate, now time.Time, f *inFlight) int64 {
	return e.left(now) - f.open - u.endpoint.tracker.pacing.reserved(e.limit)
}

// NonBlocking is the method that throttle.IsNonBlocking calls.
func (*unitQuota) NonBlocking() bool { return true }

// Cancel implements throttle.Limiter.
func (u *unitQuota) Cancel(_ context.Context, c throttle.Claim, d throttle.Decision) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if n, err := c.Units(); err == nil && d.OK {
		u.end(d.Grant, n)
	}
}

// end ends claim k of n units. It reports false if it has ended before.
func (u *unitQuota) end(k uint64, n int64) bool {
	if !u.inFlight.end(k) {
		return false
	}
	if u.extra -= n - 1; u.inFlight.open == 0 || u.extra < 0 {
		u.extra = 0 // inFlight may have forgotten claims
	}
	return true
}

// Observe implements throttle.Observer. The first feedback on a claim counts as its response.
func (u *unitQuota) Observe(_ context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if f.Now.IsZero() {
		f.Now = u.endpoint.tracker.clock.Now() // not under a lock
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	n, err := c.Units()
	if err != nil || !d.OK || !u.end(d.Grant, n) {
		return
	}
	if f.Outcome == throttle.Accepted {
		for i := range u.estimates {
			u.estimates[i].refill.responses += n
		}
	}
	stated := u.update(f.RemoteLimits, d.Grant, later(f.Now, u.lastGranted))
	for i := len(u.estimates) - 1; i >= 0; i-- {
		e := &u.estimates[i]
		switch {
		case stated[i] || f.Outcome == throttle.Failed:
		case !e.probe:
			e.remaining = max(e.remaining-n, 0)
		case d.Grant > e.lastSent: // not even the response to the probe states the limit
			u.endpoint.release(bytesOf(u.estimates[i : i+1]))
			u.estimates = append(u.estimates[:i], u.estimates[i+1:]...)
		}
	}
}

// applyUnits applies limits, which a response states, to the units of q. It reports whether nothing
// is left of one of them.
func (q *quota) applyUnits(limits []throttle.RemoteLimit, now time.Time) (usedUp bool) {
	for _, u := range q.units {
		u.applyStated(limits, now)
		for _, l := range limits {
			usedUp = usedUp || l.Unit == u.unit && !l.RemainingUnknown && l.Remaining <= 0
		}
	}
	return usedUp
}

// applyStated applies limits, which the response to a request of unknown cost states.
func (u *unitQuota) applyStated(limits []throttle.RemoteLimit, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.update(limits, 0, later(now, u.lastGranted))
}

// update applies limits, which the response to claim k states. It returns which estimates they
// concern.
func (u *unitQuota) update(limits []throttle.RemoteLimit, k uint64, now time.Time) (stated [maxEstimates]bool) {
	f := u.inUnits()
	for _, l := range limits {
		if l.Unit != u.unit || l.RemainingUnknown {
			continue
		}
		if i := u.find(l); i >= 0 {
			stated[i] = true
			u.estimates[i].update(l, k, now, &f)
		}
	}
	return stated
}

// find returns the index of the estimate of l, which may be new; -1 if there are too many.
func (u *unitQuota) find(l throttle.RemoteLimit) int {
	for i := range u.estimates {
		if u.estimates[i].name == l.Name && u.estimates[i].per == l.Per {
			return i
		}
	}
	if u.dropped {
		return -1
	}
	var ok bool
	if u.estimates, ok = u.endpoint.addEstimate(u.estimates, estimate{name: l.Name, per: l.Per, remaining: l.Limit, weighted: true}); !ok {
		return -1
	}
	return len(u.estimates) - 1
}
