package adaptive

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A Config configures a Limiter. The zero Config has the values of the adaptive retry mode
// of the AWS SDKs.
type Config struct {
	// Name is returned as Decision.Policy. Empty means "adaptive".
	Name string

	// Curve determines how the rate increases after a cut. Nil means Cubic{}.
	Curve Curve

	// InitialRate is the rate at the start, in units per second. Zero means no limit until the
	// first rejection by the server.
	InitialRate float64

	// MinRate is the lowest rate, in units per second. Zero means 0.5.
	MinRate float64

	// MaxRate is the highest rate, in units per second. Zero means 1e9.
	MaxRate float64

	// Burst is the size of the burst, as a time: the units that the current rate restores in
	// that time, but at least one, may be used at one time. Zero means 100 ms.
	Burst time.Duration
}

// Validate returns an error that states the invalid field if a is invalid.
func (a Config) Validate() error {
	for _, f := range []struct {
		name  string
		value float64
	}{{"InitialRate", a.InitialRate}, {"MinRate", a.MinRate}, {"MaxRate", a.MaxRate}, {"Burst", float64(a.Burst)}} {
		if !(f.value >= 0 && f.value <= math.MaxInt64) {
			return fmt.Errorf("adaptive: limit %q: %s is %v: it must not be negative, nor too large for an int64", a.Name, f.name, f.value)
		}
	}
	if a = a.withDefaults(); a.MinRate < lowestRate || a.MaxRate < a.MinRate {
		return fmt.Errorf("adaptive: limit %q: MinRate is %v and MaxRate %v: they must be at least one unit a day and in that order", a.Name, a.MinRate, a.MaxRate)
	}
	if factor := a.Curve.decreaseFactor(); !(factor > 0 && factor < 1) {
		return fmt.Errorf("adaptive: limit %q: a cut leaves %v of the rate: it must be between 0 and 1", a.Name, factor)
	}
	return nil
}

const lowestRate = 1. / (24 * 60 * 60) // units a second

func (a Config) withDefaults() Config {
	a.Name = cmp.Or(a.Name, "adaptive")
	a.Curve = cmp.Or(a.Curve, Curve(Cubic{}))
	a.MinRate, a.MaxRate = cmp.Or(a.MinRate, .5), cmp.Or(a.MaxRate, 1e9)
	a.Burst = cmp.Or(a.Burst, 100*time.Millisecond)
	return a
}

// Limiter finds the limit of a server that rejects requests without stating its limit. It
// starts without a limit, unless InitialRate is set. A rejection by the server cuts its
// rate, which then increases as its Curve determines:
//
//	rate
//	  │ ─ ─ ─╮ rejected            ╱       peak: rate of sending at the rejection
//	  │      │           ______---╱
//	  │      │      ╱‾‾‾
//	  │      │   ╱                         Cubic: fast far below the peak, slow near it,
//	  │      ╰──╯ Beta * peak              then fast again
//	  └──────────────────────────────▶ time during which callers waited
//
// Four rules bound the rate:
//
//   - It is cut once per round. Many claims are in progress when the server starts to
//     reject, and their rejections are one event. Each grant carries the number of cuts
//     before it, and only the rejection of a claim granted since the last cut causes
//     another one.
//   - It increases only while callers wait, because a rate that is not used up proves
//     nothing.
//   - It increases to at most twice the rate of sending, which is measured in steps of
//     half a second and smoothed, so that a pause is not followed by a burst.
//   - It never falls below MinRate, because without requests nothing can be learned.
//
// Invariant: at a constant rate, no more than burst + rate*W units and the largest claim
// are used within any span W. A claim larger than the burst waits for a full bucket, and
// later claims wait longer for it.
//
// Limitations: after the rate has changed, Report calculates the units restored since the
// grant with the highest rate since the last cut. A cut empties the bucket, so an Unused claim
// granted before the cut returns nothing.
//
// For servers that state their limits, see package quota.
type Limiter struct {
	time ticks.Timeline

	mu   sync.Mutex
	last int64 // latest reading that changed the state

	config        Config
	rate          float64 // units per second; 0: no limit yet
	highestRate   float64 // rate since the last cut
	peak          float64 // rate of sending at the last cut, or derived from InitialRate
	waitedSeconds float64 // seconds since the last cut during which callers waited
	lastClimb     int64   // when waitedSeconds was last updated; ticks.Never before the first grant
	callerWaited  bool    // a caller has waited since lastClimb
	cuts          uint64  // Decision.Grant
	throughput    throughput
	tat           int64 // when the bucket will be full, as in TokenBucket
}

// halfSecond is the interval at which the rate increases and the length of a step in which
// sent units are counted.
const halfSecond = int64(time.Second / 2)

// New returns an unused Limiter. It panics if a is invalid.
func New(a Config) *Limiter {
	if err := a.Validate(); err != nil {
		panic(err.Error() + " (New)")
	}
	config := a.withDefaults()
	l := &Limiter{time: ticks.NewTimeline(), last: ticks.Never, lastClimb: ticks.Never, config: config, tat: math.MinInt64}
	if a.InitialRate > 0 {
		l.peak = l.clamp(a.InitialRate / l.config.Curve.decreaseFactor()) // as after a cut to InitialRate
		l.rate = l.clamp(a.InitialRate)
		l.highestRate = l.rate
	}
	return l
}

// SetClock replaces the clock; see throttle.WithClock.
func (l *Limiter) SetClock(c throttle.Clock) { l.time.SetClock(c) }

// Rate returns the current rate in units per second. Zero means that there is no limit
// yet.
func (l *Limiter) Rate() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rate
}

// Reserve implements throttle.Limiter.
func (l *Limiter) Reserve(_ context.Context, c throttle.Claim) (d throttle.Decision, err error) {
	n, err := c.Units()
	if err != nil {
		return d, err
	}
	given := l.time.Read(c.Now)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := max(given, l.last)
	d.Policy, d.At, d.Grant = l.config.Name, l.time.Stamp(now, given, c.Now), l.cuts
	d.Fresh = c.DryRun && l.isOutdated(given)
	if l.rate == 0 {
		if d.OK = true; !c.DryRun {
			l.recordGrant(n, now)
		}
		return d, nil
	}
	taken, cost, window := l.taken(now), l.cost(float64(n)), l.window()
	switch wait := ticks.Add(taken, min(cost, window)-window); {
	case wait > 0:
		d.Wait = time.Duration(wait)
		l.callerWaited = l.callerWaited || !c.DryRun
	case c.DryRun:
		d.OK = true
	default:
		d.OK = true
		taken = ticks.Add(taken, cost)
		l.tat = ticks.Add(now, taken)
		l.recordGrant(n, now)
	}
	return l.describe(d, taken), nil
}

func (l *Limiter) recordGrant(n, now int64) {
	l.last = now
	if l.lastClimb == ticks.Never { // the first claim may have a time before the creation
		l.lastClimb = now
	}
	l.throughput.add(n, now)
}

// describe sets in d the state of a bucket from which taken nanoseconds are taken.
func (l *Limiter) describe(d throttle.Decision, taken int64) throttle.Decision {
	window, interval := l.window(), 1e9/l.rate
	d.Limit = max(ticks.Int64(math.Floor(float64(window)/interval)), 1)
	d.Remaining = min(ticks.Int64(math.Floor(float64(max(window-taken, 0))/interval)), d.Limit)
	d.ResetAfter, d.Per = time.Duration(taken), time.Duration(window)
	return d
}

// taken returns the nanoseconds until the bucket is full.
func (l *Limiter) taken(now int64) int64 { return max(ticks.Sub(l.tat, now), 0) }

// window returns the nanoseconds in which an empty bucket is refilled.
func (l *Limiter) window() int64 { return max(int64(l.config.Burst), l.cost(1)) }

// cost returns the nanoseconds in which n units are restored.
func (l *Limiter) cost(n float64) int64 { return int64(ticks.CeilDuration(n / l.rate * 1e9)) }

// refund returns n units of the claim granted by d to the bucket.
func (l *Limiter) refund(n, asOf int64, d throttle.Decision) {
	if l.rate == 0 || d.Grant != l.cuts {
		return
	}
	from := l.time.Read(d.At)
	since := ticks.Sub(max(asOf, l.last, from), from)
	if left := float64(n) - float64(since)/1e9*l.highestRate; left > 0 {
		l.tat = ticks.Sub(l.tat, ticks.Int64(left/l.rate*1e9))
	}
}

// Report implements throttle.Limiter: it adjusts the rate to the outcome and corrects the cost of
// the claim.
func (l *Limiter) Report(_ context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if !d.OK {
		return
	}
	now := l.time.Read(f.Now)
	l.mu.Lock()
	defer l.mu.Unlock()
	now = max(now, l.last)
	switch extra := f.ExtraCost(c, d); {
	case extra < 0:
		l.refund(-extra, now, d)
	case extra > 0 && l.rate > 0:
		l.tat = ticks.Add(max(l.tat, now), l.cost(float64(extra)))
	}
	switch {
	case f.State == throttle.Unused:
		if n, err := c.Units(); err == nil {
			l.throughput.subtract(n)
		}
	case f.Outcome == throttle.Throttled && d.Grant == l.cuts:
		l.cut(now, f.RetryAfter)
	case f.Outcome == throttle.Accepted && l.rate > 0:
		l.climb(now)
	}
}

// Traits implements throttle.Limiter.
func (*Limiter) Traits() throttle.Traits {
	return throttle.Traits{NonBlocking: true, EndsAtResponse: true}
}

// cut lowers the rate and empties the bucket until one window after retryAfter, because a
// server that rejects has no units left.
func (l *Limiter) cut(now int64, retryAfter time.Duration) {
	l.peak = l.throughput.rate(now)
	if l.rate > 0 {
		l.peak = min(l.peak, l.rate)
	}
	l.cuts++
	l.rate = l.clamp(l.peak * l.config.Curve.decreaseFactor())
	l.highestRate, l.waitedSeconds, l.lastClimb, l.callerWaited = l.rate, 0, now, false
	l.tat = ticks.Add(now, ticks.Add(l.window(), int64(max(retryAfter, 0))))
}

// climb increases the rate if callers have waited, and keeps it within twice the rate of
// sending.
func (l *Limiter) climb(now int64) {
	since := ticks.Sub(now, l.lastClimb)
	if since < halfSecond {
		return
	}
	if l.callerWaited {
		l.waitedSeconds += float64(min(since, 2*halfSecond)) / 1e9
	}
	l.lastClimb, l.callerWaited = now, false
	l.setRate(min(l.config.Curve.rateAt(l.peak, l.waitedSeconds), 2*l.throughput.rate(now)), now)
}

// setRate changes the rate. The number of units taken from the bucket stays the same.
func (l *Limiter) setRate(rate float64, now int64) {
	old := l.rate
	l.rate = l.clamp(rate)
	l.highestRate = max(l.highestRate, l.rate)
	if taken := l.taken(now); taken > 0 {
		l.tat = ticks.Add(now, int64(ticks.CeilDuration(float64(taken)*old/l.rate)))
	}
}

// clamp returns rate within MinRate and MaxRate. NaN, which a Curve may return, counts as MinRate.
func (l *Limiter) clamp(rate float64) float64 {
	if !(rate > l.config.MinRate) {
		return l.config.MinRate
	}
	return min(rate, l.config.MaxRate)
}

// adaptiveRetention is how long an unused Limiter keeps what it has learned.
const adaptiveRetention = 10 * time.Minute

// isOutdated reports whether what l has learned is outdated at the reading at: no claim was granted
// and the rate did not change for ten minutes, counted from the end of the last RetryAfter if
// there was one.
func (l *Limiter) isOutdated(at int64) bool {
	return ticks.Sub(at, max(l.last, l.lastClimb, l.tat)) >= int64(adaptiveRetention)
}
