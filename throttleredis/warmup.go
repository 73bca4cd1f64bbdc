package throttleredis

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/warmup"
)

// WarmUp returns a limiter like warmup.New. Outage must be 0: what it needs to know are all
// answers of the other side, in order. It panics if c or s is invalid.
func (s *Store) WarmUp(c warmup.Curve) *Limiter {
	err := c.Validate()
	if err == nil && c.Outage != 0 {
		err = fmt.Errorf("throttleredis: curve %q: Outage is %v: leave it 0: an outage is not noticed in Redis", c.Name, c.Outage)
	}
	return s.smooth(c.Limit, err, pricesOf(c), func(l throttle.Limit, clk throttle.Clock) throttle.Limiter {
		part := c
		part.Limit = l
		return warmup.New(part, clk)
	})
}

// Bursty returns a limiter like warmup.NewBursty. It panics if b or s is invalid.
//
// If it does not begin Full, a key saves from its first grant on, and one that has
// saved all that can be saved, and was not used for an hour after that, begins anew.
func (s *Store) Bursty(b warmup.Burst) *Limiter {
	p := pricesOfBurst(b)
	if !b.Full {
		p.missing = p.most
	}
	return s.smooth(b.Limit, b.Validate(), p, func(l throttle.Limit, clk throttle.Clock) throttle.Limiter {
		part := b
		part.Limit = l
		return warmup.NewBursty(part, clk)
	})
}

func (s *Store) smooth(l throttle.Limit, err error, p prices, share func(throttle.Limit, throttle.Clock) throttle.Limiter) *Limiter {
	units, full := 0., time.Duration(0)
	if p.warm == 0 {
		units = math.Floor(p.most)
		full = nanoseconds(units * p.interval)
	}
	most := whole64(units)
	if most < math.MaxInt64 {
		most++
	}
	return s.limiter(limit{
		algorithm: "warmup",
		err:       err,
		policy:    policy(l.Name, l.String()),
		most:      most,
		per:       nanoseconds((units + 1) * p.interval),
		scale:     1000,
		wide:      true,
		idle:      full,
		args:      floats(p.interval, p.warm, p.slope, p.threshold, p.most, p.cooling, units, float64(full), p.missing),
		share: func(n int64, clk throttle.Clock) throttle.Limiter {
			return share(evenRateOf(l, n), clk)
		},
	})
}

// prices are what units take, in nanoseconds, as package warmup works them out: see
// warmup.Curve for the formulas.
type prices struct {
	interval  float64 // of a unit when there are no idle ones
	warm      float64 // of an idle one up to the threshold
	slope     float64 // by which each one further up takes longer
	threshold float64 // idle units up to which the limit is warm
	most      float64 // idle units
	cooling   float64 // of idleness that make an idle unit; +Inf: none do
	missing   float64 // idle units that are not there at first
}

func pricesOf(c warmup.Curve) prices {
	interval := float64(c.Per) / float64(c.Count)
	p := prices{interval: interval, warm: interval, cooling: math.Inf(1)}
	if c.Over == 0 {
		return p
	}
	cold, over := c.Cold*interval, float64(c.Over)
	if c.Cold == 0 {
		cold = 3 * interval
	}
	p.threshold = over / 2 / interval
	p.most = p.threshold + 2*over/(interval+cold)
	p.slope = (cold - interval) / (p.most - p.threshold)
	p.cooling = over / p.most
	return p
}

func pricesOfBurst(b warmup.Burst) prices {
	save := b.Save
	if save == 0 {
		save = time.Second
	}
	interval := float64(b.Per) / float64(b.Count)
	most := float64(save) * float64(b.Count) / float64(b.Per)
	return prices{interval: interval, cooling: interval, most: most, threshold: most}
}

// floats returns numbers as arguments that Lua reads as the same.
func floats(fs ...float64) (args []any) {
	for _, f := range fs {
		if math.IsInf(f, 1) {
			args = append(args, "1e999") // is infinite, too
			continue
		}
		args = append(args, strconv.FormatFloat(f, 'g', -1, 64))
	}
	return args
}

// nanoseconds returns ns rounded up, as far as a Duration can say.
func nanoseconds(ns float64) time.Duration { return time.Duration(whole64(math.Ceil(ns))) }

func whole64(f float64) int64 {
	if f >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(f)
}
