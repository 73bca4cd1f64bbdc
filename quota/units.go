package quota

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/internal/inflight"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// A unitQuota is what a server states of a quota in one unit. It is the throttle.Limiter of claims
// whose cost in the unit is known. A quota has one that counts requests, with more reasons to reject
// claims, and one for each other unit for which the program calls Tracker.DemandUnits, such as the
// tokens of a language model. Requests whose cost is not known do not wait for the latter.
//
//	received: 1000 tokens left     in flight: 400 + 300     free: 300
//	├───────────────┬───────────┼───────────┤
//	      400            300         300         a claim of 500 waits
//
// When too few units are free, claims wait for the reset, or for as long as the units were measured
// to take to come back. Then one claim is granted as a probe: its response states what is left.
type unitQuota struct {
	endpoint *endpoint
	unit     string // empty: requests
	policy   string // Decision.Policy

	mu          sync.Mutex             // guards the fields below
	inFlight    inflight.Claims        // its open counts units
	estimates   []statedlimit.Estimate // limits that the server states, at most statedlimit.MaxEstimates
	lastGranted time.Time              // latest time of a decision that granted a claim; zero: none was. No decision is made as of an earlier time
	dropped     bool                   // the endpoint has no memory for it: it stores nothing
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
	u := t.endpointOf(req).quotaOf(req).inUnit(unit)
	if u == nil {
		return throttle.Demand{}
	}
	return throttle.Demand{Limiter: u, Cost: n}
}

// inUnit returns the part of q that is counted in unit; nil if there are too many.
func (q *quota) inUnit(unit string) *unitQuota {
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

// bytes returns the number of bytes that are reserved for u, one of quota.units, without its estimates.
func (u *unitQuota) bytes() int64 { return unitQuotaBytes + int64(len(u.unit)+len(u.policy)) }

// Reserve implements throttle.Limiter.
func (u *unitQuota) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	n, err := c.Units()
	if err != nil {
		return throttle.Decision{}, err
	}
	if c.Now.IsZero() {
		c.Now = u.endpoint.tracker.now() // not under a lock
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	now := ticks.Later(c.Now, u.lastGranted)
	d := throttle.Decision{OK: true, Policy: u.policy, At: now}
	for i := range u.estimates {
		e := &u.estimates[i]
		d.Limit, d.Remaining, d.ResetAfter = max(e.Limit, 1), max(e.Left(now)-u.inFlight.Open, 0), max(e.Reset.Sub(now), 0)
		if d.Wait, d.OK = u.check(e, n, now); !d.OK {
			d.ServerImposed = true
			return d, nil
		}
	}
	if c.DryRun {
		return d, nil
	}
	for i := range u.estimates {
		if e := &u.estimates[i]; !e.Probe && !now.Before(e.Reset) && u.free(e, now) < n {
			e.Probe, e.LastSent = true, u.inFlight.Sent
		}
	}
	d.Grant = u.inFlight.Add()
	u.inFlight.Open += n - 1
	u.lastGranted = now
	return d, nil
}

// check reports whether e admits n units as of now. If not, wait is the time until it may; 0: when
// a response arrives. A claim of more than the limit is admitted when the limit is.
func (u *unitQuota) check(e *statedlimit.Estimate, n int64, now time.Time) (wait time.Duration, ok bool) {
	f, free := &u.inFlight, u.free(e, now)
	n = min(n, max(e.Limit-u.endpoint.tracker.pacing.Reserved(e.Limit), 1))
	switch {
	case e.Probe:
		return 0, f.After(e.LastSent) == 0
	case free >= n:
		return 0, true
	case !now.Before(e.Reset):
		return 0, f.Open == 0 || e.Left(now) <= f.Open
	}
	wait = e.Reset.Sub(now)
	if refill := e.UntilFree(free-n+1, now); refill > 0 {
		wait = min(wait, refill)
	}
	return wait, false
}

// free returns how many units of e are neither in flight nor reserved for other clients.
func (u *unitQuota) free(e *statedlimit.Estimate, now time.Time) int64 {
	return e.Left(now) - u.inFlight.Open - u.endpoint.tracker.pacing.Reserved(e.Limit)
}

// NonBlocking is the method that throttle.IsNonBlocking calls.
func (*unitQuota) NonBlocking() bool { return true }

// Cancel implements throttle.Limiter.
func (u *unitQuota) Cancel(_ context.Context, c throttle.Claim, d throttle.Decision) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if n, err := c.Units(); err == nil && d.OK {
		u.inFlight.EndUnits(d.Grant, n)
	}
}

// Observe implements throttle.Observer. The first feedback on a claim counts as its response.
func (u *unitQuota) Observe(_ context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if f.Now.IsZero() {
		f.Now = u.endpoint.tracker.now() // not under a lock
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	n, err := c.Units()
	if err != nil || !d.OK || !u.inFlight.EndUnits(d.Grant, n) {
		return
	}
	if f.Outcome == throttle.Accepted {
		for i := range u.estimates {
			u.estimates[i].AddResponses(n)
		}
	}
	stated := u.update(f.RemoteLimits, d.Grant, ticks.Later(f.Now, u.lastGranted))
	for i := len(u.estimates) - 1; i >= 0; i-- {
		e := &u.estimates[i]
		switch {
		case stated[i] || f.Outcome == throttle.Failed:
		case !e.Probe:
			e.Remaining = max(e.Remaining-n, 0)
		case d.Grant > e.LastSent: // not even the response to the probe states the limit
			u.remove(i)
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
	u.update(limits, 0, ticks.Later(now, u.lastGranted))
}

// update applies limits, which the response to claim k states. It returns which estimates they
// concern.
func (u *unitQuota) update(limits []throttle.RemoteLimit, k uint64, now time.Time) (stated [statedlimit.MaxEstimates]bool) {
	for _, l := range limits {
		if i := u.find(l, now); i >= 0 {
			stated[i] = true
			u.updateEstimate(&u.estimates[i], l, k, now)
		}
	}
	return stated
}

// counts reports whether l states how many units of u are left.
func (u *unitQuota) counts(l throttle.RemoteLimit) bool {
	if u.unit == "" {
		return statedlimit.CountsRequests(l)
	}
	return l.Unit == u.unit && !l.RemainingUnknown
}

// estimateOf returns the index of the estimate of l, and l in requests. The index is -1 if there is
// none. Of several with the name and the window of l, it is the one of its size, or else the last.
func (u *unitQuota) estimateOf(l throttle.RemoteLimit) (i int, inRequests throttle.RemoteLimit) {
	i = -1
	for k := range u.estimates {
		if e := &u.estimates[k]; u.counts(l) && e.Name == l.Name && e.Per == l.Per {
			i, inRequests = k, e.InRequests(l)
			if inRequests.Limit == e.Limit {
				break
			}
		}
	}
	return i, inRequests
}

// find returns the index of the estimate of l, which may be new; -1 if there is no memory for it, or
// if l counts another unit.
func (u *unitQuota) find(l throttle.RemoteLimit, now time.Time) int {
	weighted := u.unit != ""
	i, own := u.estimateOf(l)
	if i >= 0 && (weighted || own.Limit == u.estimates[i].Limit || !u.estimates[i].IsOtherWindow(l, now)) {
		return i
	}
	if u.dropped || !u.counts(l) {
		return -1
	}
	var ok bool
	u.estimates, ok = u.endpoint.addEstimate(u.estimates, statedlimit.NewEstimate(l, weighted))
	if !ok {
		return -1
	}
	return len(u.estimates) - 1
}

// updateEstimate applies l, which the response to claim k states, to e.
func (u *unitQuota) updateEstimate(e *statedlimit.Estimate, l throttle.RemoteLimit, k uint64, now time.Time) {
	hadLog := e.HasLog()
	e.Update(l, k, now, &u.inFlight)
	u.reserveLog(e, hadLog)
}

// reserveLog accounts for the memory of a new or dropped log of e, which was updated. hadLog reports
// whether it had one before. Without memory there is no log.
func (u *unitQuota) reserveLog(e *statedlimit.Estimate, hadLog bool) {
	switch {
	case hadLog && !e.HasLog():
		u.endpoint.release(statedlimit.LogBytes)
	case !hadLog && e.HasLog() && !u.endpoint.reserve(statedlimit.LogBytes):
		e.DropLog()
	}
}

// remove removes the estimate with index i.
func (u *unitQuota) remove(i int) {
	u.endpoint.release(bytesOf(u.estimates[i : i+1]))
	u.estimates = append(u.estimates[:i], u.estimates[i+1:]...)
}

// drop removes all estimates, and prevents that there are new ones. It returns the number of bytes
// that were reserved for them.
func (u *unitQuota) drop() (bytes int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	bytes = bytesOf(u.estimates)
	u.estimates, u.dropped = nil, true
	return bytes
}
