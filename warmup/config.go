// Package warmup has the two smooth limits of Guava's RateLimiter as Limiters: one that
// saves up idle time for a burst, and one that has to warm up after it.
//
// A server that was idle is often slower than one that is busy: its caches are
// empty, its pools are small, its code is not compiled. What calls it at full rate from
// the first moment on makes an outage out of that. A [Curve] begins slowly, gets faster
// with each unit that is used, and is cold again after as long an idleness.
//
// Both pay later: a claim is granted whatever its size as soon as those before it
// are paid for, and the next one waits for it. So a large claim is never held up by
// its own size, and no claim is too large.
package warmup

import (
	"fmt"
	"math"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A Config says how a limit warms up. The longer it was idle, the longer a unit takes:
//
//	time for a unit
//	Cold * Per/Count ┤                       ╱·
//	                 │                  ╱     ·
//	                 │             ╱          ·
//	       Per/Count ┼────────╱               ·
//	                 │        ·               ·
//	                 └────────┴───────────────┴──▶ idle units
//	                 0    threshold          most
//
// Each unit that is used goes one to the left, and idle time goes to the right: from 0
// to most in Over. The area under the line is time. It is Over between most and the
// threshold, and half of that between there and 0, whatever Cold is. Hence
//
//	threshold = Over/2 / (Per/Count)
//	most      = threshold + 2*Over / (Per/Count + Cold*Per/Count)
//
// which are the formulas of Guava's SmoothRateLimiter. Below the threshold a unit takes
// as long as when there are no idle ones: a pause that is short next to Over costs
// nothing.
type Config struct {
	throttle.Limit // Count units per Per when warm; Burst must be 0: there is none

	// Period is how long it takes from cold to warm, when units are used as fast as they
	// come, and how long it takes from having been busy to cold again. 0: no warm-up,
	// units come at an even pace from the start.
	Period time.Duration

	// ColdFactor says how many times longer a unit takes when cold. 0: 3, as in Guava. Less
	// than 1 begins fast and slows down.
	ColdFactor float64

	// Outage says that the limit is cold again as well when for so long all
	// feedback was that work had failed or was throttled. 0: never.
	Outage time.Duration
}

// Validate returns an error that says what to change if c can never work.
func (c Config) Validate() error {
	switch {
	case c.Period < 0:
		return fmt.Errorf("warmup: limit %q: Period is %v: it must not be negative", c.Name, c.Period)
	case c.ColdFactor < 0 || math.IsNaN(c.ColdFactor) || math.IsInf(c.ColdFactor, 1):
		return fmt.Errorf("warmup: limit %q: ColdFactor is %v: it must be a positive number, or 0 for 3", c.Name, c.ColdFactor)
	case c.Outage < 0:
		return fmt.Errorf("warmup: limit %q: Outage is %v: it must not be negative", c.Name, c.Outage)
	}
	return validateLimit(c.Limit)
}

// Interval returns how long a unit takes after the limit, when it was warm, has been
// idle for so long.
func (c Config) Interval(idle time.Duration) time.Duration {
	p := c.costs()
	units := min(max(float64(idle), 0)/p.coolDownInterval, p.maxIdle)
	return ticks.CeilDuration(p.idleInterval + max(units-p.thresholdUnits, 0)*p.slope)
}

// After returns how long after the first unit the n-th one after it comes when the
// limit was cold and units are used as fast as they come.
func (c Config) After(n int64) time.Duration {
	p := c.costs()
	idle := min(float64(max(n, 0)), p.maxIdle)
	return ticks.CeilDuration(p.cost(p.maxIdle, idle) + (float64(max(n, 0))-idle)*p.stableInterval)
}

// A BurstyConfig says how a limit saves up idle time, as Guava's SmoothBursty does.
type BurstyConfig struct {
	throttle.Limit // Count units per Per; Burst must be 0: Save says it

	// MaxBurst is for how long idle time is saved. Units that would have come in it can
	// be used at once, and one more. 0: 1 s, as in Guava.
	MaxBurst time.Duration

	// StartFull says to begin with as much saved as can be. Otherwise nothing is, as in Guava.
	StartFull bool
}

// Validate returns an error that says what to change if b can never work.
func (b BurstyConfig) Validate() error {
	if b.MaxBurst < 0 {
		return fmt.Errorf("warmup: limit %q: MaxBurst is %v: it must not be negative; a Config with Period 0 has no burst", b.Name, b.MaxBurst)
	}
	return validateLimit(b.Limit)
}

func validateLimit(l throttle.Limit) error {
	if l.Burst != 0 {
		return fmt.Errorf("warmup: limit %q: Burst is %d: it has none: leave it 0", l.Name, l.Burst)
	}
	return l.Validate()
}

// costs is what units take, in nanoseconds, depending on how many idle ones there are.
type costs struct {
	stableInterval   float64 // of a unit when there are no idle ones
	idleInterval     float64 // of an idle one up to the threshold
	slope            float64 // by which each one further up takes longer
	thresholdUnits   float64 // idle units up to which the limit is warm
	maxIdle          float64 // idle units
	coolDownInterval float64 // of idleness that make an idle unit; +Inf: none do
}

func intervalOf(l throttle.Limit) float64 { return float64(l.Per) / float64(l.Count) }

func (c Config) costs() costs {
	p := costs{stableInterval: intervalOf(c.Limit), coolDownInterval: math.Inf(1)}
	p.idleInterval = p.stableInterval
	if c.Period == 0 {
		return p // the formulas below would divide 0 by 0
	}
	cold, period := c.ColdFactor*p.stableInterval, float64(c.Period)
	if c.ColdFactor == 0 {
		cold = 3 * p.stableInterval
	}
	p.thresholdUnits = period / 2 / p.stableInterval
	p.maxIdle = p.thresholdUnits + 2*period/(p.stableInterval+cold)
	p.slope = (cold - p.stableInterval) / (p.maxIdle - p.thresholdUnits)
	p.coolDownInterval = period / p.maxIdle
	return p
}

func (b BurstyConfig) costs() costs {
	p := costs{stableInterval: intervalOf(b.Limit)}
	maxBurst := b.MaxBurst
	if maxBurst == 0 {
		maxBurst = time.Second
	}
	p.coolDownInterval = p.stableInterval
	p.maxIdle = float64(maxBurst) * float64(b.Count) / float64(b.Per)
	p.thresholdUnits = p.maxIdle
	return p
}

// idleUnitsAreFree reports whether idle units take no time.
func (p *costs) idleUnitsAreFree() bool { return p.idleInterval == 0 }

// cost returns how long n of so many idle units take: the area under the line.
func (p *costs) cost(idle, n float64) float64 {
	above := max(idle-p.thresholdUnits, 0)
	cold := min(above, n)
	return p.idleInterval*n + cold*(above-cold/2)*p.slope
}
