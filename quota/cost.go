package quota

import (
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A unitCost is how many units of a limit one request takes. Most servers count
// requests and the price is 1, but there are quotas of points and credits that do
// not say so. What is left then goes down in steps:
//
//	1000 ─ 995 ─ 985 ─ 980 ─ 975      every step is a multiple of 5
//	1000 ─ 997 ─ 990 ─ 989 ─ 981      steps of 1: prices differ, or others are there
//
// So the price is the largest number that divides all recent steps. Where it is 1
// though more than that is gone for each request of ours, the difference counts as
// other clients' use, see others: the moving average is kept there, and it is as
// good a reason to slow down.
//
// Others of our own kind who send in step with us look like a price, so steps count
// for one only while our requests are spaced at random, as they are when there seem
// to be others. They count against one at any time.
//
// All else about a told limit is in requests: its windows are divided by the price.
type unitCost struct {
	known     bool
	remaining int64 // as last told, in units
	steps     commonDivisor
	units     int64 // the price; 0: 1
}

// commonDivisor is what some steps have in common.
type commonDivisor struct {
	divisor int64
	n       int
}

const minSteps = 12 // a price of 2 is an accident once in 4,096 times

// update takes over what an answer says is left, in units. spaced says that requests
// go at random times. It reports whether the price is another one now.
func (c *unitCost) update(left int64, spaced bool) (changed bool) {
	step := c.remaining - left
	first := !c.known
	c.known, c.remaining = true, left
	if first || step == 0 {
		return false
	}
	if step < 0 {
		step = -step // an answer that was overtaken, or units came back
	}
	old := c.perRequest()
	if step%old != 0 {
		c.steps, c.units = commonDivisor{}, 1
	}
	if spaced {
		c.steps = commonDivisor{ticks.GCD(c.steps.divisor, step), c.steps.n + 1}
	}
	if c.steps.n == minSteps {
		c.units, c.steps = c.steps.divisor, commonDivisor{}
	}
	return c.perRequest() != old
}

// perRequest returns the price of one request.
func (c *unitCost) perRequest() int64 { return max(c.units, 1) }

// inRequests returns w in requests.
func (c *unitCost) inRequests(w throttle.RemoteLimit) throttle.RemoteLimit {
	w.Limit, w.Remaining = max(w.Limit/c.perRequest(), min(w.Limit, 1)), w.Remaining/c.perRequest()
	return w
}

// inRequests returns w in requests, after it has learned from it. Where the price turns
// out to be another one, what was learned in the old one is void.
func (e *estimate) inRequests(w throttle.RemoteLimit, now time.Time, open int64) throttle.RemoteLimit {
	old := e.cost.perRequest()
	changed := e.cost.update(max(w.Remaining, 0), e.isShared(now, open))
	w = e.cost.inRequests(w)
	if changed {
		e.limit, e.remaining = w.Limit, min(e.remaining*old/e.cost.perRequest(), w.Remaining)
		e.refill, e.others = refill{}, otherClients{}
	}
	return w
}
