package throttle_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/stretchr/testify/require"
)

// A limiter that asks one of several others ends the claim at the one that granted it,
// even if that is itself composed and identifies its parts by the Decision.
func TestLimiter_endsClaimsOfNestedLimiters(t *testing.T) {
	day := 24 * time.Hour
	for name, wrap := range map[string]func(l throttle.Limiter) throttle.Limiter{
		"Fallback, Primary": func(l throttle.Limiter) throttle.Limiter {
			return throttle.NewFallback(throttle.FallbackConfig{Primary: l, Secondary: throttle.DenyAll})
		},
		"Fallback, Secondary": func(l throttle.Limiter) throttle.Limiter {
			return throttle.NewFallback(throttle.FallbackConfig{Primary: down{}, Secondary: l})
		},
		"Fallback, twice": func(l throttle.Limiter) throttle.Limiter {
			return throttle.NewFallback(throttle.FallbackConfig{Primary: down{}, Secondary: throttle.NewFallback(throttle.FallbackConfig{Primary: down{}, Secondary: l})})
		},
		"Ban": func(l throttle.Limiter) throttle.Limiter {
			return keyed.NewBan(l, keyed.BanConfig{Rejections: 3, Within: time.Minute, Duration: time.Minute})
		},
		"Shadow": func(l throttle.Limiter) throttle.Limiter { return throttle.Shadow(l, nil) },
		"SoftLimit": func(l throttle.Limiter) throttle.Limiter {
			return throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: throttle.NewTokenBucket(throttle.Limit{Count: 100, Per: day}), Hard: l})
		},
		"AllOf": func(l throttle.Limiter) throttle.Limiter {
			return throttle.AllOf(throttle.NewTokenBucket(throttle.Limit{Count: 100, Per: day}), l)
		},
		"keyed.Limiter": func(l throttle.Limiter) throttle.Limiter {
			return &keyed.Limiter{New: func(string) throttle.Limiter { return l }}
		},
	} {
		a, b := throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 10, Per: day}), throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 10})
		l := wrap(throttle.AllOf(a, b))
		left := func() [2]int64 {
			var n [2]int64
			for i, l := range []throttle.Limiter{a, b} {
				d, err := l.Reserve(t.Context(), throttle.Claim{DryRun: true})
				require.NoError(t, err)
				n[i] = d.Remaining
			}
			return n
		}
		claim := throttle.Claim{Key: "k", Cost: 4}
		for range 3 {
			d, err := l.Reserve(t.Context(), claim)
			require.NoError(t, err, name)
			require.True(t, d.OK, name)
			require.Equal(t, [2]int64{6, 6}, left(), name)
			l.Report(t.Context(), claim, d, throttle.Feedback{Now: claim.Now, State: throttle.Unused})
			require.Equal(t, [2]int64{10, 10}, left(), name)
		}
		d, err := l.Reserve(t.Context(), claim)
		require.NoError(t, err, name)
		l.Report(t.Context(), claim, d, throttle.Feedback{Cost: 1})
		require.Equal(t, [2]int64{9, 10}, left(), name)
	}
}

// A down limiter cannot decide.
type down struct{}

func (down) Reserve(context.Context, throttle.Claim) (throttle.Decision, error) {
	return throttle.Decision{}, errors.New("down")
}
func (down) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {}

// Traits implements throttle.Limiter.
func (down) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }
