package throttle

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// An AdaptiveConfig says how an Adaptive finds its rate. The zero Adapt is that of the adaptive
// mode of the AWS SDKs.
type AdaptiveConfig struct {
	Name        string        // shown as Decision.Policy; "": adaptive
	Curve       RateCurve     // how the rate grows after a cut; nil: Cubic{}
	InitialRate float64       // units a second to begin with; 0: no limit until the first refusal
	MinRate     float64       // units a second that it never falls below; 0: 0.5
	MaxRate     float64       // units a second that it never climbs above; 0: none
	Burst       time.Duration // units of so long may come at once, but always one; 0: 100 ms
}

// Validate returns an error that says what to change if a can never work.
func (a AdaptiveConfig) Validate() error {
	for _, f := range []struct {
		name  string
		value float64
	}{{"InitialRate", a.InitialRate}, {"MinRate", a.MinRate}, {"MaxRate", a.MaxRate}, {"Burst", float64(a.Burst)}} {
		if !(f.value >= 0 && f.value <= math.MaxInt64) {
			return fmt.Errorf("throttle: adaptive %q: %s is %v: it must not be negative, nor too large for an int64", a.Name, f.name, f.value)
		}
	}
	if a = a.withDefaults(); a.MinRate < lowestRate || a.MaxRate < a.MinRate {
		return fmt.Errorf("throttle: adaptive %q: MinRate is %v and MaxRate %v: they must be at least one unit a day and in that order", a.Name, a.MinRate, a.MaxRate)
	}
	if factor := a.Curve.DecreaseFactor(); !(factor > 0 && factor < 1) {
		return fmt.Errorf("throttle: adaptive %q: a cut leaves %v of the rate: it must be between 0 and 1", a.Name, factor)
	}
	return nil
}

const lowestRate = 1. / (24 * 60 * 60) // units a second

func (a AdaptiveConfig) withDefaults() AdaptiveConfig {
	if a.Name == "" {
		a.Name = "adaptive"
	}
	if a.Curve == nil {
		a.Curve = Cubic{}
	}
	if a.MinRate == 0 {
		a.MinRate = .5
	}
	if a.MaxRate == 0 {
		a.MaxRate = 1e9
	}
	if a.Burst == 0 {
		a.Burst = 100 * time.Millisecond
	}
	return a
}

// Adaptive finds the limit of a server that says nothing but no. It begins without a
// limit. A refusal cuts its rate, and then it climbs as its Law says:
//
//	rate
//	  │ ─ ─ ─╮ refused             ╱       peak: what was sent when it was refused
//	  │      │           ______---╱
//	  │      │      ╱‾‾‾
//	  │      │   ╱                         Cubic: back fast, careful near the peak, then
//	  │      ╰──╯ Beta * peak              looking for more
//	  └──────────────────────────────▶ time in which callers waited
//
// Four rules keep it from what such limits are known for.
//
//   - One cut for each round. Many claims are on their way when the server begins to
//     refuse, and their refusals are one event. Each grant carries the number of cuts
//     before it, and only a refusal of one made since the last cut cuts again.
//   - It climbs only while callers wait for it: a rate that nobody uses proves nothing.
//   - It is never above twice what is really sent, measured in half seconds and
//     smoothed, so that nobody comes back from a pause with a flood.
//   - It never falls below a floor: without any requests nothing could be learned.
//
// Invariant: at a rate that does not change, no more than burst + rate*W units and the
// largest claim act within any span W. A claim of more than the burst waits for a full
// one and is paid for by those after it.
//
// The odd case is a Cancel after the rate has changed. What time has given back since
// is counted at the highest rate since the last cut; a cut empties the bucket, whatever
// was in it, so that what was granted before gives back nothing.
//
// For servers that do say what they allow, see package quota.
type Adaptive struct {
	base
	config        AdaptiveConfig
	rate          float64 // units a second; 0: no limit yet
	highestRate   float64 // rate since the last cut
	peak          float64 // what was sent at the last cut, or Start
	waitedSeconds float64 // seconds in which callers waited since then
	lastClimb     int64   // when that was last counted
	callerWaited  bool    // somebody has waited since then
	cuts          uint64  // Decision.Grant
	throughput    throughput
	tat           int64 // when the bucket will be full, as in TokenBucket
}

// halfSecond is how often the rate climbs, and how long what is sent is counted.
const halfSecond = int64(time.Second / 2)

// NewAdaptive returns an Adaptive. A nil clk is the system clock. It panics if a is
// invalid.
func NewAdaptive(a AdaptiveConfig, clk Clock) *Adaptive {
	must(a.Validate(), "NewAdaptive")
	config := a.withDefaults()
	l := &Adaptive{base: newBase(ticks.NewTimeline(clk), config.Name), config: config, tat: math.MinInt64}
	if a.InitialRate > 0 {
		l.peak = l.clamp(a.InitialRate / l.config.Curve.DecreaseFactor()) // as if it had been cut to Start
		l.rate = l.clamp(a.InitialRate)
		l.highestRate = l.rate
	}
	return l
}

// Rate returns the units a second that are allowed now; 0: there is no limit yet.
func (l *Adaptive) Rate() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rate
}

// Reserve implements Limiter.
func (l *Adaptive) Reserve(_ context.Context, c Claim) (d Decision, err error) {
	n, r, err := l.begin(&c, &d)
	if err != nil {
		return d, err
	}
	defer l.mu.Unlock()
	now := r.now
	d.Grant = l.cuts
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

func (l *Adaptive) recordGrant(n, now int64) {
	l.last = now
	l.throughput.add(n, now)
}

// describe adds to d the state of a bucket from which so much is taken.
func (l *Adaptive) describe(d Decision, taken int64) Decision {
	window, interval := l.window(), 1e9/l.rate
	d.Limit = max(ticks.Int64(math.Floor(float64(window)/interval)), 1)
	d.Remaining = min(ticks.Int64(math.Floor(float64(max(window-taken, 0))/interval)), d.Limit)
	d.ResetAfter, d.Per = time.Duration(taken), time.Duration(window)
	return d
}

// taken returns how many nanoseconds until the bucket is full.
func (l *Adaptive) taken(now int64) int64 { return max(ticks.Sub(l.tat, now), 0) }

// window returns how many nanoseconds an empty bucket takes to fill.
func (l *Adaptive) window() int64 { return max(int64(l.config.Burst), l.cost(1)) }

// cost returns how many nanoseconds n units take to come.
func (l *Adaptive) cost(n float64) int64 { return int64(ticks.CeilDuration(n / l.rate * 1e9)) }

// Cancel implements Limiter.
func (l *Adaptive) Cancel(_ context.Context, c Claim, d Decision) {
	n, err := c.Units()
	if err != nil || !d.OK {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.throughput.subtract(n)
	l.refund(n, l.time.Read(c.Now), d)
}

// refund gives back n units of the claim granted by d.
func (l *Adaptive) refund(n, asOf int64, d Decision) {
	if l.rate == 0 || d.Grant != l.cuts {
		return
	}
	from := l.time.Read(d.At)
	since := ticks.Sub(max(asOf, l.last, from), from)
	if left := float64(n) - float64(since)/1e9*l.highestRate; left > 0 {
		l.tat = ticks.Sub(l.tat, ticks.Int64(left/l.rate*1e9))
	}
}

// Observe implements Observer: it learns from the outcome, and settles a cost that was
// known only afterwards.
func (l *Adaptive) Observe(_ context.Context, c Claim, d Decision, f Feedback) {
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
	case f.Outcome == Throttled && d.Grant == l.cuts:
		l.cut(now, f.RetryAfter)
	case f.Outcome == Accepted && l.rate > 0:
		l.climb(now)
	}
}

// cut lowers the rate. A server that refuses has nothing left, so neither has the
// bucket, until the server's own RetryAfter if it gave one.
func (l *Adaptive) cut(now int64, retryAfter time.Duration) {
	l.peak = l.throughput.rate(now)
	if l.rate > 0 {
		l.peak = min(l.peak, l.rate)
	}
	l.cuts++
	l.rate = l.clamp(l.peak * l.config.Curve.DecreaseFactor())
	l.highestRate, l.waitedSeconds, l.lastClimb, l.callerWaited = l.rate, 0, now, false
	l.tat = ticks.Add(now, ticks.Add(l.window(), int64(max(retryAfter, 0))))
}

// climb raises the rate if callers have waited for it, and keeps it within twice what
// is sent.
func (l *Adaptive) climb(now int64) {
	since := ticks.Sub(now, l.lastClimb)
	if since < halfSecond {
		return
	}
	if l.callerWaited {
		l.waitedSeconds += float64(min(since, 2*halfSecond)) / 1e9
	}
	l.lastClimb, l.callerWaited = now, false
	l.setRate(min(l.config.Curve.Rate(l.peak, l.waitedSeconds), 2*l.throughput.rate(now)), now)
}

// setRate changes the rate. The units that are taken stay taken.
func (l *Adaptive) setRate(rate float64, now int64) {
	old := l.rate
	l.rate = l.clamp(rate)
	l.highestRate = max(l.highestRate, l.rate)
	if taken := l.taken(now); taken > 0 {
		l.tat = ticks.Add(now, int64(ticks.CeilDuration(float64(taken)*old/l.rate)))
	}
}

func (l *Adaptive) clamp(rate float64) float64 {
	return min(max(rate, l.config.MinRate), l.config.MaxRate)
}

// adaptiveRetention is how long an Adaptive that is not used keeps what it has learned.
const adaptiveRetention = 10 * time.Minute

// Idle implements Idler. What l has learned counts as outdated when no claim was granted
// for ten minutes and no RetryAfter is left.
func (l *Adaptive) Evictable(now time.Time) bool {
	at := l.time.Read(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	return ticks.Sub(at, max(l.last, l.lastClimb, l.tat)) >= int64(adaptiveRetention)
}
