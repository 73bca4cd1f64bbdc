package throttle_test

import (
	"bufio"
	"encoding/json"
	"math/big"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// scenarios calls f with each line of a file of traces.
func scenarios[T any](t *testing.T, file string, f func(T)) {
	in, err := os.Open(file)
	require.NoError(t, err)
	defer in.Close()
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var s T
		require.NoError(t, json.Unmarshal(lines.Bytes(), &s))
		f(s)
	}
	require.NoError(t, lines.Err())
}

type gcraTrace struct {
	Name        string
	Rate, Burst int64
	PeriodS     float64 `json:"period_s"`
	T0          int64   `json:"t0_us"`
	Ops         []struct {
		Op                    string
		T                     int64 `json:"t_us"`
		N, Allowed, Remaining int64
		RetryAfter            float64 `json:"retry_after"`
		ResetAfter            float64 `json:"reset_after"`
	}
}

func TestTokenBucket_agreesWithRedisRate(t *testing.T) {
	ops := 0
	scenarios(t, "testdata/gcra.jsonl", func(s gcraTrace) {
		l := throttle.Limit{Count: s.Rate, Per: time.Duration(s.PeriodS * 1e9), Burst: s.Burst}
		b := throttle.NewTokenBucket(l)
		for i, op := range s.Ops {
			c := throttle.Claim{Cost: op.N, Now: time.UnixMicro(s.T0 + op.T)}
			if op.Op == "reset" {
				b = throttle.NewTokenBucket(l)
				continue
			}
			if c.DryRun = op.N == 0; op.Op == "atMost" {
				c = atMostOf(t, b, c)
			}
			d, err := b.Reserve(t.Context(), c)
			require.NoError(t, err)
			allowed := int64(0)
			if d.OK && op.N > 0 {
				allowed = c.Cost
			}
			require.Equal(t, op.Allowed, allowed, "%s, op %d: %+v: %+v", s.Name, i, op, d)
			require.InDelta(t, op.ResetAfter*1e9, float64(d.ResetAfter), 1, "%s, op %d: %+v: %+v", s.Name, i, op, d)
			switch {
			case d.OK:
				require.Equal(t, op.Remaining, d.Remaining, "%s, op %d: %+v: %+v", s.Name, i, op, d)
			case op.N > s.Burst && op.Op == "allowN":
				require.Equal(t, throttle.Forever, d.Wait, "%s, op %d", s.Name, i)
			case op.RetryAfter >= 0:
				require.InDelta(t, op.RetryAfter*1e9, float64(d.Wait), 1, "%s, op %d: %+v: %+v", s.Name, i, op, d)
			}
			ops++
		}
	})
	require.Greater(t, ops, 500)
}

// atMostOf returns c with a cost of as many units as there are.
func atMostOf(t *testing.T, l throttle.Limiter, c throttle.Claim) throttle.Claim {
	look := c
	look.Cost, look.DryRun = 1, true
	d, err := l.Reserve(t.Context(), look)
	require.NoError(t, err)
	c.DryRun = c.Cost == 0
	c.Cost = max(min(c.Cost, d.Remaining), 1)
	return c
}

type bucketTrace struct {
	Name              string
	Capacity, Initial int64
	Rate              string `json:"rate_per_s"`
	T0                int64  `json:"t0_us"`
	Ops               []struct {
		T          int64 `json:"t_us"`
		N          int64
		Allowed    bool
		Slack      string
		RetryAfter *string `json:"retry_after_s"`
	}
}

func TestTokenBucket_agreesWithExactModels(t *testing.T) {
	ops := 0
	scenarios(t, "testdata/token_bucket.jsonl", func(s bucketTrace) {
		rate := rational(t, s.Rate)
		b := throttle.NewTokenBucket(throttle.Limit{Count: rate.Num().Int64(), Per: time.Duration(rate.Denom().Int64()) * time.Second, Burst: s.Capacity})
		if missing := s.Capacity - s.Initial; missing > 0 {
			d, err := b.Reserve(t.Context(), throttle.Claim{Cost: missing, Now: time.UnixMicro(s.T0)})
			require.True(t, d.OK && err == nil)
		}
		for i, op := range s.Ops {
			if op.N == 0 { // asks for nothing; here 0 means 1
				continue
			}
			d, err := b.Reserve(t.Context(), throttle.Claim{Cost: op.N, Now: time.UnixMicro(s.T0 + op.T)})
			require.NoError(t, err)
			require.Equal(t, op.Allowed, d.OK, "%s, op %d: %+v: %+v", s.Name, i, op, d)
			left := rational(t, op.Slack)
			if !op.Allowed {
				left.Add(left, big.NewRat(op.N, 1))
			}
			require.Equal(t, floor(left), d.Remaining, "%s, op %d: %+v: %+v", s.Name, i, op, d)
			if op.RetryAfter == nil {
				require.Equal(t, throttle.Forever, d.Wait, "%s, op %d", s.Name, i)
				continue
			}
			wait := rational(t, *op.RetryAfter)
			require.Equal(t, ceil(wait.Mul(wait, big.NewRat(1e9, 1))), int64(d.Wait), "%s, op %d: %+v: %+v", s.Name, i, op, d)
			ops++
		}
	})
	require.Greater(t, ops, 1000)
}

func rational(t *testing.T, s string) *big.Rat {
	r, ok := new(big.Rat).SetString(s)
	require.True(t, ok, s)
	return r
}

func floor(r *big.Rat) int64 {
	return new(big.Int).Div(r.Num(), r.Denom()).Int64() // Euclidean: rounds down, as the denominator is positive
}

func ceil(r *big.Rat) int64 { return -floor(new(big.Rat).Neg(r)) }
