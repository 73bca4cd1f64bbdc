package throttle_test

import (
	"testing"

	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

// The claim of a limiter that wraps others ends at the response only if those of all of them do.
func TestTraits_endAtResponseIsForwarded(t *testing.T) {
	wraps := map[string]func(throttle.Limiter) throttle.Limiter{
		"itself": func(l throttle.Limiter) throttle.Limiter { return l },
		"AllOf":  func(l throttle.Limiter) throttle.Limiter { return throttle.AllOf(throttle.AllowAll, l) },
		"Fallback primary": func(l throttle.Limiter) throttle.Limiter {
			return throttle.NewFallback(throttle.FallbackConfig{Primary: l, Secondary: throttle.DenyAll})
		},
		"Fallback secondary": func(l throttle.Limiter) throttle.Limiter {
			return throttle.NewFallback(throttle.FallbackConfig{Primary: throttle.DenyAll, Secondary: l})
		},
		"Soft limit": func(l throttle.Limiter) throttle.Limiter {
			return throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: l, Hard: throttle.AllowAll})
		},
		"Soft hard limit": func(l throttle.Limiter) throttle.Limiter {
			return throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: throttle.AllowAll, Hard: l})
		},
		"Shadow":   func(l throttle.Limiter) throttle.Limiter { return throttle.Shadow(l, nil) },
		"two deep": func(l throttle.Limiter) throttle.Limiter { return throttle.AllOf(throttle.Shadow(l, nil)) },
	}
	for name, wrap := range wraps {
		require.False(t, wrap(throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1})).Traits().EndsAtResponse, name)
		require.True(t, wrap(throttle.NewTokenBucket(throttle.PerSecond(1))).Traits().EndsAtResponse, name)
	}
}
