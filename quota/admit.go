package quota

import (
	"time"

	"github.com/heed-go/heed/throttle"
)

// mostMore slots than at the start there can be. With 14 more than 4, fifty calls
// to a server without limits still take five round trips. moreEvery is how often one
// more request is sent while no response arrives, as with long polls.
const (
	mostMore  = 14
	moreEvery = 100 * time.Millisecond
)

// adapt lets the estimated rate grow, as c is made now.
func (b *bucket) adapt(c *throttle.Claim, now time.Time) {
	if b.est == nil || !b.est.loop.on() || c.DryRun {
		return
	}
	defer b.record(b.view())
	if b.est.loop.grow(now, b.last, &b.est.accepted) {
		b.dropLoop(false, now)
	}
}

// decide asks all that can hold a request back, in turn. A dry run looks only at what
// takes time: bounds of what is in flight end with a response.
func (b *bucket) decide(d *throttle.Decision, n int64, dry bool, now time.Time) {
	names, full := b.site.names, b.site.tracker.Mode == Full
	if d.Wait, d.OK = b.gate.check(now, &b.flight); !d.OK {
		d.Policy, d.ServerImposed, d.Estimated = names.gate, true, b.gate.estimated
		if d.Estimated {
			d.Policy = names.pace
		}
		return
	}
	if full && !dry {
		if d.Wait, d.OK = b.startSlowly(now); !d.OK {
			d.Policy = names.start
			return
		}
		if b.strain.full(b.flight.open) && b.site.tracker.start() > 0 {
			d.Policy, d.OK = names.strain, false
			return
		}
	}
	for i := range b.told {
		free, wait := b.told[i].free(now, &b.flight, b.site.tracker.use())
		if free < min(n, max(b.told[i].limit, 1)) {
			d.Wait, d.OK, d.ServerImposed = wait, false, true
			return
		}
	}
	if full && b.est != nil {
		if d.Wait, d.OK = b.est.loop.check(now); !d.OK {
			d.Policy, d.ServerImposed, d.Estimated = names.pace, true, true
			return
		}
	}
	if b.est != nil && (full || b.est.window.declared) {
		if d.Wait, d.OK = b.est.window.check(now, &b.flight); !d.OK {
			d.ServerImposed, d.Estimated = true, !b.est.window.declared
			if d.Estimated {
				d.Policy = names.pace
			}
			return
		}
	}
	d.OK = true
}

// startSlowly bounds what is in flight to a host that is not known yet, or that has
// just rejected a request without stating anything.
func (b *bucket) startSlowly(now time.Time) (wait time.Duration, ok bool) {
	if b.est != nil {
		if wait, ok = b.est.caution.check(b.flight.open, now); !ok {
			return wait, false
		}
	}
	if !b.young() {
		return 0, true
	}
	start := b.site.tracker.start()
	if start < 0 {
		return 0, true
	}
	more := time.Duration(0) // requests beyond the start, since responses are slow to come
	if since := later(b.response, b.span.since); !since.IsZero() {
		more = now.Sub(since) / moreEvery
		wait = (more+1)*moreEvery - now.Sub(since)
	}
	return wait, b.flight.open < b.slots()+int64(more)
}

// young reports whether too little is known of the host to leave the number of requests
// in flight to it unbounded.
func (b *bucket) young() bool { return b.good < knownAfter && !b.trusted }

// slots is how many requests may be in flight to a host that is not known yet: one more
// for every two successes, up to a point. All that is in flight when a limit is met is
// wasted, however many successes came before.
func (b *bucket) slots() int64 {
	start := b.site.tracker.start()
	if len(b.told) > 0 {
		return int64(start + b.good)
	}
	return int64(start + min(b.good/2, mostMore))
}
