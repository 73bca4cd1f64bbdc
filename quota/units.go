package quota

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A unitQuota is what a quota allows of one unit other than requests, as tokens of a
// language model. It holds up only those who know what their request will cost:
//
//	told: 1000 tokens left     in flight: 400 + 300     free: 300
//	├───────────────┬───────────┼───────────┤
//	      400            300         300         a request of 500 waits
//
// When too little is left it waits for the reset, or for as long as the units were
// seen to take to come back, and then sends one request to see what is left now.
type unitQuota struct {
	endpoint *endpoint
	unit     string
	policy   string

	mu          sync.Mutex
	inFlight    inFlight
	extra       int64 // units in flight beyond one for each claim
	estimates   []estimate
	lastGranted time.Time

	dropped bool // with its bucket
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

// unitQuota returns the meter of unit, nil if there are too many.
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
	if !q.endpoint.memory.reserve(u.bytes()) {
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
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.now(c.Now)
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
			e.probe, e.seen = true, f.sent
		}
	}
	d.Grant = u.inFlight.add()
	u.extra += n - 1
	u.lastGranted = now
	return d, nil
}

// check reports whether n units of t may be taken, and if not, how long until; 0:
// when an answer has come.
func (u *unitQuota) check(e *estimate, n int64, now time.Time, f *inFlight) (wait time.Duration, ok bool) {
	free := u.free(e, now, f)
	n = min(n, max(e.limit-u.endpoint.tracker.pacing().reserved(e.limit), 1)) // more than all is had for all
	switch {
	case e.probe:
		return 0, f.after(e.seen) == 0
	case free >= n:
		return 0, true
	case !now.Before(e.reset):
		return 0, f.open == 0 || e.left(now) <= f.open
	}
	wait = e.reset.Sub(now)
	if flow := e.refill.until(free-n+1, e.at, now); flow > 0 {
		wait = min(wait, flow)
	}
	return wait, false
}

func (u *unitQuota) free(e *estimate, now time.Time, f *inFlight) int64 {
	return e.left(now) - f.open - u.endpoint.tracker.pacing().reserved(e.limit)
}

// inUnits returns the flight with its open claims counted in units.
func (u *unitQuota) inUnits() inFlight {
	f := u.inFlight
	f.open += u.extra
	return f
}

// done ends claim k of n units.
func (u *unitQuota) done(k uint64, n int64) bool {
	if !u.inFlight.end(k) {
		return false
	}
	if u.extra -= n - 1; u.inFlight.open == 0 || u.extra < 0 {
		u.extra = 0 // also of claims that were forgotten
	}
	return true
}

// NonBlocking is the method that throttle.IsNonBlocking calls.
func (*unitQuota) NonBlocking() bool { return true }

// Cancel implements throttle.Limiter.
func (u *unitQuota) Cancel(_ context.Context, c throttle.Claim, d throttle.Decision) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if n, err := c.Units(); err == nil && d.OK {
		u.done(d.Grant, n)
	}
}

// Observe implements throttle.Observer. The first feedback on a claim counts as its
// answer.
func (u *unitQuota) Observe(_ context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	u.mu.Lock()
	defer u.mu.Unlock()
	n, err := c.Units()
	if err != nil || !d.OK || !u.done(d.Grant, n) {
		return
	}
	if f.Outcome == throttle.Accepted {
		for i := range u.estimates {
			u.estimates[i].refill.responses += n
		}
	}
	said := u.update(f.RemoteLimits, d.Grant, u.now(f.Now))
	for i := len(u.estimates) - 1; i >= 0; i-- {
		e := &u.estimates[i]
		switch {
		case said[i] || f.Outcome == throttle.Failed:
		case !e.probe:
			e.remaining = max(e.remaining-n, 0)
		case d.Grant > e.seen: // even the probe's answer no longer speaks of it
			u.endpoint.memory.release(bytesOf(u.estimates[i : i+1]))
			u.estimates = append(u.estimates[:i], u.estimates[i+1:]...)
		}
	}
}

// applyUnits tells the meters of b. It reports whether the units of one are used up.
func (q *quota) applyUnits(windows []throttle.RemoteLimit, now time.Time) (usedUp bool) {
	for _, u := range q.units {
		u.applyStated(windows, now)
		for _, w := range windows {
			usedUp = usedUp || w.Unit == u.unit && !w.RemainingUnknown && w.Remaining <= 0
		}
	}
	return usedUp
}

// applyStated takes over what the answer to a request of unknown cost says.
func (u *unitQuota) applyStated(windows []throttle.RemoteLimit, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.update(windows, 0, u.now(now))
}

// update takes over what an answer to claim k says, and reports of which limits.
func (u *unitQuota) update(windows []throttle.RemoteLimit, k uint64, now time.Time) (said [maxEstimates]bool) {
	f := u.inUnits()
	for _, w := range windows {
		if w.Unit != u.unit || w.RemainingUnknown {
			continue
		}
		if i := u.find(w); i >= 0 {
			said[i] = true
			u.estimates[i].update(w, k, now, &f)
		}
	}
	return said
}

// find returns the index of the limit that w speaks of; -1 if there is no room.
func (u *unitQuota) find(w throttle.RemoteLimit) int {
	for i := range u.estimates {
		if u.estimates[i].name == w.Name && u.estimates[i].per == w.Per {
			return i
		}
	}
	if u.dropped {
		return -1
	}
	var ok bool
	if u.estimates, ok = u.endpoint.addEstimate(u.estimates, estimate{name: w.Name, per: w.Per, remaining: w.Limit, weighted: true}); !ok {
		return -1
	}
	return len(u.estimates) - 1
}

func (u *unitQuota) now(given time.Time) time.Time {
	if given.IsZero() {
		given = u.endpoint.tracker.clock().Now()
	}
	return later(given, u.lastGranted)
}
