package statedlimit

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// In random sequences, a SendLog contains no fewer requests of a window than were sent, and expects none of them to leave
// it earlier. While it has had no more times than entries, it is exact.
func TestSendLog_isNeverEarly(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 1))
		now := time.Unix(1000, 0)
		window := time.Duration(1+random.IntN(40)) * time.Second
		l := NewSendLog(now)
		var sent []time.Time // of the requests, in ascending order
		for step := range 200 {
			now = now.Add(time.Duration(random.ExpFloat64() * float64(time.Second)))
			at := now
			if random.IntN(20) == 0 {
				at = now.Add(-time.Duration(random.IntN(2000)) * time.Millisecond) // the clock is set back
			}
			l.Add(window, at)
			if len(sent) > 0 && at.Before(sent[len(sent)-1]) {
				at = sent[len(sent)-1]
			}
			sent = append(sent, at)
			for range 5 {
				part := time.Duration(1 + random.Int64N(int64(window)))
				since := now.Add(-part)
				first := slices.IndexFunc(sent, since.Before)
				within, next := int64(0), time.Duration(0)
				if first >= 0 {
					within, next = int64(len(sent)-first), sent[first].Add(part).Sub(now)
				}
				require.GreaterOrEqual(t, l.Within(part, now), within, "seed %d, step %d: requests within %v", seed, step, part)
				require.GreaterOrEqual(t, l.Next(part, now), next, "seed %d, step %d: next of %v", seed, step, part)
				if step < len(l.entries) {
					require.Equal(t, within, l.Within(part, now), "seed %d, step %d: requests within %v", seed, step, part)
					require.Equal(t, next, l.Next(part, now), "seed %d, step %d: next of %v", seed, step, part)
				}
			}
		}
	}
}

// A request is within a window of its length until it is that old.
func TestSendLog_window(t *testing.T) {
	start := time.Unix(1000, 0)
	l := NewSendLog(start)
	require.Zero(t, l.Within(time.Hour, start))
	require.Zero(t, l.Next(time.Hour, start))
	l.Add(time.Minute, start)
	l.Add(time.Minute, start)
	l.Add(time.Minute, start.Add(time.Second))
	require.EqualValues(t, 3, l.Within(time.Minute, start.Add(time.Minute-1)))
	require.EqualValues(t, 1, l.Next(time.Minute, start.Add(time.Minute-1)))
	require.EqualValues(t, 1, l.Within(time.Minute, start.Add(time.Minute)))
	require.Equal(t, time.Second, l.Next(time.Minute, start.Add(time.Minute)))
	l.Add(time.Minute, start.Add(time.Minute))
	require.Equal(t, 2, l.n, "what is older than the window is dropped")
}

// A SendLog of any number of requests takes the bytes that are charged for it.
func TestSendLog_hasFixedMemory(t *testing.T) {
	now := time.Unix(1000, 0)
	l := NewSendLog(now)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		now = now.Add(time.Second)
		l.Add(time.Hour, now)
	}))
	require.Equal(t, len(l.entries), l.n)
	require.EqualValues(t, unsafe.Sizeof(*l), LogBytes)
	require.EqualValues(t, 1001, l.Within(time.Hour, now))
}

// When a log is full, the two entries that are closest to each other become one, at the later time.
func TestSendLog_joinsTwoNeighbours(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, tt := range map[string]struct{ first, closest int }{"the first": {0, 1}, "in the middle": {0, 8}, "the last": {0, 15}, "later ones": {1000, 5}} {
		l := NewSendLog(start)
		at := time.Duration(tt.first) * time.Second
		for i := range 16 {
			if i == tt.closest {
				at += time.Second
			} else {
				at += 2 * time.Second
			}
			for range i + 1 {
				l.Add(24*time.Hour, start.Add(at))
			}
		}
		before := l.entries
		l.Add(24*time.Hour, start.Add(at+time.Hour))
		require.Equal(t, 16, l.n, name)
		k := tt.closest
		require.Equal(t, sendEntry{before[k].at, before[k].requests + before[k-1].requests}, l.entries[k-1], name)
		require.Equal(t, before[:k-1], l.entries[:k-1], name)
		require.Equal(t, before[k+1:], l.entries[k:15], name)
		require.EqualValues(t, 1, l.entries[15].requests, name)
	}
}
