package statedlimit

import (
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A unitCost estimates how many units of a limit one request takes. Most servers count requests,
// and the cost is 1. But there are quotas of points and credits whose server does not state what a
// request costs. Then the remaining units fall in steps:
//
//	1000 ─ 995 ─ 985 ─ 980 ─ 975      every step is a multiple of 5
//	1000 ─ 997 ─ 990 ─ 989 ─ 981      no common divisor: costs differ, or there are other clients
//
// The cost is the greatest common divisor of the recent steps. If that is 1 and the remaining units
// fall by more than 1 for each request of this process, the difference counts as the use of other
// clients, see otherClients: it is a reason to slow down in both cases.
//
// Other clients that send in step with this process would look like a cost. So steps are evidence of
// a cost only while requests are sent at random intervals, as they are while other clients are
// present. A step that is not a multiple of the cost always refutes it.
//
// Everything else of an estimate is in requests: what the server states is divided by the cost.
type unitCost struct {
	known     bool  // remaining has been stated
	remaining int64 // as last stated, in units
	divisor   int64 // greatest common divisor of the latest steps
	steps     int   // number of these
	units     int64 // the cost; 0: 1
}

const minSteps = 12 // steps that show a cost; by chance, 12 steps are even once in 4,096 times

// update applies that left units remain. spaced reports whether requests are sent at random
// intervals. It reports whether the cost has changed.
func (c *unitCost) update(left int64, spaced bool) (changed bool) {
	step := c.remaining - left
	first := !c.known
	c.known, c.remaining = true, left
	if first || step == 0 {
		return false
	}
	if step < 0 {
		step = -step // responses were reordered, or units came back
	}
	old := c.perRequest()
	if step%old != 0 {
		c.divisor, c.steps, c.units = 0, 0, 1
	}
	if spaced {
		c.divisor, c.steps = ticks.GCD(c.divisor, step), c.steps+1
	}
	if c.steps == minSteps {
		c.units, c.divisor, c.steps = c.divisor, 0, 0
	}
	return c.perRequest() != old
}

// perRequest returns the cost of one request, in units.
func (c *unitCost) perRequest() int64 { return max(c.units, 1) }

// inRequests returns l in requests.
func (c *unitCost) inRequests(l throttle.RemoteLimit) throttle.RemoteLimit {
	l.Limit, l.Remaining = max(l.Limit/c.perRequest(), min(l.Limit, 1)), l.Remaining/c.perRequest()
	return l
}

// InRequests returns l in requests.
func (e *Estimate) InRequests(l throttle.RemoteLimit) throttle.RemoteLimit {
	return e.cost.inRequests(l)
}

// updateCost updates the cost by l and returns l in requests. When the cost changes, what was
// learned with the old one is dropped.
func (e *Estimate) updateCost(l throttle.RemoteLimit, now time.Time, open int64) throttle.RemoteLimit {
	old := e.cost.perRequest()
	changed := e.cost.update(max(l.Remaining, 0), e.isShared(now, open))
	l = e.cost.inRequests(l)
	if changed {
		e.Limit, e.Remaining = l.Limit, min(e.Remaining*old/e.cost.perRequest(), l.Remaining)
		e.refill, e.others = refill{}, otherClients{}
	}
	return l
}
