// Package gcra calculates with the generic cell rate algorithm (ITU-T I.371) in exact
// ticks. A bucket is one number, tat: the tick at which it would be full if nothing more
// were taken from it. A claim of n units is granted if tat, or the current tick if that is
// later, plus n intervals is at most the current tick plus the window.
package gcra

import (
	"math"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

const (
	MaxWindow = 1 << 60       // ticks; small enough to add a time and a window
	MaxTicks  = 1 << 62       // ticks; the latest tat
	Closed    = math.MaxInt64 // tat of a bucket that is being replaced; no claim may move it
)

// maxScale is the maximum of Params.Scale. A bucket with that scale covers at least two
// minutes before its origin has to move.
const maxScale = 1 << 24

// Params are the numbers that the algorithm needs of a limit.
//
// Ticks make the arithmetic exact. With g the greatest common divisor of the count and the
// period in nanoseconds, a unit takes Interval = period/g ticks and a nanosecond has Scale =
// count/g ticks. Both are whole numbers, so a rate of 3 per second has no rounding error.
// Where the ticks of a window would not fit, Scale is lowered and Interval rounded up, which
// makes the rate lower, never higher: by less than a millionth for rates up to 16 units per
// nanosecond and bursts up to 5e11. No burst is more than 2^60 units.
type Params struct {
	Burst      int64
	Interval   int64         // ticks in which one unit is restored
	Window     int64         // ticks in which Burst units are restored
	RefillTime time.Duration // Window as a duration, rounded up
	Scale      int64         // ticks in a nanosecond
	Horizon    int64         // nanoseconds before and after Origin that ticks can express
	Origin     int64         // instant of tick 0, in nanoseconds
}

// New returns the Params of a limit of count units per period with the given burst. All
// three must be positive. Tick 0 is at origin.
func New(count int64, per time.Duration, burst, origin int64) Params {
	p := Params{Origin: origin}
	p.Interval, p.Scale = intervalAndScale(count, int64(per), burst)
	p.setBurst(burst)
	p.Horizon = MaxTicks / 2 / p.Scale
	return p
}

// intervalAndScale returns the ticks of a unit and of a nanosecond.
func intervalAndScale(count, per, burst int64) (interval, scale int64) {
	g := ticks.GCD(count, per)
	interval, scale = per/g, count/g
	fit := int64(maxScale)
	if w := float64(burst) * float64(interval); w > MaxWindow/2 {
		fit = min(fit, int64(float64(scale)*(MaxWindow/2/w)))
	}
	if scale > fit {
		fit = max(fit, 1)
		interval, scale = ticks.MulDivUp(interval, fit, scale), fit
	}
	return interval, scale
}

// setBurst sets Burst, at most what MaxWindow allows, and the fields that depend on it.
func (p *Params) setBurst(burst int64) {
	p.Burst = min(burst, MaxWindow/p.Interval)
	p.Window = p.Burst * p.Interval
	p.RefillTime = p.Duration(p.Window)
}

// WithMaxScale returns p with at most scale ticks in a nanosecond, for tables in which one
// origin has to serve for a long time. burst is the one given to New. The rate becomes
// lower if it cannot be expressed exactly.
func (p Params) WithMaxScale(scale, burst int64) Params {
	if p.Scale <= scale {
		return p
	}
	p.Interval, p.Scale = ticks.MulDivUp(p.Interval, scale, p.Scale), scale
	p.setBurst(burst)
	return p
}

// Covers reports whether ticks can express the instant now.
func (p *Params) Covers(now int64) bool {
	d := ticks.Sub(now, p.Origin)
	return -p.Horizon <= d && d <= p.Horizon
}

// Ticks returns the tick at the instant now, which p must cover.
func (p *Params) Ticks(now int64) int64 { return (now - p.Origin) * p.Scale }

// Duration returns how long n ticks last, rounded up. It is 0 if n is negative.
func (p *Params) Duration(n int64) time.Duration {
	switch {
	case n <= 0:
		return 0
	case p.Scale == 1:
		return time.Duration(n)
	}
	return time.Duration((n + p.Scale - 1) / p.Scale)
}

// State returns the units that remain in a bucket from which taken ticks are taken, and the
// time until it is full.
func (p *Params) State(taken int64) (remaining int64, resetAfter time.Duration) {
	if free := p.Window - taken; free >= p.Interval { // rejections mostly need no division
		remaining = free / p.Interval
	}
	return remaining, p.Duration(taken)
}
