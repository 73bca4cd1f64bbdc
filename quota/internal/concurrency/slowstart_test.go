package concurrency

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The bound grows to 18: from 4 by one per two successes, and where the server states limits by one per
// success. After 100 successes the host is known. Processes that share an Exchange begin at the same time,
// so they divide the growth.
func TestSlowStart_boundOfANewHost(t *testing.T) {
	for _, tt := range []struct {
		initial, successes int
		stated             bool
		bound              int64 // 0: none
	}{
		{4, 0, false, 4}, {4, 1, false, 4}, {4, 2, false, 5}, {4, 27, false, 17}, {4, 28, false, 18}, {4, 99, false, 18},
		{4, 100, false, 0}, {10, 0, false, 10}, {10, 99, false, 24}, {-1, 0, false, 0},
		{4, 0, true, 4}, {4, 1, true, 5}, {4, 13, true, 17}, {4, 14, true, 18}, {4, 99, true, 18}, {4, 100, true, 0}, {-1, 0, true, 0},
	} {
		s := SlowStart{Successes: tt.successes}
		require.Equal(t, tt.bound, s.Limit(tt.initial, tt.stated, 1), "%+v", tt)
	}
	s := SlowStart{Successes: 99}
	for processes, bound := range map[int]int64{1: 18, 2: 11, 14: 5, 15: 4} {
		require.Equal(t, bound, s.Limit(4, false, processes), processes)
	}
}

// When 100 requests have succeeded, 18 may be in flight, and one more for each further success. When
// less than half of the bound was used during as many responses, there is none.
func TestSlowStart_boundOfAKnownHost(t *testing.T) {
	var s SlowStart
	succeed := func(n int, open int64) (over bool) {
		for range n {
			over = s.CountSuccess(open, 4)
		}
		return over
	}
	require.False(t, succeed(99, 10))
	require.False(t, s.isKnown())
	require.Zero(t, s.MaxInFlight)
	require.False(t, succeed(1, 10))
	require.True(t, s.isKnown())
	require.EqualValues(t, 18, s.MaxInFlight)
	succeed(17, 17) // 18 at the success
	require.EqualValues(t, 35, s.MaxInFlight)
	succeed(1, 0)
	require.EqualValues(t, 36, s.MaxInFlight, "18 of 36 were used: that is half")
	require.False(t, succeed(35, 33)) // 34 at the success: less than half of 72
	require.EqualValues(t, 71, s.MaxInFlight)
	require.True(t, succeed(1, 34))
	require.Zero(t, s.MaxInFlight, "35 of 72 were used")
	require.True(t, succeed(1, 50))
	require.Zero(t, s.MaxInFlight)
}

// isKnown reports whether the host is known: only then a stated limit removes the bound.
func (s SlowStart) isKnown() bool { return s.Limit(4, true, 1) == 0 }

// The bound after a hold does not grow for as many successes as stated, and only the use after them
// counts.
func TestSlowStart_boundAfterAHold(t *testing.T) {
	s := SlowStart{Successes: KnownAfter}
	s.Bound(20, 3)
	for _, want := range []int64{20, 20, 20, 21} {
		s.CountSuccess(15, 4)
		require.Equal(t, want, s.MaxInFlight)
	}
	require.EqualValues(t, 16, s.peak)
	require.EqualValues(t, 19, s.countdown)
}

// A host that has served 50 requests is known when none is in flight or waits. The responses of a
// round trip may all arrive before one of the requests that wait for them is granted.
func TestSlowStart_aServedBurstEndsIt(t *testing.T) {
	for _, tt := range []struct {
		successes int // before this one
		open      int64
		denied    bool
		isNew     bool
	}{
		{48, 0, false, true}, {49, 0, false, false}, {49, 1, false, true}, {60, 0, false, false},
		{49, 0, true, true}, {60, 0, true, true},
	} {
		s := SlowStart{Successes: tt.successes, Denied: tt.denied}
		require.False(t, s.CountSuccess(tt.open, 4), "%+v: before 100 successes", tt)
		require.Equal(t, !tt.isNew, s.isKnown(), "%+v", tt)
	}
	var s SlowStart
	for i := range KnownAfter {
		require.Equal(t, i == KnownAfter-1, s.CountSuccess(0, 4))
	}
	require.Zero(t, s.MaxInFlight, "it is not bounded again")
}

// The bound when a host becomes known grows with Tracker.InitialConcurrency.
func TestKnownBound(t *testing.T) {
	for initial, want := range map[int]int64{-1: 14, 4: 18, 10: 24} {
		require.Equal(t, want, KnownBound(initial), initial)
	}
}
