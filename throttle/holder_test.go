package throttle_test

import (
	"testing"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

// What wraps limiters holds until the end if one of them does, and only then.
func TestHoldsUntilEnd_isForwarded(t *testing.T) {
	sentence := throttle.Sentence{After: 1, Within: time.Second, For: time.Second}
	wraps := map[string]func(throttle.Limiter) throttle.Limiter{
		"itself": func(l throttle.Limiter) throttle.Limiter { return l },
		"AllOf":  func(l throttle.Limiter) throttle.Limiter { return throttle.AllOf(throttle.Unlimited, l) },
		"Fallback primary": func(l throttle.Limiter) throttle.Limiter {
			return &throttle.Fallback{Primary: l, Secondary: throttle.Blocked}
		},
		"Fallback secondary": func(l throttle.Limiter) throttle.Limiter {
			return &throttle.Fallback{Primary: throttle.Blocked, Secondary: l}
		},
		"Soft limit":      func(l throttle.Limiter) throttle.Limiter { return &throttle.Soft{Limit: l, Hard: throttle.Unlimited} },
		"Soft hard limit": func(l throttle.Limiter) throttle.Limiter { return &throttle.Soft{Limit: throttle.Unlimited, Hard: l} },
		"Elastic":         func(l throttle.Limiter) throttle.Limiter { return &throttle.Elastic{Limiter: l} },
		"Shadow":          func(l throttle.Limiter) throttle.Limiter { return &throttle.Shadow{Limiter: l} },
		"Penalty":         func(l throttle.Limiter) throttle.Limiter { return throttle.NewPenalty(l, sentence, nil) },
		"Keyed overflow": func(l throttle.Limiter) throttle.Limiter {
			return &throttle.Keyed{New: func(string) throttle.Limiter { return throttle.Unlimited }, Overflow: l}
		},
		"Buckets spill": func(l throttle.Limiter) throttle.Limiter {
			return throttle.NewKeyedBuckets(throttle.Buckets{Limit: throttle.PerSecond(1), Spill: l}, nil)
		},
		"two deep": func(l throttle.Limiter) throttle.Limiter { return throttle.AllOf(&throttle.Shadow{Limiter: l}) },
	}
	for name, wrap := range wraps {
		require.True(t, throttle.HoldsUntilEnd(wrap(throttle.NewInFlight(throttle.Capacity{Count: 1}, nil))), name)
		require.False(t, throttle.HoldsUntilEnd(wrap(throttle.NewTokenBucket(throttle.PerSecond(1), nil))), name)
	}
	require.False(t, throttle.HoldsUntilEnd(nil))
}

func TestKeyed_holdsUntilEndOnceALimiterOfNewDoes(t *testing.T) {
	k := &throttle.Keyed{New: func(key string) throttle.Limiter {
		if key == "stream" {
			return throttle.NewInFlight(throttle.Capacity{Count: 1}, nil)
		}
		return throttle.Unlimited
	}}
	for _, tt := range []struct {
		key   string
		holds bool
	}{{"a", false}, {"stream", true}, {"b", true}} {
		_, err := k.Reserve(t.Context(), throttle.Claim{Key: tt.key})
		require.NoError(t, err)
		require.Equal(t, tt.holds, k.HoldsUntilEnd(), tt.key)
	}
}
