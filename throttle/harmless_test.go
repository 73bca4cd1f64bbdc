package throttle

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
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

func TestQueue_rejectsNegativeSettings(t *testing.T) {
	for _, q := range []*Queue{{Aging: -1}, {MaxReservation: -1}, {MaxCatchUp: -1}} {
		require.ErrorContains(t, q.Validate(), "must not be negative")
		require.Equal(t, q.Validate(), q.Wait(t.Context(), ticket(bucket(time.Second, 1))))
	}
	require.NoError(t, new(Queue).Validate())
}

// An endCount is a limiter far away that counts the ends of claims whose context is live.
type endCount struct{ cancels, observes int }

func (*endCount) Reserve(context.Context, Claim) (Decision, error) { return Decision{OK: true}, nil }
func (e *endCount) Cancel(ctx context.Context, _ Claim, _ Decision) {
	if ctx.Err() == nil {
		e.cancels++
	}
}
func (e *endCount) Observe(ctx context.Context, _ Claim, _ Decision, _ Feedback) {
	if ctx.Err() == nil {
		e.observes++
	}
}

func TestTicket_cancelAndObserveReachTheLimiterAfterTheContextEnded(t *testing.T) {
	q, e, tk := new(Queue), new(endCount), new(Ticket)
	tk.Add(Demand{Limiter: e})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, end := range []func(){
		func() { q.Cancel(ctx, tk) },
		func() { tk.Cancel(ctx, time.Time{}) },
		func() { q.Observe(ctx, tk, Feedback{}) },
		func() { tk.Observe(ctx, Feedback{}) },
		func() { tk.Settle(0, 0); tk.Observe(ctx, Feedback{}) },
	} {
		require.NoError(t, q.Wait(t.Context(), tk))
		end()
	}
	assert.Equal(t, endCount{cancels: 3, observes: 2}, *e)
}
