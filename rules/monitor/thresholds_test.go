package monitor_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/rules/monitor"
	"github.com/heed-go/heed/throttle"
)

// TestRecommend_thresholds checks each condition just before and at its threshold.
func TestRecommend_thresholds(t *testing.T) {
	demand := monitor.Demand{Sessions: 9, Burst: 300, Peak: 200}
	for name, c := range map[string]struct {
		limit  throttle.Limit
		counts monitor.Counts
		want   string
		burst  int64 // of the recommended limit
	}{
		"99 claims":         {sixty, monitor.Counts{Allowed: 1, Rejected: 98, Demand: demand}, "Keep it: 99 claims are too few to judge by.", 0},
		"100 claims":        {sixty, monitor.Counts{Allowed: 99, Rejected: 1, Demand: demand}, "Raise to 200 per 1m0s: 1.0 % of all claims were rejected, from keys that need no more than that.", 0},
		"fewer rejections":  {sixty, monitor.Counts{Allowed: 100, Rejected: 1, Demand: demand}, "Keep it: it rejects 1.0 % of all claims.", 0},
		"no demand":         {sixty, monitor.Counts{Rejected: 100}, "Keep it: the demand of the rejected keys is not known.", 0},
		"as many left":      {sixty, monitor.Counts{Rejected: 100, Returned: 5, Abandoned: 5, Demand: demand}, "Raise to 200 per 1m0s: 100.0 % of all claims were rejected, from keys that need no more than that.", 0},
		"more left":         {sixty, monitor.Counts{Rejected: 100, Returned: 1, Abandoned: 3, Demand: demand}, "Keep it: of the rejected keys, 75.0 % were granted nothing afterwards.", 0},
		"ten times":         {sixty, monitor.Counts{Rejected: 100, Demand: monitor.Demand{Sessions: 9, Burst: 700, Peak: 600}}, "Keep it: the rejected keys wanted 10 times as much.", 0},
		"less":              {sixty, monitor.Counts{Rejected: 100, Demand: monitor.Demand{Sessions: 9, Burst: 700, Peak: 599}}, "Raise to 599 per 1m0s: 100.0 % of all claims were rejected, from keys that need no more than that.", 0},
		"bursts":            {sixty, monitor.Counts{Rejected: 100, Demand: monitor.Demand{Sessions: 9, Burst: 70, Peak: 70}}, "Use a token bucket of 60 per 1m0s, burst 70: 100.0 % of all claims were rejected, from keys that send bursts but keep to the rate.", 70},
		"a smaller burst":   {throttle.Limit{Count: 60, Per: time.Minute, Burst: 200}, monitor.Counts{Rejected: 100, Demand: demand}, "Raise to 200 per 1m0s: 100.0 % of all claims were rejected, from keys that need no more than that.", 0},
		"a larger burst":    {throttle.Limit{Count: 60, Per: time.Minute, Burst: 201}, monitor.Counts{Rejected: 100, Demand: demand}, "Raise to 200 per 1m0s, burst 201: 100.0 % of all claims were rejected, from keys that need no more than that.", 201},
		"ten times a burst": {throttle.Limit{Count: 6, Per: time.Minute, Burst: 20}, monitor.Counts{Rejected: 100, Demand: demand}, "Keep it: the rejected keys wanted 10 times as much.", 20},
	} {
		r := monitor.Recommend(c.limit, c.counts)
		require.Equal(t, c.want, r.String(), name)
		require.Equal(t, c.burst, r.Limit.Burst, name)
	}
}

// TestAlert_tracksUpTo4096Keys checks the default of MaxKeys.
func TestAlert_tracksUpTo4096Keys(t *testing.T) {
	n := 0
	a := &monitor.Alert{Threshold: throttle.PerMinute(1), OnIncident: func(monitor.Incident) { n++ }}
	for i := range 4100 {
		reject(a, strconv.Itoa(i), 0)
		reject(a, strconv.Itoa(i), 0)
	}
	require.Equal(t, 4096, n)
}

// TestAlert_replacesAKeyThatIsQuiet checks from when on the only tracked key is replaced by
// another one. Its level falls by one in 2.5 s; an incident is over 10 s after the level
// was half of the burst of 4.
func TestAlert_replacesAKeyThatIsQuiet(t *testing.T) {
	for rejections, over := range map[int]time.Duration{1: 2500 * time.Millisecond, 4: 10 * time.Second, 5: 15 * time.Second} {
		for _, early := range []time.Duration{1, 0} {
			var s incidents
			a := &monitor.Alert{Threshold: throttle.Limit{Count: 4, Per: 10 * time.Second}, MaxKeys: 1, OnIncident: s.record}
			for range rejections {
				reject(a, "ann", 0)
			}
			s.all = nil
			for range 5 {
				reject(a, "bob", over-early)
			}
			require.Equal(t, early == 0, len(s.all) == 1, "%d rejections, %v", rejections, over-early)
		}
	}
}

// TestInstrument_needsOnlyALimiter checks an Instrument without Stats and Alert.
func TestInstrument_needsOnlyALimiter(t *testing.T) {
	l := &monitor.Instrument{Limiter: throttle.NewTokenBucket(throttle.PerMinute(1))}
	c := throttle.Claim{Key: "ann", Now: noon}
	for range 2 {
		d := askAt(t, l, "ann", 0)
		require.True(t, d.OK)
		l.Report(t.Context(), c, d, throttle.Feedback{})
		l.Report(t.Context(), c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
	}
	_, err := (&monitor.Instrument{Limiter: failing{}}).Reserve(t.Context(), c)
	require.ErrorIs(t, err, errDown)
}

// TestStats_demandOfNineteenOfTwenty checks that the highest of twenty demands does not
// count, and that Reset clears the demand of sessions that have ended.
func TestStats_demandOfNineteenOfTwenty(t *testing.T) {
	stats := &monitor.Stats{Limit: throttle.PerMinute(10)}
	ask := func(key string, n int, at time.Duration) {
		for i := range n {
			stats.Decided(throttle.Claim{Key: key}, throttle.Decision{OK: i < 10, At: noon.Add(at)})
		}
	}
	for i := range 19 {
		ask(strconv.Itoa(i), 12, 0)
	}
	ask("eve", 31, 0)
	require.Equal(t, monitor.Demand{Sessions: 20, Burst: 12, Peak: 12}, stats.Snapshot().Demand)
	ask("eve", 11, time.Hour) // the first session of eve has ended
	require.Equal(t, monitor.Demand{Sessions: 21, Burst: 12, Peak: 12}, stats.Snapshot().Demand)
	stats.Reset()
	require.Zero(t, stats.Snapshot().Demand)
	ask("eve", 11, time.Hour)
	require.EqualValues(t, 1, stats.Snapshot().Demand.Sessions)
}

func TestStats_timesOfASingleClaim(t *testing.T) {
	stats := &monitor.Stats{}
	stats.Decided(throttle.Claim{}, throttle.Decision{OK: true, At: noon})
	n := stats.Snapshot()
	require.True(t, n.From.Equal(noon) && n.To.Equal(noon), "%v %v", n.From, n.To)
}

// TestRegistry_measuresAgainstTheNominalLimit checks the limit of each algorithm whose
// configuration is not a throttle.Limit.
func TestRegistry_measuresAgainstTheNominalLimit(t *testing.T) {
	window := func(a throttle.Alignment) throttle.FixedWindowConfig {
		return throttle.FixedWindowConfig{Name: "w", Count: 10, Align: a, Zone: time.UTC}
	}
	for name, c := range map[string]struct {
		spec rules.Spec
		want throttle.Limit
	}{
		"a window":  {throttle.FixedWindowConfig{Count: 10, Per: time.Second}, throttle.Limit{Count: 10, Per: time.Second}},
		"a minute":  {window(throttle.EachMinute), throttle.Limit{Name: "w", Count: 10, Per: time.Minute}},
		"an hour":   {window(throttle.EachHour), throttle.Limit{Name: "w", Count: 10, Per: time.Hour}},
		"a day":     {window(throttle.EachDay), throttle.Limit{Name: "w", Count: 10, Per: 24 * time.Hour}},
		"a month":   {window(throttle.EachMonth), throttle.Limit{Name: "w", Count: 10, Per: 28 * 24 * time.Hour}},
		"nginx":     {throttle.NginxConfig{Rate: 10, Per: time.Second, Burst: 5}, throttle.Limit{Count: 10, Per: time.Second, Burst: 6}},
		"ticks":     {throttle.TickQueueConfig{Limit: throttle.PerMinute(10)}, throttle.PerMinute(10)},
		"in flight": {throttle.ConcurrencyConfig{Count: 10}, throttle.Limit{}},
	} {
		g := &monitor.Registry{}
		l := &rules.Limit{ID: name, Spec: c.spec}
		require.Equal(t, c.want, g.Stats(l).Limit, name)
		g.Cancelled(l, throttle.Claim{}, throttle.Decision{OK: true})
		require.EqualValues(t, 1, g.Stats(l).Snapshot().Cancelled, name)
	}
}

// TestStats_pseudonymsDifferBetweenKeys checks names of short keys, and the longest key that
// is kept completely.
func TestStats_pseudonymsDifferBetweenKeys(t *testing.T) {
	stats := &monitor.Stats{}
	require.NotEqual(t, stats.Pseudonym("ann"), stats.Pseudonym("bob"))
	for n, complete := range map[int]bool{256: true, 257: false} {
		stats, key := &monitor.Stats{}, strings.Repeat("k", n)
		require.Empty(t, stats.TopRejected(1))
		stats.Decided(throttle.Claim{Key: key}, throttle.Decision{At: noon})
		top := stats.TopRejectedCleartext(1)
		require.Len(t, top, 1)
		require.Equal(t, complete, top[0].Key == key, n)
		require.Len(t, top[0].Key, 256)
		require.Equal(t, stats.Pseudonym(key), stats.TopRejected(1)[0].Key)
	}
}

// TestStats_sessionsEndAfterTheirLastClaim checks that a session lasts as long as the limit
// depends on its claims, and that claims with an older time belong to its latest time.
func TestStats_sessionsEndAfterTheirLastClaim(t *testing.T) {
	for name, c := range map[string]struct {
		at   []time.Duration // of twelve claims each, two of which are rejected
		want monitor.Demand
	}{
		"a minute of a claim":   {[]time.Duration{0, 50 * time.Second, 100 * time.Second}, monitor.Demand{Sessions: 1, Burst: 20, Peak: 24}},
		"after three minutes":   {[]time.Duration{0, 3 * time.Minute}, monitor.Demand{Sessions: 2, Burst: 12, Peak: 12}},
		"an older time":         {[]time.Duration{time.Minute, 0}, monitor.Demand{Sessions: 1, Burst: 24, Peak: 24}},
		"an older time between": {[]time.Duration{time.Minute, 0, time.Minute}, monitor.Demand{Sessions: 1, Burst: 36, Peak: 36}},
	} {
		stats := &monitor.Stats{Limit: throttle.PerMinute(10)}
		for _, at := range c.at {
			for i := range 12 {
				stats.Decided(throttle.Claim{Key: "ann"}, throttle.Decision{OK: i < 10, At: noon.Add(at)})
			}
		}
		require.Equal(t, c.want, stats.Snapshot().Demand, name)
	}
}

// TestStats_streaksCountFromTheLatestTime checks a rejection with an older time.
func TestStats_streaksCountFromTheLatestTime(t *testing.T) {
	stats := &monitor.Stats{Limit: throttle.PerMinute(10), ReturnWithin: 20 * time.Second}
	for _, c := range []struct {
		at time.Duration
		ok bool
	}{{100 * time.Second, false}, {0, false}, {110 * time.Second, true}} {
		stats.Decided(throttle.Claim{Key: "ann"}, throttle.Decision{OK: c.ok, At: noon.Add(c.at)})
	}
	n := stats.Snapshot()
	require.Equal(t, [2]int64{1, 0}, [2]int64{n.Returned, n.Abandoned})
}
