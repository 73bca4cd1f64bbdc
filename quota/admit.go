package quota

import (
	"time"

	"github.com/heed-go/heed/throttle"
)

// mostMore slots than at the start there can be. With 14 more than 4, fifty calls
// to a server without limits still take five round trips. moreEvery is how often one
// more request is sent while no response arrives, as with long polls.
const (
	maxGrowth = 14
	growEvery = 100 * time.Millisecond
)

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
		if d.Wait, d.OK = q.slowStart(now); !d.OK {
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

// slowStart bounds what is in flight to a host that is not known yet, or that has
// just rejected a request without stating anything.
func (q *quota) slowStart(now time.Time) (wait time.Duration, ok bool) {
	if q.inference != nil {
		if wait, ok = q.inference.cut.check(q.inFlight.open, now); !ok {
			return wait, false
		}
	}
	if !q.isNew() {
		return 0, true
	}
	start := q.endpoint.tracker.initialConcurrency()
	if start < 0 {
		return 0, true
	}
	more := time.Duration(0) // requests beyond the start, since responses are slow to come
	if since := later(q.lastResponse, q.span.since); !since.IsZero() {
		more = now.Sub(since) / growEvery
		wait = (more+1)*growEvery - now.Sub(since)
	}
	return wait, q.inFlight.open < q.slowStartMax()+int64(more)
}

// isNew reports whether too little is known of the host to leave the number of requests
// in flight to it unbounded.
func (q *quota) isNew() bool { return q.successes < knownAfter && !q.servedBurst }

// slowStartMax is how many requests may be in flight to a host that is not known yet: one more
// for every two successes, up to a point. All that is in flight when a limit is met is
// wasted, however many successes came before.
func (q *quota) slowStartMax() int64 {
	start := q.endpoint.tracker.initialConcurrency()
	if len(q.estimates) > 0 {
		return int64(start + q.successes)
	}
	return int64(start + min(q.successes/2, maxGrowth))
}
