package backoff

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOffsetFor_isStable checks constants of the hash, which must never change, because
// devices depend on them.
func TestOffsetFor_isStable(t *testing.T) {
	for id, want := range map[string]Offset{
		"":         0xefd01f60ba992926,
		"a":        0x82a2a958a9bece5b,
		"device-1": 0xe340ac1c4190ad44,
		"device-2": 0x26bdaca6576ad4e,
		"Gerät-日本": 0xf004d1a80def5467,
	} {
		require.Equal(t, want, OffsetFor(id), "%q: %#x", id, uint64(OffsetFor(id)))
	}
}

func TestOffset_staysWithinItsSpan(t *testing.T) {
	const all = Offset(math.MaxUint64)
	for _, c := range []struct {
		splay Offset
		span  time.Duration
		want  time.Duration
	}{
		{0, time.Minute, 0},
		{1 << 63, time.Minute, 30 * s},
		{1 << 62, time.Minute, 15 * s},
		{all, time.Minute, time.Minute - 1},
		{all, math.MaxInt64, math.MaxInt64 - 1},
		{all, 1, 0},
		{all, 0, 0},
		{all, -time.Minute, 0},
		{all, math.MinInt64, 0},
	} {
		require.Equal(t, c.want, c.splay.In(c.span), "%#x of %v", uint64(c.splay), c.span)
	}
}

func TestOffset_nextIsTheSameInEachPeriod(t *testing.T) {
	const half, day = Offset(1 << 63), 24 * time.Hour
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name   string
		splay  Offset
		now    time.Time
		period time.Duration
		want   time.Time
	}{
		{"before its place", half, noon.Add(-1), day, noon},
		{"at its place", half, noon, day, noon.Add(day)},
		{"after its place", half, noon.Add(1), day, noon.Add(day)},
		{"start of the period", 0, noon, time.Hour, noon.Add(time.Hour)},
		{"an hour", half, noon, time.Hour, noon.Add(30 * time.Minute)},
		{"a week starts on Monday", 0, noon, 7 * day, time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)},
		{"a nanosecond", half, noon, 1, noon.Add(1)},
		{"no period", half, noon, 0, noon},
		{"negative period", half, noon, -day, noon},
		{"other zones", half, noon.In(time.FixedZone("", 3600)), day, noon.Add(day)},
	} {
		got := c.splay.Next(c.now, c.period)
		require.True(t, c.want.Equal(got), "%s: %v, want %v", c.name, got, c.want)
		require.Equal(t, c.now.Location(), got.Location(), c.name)
	}
}

// TestOffsetFor_spreadsSerialNumbers applies a chi-square test with 100 bins to serial
// numbers, which are similar to each other.
func TestOffsetFor_spreadsSerialNumbers(t *testing.T) {
	for _, form := range []string{"device-%06d", "%d", "%08x", "eu-west-1/host-%d/cache-refresh"} {
		const bins, n = 100, 20_000
		var seen [bins]float64
		for i := range n {
			seen[OffsetFor(fmt.Sprintf(form, i)).In(bins)]++
		}
		sum := 0.0
		for _, k := range seen {
			sum += (k - n/bins) * (k - n/bins) / (n / bins)
		}
		require.Less(t, sum, 149.5, form) // 99.9 % quantile with 99 degrees of freedom
	}
}

func TestRandomOffset_differs(t *testing.T) {
	seen := map[Offset]bool{}
	for range 1000 {
		seen[RandomOffset()] = true
	}
	require.Len(t, seen, 1000)
}
