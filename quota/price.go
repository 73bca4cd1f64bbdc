package quota

import (
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A price is how many units of a limit one request takes. Most servers count
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
type price struct {
	heard bool
	left  int64 // as last told, in units
	now   strides
	units int64 // the price; 0: 1
}

// strides is what some steps have in common.
type strides struct {
	divisor int64
	n       int
}

const enoughSteps = 12 // a price of 2 is an accident once in 4,096 times

// learn takes over what an answer says is left, in units. spaced says that requests
// go at random times. It reports whether the price is another one now.
func (p *price) learn(left int64, spaced bool) (changed bool) {
	step := p.left - left
	first := !p.heard
	p.heard, p.left = true, left
	if first || step == 0 {
		return false
	}
	if step < 0 {
		step = -step // an answer that was overtaken, or units came back
	}
	old := p.one()
	if step%old != 0 {
		p.now, p.units = strides{}, 1
	}
	if spaced {
		p.now = strides{ticks.GCD(p.now.divisor, step), p.now.n + 1}
	}
	if p.now.n == enoughSteps {
		p.units, p.now = p.now.divisor, strides{}
	}
	return p.one() != old
}

// one returns the price of one request.
func (p *price) one() int64 { return max(p.units, 1) }

// in returns w in requests.
func (p *price) in(w throttle.RemoteLimit) throttle.RemoteLimit {
	w.Limit, w.Remaining = max(w.Limit/p.one(), min(w.Limit, 1)), w.Remaining/p.one()
	return w
}

// priced returns w in requests, after it has learned from it. Where the price turns
// out to be another one, what was learned in the old one is void.
func (t *told) priced(w throttle.RemoteLimit, now time.Time, open int64) throttle.RemoteLimit {
	old := t.price.one()
	changed := t.price.learn(max(w.Remaining, 0), t.shared(now, open))
	w = t.price.in(w)
	if changed {
		t.limit, t.remaining = w.Limit, min(t.remaining*old/t.price.one(), w.Remaining)
		t.refill, t.others = refill{}, others{}
	}
	return w
}
