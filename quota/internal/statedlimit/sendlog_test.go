package statedlimit

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// An exactLog is what a sendLog approximates: the time of each request, in ascending order.
type exactLog []time.Time

func (l *exactLog) add(now time.Time, n int64) {
	if len(*l) > 0 && now.Before((*l)[len(*l)-1]) {
		now = (*l)[len(*l)-1]
	}
	for range n {
		*l = append(*l, now)
	}
}

func (l *exactLog) trim(used int64) {
	*l = (*l)[max(int64(len(*l))-max(used, 0), 0):]
}

func (l *exactLog) count(from, to time.Time) (n int64) {
	for _, at := range *l {
		if at.After(from) && !at.After(to) {
			n++
		}
	}
	return n
}

// next returns the time of the first request after from; zero: there is none.
func (l *exactLog) next(from time.Time) time.Time {
	if i := slices.IndexFunc(*l, from.Before); i >= 0 {
		return (*l)[i]
	}
	return time.Time{}
}

// With at most as many times as entries, a sendLog is exact.
func TestSendLog_holdsTimesOfRequests(t *testing.T) {
	type add struct {
		at time.Duration // from the start of the log
		n  int64
	}
	const none = time.Duration(-1)
	for name, tt := range map[string]struct {
		first    int64 // requests before the start
		adds     []add
		trim     int64 // -1: not trimmed
		from, to time.Duration
		count    int64
		next     time.Duration
	}{
		"empty":                     {0, nil, -1, -time.Hour, time.Hour, 0, none},
		"requests before the start": {7, nil, -1, -time.Second, time.Hour, 7, 0},
		"from is excluded":          {0, []add{{1, 3}, {2, 4}}, -1, 1, 2, 4, 2},
		"to is included":            {0, []add{{1, 3}, {2, 4}}, -1, 0, 1, 3, 1},
		"after the latest":          {0, []add{{1, 3}, {2, 4}}, -1, 2, 9, 0, none},
		"one time twice":            {0, []add{{1, 3}, {1, 4}}, -1, 0, 1, 7, 1},
		"the clock was set back":    {0, []add{{5, 3}, {1, 4}}, -1, 4, 5, 7, 5},
		"no requests":               {0, []add{{1, 0}, {2, -4}}, -1, 0, 9, 0, none},
		"trimmed entry":             {2, []add{{1, 3}, {2, 4}}, 4, -1, 9, 4, 2},
		"trimmed part of an entry":  {2, []add{{1, 3}, {2, 4}}, 5, -1, 9, 5, 1},
		"trimmed all":               {2, []add{{1, 3}, {2, 4}}, 0, -1, 9, 0, none},
		"trimmed below zero":        {2, []add{{1, 3}, {2, 4}}, -3, -1, 9, 0, none},
		"trimmed to what was used":  {2, []add{{1, 3}, {2, 4}}, 9, -1, 9, 9, 0},
		"trimmed to any number":     {2, []add{{1, 3}, {2, 4}}, math.MaxInt64, -1, 9, 9, 0},
	} {
		start := time.Unix(1000, 0)
		l, exact := newSendLog(start, tt.first), exactLog{}
		exact.add(start, tt.first)
		for _, a := range tt.adds {
			l.add(start.Add(a.at), a.n)
			exact.add(start.Add(a.at), max(a.n, 0))
		}
		if tt.trim != -1 {
			l.trim(tt.trim)
			exact.trim(tt.trim)
		}
		from, to := start.Add(tt.from), start.Add(tt.to)
		require.Equal(t, tt.count, l.count(from, to), name)
		require.Equal(t, exact.count(from, to), l.count(from, to), name)
		want := time.Time{}
		if tt.next != none {
			want = start.Add(tt.next)
		}
		require.Equal(t, want, l.next(from), name)
		require.Equal(t, exact.next(from), l.next(from), name)
	}
}

// When a sendLog is full, the two entries that are closest to each other become one at the later time.
func TestSendLog_joinsTheClosestEntries(t *testing.T) {
	start := time.Unix(1000, 0)
	l := newSendLog(start, 1)
	for i := range len(l.entries) - 2 {
		l.add(start.Add(time.Duration(i+1)*time.Minute), 2)
	}
	last := start.Add(time.Duration(len(l.entries)-2) * time.Minute)
	l.add(last.Add(time.Second), 4)
	l.add(last.Add(time.Hour), 8)
	require.Equal(t, len(l.entries), l.n)
	require.EqualValues(t, 1, l.count(start.Add(-1), start), "the first entry is not joined")
	require.EqualValues(t, 0, l.count(last.Add(-time.Second), last), "the entry at the earlier time")
	require.EqualValues(t, 6, l.count(last, last.Add(time.Second)), "the entries at the later time")
	require.EqualValues(t, 8, l.count(last.Add(time.Second), last.Add(time.Hour)))
}

// Entries that are equally far from each other are joined from the earliest one on.
func TestSendLog_joinsTheFirstOfEqualPairs(t *testing.T) {
	start := time.Unix(1000, 0)
	l := newSendLog(start, 1)
	for i := range len(l.entries) {
		l.add(start.Add(time.Duration(i+1)*time.Minute), 2)
	}
	require.EqualValues(t, 0, l.count(start.Add(-1), start))
	require.EqualValues(t, 3, l.count(start, start.Add(time.Minute)))
}

// In random sequences, a sendLog loses no request before it is trimmed, and expects no unit earlier
// than an exact log does. While it has had no more times than entries, it is exact.
func TestSendLog_isNeverEarly(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 1))
		now := time.Unix(1000, 0)
		first := random.Int64N(4)
		l, exact, adds := newSendLog(now, first), exactLog{}, 1
		exact.add(now, first)
		begin := now.Add(-5 * time.Second) // before all requests, also if the clock is set back
		for step := range 200 {
			now = now.Add(time.Duration(random.ExpFloat64() * float64(time.Second)))
			if random.IntN(20) == 0 {
				now = now.Add(-time.Duration(random.IntN(2000)) * time.Millisecond) // the clock is set back
			}
			if random.IntN(10) == 0 {
				used := random.Int64N(int64(len(exact)) + 2)
				l.trim(used)
				exact.trim(used)
			} else {
				n := random.Int64N(4)
				l.add(now, n)
				exact.add(now, n)
				adds++
			}
			end := now.Add(time.Hour)
			require.EqualValues(t, len(exact), l.count(begin, end), "seed %d, step %d: requests", seed, step)
			for range 5 {
				at := begin.Add(time.Duration(random.Int64N(int64(now.Sub(begin)) + int64(2*time.Second))))
				logged, counted := l.count(begin, at), exact.count(begin, at)
				require.LessOrEqual(t, logged, counted, "seed %d, step %d: requests until %v", seed, step, at)
				require.False(t, l.next(at).Before(exact.next(at)), "seed %d, step %d: next after %v", seed, step, at)
				require.Equal(t, exact.next(at).IsZero(), l.next(at).IsZero(), "seed %d, step %d: next after %v", seed, step, at)
				if adds <= len(l.entries) {
					require.Equal(t, counted, logged, "seed %d, step %d: requests until %v", seed, step, at)
				}
			}
		}
	}
}

// A sendLog of any number of requests takes the bytes that are charged for it.
func TestSendLog_hasFixedMemory(t *testing.T) {
	now := time.Unix(1000, 0)
	l := newSendLog(now, 1)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		now = now.Add(time.Second)
		l.add(now, 3)
		l.trim(1 << 40)
	}))
	require.Equal(t, len(l.entries), l.n)
	require.EqualValues(t, unsafe.Sizeof(*l), LogBytes)
	require.EqualValues(t, 1+1001*3, l.count(time.Unix(0, 0), now))
}

// When a log is full, the two entries that are closest to each other become one, at the later time.
func TestSendLog_joinsTwoNeighbours(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, tt := range map[string]struct{ first, closest int }{"the first": {0, 1}, "in the middle": {0, 8}, "the last": {0, 15}, "later ones": {1000, 5}} {
		l := newSendLog(start, 0)
		at := time.Duration(tt.first) * time.Second
		for i := range 16 {
			if i == tt.closest {
				at += time.Second
			} else {
				at += 2 * time.Second
			}
			l.add(start.Add(at), int64(i+1))
		}
		before := l.entries
		l.add(start.Add(at+time.Hour), 99)
		require.Equal(t, 16, l.n, name)
		k := tt.closest
		require.Equal(t, sendEntry{before[k].at, before[k].requests + before[k-1].requests}, l.entries[k-1], name)
		require.Equal(t, before[:k-1], l.entries[:k-1], name)
		require.Equal(t, before[k+1:], l.entries[k:15], name)
		require.EqualValues(t, 99, l.entries[15].requests, name)
	}
}
