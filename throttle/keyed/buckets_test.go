package keyed_test

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// A table that evicts continuously decides like a token bucket for each key.
func TestBuckets_evictionChangesNoDecision(t *testing.T) {
	l := throttle.Limit{Count: 20, Per: time.Second, Burst: 3}
	build := func(clk throttle.Clock) throttle.Limiter { return throttle.WithClock(throttle.NewTokenBucket(l), clk) }
	seeds := uint64(100)
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		for _, exact := range []bool{false, true} {
			clk := &manualClock{now: time.Unix(0, 0)}
			b := throttle.WithClock(keyed.NewBuckets(keyed.BucketsConfig{Limit: l, Max: 60, Exact: exact}), clk)
			requireSameDecisions(t, b, build, clk, seed, 300)
		}
	}
}

// As many keys in use at the same time as a table is for fit into it, but for one in a hundred million, whose places others take.
func TestBuckets_holdMaxKeys(t *testing.T) {
	most := 1 << 17
	if testing.Short() {
		most = 60_000 // of which one may be lost, too
	}
	for _, n := range []int{1, 8, 100, 5000, most} {
		clk := clock.NewMock()
		b := throttle.WithClock(keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerHour(3), Max: n}), clk)
		overflowed := 0
		for i := range n {
			if ask(t, b, strconv.Itoa(i), 1).Degraded {
				overflowed++
			}
		}
		require.Zero(t, overflowed, "of %d keys", n)
		lost := 0
		for i := range n {
			if ask(t, b, strconv.Itoa(i), 1).Remaining != 1 {
				lost++
			}
		}
		require.LessOrEqual(t, lost, n/50_000, "of %d keys", n) // one of 131,072 was lost in 2 of 1,500 runs
	}
}

// New keys share a bucket if their own network has the most new keys. Keys of other networks get
// a place: see TestInventedKeys_denyNoOther.
func TestBuckets_newKeysOfOneNetworkShareABucketWhenFull(t *testing.T) {
	clk := clock.NewMock()
	b := throttle.WithClock(keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerHour(3), Max: 8, Addr: oneNetwork}), clk)
	overflowed, granted := 0, 0
	var last throttle.Decision
	for i := range 200 {
		c := throttle.Claim{Key: strconv.Itoa(i)}
		dry := reserve(t, b, throttle.Claim{Key: c.Key, DryRun: true})
		d := reserve(t, b, c)
		require.Equal(t, dry.OK, d.OK)
		require.Equal(t, dry.Degraded, d.Degraded)
		if d.Degraded {
			overflowed++
		}
		if d.Degraded && d.OK {
			granted, last = granted+1, d
		}
	}
	require.Greater(t, overflowed, 150)
	require.Equal(t, 3, granted, "they share one bucket")

	b.Report(t.Context(), throttle.Claim{}, last, throttle.Feedback{State: throttle.Unused})
	require.True(t, ask(t, b, "another", 1).OK, "what is cancelled goes back to it")
	clk.Add(time.Hour + 1)
	require.False(t, ask(t, b, "another", 1).Degraded, "there is room again")
}

func TestBuckets_cancelReachesTheOverflow(t *testing.T) {
	clk := clock.NewMock()
	over := granting(7, 50)
	b := withKeys(200, throttle.WithClock(keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerHour(3), Max: 8, Overflow: over}), clk))
	over.granted = nil
	d := ask(t, b, "late", 1)
	require.True(t, d.Degraded)
	b.Report(t.Context(), throttle.Claim{Key: "late"}, d, throttle.Feedback{State: throttle.Ongoing})
	b.Report(t.Context(), throttle.Claim{Key: "late"}, d, throttle.Feedback{State: throttle.Unused})
	require.Len(t, over.granted, 1)
	require.Equal(t, over.granted, over.cancelled)
	require.Equal(t, over.granted, over.observed)
}

// The units that Cancel returns are calculated from the latest grant, whatever its own
// reading is.
func TestBuckets_cancelWithAnOlderReadingStaysWithinLimit(t *testing.T) {
	clk := clock.NewMock()
	b := throttle.WithClock(keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerSecond(10)}), clk)
	c := throttle.Claim{Key: "a", Cost: 10, Now: clk.Now()}
	d := reserve(t, b, c)
	clk.Add(500 * time.Millisecond)
	require.True(t, ask(t, b, "a", 2).OK)
	b.Report(t.Context(), c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
	require.EqualValues(t, 8, reserve(t, b, throttle.Claim{Key: "a", DryRun: true}).Remaining)
}

func TestBuckets_chargesEvictedKeys(t *testing.T) {
	clk := clock.NewMock()
	b := throttle.WithClock(keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerSecond(10), Max: 8}), clk)
	d := ask(t, b, "a", 1)
	clk.Add(time.Second)
	for i := range 200 {
		ask(t, b, strconv.Itoa(i), 10)
	}
	clk.Add(1100 * time.Millisecond)
	b.Report(t.Context(), throttle.Claim{Key: "a"}, d, throttle.Feedback{Cost: 31})
	require.Equal(t, 2100*time.Millisecond, ask(t, b, "a", 1).Wait)
}

func TestBuckets_extremeReadings(t *testing.T) {
	for _, l := range []throttle.Limit{throttle.PerSecond(3), throttle.PerSecond(1 << 40), {Count: 1, Per: 30 * 365 * 24 * time.Hour}, {Count: math.MaxInt64, Per: 1 << 60}} {
		clk := clock.NewMock()
		b := throttle.WithClock(keyed.NewBuckets(keyed.BucketsConfig{Limit: l}), clk)
		for _, now := range []time.Time{{}, time.Unix(0, 0), time.Unix(1<<40, 0), time.Unix(-1<<40, 0), clk.Now()} {
			for _, n := range []int64{1, 1000, math.MaxInt64 / 2, math.MaxInt64} {
				c := throttle.Claim{Key: "a", Cost: n, Now: now}
				d := reserve(t, b, c)
				require.GreaterOrEqual(t, d.Wait, time.Duration(0), "%+v", c)
				require.GreaterOrEqual(t, d.Remaining, int64(0), "%+v", c)
				require.LessOrEqual(t, d.Remaining, d.Limit, "%+v", c)
				b.Report(t.Context(), c, d, throttle.Feedback{Now: now, Cost: math.MaxInt64 - 1})
				b.Report(t.Context(), c, throttle.Decision{OK: true, At: now}, throttle.Feedback{Now: c.Now, State: throttle.Unused})
			}
		}
	}
}

// Memory per key at a hundred thousand keys, of which the table has as many slots per
// key as at a million.
func TestBuckets_memoryPerKeyIsSmall(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 50_000 // half as many slots
	}
	keys := make([]string, n)
	for i := range keys {
		keys[i] = string(binary.BigEndian.AppendUint64([]byte("16 bytes"), uint64(i)))
	}
	for _, row := range []struct {
		exact bool
		most  int64
	}{{false, 40}, {true, 110}} {
		before := heapBytes()
		b := keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerHour(3), Max: n, Exact: row.exact})
		for _, k := range keys {
			b.Reserve(context.Background(), throttle.Claim{Key: k})
		}
		require.LessOrEqual(t, (heapBytes()-before)/int64(n), row.most, "bytes per key, exact %v", row.exact)
		runtime.KeepAlive(b)
	}
	runtime.KeepAlive(keys)
}

// heapBytes returns the bytes of all live objects. It is signed, because what other tests have left
// may be freed between two calls.
func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func BenchmarkBuckets(b *testing.B) {
	const n = 1 << 20
	r := rand.New(rand.NewPCG(1, 8))
	zipf := rand.NewZipf(r, 1.1, 1, n-1)
	order := make([]string, 1<<20)
	for i := range order {
		order[i] = string(binary.BigEndian.AppendUint64([]byte("16 bytes"), zipf.Uint64()))
	}
	l := keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerSecond(1e6), Max: n})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		l.Reserve(context.Background(), throttle.Claim{Key: order[i&(1<<20-1)]})
	}
}
