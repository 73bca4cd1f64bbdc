package throttle

import (
	"context"
	"fmt"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// An NginxConfig is a limit in the terms of nginx's limit_req and limit_req_zone.
type NginxConfig struct {
	// Name is returned as Decision.Policy. Empty means the result of String.
	Name string

	// Rate is the number of requests per Per. It must be positive.
	Rate int64

	// Per is the period of Rate. It must be positive.
	Per time.Duration

	// Burst is the number of requests allowed in excess of the rate. Zero means none.
	Burst int64

	// Delay is the number of those requests that are not delayed, at most Burst. Zero means
	// that all are delayed, unless NoDelay is set.
	Delay int64

	// NoDelay means that none of those requests are delayed.
	NoDelay bool
}

// Validate returns an error that states the invalid field if l is invalid.
func (l NginxConfig) Validate() error {
	switch {
	case l.Per <= 0 || l.Rate <= 0 || l.milliRate() <= 0:
		return fmt.Errorf("throttle: limit_req %q: Rate is %d per %v: it must be a thousandth of a request a second or more", l.Name, l.Rate, l.Per)
	case l.milliRate() > maxMilli:
		return fmt.Errorf("throttle: limit_req %q: Rate is %d per %v: it must be a billion a second or less", l.Name, l.Rate, l.Per)
	case l.Burst < 0 || l.Burst > maxMilli:
		return fmt.Errorf("throttle: limit_req %q: Burst is %d: it must lie between 0 and 1e12", l.Name, l.Burst)
	case l.Delay < 0 || l.Delay > l.Burst:
		return fmt.Errorf("throttle: limit_req %q: Delay is %d: it must lie between 0 and Burst", l.Name, l.Delay)
	}
	return nil
}

// maxMilli is the largest count of thousandths: sums and products of them fit into an int64.
const maxMilli = 1e12

// milliRate returns the rate in thousandths of a request per second, truncated as in nginx.
func (l NginxConfig) milliRate() int64 {
	return ticks.MulDivDown(ticks.Mul(l.Rate, 1000), int64(time.Second), int64(l.Per))
}

// String returns l in the syntax of nginx's configuration.
func (l NginxConfig) String() string {
	s := fmt.Sprintf("rate=%d/%v burst=%d", l.Rate, l.Per, l.Burst)
	switch {
	case l.NoDelay:
		return s + " nodelay"
	case l.Delay > 0:
		return s + fmt.Sprintf(" delay=%d", l.Delay)
	}
	return s
}

type nginxRate struct {
	base
	config NginxConfig // with NoDelay, Delay is Burst
	rate   int64       // thousandths of a request per second

	lastMilli int64 // last in whole milliseconds
	level     int64 // excess + 1000 at lastMilli; 0: all requests have drained
	lastStart int64 // latest millisecond at which a granted claim may be used
}

// NewNginx returns a limiter that makes the same decisions as limit_req of nginx 1.22, including
// all truncations. If that is not needed, use NewLeakyBucket, which is exact.
//
//	excess, in thousandths of a request; rate=10r/s burst=5 delay=2
//
//	 6000 ┤           ▁▁▁▁ rejected: stores nothing
//	 5000 ┤ ─ ─ ─ ─ ▁▁ ─ ─ ─ ─ ─ ─ ─ burst
//	      │      ▁▁▔  \_             granted, with a wait of (excess-2000)/rate
//	 2000 ┤ ─ ─▔─ ─ ─ ─ \_─ ─ ─ ─ ─ ─ delay
//	      │ ▁▔             \_        granted without a wait
//	    0 ┼──────────────────▔▔▔▔───▶ time
//
// Time is in whole milliseconds. A claim adds a thousand for each unit, and rate*ms/1000,
// truncated, has drained since the last grant. The truncated part is lost with each grant:
// at 100r/m, which is 1666 thousandths per second, every second one of requests 600 ms
// apart is rejected.
//
// Invariant: within any span W no more than Burst+1 + rate*W units are granted and kept,
// where W counts from one full millisecond to another, and waits are truncated to
// milliseconds.
//
// Limitations: nginx accepts a clock that is set back by more than a minute; here, an
// older reading counts as the newest. nginx has neither Unused claims nor units: units are
// returned as in a leaky bucket, and a claim may not be larger than the part of the burst that
// is not delayed, plus one.
//
// It panics if l is invalid.
func NewNginx(l NginxConfig) Limiter {
	must(l.Validate(), "NewNginx")
	g := &nginxRate{base: newBase(ticks.NewEpochTimeline(), policyOf(l.Name, l)), config: l, rate: l.milliRate(), lastMilli: ticks.Never, lastStart: ticks.Never}
	if l.NoDelay {
		g.config.Delay = l.Burst
	}
	return g
}

func (g *nginxRate) Reserve(_ context.Context, c Claim) (d Decision, err error) {
	n, now, err := g.begin(&c, &d)
	if err != nil {
		return d, err
	}
	defer g.mu.Unlock()
	ms := ticks.FloorDiv(now, 1e6)
	level := g.levelAt(ms)
	d.Limit = g.config.Delay + 1
	switch longest, excess := g.maxExcess(c.Ahead), level+n*1000-1000; {
	case n > d.Limit:
		d.Wait = Forever
	case excess > longest:
		until := g.lastMilli + ((g.level+n*1000-1000-longest)*1000+g.rate-1)/g.rate // when so many thousandths have drained
		d.Wait = time.Duration(ticks.Mul(until, 1e6) - now)
	default:
		wait := max(excess-g.config.Delay*1000, 0) * 1000 / g.rate
		d.OK, d.Wait, d.Grant = true, time.Duration(wait)*time.Millisecond, uint64(ms+wait)
		if !c.DryRun {
			level += n * 1000
			g.last, g.lastMilli, g.level, g.lastStart = now, ms, level, max(g.lastStart, ms+wait)
		}
	}
	d.Per = time.Duration(ticks.MulDivUp(d.Limit*1000, int64(time.Second), g.rate))
	d.Remaining = min(max(g.maxExcess(0)+1000-level, 0)/1000, d.Limit)
	if level > 0 {
		d.ResetAfter = time.Duration(ticks.Mul(ms+(level*1000+g.rate-1)/g.rate, 1e6) - now)
	}
	d.boundQueue(&c, g.config.Burst-g.config.Delay)
	d.setFresh(&c)
	return d, nil
}

// maxExcess returns the largest excess of a claim that accepts a wait of w.
func (g *nginxRate) maxExcess(w time.Duration) int64 {
	ms := max(int64(w/time.Millisecond), 0)
	early := ticks.MulDivUp(ticks.Add(ms, 1), g.rate, 1000) - 1 // waits of less than ms+1
	return min(g.config.Delay*1000+min(early, maxMilli*1000), g.config.Burst*1000)
}

func (g *nginxRate) levelAt(ms int64) int64 {
	return max(g.level-ticks.MulDivDown(max(ticks.Sub(ms, g.lastMilli), 0), g.rate, 1000), 0)
}

// Report implements Limiter. If the claim cost less than claimed, the difference is returned,
// less what drains between the start of the claim and that of the latest one.
func (g *nginxRate) Report(_ context.Context, c Claim, d Decision, f Feedback) {
	g.correct(c, d, f, func(extra, now int64) {
		ms := max(ticks.FloorDiv(now, 1e6), g.lastMilli)
		if extra > 0 {
			g.level = min(ticks.Add(g.levelAt(ms), ticks.Mul(extra, 1000)), maxMilli*1000)
			g.lastMilli = ms
			return
		}
		lost := ticks.MulDivUp(max(max(g.lastStart, ms)-int64(d.Grant), 0), g.rate, 1000)
		g.level = max(g.level-max(ticks.Mul(-extra, 1000)-lost, 0), 0)
	})
}

func (g *nginxRate) Traits() Traits { return bookingTraits(g.config.Delay < g.config.Burst) }
