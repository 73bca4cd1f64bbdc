package keyed

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/adaptive"
	"github.com/stretchr/testify/require"
)

// A panicky limiter panics while it is armed, in the methods that it is armed for.
type panicky struct {
	throttle.Limiter
	reserve, cancel, observe bool
}

func (p *panicky) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	if p.reserve {
		panic("limiter")
	}
	return p.Limiter.Reserve(ctx, c)
}

func (p *panicky) Report(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if f.State == throttle.Unused {
		if p.cancel {
			panic("limiter")
		}
		p.Limiter.Report(ctx, c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
		return
	}
	if p.observe {
		panic("limiter")
	}
	p.Limiter.Report(ctx, c, d, f)
}

// Traits implements throttle.Limiter.
func (l *panicky) Traits() throttle.Traits {
	t := l.Limiter.Traits()
	t.NonBlocking = true
	return t
}

func TestLimiter_staysUsableAfterPanics(t *testing.T) {
	p := &panicky{Limiter: throttle.NewTokenBucket(throttle.PerSecond(10))}
	var fail bool
	k := &Limiter{Max: 1, New: func(string) throttle.Limiter {
		if fail {
			panic("New")
		}
		return p
	}}
	ask := func(key string) throttle.Decision {
		d, err := k.Reserve(t.Context(), throttle.Claim{Key: key, Now: time.Now()})
		require.NoError(t, err)
		return d
	}
	fail = true
	require.Panics(t, func() { ask("a") })
	require.Zero(t, k.Len())
	fail = false
	ask("a")
	p.reserve = true // panics when it is asked whether it is idle
	require.Panics(t, func() { ask("a") })
	p.reserve = false
	require.Zero(t, k.stateOf(throttle.Claim{Key: "a"}).activeCalls.Add(-1), "the limiter can be forgotten")
	p.reserve = true // to be asked whether it is idle
	require.Panics(t, func() { ask("b") })
	p.reserve = false
	ask("b")
	ask("a")
}

// TestLimiter_newMayCallTheLimiter has New ask the Limiter for another key.
func TestLimiter_newMayCallTheLimiter(t *testing.T) {
	var k *Limiter
	k = &Limiter{Max: 8, New: func(key string) throttle.Limiter {
		if len(key) < 4 {
			_, err := k.Reserve(t.Context(), throttle.Claim{Key: key + "x"})
			require.NoError(t, err)
		}
		return throttle.NewTokenBucket(throttle.PerSecond(10))
	}}
	_, err := k.Reserve(t.Context(), throttle.Claim{Key: "x"})
	require.NoError(t, err)
	require.Equal(t, 4, k.Len())
}

func TestLimiter_evictsIdleLimiters(t *testing.T) {
	for name, new := range map[string]func(string) throttle.Limiter{
		"Adaptive": func(string) throttle.Limiter { return adaptive.New(adaptive.Config{}) },
		"Adaptive, rate": func(string) throttle.Limiter {
			return adaptive.New(adaptive.Config{InitialRate: 10})
		},
		"AdmissionControl": func(string) throttle.Limiter {
			return adaptive.NewAdmissionControl(adaptive.AdmissionControlConfig{})
		},
		"TickQueue": func(string) throttle.Limiter {
			return throttle.NewTickQueue(throttle.TickQueueConfig{Limit: throttle.PerSecond(10), Queue: 3})
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			k := &Limiter{Max: 2, New: new, Overflow: throttle.AllowAll} // without Overflow, limiters in use are evicted as well
			use := func(key string) throttle.Decision {
				c := throttle.Claim{Key: key}
				d, err := throttle.ReserveAhead(t.Context(), k, c, time.Second)
				require.NoError(t, err)
				k.Report(t.Context(), c, d, throttle.Feedback{Outcome: throttle.Throttled})
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

// TestLimiter_panicsWithoutALimiterForAKey checks that a missing New, or a missing result of it, is
// named.
func TestLimiter_panicsWithoutALimiterForAKey(t *testing.T) {
	require.PanicsWithValue(t, "keyed: Limiter: New is nil: set it", func() {
		_, _ = new(Limiter).Reserve(t.Context(), throttle.Claim{})
	})
	l := &Limiter{New: func(key string) throttle.Limiter {
		if key == "unknown" {
			return nil
		}
		return throttle.AllowAll
	}}
	require.PanicsWithValue(t, "keyed: Limiter: New returned nil: return throttle.AllowAll for a key without a limit", func() {
		_, _ = l.Reserve(t.Context(), throttle.Claim{Key: "unknown"})
	})
	d, err := l.Reserve(t.Context(), throttle.Claim{Key: "known"})
	require.NoError(t, err)
	require.True(t, d.OK)
}
