package monitor_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/rules/monitor"
	"github.com/heed-go/heed/throttle"
)

// TestStats_anyMethodMayBeTheFirst calls each method of a Stats before the others.
func TestStats_anyMethodMayBeTheFirst(t *testing.T) {
	rejected := throttle.Decision{At: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	for name, first := range map[string]func(*monitor.Stats){
		"Decided":              func(s *monitor.Stats) { s.Decided(throttle.Claim{DryRun: true}, rejected) },
		"Undecided":            func(s *monitor.Stats) { s.Undecided(throttle.Claim{DryRun: true}) },
		"Cancelled":            func(s *monitor.Stats) { s.Cancelled(throttle.Claim{DryRun: true}) },
		"Snapshot":             func(s *monitor.Stats) { require.Zero(t, s.Snapshot()) },
		"TopRejected":          func(s *monitor.Stats) { require.Empty(t, s.TopRejected(1)) },
		"TopRejectedCleartext": func(s *monitor.Stats) { require.Empty(t, s.TopRejectedCleartext(1)) },
		"Reset":                func(s *monitor.Stats) { s.Reset() },
	} {
		s := &monitor.Stats{Limit: throttle.PerSecond(1)}
		first(s)
		pseudonym := s.Pseudonym("key")
		s.Decided(throttle.Claim{Key: "key"}, rejected)
		s.Undecided(throttle.Claim{Key: "key"})
		s.Cancelled(throttle.Claim{Key: "key"})
		require.Equal(t, pseudonym, s.TopRejected(1)[0].Key, name)
		n := s.Snapshot()
		require.Equal(t, []int64{1, 1, 1}, []int64{n.Rejected, n.Undecided, n.Cancelled}, name)
	}
	s := new(monitor.Stats)
	pseudonym := s.Pseudonym("key")
	s.Decided(throttle.Claim{Key: "key"}, rejected)
	require.Equal(t, pseudonym, s.TopRejected(1)[0].Key)
	for n, calls := range map[string]func(*monitor.Stats){
		"undecided": func(s *monitor.Stats) { s.Undecided(throttle.Claim{}) },
		"cancelled": func(s *monitor.Stats) { s.Cancelled(throttle.Claim{}) },
	} {
		s := new(monitor.Stats)
		calls(s)
		got := s.Snapshot()
		require.EqualValues(t, 1, got.Undecided+got.Cancelled, n)
	}
}

// TestStats_keysAreKeptUpTo256Bytes checks keys around the maximum length, and the default number
// of keys.
func TestStats_keysAreKeptUpTo256Bytes(t *testing.T) {
	rejected := throttle.Decision{At: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	for n, kept := range map[int]bool{1: true, 255: true, 256: true, 257: false, 1000: false} {
		s, key := new(monitor.Stats), string(make([]byte, n))
		s.Decided(throttle.Claim{Key: key}, rejected)
		got := s.TopRejectedCleartext(1)[0].Key
		require.Equal(t, kept, got == key, n)
		require.Len(t, got, min(n, 256))
	}
	s := new(monitor.Stats)
	for i := range 200 {
		s.Decided(throttle.Claim{Key: string(rune('a' + i))}, rejected)
	}
	require.Len(t, s.TopRejected(1000), 128)
}
