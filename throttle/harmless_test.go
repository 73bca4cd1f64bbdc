package throttle

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFixedWindow_recoversWhenTheClockIsSetBack(t *testing.T) {
	for name, q := range map[string]FixedWindowConfig{
		"epoch": {Count: 2, Per: time.Minute},
		"first": {Count: 2, Per: time.Minute, Align: AtFirst},
		"hour":  {Count: 2, Align: EachHour},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := NewFixedWindow(q, nil)
			ask := func(ahead time.Duration) Decision {
				d, err := l.Reserve(t.Context(), Claim{Now: time.Now().Add(ahead)})
				require.NoError(t, err)
				return d
			}
			require.True(t, ask(48*time.Hour).OK, name)
			require.True(t, ask(48*time.Hour).OK, name)
			require.False(t, ask(0).OK, "%s: an older reading counts as the newest", name)
			time.Sleep(time.Hour) // a whole window
			require.True(t, ask(0).OK, name)
			require.True(t, ask(0).OK, name)
			d := ask(0)
			require.False(t, d.OK, name)
			require.LessOrEqual(t, d.Wait, time.Hour, name)
		})
	}
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
