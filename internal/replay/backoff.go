package replay

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/backoff/cenkalti"
	"github.com/heed-go/heed/quota/headers"
)

// A backoffTrace is a sequence of delays of another library, the bounds of its random
// delays, or its interpretation of Retry-After.
//
// Intended differences: the other library computes in float64, so values above 2^53
// nanoseconds are compared only to that precision. A Retry-After that is not a sequence of
// digits, or has so many digits that it overflows or may be a date, may be interpreted
// differently; these differences are waived.
type backoffTrace struct {
	Kind   string
	Params struct {
		Min         int64 `json:"min_ns"`
		Max         int64 `json:"max_ns"`
		Base        int64 `json:"base_ns"`
		Initial     int64 `json:"initial_ns"`
		Multiplier  float64
		Factor      float64
		MaxInterval int64 `json:"max_interval_ns"`
		MaxElapsed  int64 `json:"max_elapsed_ns"`
		Status      int
		Header      string
		Attempt     int
	}
	Seq []int64 `json:"seq_ns"`
	Min []int64 `json:"min_ns"`
	Max []int64 `json:"max_ns"`
}

// A policyMaker returns a policy that uses random.
type policyMaker func(random func() float64) backoff.Policy

func replayBackoff(line []byte, t *result) error {
	var s backoffTrace
	if err := json.Unmarshal(line, &s); err != nil {
		return err
	}
	switch s.Kind {
	case "exp2_capped":
		s.compareDoubling(t)
	case "cenkalti_exp":
		s.compareStop(t)
	case "cenkalti_jitter":
		s.compareDraws(t, s.plusMinus())
	case "full_jitter":
		s.compareDraws(t, func(random func() float64) backoff.Policy {
			return backoff.Exponential{Base: time.Duration(s.Params.Base), Max: time.Duration(s.Params.Max), Rand: random}
		})
	case "linear_jitter":
		s.compareDraws(t, s.linearJitter())
	case "retry_after_seconds":
		s.compareRetryAfter(t)
	default:
		return fmt.Errorf("%q is not a known kind of backoff", s.Kind)
	}
	return nil
}

// doubling is the policy of exp2_capped. A minimum delay of 0 means none in the trace; here
// a Base of 0 means the default.
func (s *backoffTrace) doubling() backoff.Policy {
	if s.Params.Min == 0 {
		return backoff.Constant(0)
	}
	return backoff.Exponential{Base: time.Duration(s.Params.Min), Max: time.Duration(s.Params.Max), Jitter: backoff.None}
}

func (s *backoffTrace) compareDoubling(t *result) {
	for i, want := range s.Seq {
		t.op()
		expect(t, "delay", float64(want), float64(s.doubling().Delay(i+1, 0)))
	}
}

// compareStop replays a clock that advances by each delay; -1 is the end.
func (s *backoffTrace) compareStop(t *result) {
	p := s.Params
	clk := &clock{now: time.Unix(0, 0)}
	b := &cenkalti.BackOff{
		Policy:     backoff.Exponential{Base: time.Duration(p.Initial), Max: time.Duration(p.MaxInterval), Factor: p.Multiplier, Jitter: backoff.None},
		MaxElapsed: time.Duration(p.MaxElapsed),
		Clock:      clk,
	}
	for _, want := range s.Seq {
		t.op()
		got := b.NextBackOff()
		expect(t, "delay", time.Duration(want), got)
		clk.now = clk.now.Add(max(got, 0))
	}
}

// plusMinus limits the end of the range, where the other library limits its middle.
func (s *backoffTrace) plusMinus() policyMaker {
	p := s.Params
	return func(random func() float64) backoff.Policy {
		return backoff.Exponential{
			Base: time.Duration(p.Initial), Max: time.Duration(float64(p.MaxInterval) * (1 + p.Factor)),
			Factor: p.Multiplier, Jitter: backoff.PlusMinus, Spread: p.Factor, Rand: random,
		}
	}
}

// linearJitter is the attempt times a random number in [min, max]: a Linear policy around
// their mean.
func (s *backoffTrace) linearJitter() policyMaker {
	low, high := s.Params.Min, s.Params.Max
	return func(random func() float64) backoff.Policy {
		l := backoff.Linear{Base: time.Duration((low + high) / 2), Max: math.MaxInt64, Jitter: backoff.None, Rand: random}
		if low < high {
			l.Jitter, l.Spread = backoff.PlusMinus, float64(high-low)/float64(high+low)
		}
		return l
	}
}

// compareDraws compares the extremes of each delay, and some random delays, with the
// bounds.
func (s *backoffTrace) compareDraws(t *result, policy policyMaker) {
	rng := rand.New(rand.NewPCG(11, 12))
	extremes := []float64{0, 1 - 0x1p-53}
	for i := range s.Min {
		t.op()
		for j := range 100 {
			u := rng.Float64()
			if j < len(extremes) {
				u = extremes[j]
			}
			d := int64(policy(func() float64 { return u }).Delay(i+1, 0))
			if d < s.Min[i] || d > s.Max[i] {
				t.differ("delay: want %d to %d, got %d", s.Min[i], s.Max[i], d)
			}
		}
	}
}

// compareRetryAfter compares the wait that a response requests. If it requests none, the
// policy determines the wait.
func (s *backoffTrace) compareRetryAfter(t *result) {
	p := s.Params
	got := s.doubling().Delay(p.Attempt+1, 0)
	if p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable {
		r := headers.Parse(p.Status, http.Header{"Retry-After": {p.Header}}, time.Unix(0, 0))
		if r.HasRetryAfter {
			got = r.RetryAfter
		}
	}
	digits := p.Header != "" && strings.Trim(p.Header, "0123456789") == ""
	t.op()
	t.waive = p.Header != "" && (!digits || len(p.Header) >= len("1000000000"))
	expect(t, "wait", time.Duration(s.Seq[0]), got)
}
