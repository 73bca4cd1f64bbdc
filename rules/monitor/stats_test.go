package monitor_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/rules/monitor"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/throttletest"
)

var noon = time.Date(2026, time.November, 21, 12, 0, 0, 0, time.UTC)

// fixedClock is a clock that always returns the same time. Claims have their own time.
type fixedClock time.Time

func (c fixedClock) Now() time.Time                       { return time.Time(c) }
func (c fixedClock) After(time.Duration) <-chan time.Time { return nil }

// failing is a limiter that returns errors, and may block.
type failing struct{}

var errDown = errors.New("database is down")

func (failing) Reserve(context.Context, throttle.Claim) (throttle.Decision, error) {
	return throttle.Decision{}, errDown
}
func (failing) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {}

// Traits implements throttle.Limiter.
func (failing) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }

func askAt(t *testing.T, l throttle.Limiter, key string, at time.Duration) throttle.Decision {
	d, err := l.Reserve(t.Context(), throttle.Claim{Key: key, Now: noon.Add(at)})
	require.NoError(t, err)
	return d
}

func TestInstrument_conforms(t *testing.T) {
	ten := throttle.Limit{Name: "ten", Count: 10, Per: time.Second, Burst: 10}
	wrap := func(l throttle.Limiter) throttle.Limiter {
		return &monitor.Instrument{Limiter: l, Stats: &monitor.Stats{Limit: ten},
			Alert: &monitor.Alert{Threshold: ten, OnIncident: func(monitor.Incident) {}}}
	}
	throttletest.TestLimiter(t, func(clk throttle.Clock) throttle.Limiter {
		return wrap(throttle.WithClock(throttle.NewTokenBucket(ten), clk))
	}, throttletest.Spec{Limit: ten, Wrap: wrap, Histories: 200})
}

func TestInstrument_nonBlockingIfLimiterIs(t *testing.T) {
	require.True(t, (&monitor.Instrument{Limiter: throttle.DenyAll}).Traits().NonBlocking)
	require.False(t, (&monitor.Instrument{Limiter: failing{}}).Traits().NonBlocking)
}

func TestStats_countsEachDecision(t *testing.T) {
	two := throttle.Limit{Count: 2, Per: time.Minute}
	bucket := func() throttle.Limiter { return throttle.WithClock(throttle.NewTokenBucket(two), fixedClock(noon)) }
	down := failing{}
	for name, tt := range map[string]struct {
		l      throttle.Limiter
		shadow bool
		want   monitor.Counts
	}{
		"a limit":    {bucket(), false, monitor.Counts{Allowed: 2, Rejected: 3}},
		"a shadow":   {throttle.Shadow(bucket(), nil), true, monitor.Counts{Allowed: 5, Shadowed: 3}},
		"soft":       {throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: bucket(), Hard: throttle.WithClock(throttle.NewTokenBucket(two.PlusPercent(50)), fixedClock(noon))}), false, monitor.Counts{Allowed: 3, OverLimit: 1, Rejected: 2}},
		"degraded":   {throttle.NewFallback(throttle.FallbackConfig{Primary: down, Secondary: bucket()}), false, monitor.Counts{Allowed: 2, Rejected: 3, Degraded: 5}},
		"no store":   {down, false, monitor.Counts{Undecided: 5}},
		"all or not": {throttle.AllowAll, false, monitor.Counts{Allowed: 5}},
	} {
		stats := &monitor.Stats{Shadow: tt.shadow}
		l := &monitor.Instrument{Limiter: tt.l, Stats: stats}
		for i := range 5 {
			l.Reserve(t.Context(), throttle.Claim{Now: noon.Add(time.Duration(i) * time.Second)})
			l.Reserve(t.Context(), throttle.Claim{Now: noon, DryRun: true})
		}
		n := stats.Snapshot()
		n.From, n.To = time.Time{}, time.Time{}
		require.Equal(t, tt.want, n, name)
	}
}

func TestStats_countsCancelled(t *testing.T) {
	stats := &monitor.Stats{}
	l := &monitor.Instrument{Limiter: throttle.WithClock(throttle.NewTokenBucket(throttle.PerMinute(1)), fixedClock(noon)), Stats: stats}
	for range 3 {
		c := throttle.Claim{Key: "ann", Now: noon}
		granted, rejected := askAt(t, l, "ann", 0), askAt(t, l, "ann", 0)
		require.True(t, granted.OK)
		l.Report(t.Context(), c, rejected, throttle.Feedback{Now: c.Now, State: throttle.Unused})
		l.Report(t.Context(), c, granted, throttle.Feedback{Now: c.Now, State: throttle.Unused})
	}
	n := stats.Snapshot()
	require.Equal(t, [3]int64{3, 3, 3}, [3]int64{n.Allowed, n.Rejected, n.Cancelled})
}

func TestStats_timeRange(t *testing.T) {
	stats := &monitor.Stats{}
	require.Equal(t, monitor.Counts{}, stats.Snapshot())
	for _, at := range []time.Duration{3, 1, 2, 2} {
		stats.Decided(throttle.Claim{Key: strconv.Itoa(int(at) % 2)}, throttle.Decision{OK: true, At: noon.Add(at * time.Second)})
	}
	n := stats.Snapshot()
	require.True(t, n.From.Equal(noon.Add(time.Second)) && n.To.Equal(noon.Add(3*time.Second)), "%v %v", n.From, n.To)
}

// TestStats_countsReturnedAndAbandoned checks that a streak of rejections counts as returned if a
// grant follows, and as abandoned otherwise.
func TestStats_countsReturnedAndAbandoned(t *testing.T) {
	one := throttle.Limit{Count: 1, Per: 10 * time.Second}
	for name, tt := range map[string]struct {
		asks             []int // seconds
		returned, gaveUp int64
	}{
		"never rejected":          {[]int{0, 10, 20}, 0, 0},
		"nobody knows yet":        {[]int{0, 1, 2}, 0, 0},
		"came back":               {[]int{0, 1, 2, 10}, 1, 0},
		"came back twice":         {[]int{0, 1, 10, 12, 20}, 2, 0},
		"came back after an hour": {[]int{0, 1, 3600}, 0, 1},
		"asks for ever":           {[]int{0, 1, 3600, 3601, 7200}, 0, 2},
	} {
		stats := &monitor.Stats{Limit: one}
		l := &monitor.Instrument{Limiter: throttle.WithClock(throttle.NewTokenBucket(one), fixedClock(noon)), Stats: stats}
		for _, at := range tt.asks {
			askAt(t, l, "ann", time.Duration(at)*time.Second)
		}
		n := stats.Snapshot()
		require.Equal(t, [2]int64{tt.returned, tt.gaveUp}, [2]int64{n.Returned, n.Abandoned}, name)
	}

	// A grant after ReturnWithin is too late, also while the session has not expired.
	hasty := &monitor.Stats{Limit: one, ReturnWithin: time.Second}
	l := &monitor.Instrument{Limiter: throttle.WithClock(throttle.NewTokenBucket(one), fixedClock(noon)), Stats: hasty}
	for _, at := range []time.Duration{0, 9, 10, 19, 21} {
		askAt(t, l, "ann", at*time.Second)
	}
	n := hasty.Snapshot()
	require.Equal(t, [2]int64{1, 1}, [2]int64{n.Returned, n.Abandoned})

	// Other keys continue while one has abandoned.
	stats := &monitor.Stats{Limit: one}
	rejection := throttle.Decision{At: noon}
	stats.Decided(throttle.Claim{Key: "ann"}, rejection)
	require.Zero(t, stats.Snapshot().Abandoned)
	stats.Decided(throttle.Claim{Key: "bob"}, throttle.Decision{OK: true, At: noon.Add(time.Minute)})
	require.EqualValues(t, 1, stats.Snapshot().Abandoned)
}

func TestStats_topRejected(t *testing.T) {
	stats := &monitor.Stats{TopKeys: 10}
	for i, key := range []string{"ann", "bob", "192.0.2.1"} {
		for range 3 * (i + 1) {
			stats.Decided(throttle.Claim{Key: key}, throttle.Decision{At: noon})
		}
		stats.Decided(throttle.Claim{Key: "guest"}, throttle.Decision{OK: true, At: noon})
	}
	clear := stats.TopRejectedCleartext(2)
	require.Equal(t, "192.0.2.1", clear[0].Key)
	require.EqualValues(t, 9, clear[0].Count)
	require.Equal(t, "bob", clear[1].Key)

	hidden := stats.TopRejected(10)
	require.Len(t, hidden, 3)
	for _, h := range hidden {
		require.Len(t, h.Key, 16)
		require.Empty(t, strings.Trim(h.Key, "0123456789abcdef"))
	}
	require.Equal(t, stats.Pseudonym("192.0.2.1"), hidden[0].Key)
	require.NotEqual(t, new(monitor.Stats).Pseudonym("192.0.2.1"), hidden[0].Key, "pseudonyms of two Stats are unrelated")
}

func TestStats_truncatesLongKeys(t *testing.T) {
	stats := &monitor.Stats{}
	long := strings.Repeat("x", 1<<20)
	for _, key := range []string{long + "a", long + "b", long + "b"} {
		stats.Decided(throttle.Claim{Key: key}, throttle.Decision{At: noon})
	}
	hits := stats.TopRejectedCleartext(3)
	require.Len(t, hits, 2, "they are told apart all the same")
	require.Len(t, hits[0].Key, 256)
	require.EqualValues(t, 2, hits[0].Count)
	require.Equal(t, stats.Pseudonym(long+"b"), stats.TopRejected(1)[0].Key)
}

// TestStats_boundedSampleIsFair checks that a million keys do not increase the memory, and that
// the sample stays uniform.
func TestStats_boundedSampleIsFair(t *testing.T) {
	l := throttle.Limit{Count: 10, Per: time.Second}
	stats := &monitor.Stats{Limit: l, MaxSessions: 160, TopKeys: 10}
	const numKeys = 3000
	for i := range numKeys {
		key := strconv.Itoa(i)
		n := 11 // every other key asks for 22
		if i%2 == 0 {
			n = 22
		}
		for range n {
			stats.Decided(throttle.Claim{Key: key}, throttle.Decision{At: noon.Add(time.Duration(i) * time.Microsecond)})
		}
	}
	n := stats.Snapshot()
	require.EqualValues(t, (11+22)*numKeys/2, n.Rejected)
	require.EqualValues(t, 22, n.Demand.Burst)
	require.EqualValues(t, 22, n.Demand.Peak)
	require.InDelta(t, numKeys, n.Demand.Sessions, numKeys*.6, "each of them stands for those who are not followed")
	require.Len(t, stats.TopRejected(100), 10)

	// After the sessions of these keys have ended, the sample grows again.
	for i := range 30_000 {
		stats.Decided(throttle.Claim{Key: "late " + strconv.Itoa(i)}, throttle.Decision{OK: true, At: noon.Add(time.Duration(i) * time.Second)})
	}
	before := stats.Snapshot().Demand.Sessions
	require.InDelta(t, numKeys, before, numKeys*.6, "what is over stands for as many as before")
	for i := range 100 {
		stats.Decided(throttle.Claim{Key: "new " + strconv.Itoa(i)}, throttle.Decision{At: noon.Add(48 * time.Hour)})
	}
	require.InDelta(t, 100, stats.Snapshot().Demand.Sessions-before, 60)
}

// TestStats_separatesSessions checks that a key that claims again much later begins a new session,
// and that both count.
func TestStats_separatesSessions(t *testing.T) {
	stats := &monitor.Stats{Limit: throttle.PerSecond(10)}
	for _, at := range []time.Duration{0, time.Hour, 2 * time.Hour} {
		for range 20 {
			stats.Decided(throttle.Claim{Key: "ann"}, throttle.Decision{At: noon.Add(at)})
		}
	}
	require.Equal(t, monitor.Demand{Sessions: 3, Burst: 20, Peak: 20}, stats.Snapshot().Demand)
}

// TestStats_independentOfStartTime checks that the same claims result in the same demand, whenever
// the Stats was created.
func TestStats_independentOfStartTime(t *testing.T) {
	seen := map[monitor.Demand]bool{}
	for i := range 20 {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Duration(i) * 1234567 * time.Microsecond)
			stats := &monitor.Stats{Limit: throttle.PerMinute(60)}
			for j := range 500 {
				at := noon.Add(time.Duration(j*j) * time.Millisecond)
				stats.Decided(throttle.Claim{Key: "ann"}, throttle.Decision{At: at})
			}
			seen[stats.Snapshot().Demand] = true
		})
	}
	require.Len(t, seen, 1)
}

func TestStats_resetKeepsSessionLevels(t *testing.T) {
	one := throttle.Limit{Count: 10, Per: time.Second}
	stats := &monitor.Stats{Limit: one}
	for range 30 {
		stats.Decided(throttle.Claim{Key: "ann"}, throttle.Decision{At: noon})
	}
	stats.Reset()
	require.Equal(t, monitor.Counts{}, stats.Snapshot())
	require.Empty(t, stats.TopRejected(1))
	stats.Decided(throttle.Claim{Key: "ann"}, throttle.Decision{At: noon.Add(time.Second)})
	d := stats.Snapshot().Demand
	require.EqualValues(t, 30, d.Burst, "20 of the 30 units had not come back")
}

// TestStats_snapshotIsConsistent checks that all counts of a snapshot are taken at the same time.
func TestStats_snapshotIsConsistent(t *testing.T) {
	stats := &monitor.Stats{Limit: throttle.PerSecond(1), Shadow: true}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			c := throttle.Claim{Key: strconv.Itoa(g)}
			for i := range 2000 {
				at := noon.Add(time.Duration(i) * time.Millisecond)
				stats.Decided(c, throttle.Decision{OK: true, OverLimit: true, Degraded: true, At: at})
			}
		})
	}
	for range 50 {
		n := stats.Snapshot()
		require.Equal(t, n.Allowed, n.Shadowed)
		require.Equal(t, n.Allowed, n.Degraded)
		stats.TopRejected(3)
	}
	wg.Wait()
	require.EqualValues(t, 8000, stats.Snapshot().Shadowed)
}

func TestStats_rejectsInvalidLimit(t *testing.T) {
	bad := &monitor.Stats{Limit: throttle.PerSecond(-1)}
	require.Panics(t, func() { bad.Decided(throttle.Claim{}, throttle.Decision{}) })
}

func TestStats_acceptsAnyTimeAndCost(t *testing.T) {
	stats := &monitor.Stats{Limit: throttle.PerSecond(1)}
	for _, at := range []time.Time{{}, noon, time.Unix(1<<40, 0), time.Unix(-1<<40, 0), noon} {
		for _, cost := range []int64{0, 1, 1<<63 - 1, -1} {
			stats.Decided(throttle.Claim{Cost: cost}, throttle.Decision{At: at})
		}
	}
	n := stats.Snapshot()
	require.EqualValues(t, 15, n.Rejected)
	require.Positive(t, n.Demand.Burst)
}

func TestInstrument_doesNotAllocate(t *testing.T) {
	wide := throttle.Limit{Count: 1 << 30, Per: time.Second}
	for name, inner := range map[string]throttle.Limiter{"granted": throttle.NewTokenBucket(wide), "rejected": throttle.DenyAll} {
		l := &monitor.Instrument{Limiter: inner, Stats: &monitor.Stats{Limit: wide}, Alert: &monitor.Alert{Threshold: wide, OnIncident: func(monitor.Incident) {}}}
		c, i := throttle.Claim{Key: "client 0"}, 0
		keys := []string{"ann", "bob", "eve"}
		n := testing.AllocsPerRun(200, func() {
			i++
			c.Key = keys[i%3]
			d, _ := l.Reserve(t.Context(), c)
			l.Report(t.Context(), c, d, throttle.Feedback{Outcome: throttle.Failed})
			l.Report(t.Context(), c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
		})
		require.Zero(t, n, name)
	}
}
