package replay

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/warmup"
)

// A guava is a scenario of Guava's RateLimiter.
//
// Intended differences: Guava truncates times to whole microseconds and our limiters round
// up to nanoseconds, so waits may differ by the amount stated in the trace. Waived are
// scenarios in which the truncation determined a decision (ideal_flips), and those without
// these figures: an infinite or extremely low rate, and a warm-up of 0, after which Guava
// never limits again.
type guava struct {
	Rate       decimal `json:"permitsPerSecond"`
	WarmUp     float64 `json:"warmup_ms"`
	ColdFactor float64 `json:"coldFactor"`
	MaxBurst   decimal `json:"maxBurstSeconds"`
	Kind       string
	Deviation  *float64 `json:"ideal_max_dev_us"`
	Flips      *int     `json:"ideal_flips"`
	Ops        []guavaOp
}

type guavaOp struct {
	Op      string
	At      int64 `json:"at_us"`
	N       int64
	Timeout int64           `json:"timeout_us"`
	Arg     json.RawMessage // of setRate: a decimal number
	Result  json.RawMessage // of tryAcquire a boolean, otherwise microseconds
	Wait    float64         `json:"wait_us"`
}

func replayGuava(line []byte, t *result) error {
	var s guava
	if err := json.Unmarshal(line, &s); err != nil {
		return err
	}
	t.waive = s.Deviation == nil || s.Flips == nil || *s.Flips > 0
	tolerance := 1.0
	if s.Deviation != nil {
		tolerance += *s.Deviation
	}
	clk := &clock{now: time.UnixMicro(0)}
	l := s.limiter(t.limiters, clk)
	if l == nil || !s.supports(l) {
		return errNoLimiter
	}
	for _, op := range s.Ops {
		t.op()
		clk.now = time.UnixMicro(op.At)
		if err := op.replay(t, l, tolerance); err != nil {
			return err
		}
	}
	return nil
}

func (s *guava) limiter(m *Limiters, clk throttle.Clock) throttle.Limiter {
	maxBurst := roundNanoseconds(float64(s.MaxBurst) * 1e9)
	switch {
	case s.Kind == "warmup":
		return m.WarmUp(warmup.Config{Limit: s.Rate.steady(), Period: roundNanoseconds(s.WarmUp * 1e6), ColdFactor: s.ColdFactor}, clk)
	case maxBurst == 0:
		return m.WarmUp(warmup.Config{Limit: s.Rate.steady()}, clk)
	}
	return m.Bursty(warmup.BurstyConfig{Limit: s.Rate.steady(), MaxBurst: maxBurst}, clk)
}

// A limitSetter is a limiter whose rate can be changed.
type limitSetter interface {
	SetLimit(throttle.Limit) error
}

// supports reports whether l supports all operations of s.
func (s *guava) supports(l throttle.Limiter) bool {
	_, changes := l.(limitSetter)
	return changes || !slices.ContainsFunc(s.Ops, func(op guavaOp) bool { return op.Op == "setRate" })
}

func (op guavaOp) replay(t *result, l throttle.Limiter, tolerance float64) error {
	switch op.Op {
	case "sleep":
		return nil
	case "setRate":
		var rate decimal
		if err := json.Unmarshal(op.Arg, &rate); err != nil {
			return err
		}
		return l.(limitSetter).SetLimit(rate.steady())
	}
	c, maxWait := throttle.Claim{Cost: op.N}, throttle.Forever
	granted, wait := true, op.Wait
	result := any(&wait)
	if op.Op == "tryAcquire" {
		maxWait = roundNanoseconds(float64(max(op.Timeout, 0)) * 1e3)
		result = &granted
	}
	if err := json.Unmarshal(op.Result, result); err != nil {
		return err
	}
	d, err := throttle.ReserveAhead(context.Background(), l, c, maxWait)
	if err != nil {
		return err
	}
	expect(t, "granted", granted, d.OK)
	if granted && d.OK {
		near(t, "wait", wait, float64(d.Wait)/1e3, tolerance)
	}
	return nil
}

// steady returns the limit of d units per second without a burst, or the nearest valid
// limit. Per is the largest power of ten of seconds, up to 10^9, for which Count is less
// than 2^53.
func (d decimal) steady() throttle.Limit {
	per := 1e9 // seconds
	for per > 1 && float64(d)*per >= 1<<53 {
		per /= 10
	}
	count := math.Round(float64(d) * per)
	switch {
	case count < 1:
		return throttle.Limit{Count: 1, Per: farFuture}
	case count >= math.MaxInt64:
		return throttle.Limit{Count: math.MaxInt64, Per: 1}
	}
	return throttle.Limit{Count: int64(count), Per: time.Duration(per) * time.Second}
}

// roundNanoseconds returns ns rounded to the nearest Duration. It saturates.
func roundNanoseconds(ns float64) time.Duration {
	return time.Duration(ticks.Int64(math.Round(ns)))
}
