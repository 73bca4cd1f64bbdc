package quota

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A quota is one quota of a server as a throttle.Limiter: it decides by what the
// server stated and by what it rejected.
//
//	gate      the server stated that to stop      shut until the stated end, then one probe
//	start     nothing is known of it yet          few in flight, more with each success
//	told      it states how much is left          no more than that
//	est       it rejects and states nothing       evenly, at the rate that it accepted
//	strain    it responds late or not at all      no more in flight than before
type quota struct {
	endpoint *endpoint
	named    bool // it belongs to a quota name: guarded by the lock of site

	mu           sync.Mutex
	inFlight     inFlight
	hold         hold
	estimates    []estimate
	units        []*unitQuota
	start        slowStart
	span         acceptedSpan // accepted since the last idle time
	inference    *inference   // nil: there is nothing to estimate
	slow         slowResponses
	lastGranted  time.Time    // latest reading of the clock granted at
	lastResponse time.Time    // when the latest response came; zero: none yet
	shared       *sharedState // nil: no Exchange
	dropped      bool         // no route has it any more, and it keeps nothing of what it hears
}

// policyNames are the policies of a bucket's decisions, as users see them in errors and
// traces. The documentation of the package explains them.
type policyNames struct{ host, quota, retryAfter, learnedRate, slowStart, slowResponses string }

func newPolicyNames(host string) *policyNames {
	return &policyNames{host: host, quota: host + ": quota", retryAfter: host + ": retry-after", learnedRate: host + ": learned rate", slowStart: host + ": slow start", slowResponses: host + ": slow responses"}
}

// Reserve implements throttle.Limiter. The Wait of a refusal is 0 if it ends with
// an answer that is still to come.
func (q *quota) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	if q.endpoint.id != "" {
		return q.reserveShared(c)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.reserve(c)
}

func (q *quota) reserve(c throttle.Claim) (throttle.Decision, error) {
	n, err := c.Units()
	if err != nil {
		return throttle.Decision{}, err
	}
	now := q.now(c.Now)
	d := throttle.Decision{Policy: q.endpoint.names.quota, At: now}
	q.describe(&d, now)
	q.growRate(&c, now)
	q.decide(&d, n, c.DryRun, now)
	if !d.OK || c.DryRun {
		return d, nil
	}
	for i := range q.estimates {
		q.estimates[i].granted(now, &q.inFlight, q.endpoint.tracker.pacing())
	}
	d.Grant = q.inFlight.add()
	q.slow.granted(d.Grant, q.inFlight.open, int64(q.endpoint.tracker.initialConcurrency()), now)
	for i := range q.estimates {
		q.endpoint.tracker.pacing().scheduleNext(&q.estimates[i], now, &q.inFlight)
		q.estimates[i].others.granted(d.Grant, now, q.endpoint.tracker.random())
	}
	q.began(now)
	if q.inference != nil && q.inference.loop.on() {
		q.inference.loop.spend(n, now)
	}
	if q.inference != nil {
		q.inference.window.granted(d.Grant, now)
	}
	q.lastGranted = now
	return d, nil
}

// NonBlocking is the method that throttle.IsNonBlocking calls.
func (*quota) NonBlocking() bool { return true }

// Cancel implements throttle.Limiter: the claim was never sent.
func (q *quota) Cancel(_ context.Context, c throttle.Claim, d throttle.Decision) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n, err := c.Units(); err == nil && d.OK && q.inFlight.end(d.Grant) {
		q.slow.cancelled(d.Grant)
		if q.inference != nil {
			q.inference.loop.unspend(n)
			q.inference.window.canceled(d.Grant)
		}
	}
}

// Observe implements throttle.Observer. The first feedback on a claim counts as
// its answer.
func (q *quota) Observe(_ context.Context, _ throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	q.observe(d, f)
	q.endpoint.tracker.listeners.deliver()
	if q.endpoint.id != "" {
		q.publish(f.Now)
	}
}

func (q *quota) observe(d throttle.Decision, f throttle.Feedback) {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer q.record(q.view())
	if !d.OK || !q.inFlight.end(d.Grant) {
		return
	}
	q.recordOutcome(d.Grant, f.Outcome == throttle.Failed, f.Now)
	if f.Outcome == throttle.Accepted && f.Cause == throttle.CauseUnknown && len(f.RemoteLimits)+len(q.estimates) == 0 && !q.hold.active && q.inference == nil {
		q.accepted() // nothing to learn from, not even the time
		if q.start.isNew() || q.start.maxInFlight > 0 {
			q.lastResponse = q.now(f.Now)
		}
		return
	}
	now := q.now(f.Now)
	q.lastResponse = now
	explained := q.learn(d.Grant, f, now)
	switch f.Outcome {
	case throttle.Throttled:
		q.throttled(d.Grant, f, explained, now)
	case throttle.Accepted:
		if q.inference != nil && f.Cause == throttle.CauseUnknown {
			q.succeeded(d.Grant, now)
		}
		if q.hold.probeAccepted(d.Grant, q.lastGranted) {
			q.released(now)
		}
		if f.Cause == throttle.CauseUnknown {
			q.accepted()
		}
	}
}

// throttled takes in the rejection of claim n, which a stated limit explains or not.
func (q *quota) throttled(n uint64, f throttle.Feedback, explained bool, now time.Time) {
	cause := f.Cause
	if cause == throttle.CauseUnknown && f.RetryAfter <= 0 && !explained {
		cause = throttle.CauseUnstated // reported by other means than Tracker.Feedback
	}
	switch {
	case q.endpoint.tracker.Mode != Full && isEstimated(cause) && !explained:
	case cause == throttle.CauseRetryNow && !explained:
		if q.inference != nil && (q.inference.stopNext || q.inference.loop.on()) || q.hold.active {
			q.rejected(n, throttle.CauseUnstated, now)
		}
	case isEstimated(cause) && !explained:
		q.rejected(n, cause, now)
	case !q.hold.close(n, now, q.closing(f.RetryAfter, now)) && explained:
	case !explained:
		q.stated(n, f.RetryAfter, now)
	default:
		for i := range q.estimates {
			if q.estimates[i].remaining == 0 {
				q.estimates[i].refill.rejected()
			}
		}
	}
}

// closing says how to shut the gate after a rejection that states retryAfter; 0: it
// states no time.
func (q *quota) closing(retryAfter time.Duration, now time.Time) closing {
	window := time.Duration(0)
	for i := range q.estimates {
		window = max(window, q.estimates[i].per)
	}
	t := q.endpoint.tracker
	return closing{retryAfter: retryAfter, window: window, maxHold: t.maxHold(), spread: q.spreadOfClients(), sent: q.inFlight.sent, random: t.random(), inFlight: max(q.inFlight.open+1, int64(q.span.rate(now)*q.roundTrip().Seconds()))}
}

// learn takes over what the answer says of the server's limits. It reports
// whether one of them is used up, which explains a refusal.
func (q *quota) learn(n uint64, f throttle.Feedback, now time.Time) (explained bool) {
	if q.inference != nil && q.inference.window.declared && slices.ContainsFunc(f.RemoteLimits, countsRequests) {
		q.inference.window = learnedWindow{}
	}
	var said [maxEstimates]bool
	for i := range q.estimates {
		if f.Outcome == throttle.Accepted {
			q.estimates[i].early.accepted(&q.estimates[i], n, now)
			q.estimates[i].countAccepted(now)
		}
	}
	for _, w := range f.RemoteLimits {
		if !countsRequests(w) {
			continue
		}
		if i := q.find(w, now); i >= 0 {
			said[i] = true
			if f.Outcome == throttle.Throttled {
				q.estimates[i].concurrency.rejected()
				if n > q.estimates[i].lastSent {
					q.estimates[i].counted.rejected(q.estimates[i].remaining-q.inFlight.open, q.estimates[i].limit)
				}
			}
			q.estimates[i].adaptProbePause(w, n, f.Outcome)
			q.update(&q.estimates[i], w, n, now)
			q.estimates[i].counted.on = q.estimates[i].counted.on && f.Outcome != throttle.Accepted
		}
	}
	for i := len(q.estimates) - 1; i >= 0; i-- {
		e := &q.estimates[i]
		switch {
		case said[i], f.Outcome == throttle.Failed:
			continue
		case f.Outcome == throttle.Throttled && explains(f.RemoteLimits):
			e.probe = e.probe && n <= e.lastSent // rejected by another limit, which says nothing of this one
			continue
		}
		before := bytesOf(q.estimates[i : i+1])
		if e.countUnstated(n, f.Outcome == throttle.Accepted && q.endpoint.tracker.Mode == Full, now, &q.inFlight) {
			q.estimates = append(q.estimates[:i], q.estimates[i+1:]...)
			q.endpoint.memory.release(before)
		} else {
			q.endpoint.memory.release(before - bytesOf(q.estimates[i:i+1]))
		}
	}
	return explains(f.RemoteLimits) || q.applyUnits(f.RemoteLimits, now)
}

// update applies w, which the response to claim n stated, to e. A log is charged to the memory of
// the host.
func (q *quota) update(e *estimate, w throttle.RemoteLimit, n uint64, now time.Time) {
	before := e.refill.log
	e.update(w, n, now, &q.inFlight)
	switch {
	case before != nil && e.refill.log == nil:
		q.endpoint.memory.release(sendLogBytes)
	case before == nil && e.refill.log != nil && !q.endpoint.memory.reserve(sendLogBytes):
		e.refill.log = nil
	}
}

// explains reports whether one of windows is used up.
func explains(windows []throttle.RemoteLimit) bool {
	return slices.ContainsFunc(windows, func(w throttle.RemoteLimit) bool { return countsRequests(w) && w.Remaining <= 0 })
}

// find returns the index of the limit that w speaks of, which may be new; -1 if
// there is no room for it.
func (q *quota) find(w throttle.RemoteLimit, now time.Time) int {
	similar := -1
	for i := range q.estimates {
		e := &q.estimates[i]
		if e.name != w.Name || e.per != w.Per {
			continue
		}
		if e.limit == e.cost.inRequests(w).Limit {
			return i
		}
		similar = i
	}
	if similar >= 0 && !q.estimates[similar].isOtherWindow(w, now) {
		return similar
	}
	if q.dropped {
		return -1
	}
	var ok bool
	if q.estimates, ok = q.endpoint.addEstimate(q.estimates, estimate{name: w.Name, per: w.Per, remaining: w.Limit, concurrency: concurrencyOf(w)}); !ok {
		return -1
	}
	return len(q.estimates) - 1
}

// describe adds the told limit with the fewest units left.
func (q *quota) describe(d *throttle.Decision, now time.Time) {
	for i := range q.estimates {
		e := &q.estimates[i]
		if left := max(e.remaining-q.inFlight.open, 0); d.Limit == 0 || left < d.Remaining {
			d.Limit, d.Remaining, d.ResetAfter = max(e.limit, 1), left, max(e.reset.Sub(now), 0)
		}
	}
}

// applyStated takes over what the answer to a request that another bucket granted says.
func (q *quota) applyStated(windows []throttle.RemoteLimit, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer q.record(q.view())
	for _, w := range windows {
		if !countsRequests(w) {
			continue
		}
		if i := q.find(w, now); i >= 0 {
			q.update(&q.estimates[i], w, 0, now)
		}
	}
	q.applyUnits(windows, now)
}

// statesSame reports whether one of windows may well be a limit of b: of the same
// name, or without one just as large, with the same reset, and no more left than b
// knows of.
func (q *quota) statesSame(windows []throttle.RemoteLimit, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range windows {
		for i := range q.estimates {
			e := &q.estimates[i]
			if countsRequests(w) && e.name == w.Name && e.per == w.Per &&
				(w.Name != "" || e.limit == e.cost.inRequests(w).Limit && e.mayBeSameWindow(e.cost.inRequests(w), now)) {
				return true
			}
		}
	}
	return false
}

// statesOther reports whether windows name limits that b does not have.
func (q *quota) statesOther(windows []throttle.RemoteLimit) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range windows {
		for i := range q.estimates {
			if q.estimates[i].name == w.Name {
				return false
			}
		}
	}
	return len(q.estimates) > 0
}

// isHeld reports whether a refusal holds b back as of now.
func (q *quota) isHeld(now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.hold.active || q.hold.until.After(now) || q.inference != nil && q.inference.loop.on()
}

func (q *quota) numSuccesses() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.start.successes
}

// isBlank reports whether nothing would be lost if the bucket were forgotten.
func (q *quota) isBlank() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.inFlight.open == 0 && len(q.estimates)+len(q.units) == 0 && !q.hold.active && q.inference == nil
}

// now returns the reading a decision is based on.
func (q *quota) now(given time.Time) time.Time {
	if given.IsZero() {
		given = q.endpoint.tracker.clock().Now()
	}
	if given.Before(q.lastGranted) {
		return q.lastGranted
	}
	return given
}

// growRate lets the estimated rate grow, as c is made now.
func (q *quota) growRate(c *throttle.Claim, now time.Time) {
	if q.inference == nil || !q.inference.loop.on() || c.DryRun {
		return
	}
	defer q.record(q.view())
	if q.inference.loop.grow(now, q.lastGranted, &q.inference.accepted) {
		q.dropLoop(false, now)
	}
}

// decide asks all that can hold a request back, in turn. A dry run looks only at what
// takes time: bounds of what is in flight end with a response.
func (q *quota) decide(d *throttle.Decision, n int64, dry bool, now time.Time) {
	names, full := q.endpoint.names, q.endpoint.tracker.Mode == Full
	if d.Wait, d.OK = q.hold.check(now, &q.inFlight); !d.OK {
		d.Policy, d.ServerImposed, d.Estimated = names.retryAfter, true, q.hold.estimated
		if d.Estimated {
			d.Policy = names.learnedRate
		}
		return
	}
	if full && !dry {
		if d.Wait, d.OK = q.checkSlowStart(now); !d.OK {
			d.Policy = names.slowStart
			return
		}
		if q.slow.full(q.inFlight.open) && q.endpoint.tracker.initialConcurrency() > 0 {
			d.Policy, d.OK = names.slowResponses, false
			return
		}
	}
	for i := range q.estimates {
		free, wait := q.estimates[i].free(now, &q.inFlight, q.endpoint.tracker.pacing())
		if free < min(n, max(q.estimates[i].limit, 1)) {
			d.Wait, d.OK, d.ServerImposed = wait, false, true
			return
		}
	}
	if full && q.inference != nil {
		if d.Wait, d.OK = q.inference.loop.check(now); !d.OK {
			d.Policy, d.ServerImposed, d.Estimated = names.learnedRate, true, true
			return
		}
	}
	if q.inference != nil && (full || q.inference.window.declared) {
		if d.Wait, d.OK = q.inference.window.check(now, &q.inFlight); !d.OK {
			d.ServerImposed, d.Estimated = true, !q.inference.window.declared
			if d.Estimated {
				d.Policy = names.learnedRate
			}
			return
		}
	}
	d.OK = true
}
