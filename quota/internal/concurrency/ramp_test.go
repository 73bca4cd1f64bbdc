package concurrency

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The bound doubles ten times from the start to the end of the ramp, and then there is none.
func TestRamp_boundGrowsWithTime(t *testing.T) {
	start := time.Unix(1000, 0)
	r := NewRamp(0, start, time.Second)
	for after, want := range map[time.Duration]int64{
		-time.Second: 1, 0: 1, 99 * time.Millisecond: 1, 100 * time.Millisecond: 2, 200 * time.Millisecond: 4,
		500 * time.Millisecond: 32, 900 * time.Millisecond: 512, time.Second: 0, time.Hour: 0,
	} {
		require.Equal(t, want, r.Bound(start.Add(after)), "%v", after)
		require.Equal(t, want > 0, r.On(start.Add(after)), "%v", after)
	}
}

// A request is sent while fewer than the bound are in flight. The wait of another one ends when the bound
// admits it, not earlier.
func TestRamp_waitEndsWhenTheBoundOpens(t *testing.T) {
	start := time.Unix(1000, 0)
	r := NewRamp(0, start, time.Second)
	for now := start.Add(-200 * time.Millisecond); now.Before(start.Add(1100 * time.Millisecond)); now = now.Add(7 * time.Millisecond) {
		for _, open := range []int64{0, 1, 2, 3, 4, 7, 8, 100, 2000, 5000} {
			wait, ok := r.Check(open, now)
			bound := r.Bound(now)
			switch {
			case bound == 0 || open < bound && !now.Before(start):
				require.True(t, ok, "%v, %d in flight", now.Sub(start), open)
				require.Zero(t, wait)
				continue
			case !ok:
				require.Positive(t, wait)
			}
			require.False(t, ok, "%v, %d in flight", now.Sub(start), open)
			opens := now.Add(wait)
			require.False(t, opens.Before(start))
			_, ok = r.Check(open, opens)
			require.True(t, ok, "it may be sent after the wait")
			if opens.After(start) {
				_, ok = r.Check(open, opens.Add(-time.Microsecond))
				require.False(t, ok, "and not earlier")
			}
		}
	}
	for open, want := range map[int64]time.Duration{1: 100 * time.Millisecond, 2: 158496250, 3: 200 * time.Millisecond, 7: 300 * time.Millisecond, 1 << 40: time.Second} {
		wait, _ := r.Check(open, start)
		require.InDelta(t, want, wait, 10, "%d in flight", open)
	}
}

// Requests that were in flight before the ramp do not count.
func TestRamp_whatWasInFlightBefore(t *testing.T) {
	start := time.Unix(1000, 0)
	r, alone := NewRamp(95, start, time.Second), NewRamp(0, start, time.Second)
	for now := start; r.On(now); now = now.Add(7 * time.Millisecond) {
		require.Equal(t, alone.Bound(now)+95, r.Bound(now))
		for _, open := range []int64{0, 1, 2, 3, 7, 100, 2000} {
			wait, ok := alone.Check(open, now)
			gotWait, gotOK := r.Check(open+95, now)
			require.Equal(t, []any{wait, ok}, []any{gotWait, gotOK})
		}
		_, ok := r.Check(94, now)
		require.True(t, ok, "some of them have ended")
	}
}

// The zero Ramp, and one without a length, bound nothing.
func TestRamp_zero(t *testing.T) {
	start := time.Unix(1000, 0)
	for _, r := range []Ramp{{}, NewRamp(0, start, 0)} {
		wait, ok := r.Check(1<<40, start)
		require.True(t, ok)
		require.Zero(t, wait)
		require.Zero(t, r.Bound(start))
		require.False(t, r.On(start))
	}
}
