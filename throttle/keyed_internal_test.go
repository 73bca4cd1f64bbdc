package throttle

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A panicky limiter panics while it is armed, in the methods that it is armed for.
type panicky struct {
	Limiter
	reserve, cancel, observe bool
}

func (p *panicky) Reserve(ctx context.Context, c Claim) (Decision, error) {
	if p.reserve {
		panic("limiter")
	}
	return p.Limiter.Reserve(ctx, c)
}

func (p *panicky) Cancel(ctx context.Context, c Claim, d Decision) {
	if p.cancel {
		panic("limiter")
	}
	p.Limiter.Cancel(ctx, c, d)
}

func (p *panicky) Observe(ctx context.Context, c Claim, d Decision, f Feedback) {
	if p.observe {
		panic("limiter")
	}
	Observe(ctx, p.Limiter, c, d, f)
}

func (*panicky) NonBlocking() bool { return true }

func TestKeyedLimiter_staysUsableAfterPanics(t *testing.T) {
	p := &panicky{Limiter: NewTokenBucket(PerSecond(10), nil)}
	var fail bool
	k := &KeyedLimiter{Max: 1, New: func(string) Limiter {
		if fail {
			panic("New")
		}
		return p
	}}
	ask := func(key string) Decision {
		d, err := k.Reserve(t.Context(), Claim{Key: key, Now: time.Now()})
		require.NoError(t, err)
		return d
	}
	fail = true
	require.Panics(t, func() { ask("a") })
	require.Zero(t, k.Len())
	fail = false
	ask("a")
	p.reserve = true
	require.Panics(t, func() { ask("a") })
	p.reserve = false
	require.Zero(t, k.stateOf(Claim{Key: "a"}).activeCalls.Add(-1), "the limiter can be forgotten")
	p.reserve = true // to be asked whether it is idle
	require.Panics(t, func() { ask("b") })
	p.reserve = false
	ask("b")
	ask("a")
}

// TestKeyedLimiter_newMayCallTheLimiter has New ask the Keyed for another key.
func TestKeyedLimiter_newMayCallTheLimiter(t *testing.T) {
	var k *KeyedLimiter
	k = &KeyedLimiter{Max: 8, New: func(key string) Limiter {
		if len(key) < 4 {
			_, err := k.Reserve(t.Context(), Claim{Key: key + "x"})
			require.NoError(t, err)
		}
		return NewTokenBucket(PerSecond(10), nil)
	}}
	_, err := k.Reserve(t.Context(), Claim{Key: "x"})
	require.NoError(t, err)
	require.Equal(t, 4, k.Len())
}

func TestKeyedLimiter_evictsIdleLimiters(t *testing.T) {
	for name, new := range map[string]func(string) Limiter{
		"Adaptive":         func(string) Limiter { return NewAdaptive(AdaptiveConfig{}, nil) },
		"Adaptive, rate":   func(string) Limiter { return NewAdaptive(AdaptiveConfig{InitialRate: 10}, nil) },
		"AdmissionControl": func(string) Limiter { return NewAdmissionControl(AdmissionControlConfig{}, nil) },
		"TickQueue":        func(string) Limiter { return NewTickQueue(TickQueueConfig{Limit: PerSecond(10), Queue: 3}, nil) },
	} {
		synctest.Test(t, func(t *testing.T) {
			k := &KeyedLimiter{Max: 2, New: new}
			use := func(key string) Decision {
				c := Claim{Key: key, MaxWait: time.Second}
				d, err := k.Reserve(t.Context(), c)
				require.NoError(t, err)
				k.Observe(t.Context(), c, d, Feedback{Outcome: Throttled})
				return d
			}
			use("a")
			use("b")
			require.True(t, use("c").Degraded, "%s: both are in use", name)
			time.Sleep(time.Hour)
			require.False(t, use("d").Degraded, name)
			require.Equal(t, 2, k.Len(), name)
		})
	}
}
