package fleet

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/headers"
)

func TestGuard_acceptsEachNumberOnce(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var g guard
	accept := func(from, seq uint64) bool {
		_, isNew, ok := g.accept(from, stamp{seq, now.UnixMicro()}, 0, now)
		require.True(t, ok)
		return isNew
	}
	r, seen, highest := rand.New(rand.NewPCG(1, 7)), map[uint64]bool{}, uint64(0)
	for range 20_000 {
		seq := max(highest, 1) + r.Uint64N(3)
		switch r.IntN(10) {
		case 0:
			seq += r.Uint64N(2000)
		case 1, 2, 3, 4:
			seq -= min(r.Uint64N(1500), seq-1)
		}
		want := !seen[seq] && seq+seenWindow > highest
		require.Equal(t, want, accept(1, seq), "%d, after %d", seq, highest)
		seen[seq], highest = true, max(highest, seq)
	}
	require.True(t, accept(2, 1), "of another process")
	for from := range uint64(3 * maxSenders) {
		accept(from, 1)
		require.LessOrEqual(t, len(g.senders), 1024)
	}
}

func TestGuard_ignoresTimesThatAreADayOff(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for off, want := range map[time.Duration]bool{
		0: true, 23 * time.Hour: true, -23 * time.Hour: true, 25 * time.Hour: false, -25 * time.Hour: false,
	} {
		var g guard
		age, _, ok := g.accept(1, stamp{1, now.Add(off).UnixMicro()}, time.Minute, now)
		require.Equal(t, want, ok, off)
		if ok {
			require.Equal(t, time.Minute, age, "a process heard for the first time is believed")
		}
	}
}

// If the clock of a sender falls behind, its messages seem old, for no longer than 2 minutes.
func TestGuard_getsUsedToAnotherClockError(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var g guard
	age := func(seq uint64, off time.Duration) time.Duration {
		age, isNew, ok := g.accept(1, stamp{seq, now.Add(off).UnixMicro()}, 0, now)
		require.True(t, ok && isNew)
		return age
	}
	require.Zero(t, age(1, 0))
	now = now.Add(time.Second)
	require.Equal(t, time.Hour, age(2, -time.Hour))
	for seq := range uint64(3) {
		now = now.Add(61 * time.Second)
		age(3+seq, -time.Hour)
	}
	require.Zero(t, age(6, -time.Hour))
}

// The age of a message counts from the fastest one of the last two minutes, not from the first.
func TestGuard_ageCountsFromTheFastestMessage(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	var g guard
	seq := uint64(0)
	for _, tt := range []struct {
		after, delay, age time.Duration
	}{
		{40 * time.Second, 40 * time.Second, 0}, // the first one: nothing is known
		{50 * time.Second, 0, 0},
		{55 * time.Second, 30 * time.Second, 30 * time.Second},
		{80 * time.Second, 10 * time.Second, 10 * time.Second},
		{101 * time.Second, 20 * time.Second, 20 * time.Second},
		{150 * time.Second, 25 * time.Second, 25 * time.Second},
	} {
		seq++
		now := start.Add(tt.after)
		age, isNew, ok := g.accept(1, stamp{seq, now.Add(-tt.delay).UnixMicro()}, 0, now)
		require.True(t, ok && isNew)
		require.Equal(t, tt.age, age, "%+v", tt)
	}
}

// The memory of a sender is stated in the comment of guard.
func TestGuard_aSenderTakes200Bytes(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(sender{}), uintptr(200))
}

// One more sender than are kept replaces one of those that were silent for longest.
func TestGuard_replacesASilentSender(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var g guard
	for from := range uint64(1024 + 300) {
		now = now.Add(time.Second)
		latest := map[uint64]time.Time{}
		for known, s := range g.senders {
			latest[known] = s.latest
		}
		_, _, ok := g.accept(from, stamp{1, now.UnixMicro()}, 0, now)
		require.True(t, ok)
		for known, at := range latest {
			if g.senders[known] == nil {
				later := 0
				for _, other := range latest {
					if other.After(at) {
						later++
					}
				}
				require.GreaterOrEqual(t, later, 512)
			}
		}
	}
	require.Len(t, g.senders, 1024)
}

// Clocks of tests begin at the Unix epoch, or with the zero Time.
func TestGuard_acceptsAnyEpoch(t *testing.T) {
	for _, now := range []time.Time{time.Unix(0, 0), time.Unix(-1, 0), {}, time.Unix(1<<40, 0)} {
		var g guard
		_, isNew, ok := g.accept(1, stamp{1, now.UnixMicro()}, 0, now)
		require.True(t, ok && isNew, now)
	}
}

func TestGuard_ignoresTimesOutOfBounds(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for _, at := range []int64{math.MinInt64, math.MinInt64 / 1000, -1, 0, math.MaxInt64 / 1000, math.MaxInt64} {
		for _, busAge := range []time.Duration{math.MinInt64, 0, math.MaxInt64} {
			var g guard
			_, _, ok := g.accept(1, stamp{1, at}, busAge, now)
			require.False(t, ok, "%d, %v", at, busAge)
			require.Empty(t, g.senders)
		}
	}
}

func TestGuard_fetchesAreBounded(t *testing.T) {
	var g guard
	now := time.Unix(0, 0)
	for i := range maxFetching + 100 {
		if g.fetch(fmt.Sprint(i), now); len(g.fetching) > maxFetching {
			t.Fatalf("%d are fetched", len(g.fetching))
		}
	}
	require.True(t, g.isFetching("0", now))
	require.Len(t, g.fetching, 4096)
	g.fetched("0")
	require.False(t, g.isFetching("0", now))
	g.fetch("0", now)
	require.Len(t, g.fetching, 4096)
	g.fetch("another", now)
	require.False(t, g.isFetching("another", now), "there is no space for it")
	require.True(t, g.isFetching("1", now.Add(5*time.Second-1)))
	now = now.Add(5 * time.Second)
	require.False(t, g.isFetching("1", now))
	g.fetch("later", now)
	require.True(t, g.isFetching("later", now), "after all others have expired")
}

// TestGuard_boundaries checks the largest clock error, the oldest number and the longest delay
// that are accepted.
func TestGuard_boundaries(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	const day = 24 * time.Hour
	for _, tt := range []struct {
		off, busAge time.Duration // of the time of the sender
		ok          bool
		age         time.Duration
	}{
		{day, 0, true, 0},
		{day + time.Microsecond, 0, false, 0},
		{-day, 0, true, 0},
		{-day - time.Microsecond, 0, false, 0},
		{-day - time.Hour, time.Hour, true, time.Hour},
		{-day - time.Hour - time.Microsecond, time.Hour, false, 0},
		{0, -time.Hour, true, 0},
		{-headers.MaxDelay - day, headers.MaxDelay, true, headers.MaxDelay},
		{-headers.MaxDelay - day - time.Microsecond, headers.MaxDelay, false, 0},
		{-headers.MaxDelay - day, headers.MaxDelay + time.Hour, true, headers.MaxDelay},
	} {
		var g guard
		age, isNew, ok := g.accept(1, stamp{1, now.Add(tt.off).UnixMicro()}, tt.busAge, now)
		require.Equal(t, tt.ok, ok, "%+v", tt)
		require.Equal(t, tt.ok, isNew, "%+v", tt)
		require.Equal(t, tt.age, age, "%+v", tt)
	}

	s := new(sender)
	for _, n := range []uint64{1, 2, 5, 1027} {
		require.True(t, s.first(n), n)
		require.False(t, s.first(n), n)
	}
	for n, want := range map[uint64]bool{2: false, 3: false, 4: true, 5: false, 6: true, 1026: true} {
		require.Equal(t, want, s.first(n), n)
		require.False(t, s.first(n), n)
	}
	require.True(t, s.first(1027+1023))
	require.False(t, s.first(1026), "too old")
	require.False(t, s.first(1027), "known")
	require.True(t, s.first(1028))
	require.True(t, s.first(1<<40))
	require.True(t, s.first(1<<40-1023))
	require.False(t, s.first(1<<40-1024))
}
