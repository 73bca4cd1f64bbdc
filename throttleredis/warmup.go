package throttleredis

import (
	"cmp"
	"fmt"
	"math"
	"time"

	saturated "github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/warmup"
)

// WarmUp returns a limiter that behaves like warmup.New. Outage must be 0: detecting an
// outage requires all responses of the server in order. WarmUp panics if c or s is invalid.
func (s *Store) WarmUp(c warmup.Config) *Limiter { return s.limiter(warmUp(c)) }

func warmUp(c warmup.Config) limit {
	err := c.Validate()
	if err == nil && c.Outage != 0 {
		err = fmt.Errorf("throttleredis: warm-up %q: Outage is %v: leave it 0: an outage is not noticed in Redis", c.Limit.Name, c.Outage)
	}
	return smooth(c.Limit, err, warmUpCosts(c), func(n int64) throttle.Limiter {
		part := c
		part.Limit = evenRateOf(c.Limit, n)
		return warmup.New(part)
	})
}

// Bursty returns a limiter that behaves like warmup.NewBursty. It panics if b or s is
// invalid.
//
// Without StartFull, a key accrues idle units from its first grant on. A key that has all
// idle units and is then unused for an hour expires and begins anew.
func (s *Store) Bursty(b warmup.BurstyConfig) *Limiter { return s.limiter(bursty(b)) }

func bursty(b warmup.BurstyConfig) limit {
	p := burstyCosts(b)
	if !b.StartFull {
		p.missing = p.maxIdle
	}
	return smooth(b.Limit, b.Validate(), p, func(n int64) throttle.Limiter {
		part := b
		part.Limit = evenRateOf(b.Limit, n)
		return warmup.NewBursty(part)
	})
}

func smooth(l throttle.Limit, err error, p unitCosts, share func(n int64) throttle.Limiter) limit {
	units, full := 0., time.Duration(0)
	if p.warm == 0 {
		units = math.Floor(p.maxIdle)
		full = saturated.CeilDuration(units * p.interval)
	}
	most := saturated.Int64(units)
	if most < math.MaxInt64 {
		most++
	}
	args := []float64{p.interval, p.warm, p.slope, p.threshold, p.maxIdle, p.idlePerUnit, units, float64(full), p.missing}
	return limit{
		algorithm:     "warmup",
		err:           err,
		name:          l.Name,
		policy:        cmp.Or(l.Name, l.String()),
		shape:         []any{args},
		capacity:      most,
		per:           saturated.CeilDuration((units + 1) * p.interval),
		ticksPerMicro: 1000,
		wideGrant:     true,
		idleTime:      full,
		args:          args,
		newShare:      share,
	}
}

// unitCosts are the costs of units in nanoseconds, as package warmup computes them: see
// warmup.Config for the formulas.
type unitCosts struct {
	interval    float64 // of a unit if there are no idle units
	warm        float64 // of an idle unit up to the threshold
	slope       float64 // increase for each further idle unit
	threshold   float64 // idle units up to which the limit is warm
	maxIdle     float64 // maximum number of idle units
	idlePerUnit float64 // idle time per idle unit; +Inf: none accrue
	missing     float64 // idle units that a new key lacks
}

func warmUpCosts(c warmup.Config) unitCosts {
	interval := float64(c.Limit.Per) / float64(c.Limit.Count)
	p := unitCosts{interval: interval, warm: interval, idlePerUnit: math.Inf(1)}
	if c.Period == 0 {
		return p
	}
	cold, over := cmp.Or(c.ColdFactor, 3)*interval, float64(c.Period)
	p.threshold = over / 2 / interval
	p.maxIdle = p.threshold + 2*over/(interval+cold)
	p.slope = (cold - interval) / (p.maxIdle - p.threshold)
	p.idlePerUnit = over / p.maxIdle
	return p
}

func burstyCosts(b warmup.BurstyConfig) unitCosts {
	save := cmp.Or(b.MaxBurst, time.Second)
	interval := float64(b.Limit.Per) / float64(b.Limit.Count)
	most := float64(save) * float64(b.Limit.Count) / float64(b.Limit.Per)
	return unitCosts{interval: interval, idlePerUnit: interval, maxIdle: most, threshold: most}
}
