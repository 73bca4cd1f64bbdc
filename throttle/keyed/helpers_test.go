package keyed_test

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// A fakeLimiter makes the same decision every time and records its grants and their ends.
type fakeLimiter struct {
	decision  throttle.Decision
	granted   []throttle.Decision
	cancelled []throttle.Decision
	observed  []throttle.Decision
}

func (s *fakeLimiter) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	d := s.decision
	if d.At = c.Now; d.At.IsZero() {
		d.At = time.Unix(1, 0)
	}
	if d.OK && !c.DryRun {
		d.Grant += uint64(len(s.granted))
		s.granted = append(s.granted, d)
	}
	return d, nil
}

func (s *fakeLimiter) Report(_ context.Context, _ throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if f.State == throttle.Unused {
		s.cancelled = append(s.cancelled, d)
		return
	}
	s.observed = append(s.observed, d)
}

// Traits implements throttle.Limiter.
func (*fakeLimiter) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }

func granting(grant uint64, left int64) *fakeLimiter {
	return &fakeLimiter{decision: throttle.Decision{OK: true, Policy: fmt.Sprint("grant ", grant), Limit: 100, Remaining: left, Grant: grant}}
}

func rejecting(wait time.Duration) *fakeLimiter {
	return &fakeLimiter{decision: throttle.Decision{Policy: "rejection", Wait: wait, Limit: 100}}
}

func reserve(t *testing.T, l throttle.Limiter, c throttle.Claim) throttle.Decision {
	d, err := l.Reserve(t.Context(), c)
	if err != nil {
		t.Helper()
		require.NoError(t, err)
	}
	return d
}

type maker = func(throttle.Clock) throttle.Limiter

func newBucket(count int64, per time.Duration, burst int64) maker {
	return func(clk throttle.Clock) throttle.Limiter {
		return throttle.WithClock(throttle.NewTokenBucket(throttle.Limit{Count: count, Per: per, Burst: burst}), clk)
	}
}

func fixedWindow(q throttle.FixedWindowConfig) maker {
	return func(clk throttle.Clock) throttle.Limiter { return throttle.WithClock(throttle.NewFixedWindow(q), clk) }
}

func slidingLog(l throttle.SlidingLogConfig) maker {
	return func(clk throttle.Clock) throttle.Limiter { return throttle.WithClock(throttle.NewSlidingLog(l), clk) }
}

func slidingCounter(l throttle.SlidingCounterConfig) maker {
	return func(clk throttle.Clock) throttle.Limiter {
		return throttle.WithClock(throttle.NewSlidingCounter(l), clk)
	}
}

func allOf(parts ...maker) maker {
	return func(clk throttle.Clock) throttle.Limiter {
		var ls []throttle.Limiter
		for _, p := range parts {
			ls = append(ls, p(clk))
		}
		return throttle.AllOf(ls...)
	}
}

func limiter(inner maker) maker {
	return func(clk throttle.Clock) throttle.Limiter {
		return &keyed.Limiter{New: func(string) throttle.Limiter { return inner(clk) }, Clock: clk}
	}
}

func buckets(b keyed.BucketsConfig) maker {
	b.Max = 100
	return func(clk throttle.Clock) throttle.Limiter { return throttle.WithClock(keyed.NewBuckets(b), clk) }
}

// oneNetwork is the Addr of keys that are all of one network.
func oneNetwork(string) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, 7}) }

// alwaysBusy returns limiters that never become idle.
func alwaysBusy(string) throttle.Limiter {
	l := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 2})
	l.Reserve(context.Background(), throttle.Claim{})
	return l
}

// withKeys returns l after claims of n keys.
func withKeys(n int, l throttle.Limiter) throttle.Limiter {
	for i := range n {
		l.Reserve(context.Background(), throttle.Claim{Key: strconv.Itoa(i)})
	}
	return l
}
