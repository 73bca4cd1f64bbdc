// Package warmup provides the two smooth rate limits of Guava's RateLimiter as Limiters: New
// (SmoothWarmingUp) warms up after an idle time, and NewBursty (SmoothBursty) saves idle time
// for a burst.
//
//	limiter := warmup.New(warmup.Config{Limit: throttle.PerSecond(100), Period: 10 * time.Second})
//
// A server that was idle is often slower than a busy one: its caches are empty, its pools are
// small, and its code is not compiled yet. Requests at the full rate can overload it before it
// is warm. A [Config] begins with a low rate, increases it with each unit that is used, and
// returns to the low rate while it is idle.
//
// Both limits delay the next claim instead of the current one: a claim of any size is granted
// as soon as the time that all previous claims take has passed, and the next claim waits for
// the time that this one takes. So a large claim does not wait longer than a small one, and no
// claim is too large.
package warmup

import (
	"fmt"
	"math"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A Config configures a limit that warms up. The longer the limit was idle, the longer a unit
// takes:
//
//	time for a unit
//	ColdFactor * Per/Count ┤                       ╱·
//	                       │                  ╱     ·
//	                       │             ╱          ·
//	             Per/Count ┼────────╱               ·
//	                       │        ·               ·
//	                       └────────┴───────────────┴──▶ idle units
//	                       0    threshold        maximum
//
// Each unit that is used moves the limit one to the left, and idle time moves it to the right:
// from 0 to the maximum within Period. The area under the line is time. It is Period between
// the maximum and the threshold, and Period/2 between the threshold and 0, for any ColdFactor.
// Therefore
//
//	threshold = Period/2 / (Per/Count)
//	maximum   = threshold + 2*Period / (Per/Count + ColdFactor*Per/Count)
//
// which are the formulas of Guava's SmoothRateLimiter. Below the threshold a unit takes
// Per/Count, as without idle units: a pause that is short compared to Period has no effect on
// the rate.
type Config struct {
	Limit throttle.Limit // Count units per Per when warm; Burst must be 0

	// Period is the time in which a cold limit becomes warm if units are used as fast as
	// possible, and also the time in which an idle limit becomes cold. Zero means no warm-up:
	// units are available at an even pace from the start.
	Period time.Duration

	// ColdFactor is the time that a unit takes when the limit is cold, as a multiple of the
	// time when it is warm. Zero means 3, as in Guava. With a factor below 1 a cold limit is
	// faster than a warm one.
	ColdFactor float64

	// Outage is the time after which the limit becomes cold if all feedback during that time
	// reported work that failed or was throttled. Zero means never.
	Outage time.Duration
}

// Validate returns an error that describes the first invalid field of c, or nil.
func (c Config) Validate() error {
	switch {
	case c.Period < 0:
		return fmt.Errorf("warmup: limit %q: Period is %v: it must not be negative", c.Limit.Name, c.Period)
	case c.ColdFactor < 0 || math.IsNaN(c.ColdFactor) || math.IsInf(c.ColdFactor, 1):
		return fmt.Errorf("warmup: limit %q: ColdFactor is %v: it must be a positive number, or 0 for 3", c.Limit.Name, c.ColdFactor)
	case c.Outage < 0:
		return fmt.Errorf("warmup: limit %q: Outage is %v: it must not be negative", c.Limit.Name, c.Outage)
	}
	return validateLimit(c.Limit)
}

// Interval returns how long a unit takes after a warm limit has been idle for the given time.
func (c Config) Interval(idle time.Duration) time.Duration {
	p := c.costs()
	units := min(max(float64(idle), 0)/p.coolDownInterval, p.maxIdle)
	return ticks.CeilDuration(p.idleInterval + max(units-p.thresholdUnits, 0)*p.slope)
}

// After returns the time between the first unit and the n-th unit after it if the limit was
// cold and units are used as fast as possible.
func (c Config) After(n int64) time.Duration {
	p := c.costs()
	idle := min(float64(max(n, 0)), p.maxIdle)
	return ticks.CeilDuration(p.cost(p.maxIdle, idle) + (float64(max(n, 0))-idle)*p.stableInterval)
}

// A BurstyConfig configures a limit that saves idle time for a burst, as Guava's SmoothBursty
// does.
type BurstyConfig struct {
	Limit throttle.Limit // Count units per Per; Burst must be 0, MaxBurst replaces it

	// MaxBurst is the maximum idle time that is saved. The units of that time, plus one, can
	// be used immediately. Zero means 1 second, as in Guava.
	MaxBurst time.Duration

	// StartFull makes the limit start with the full burst saved. Otherwise it starts with
	// nothing saved, as in Guava.
	StartFull bool
}

// Validate returns an error that describes the first invalid field of b, or nil.
func (b BurstyConfig) Validate() error {
	if b.MaxBurst < 0 {
		return fmt.Errorf("warmup: limit %q: MaxBurst is %v: it must not be negative; a Config with Period 0 has no burst", b.Limit.Name, b.MaxBurst)
	}
	return validateLimit(b.Limit)
}

func validateLimit(l throttle.Limit) error {
	if l.Burst != 0 {
		return fmt.Errorf("warmup: limit %q: Burst is %d: it has none: leave it 0", l.Name, l.Burst)
	}
	return l.Validate()
}

// costs describes how long units take, in nanoseconds, depending on the number of idle units.
type costs struct {
	stableInterval   float64 // of a unit that is not idle
	idleInterval     float64 // of an idle unit below the threshold
	slope            float64 // additional time per idle unit above the threshold
	thresholdUnits   float64 // number of idle units below which the limit is warm; has no effect without slope
	maxIdle          float64 // maximum number of idle units
	coolDownInterval float64 // idle time that adds an idle unit; +Inf means never
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
	p.maxIdle = float64(maxBurst) * float64(b.Limit.Count) / float64(b.Limit.Per)
	return p
}

// idleUnitsAreFree reports whether idle units take no time.
func (p *costs) idleUnitsAreFree() bool { return p.idleInterval == 0 }

// cost returns how long n of idle units take: the area under the line of Config.
func (p *costs) cost(idle, n float64) float64 {
	above := max(idle-p.thresholdUnits, 0)
	cold := min(above, n)
	return p.idleInterval*n + cold*(above-cold/2)*p.slope
}
