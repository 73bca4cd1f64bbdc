package queue

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

func TestTicket_settlesEachDemandAtItsOwnCost(t *testing.T) {
	now := time.Unix(0, 0)
	const none = -1
	for name, tt := range map[string]struct {
		units  int64
		settle int64
		want   int64 // units left of 10, after a claim of 3
	}{
		"not at all": {3, none, 7},
		"nothing":    {3, 0, 10},
		"less":       {3, 1, 9},
		"as claimed": {3, 3, 7},
		"more":       {3, 8, 2},
	} {
		a, b := bucket(time.Second, 10), bucket(time.Minute, 10)
		tk := &Ticket{Demands: []throttle.Demand{{Limiter: a, Cost: 3}, {Limiter: b, Cost: tt.units}}}
		tk.Settle(1, 9) // no effect: not granted yet
		_, err := tk.Reserve(t.Context(), now)
		require.NoError(t, err)
		if tt.settle != none {
			tk.Settle(1, 5) // the last call counts
			tk.Settle(1, tt.settle)
		}
		tk.Report(t.Context(), throttle.Feedback{Now: now, State: throttle.Ongoing})
		require.EqualValues(t, 7, leftAt(t, b, now), "%s: not yet", name)
		tk.Report(t.Context(), throttle.Feedback{Now: now})
		require.EqualValues(t, 7, leftAt(t, a, now), "%s: the other limit hears nothing of it", name)
		require.EqualValues(t, tt.want, leftAt(t, b, now), name)

		_, err = tk.Reserve(t.Context(), now.Add(time.Hour))
		require.NoError(t, err)
		tk.Report(t.Context(), throttle.Feedback{Now: now.Add(time.Hour)})
		require.EqualValues(t, 7, leftAt(t, b, now.Add(time.Hour)), "%s: the next grant is not settled", name)
	}
}

func TestTicket_settlingZeroFreesTheSlot(t *testing.T) {
	f := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1})
	for range 3 {
		tk := ticket(f)
		d, err := tk.Reserve(t.Context(), time.Time{})
		require.NoError(t, err)
		require.True(t, d.OK)
		tk.Settle(0, -1)
		tk.Report(t.Context(), throttle.Feedback{})
	}
}

// leftAt returns the number of units of l that are available at now.
func leftAt(t *testing.T, l throttle.Limiter, now time.Time) int64 {
	d, err := l.Reserve(t.Context(), throttle.Claim{DryRun: true, Now: now})
	require.NoError(t, err)
	return d.Remaining
}

// An observedLimiter records the times of the feedback that it gets.
type observedLimiter struct {
	throttle.Limiter
	times []time.Time
}

func (l *observedLimiter) Report(_ context.Context, _ throttle.Claim, _ throttle.Decision, f throttle.Feedback) {
	l.times = append(l.times, f.Now)
}

// Traits implements throttle.Limiter.
func (l *observedLimiter) Traits() throttle.Traits {
	t := l.Limiter.Traits()
	t.NonBlocking = true
	return t
}

// A fixedClock always shows the same time.
type fixedClock time.Time

func (c fixedClock) Now() time.Time                     { return time.Time(c) }
func (fixedClock) After(time.Duration) <-chan time.Time { return nil }

// TestQueue_observeReadsAMissingTimeFromItsClock checks Feedback.Now as the limiters get it.
func TestQueue_observeReadsAMissingTimeFromItsClock(t *testing.T) {
	noon, later := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), time.Date(2026, 11, 21, 13, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		clock     throttle.Clock
		now, want time.Time
	}{
		"no Clock, no time": {nil, time.Time{}, time.Time{}},
		"no Clock, a time":  {nil, later, later},
		"a Clock, no time":  {fixedClock(noon), time.Time{}, noon},
		"a Clock, a time":   {fixedClock(noon), later, later},
	} {
		q, l := &Queue{Clock: c.clock}, &observedLimiter{Limiter: throttle.AllowAll}
		tk := ticket(l)
		require.NoError(t, q.Wait(t.Context(), tk), name)
		q.Report(t.Context(), tk, throttle.Feedback{Now: c.now})
		require.Len(t, l.times, 1, name)
		require.True(t, c.want.Equal(l.times[0]), "%s: %v", name, l.times[0])
	}
}
