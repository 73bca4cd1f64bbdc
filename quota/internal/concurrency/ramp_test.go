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

// A ramp pauses after so many requests. Then it begins again with one, for what is left of its time, and those in flight that
// have ended since do not permit others.
func TestRamp_pauses(t *testing.T) {
	const ms = time.Millisecond
	start := time.Unix(1000, 0)
	for _, tt := range []struct {
		at, pause, end time.Duration // of the last request before the pause; end of the ramp
		open, left     int64         // in flight then, and at the end of the pause
	}{
		{500 * ms, 100 * ms, 1100 * ms, 7, 0}, {500 * ms, 100 * ms, 1100 * ms, 7, 7}, {500 * ms, 100 * ms, 1100 * ms, 7, 3},
		{950 * ms, 100 * ms, 1150 * ms, 3, 1}, {0, 2000 * ms, 4000 * ms, 1, 0},
	} {
		r := NewRamp(0, start, time.Second)
		r.PauseAfter(3)
		now := start.Add(tt.at)
		for n := range uint64(2) {
			before := r
			r.Sent(n+1, tt.open, tt.pause, now)
			require.Equal(t, before.end, r.end)
		}
		r.Sent(3, tt.open, tt.pause, now)
		r.Sent(4, tt.open+1, tt.pause, now) // one whose caller does not wait
		resumes := now.Add(tt.pause)
		for _, accepted := range []uint64{0, 2, 4} {
			r.Resume(accepted, tt.left, resumes.Add(-1))
			wait, ok := r.Check(tt.left, resumes.Add(-1))
			require.Equal(t, []any{time.Duration(1), false}, []any{wait, ok}, "%+v", tt)
		}
		last := r
		r.Resume(0, tt.left, resumes)
		_, ok := r.Check(tt.left, resumes)
		require.True(t, ok, "%+v: one is sent", tt)
		_, ok = r.Check(tt.left+1, resumes)
		require.False(t, ok, "%+v: a second one", tt)
		require.True(t, r.On(start.Add(tt.end-1)))
		require.False(t, r.On(start.Add(tt.end)))

		last.Resume(3, tt.left, now.Add(1)) // the last one is accepted
		_, ok = last.Check(tt.left, now.Add(1))
		require.True(t, ok, "%+v: one is sent", tt)
		_, ok = last.Check(tt.left+1, now.Add(1))
		require.False(t, ok, "%+v: a second one", tt)
		require.False(t, last.On(start.Add(tt.end-tt.pause+1)), "it ends earlier")
	}
	r := NewRamp(0, start, time.Second)
	r.PauseAfter(1)
	ended := r
	r.Sent(1, 1, time.Second, start.Add(time.Second))
	require.Equal(t, ended, r, "what is sent after its end causes no pause")
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
