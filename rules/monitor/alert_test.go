package monitor_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/rules/monitor"
	"github.com/heed-go/heed/throttle"
)

// incidents collects the incidents of an Alert, such as "ann at 5s: 5+1".
type incidents struct{ all []string }

func (s *incidents) record(e monitor.Incident) {
	s.all = append(s.all, fmt.Sprintf("%s at %v: %d+%d", e.Key, e.At.Sub(noon), e.Rejected, e.Failed))
}

func reject(a *monitor.Alert, key string, at time.Duration) {
	a.Decided(throttle.Claim{Key: key}, throttle.Decision{At: noon.Add(at)})
}

// TestAlert_reportsOncePerIncident checks that four rejections in ten seconds are tolerated and the
// fifth is reported. After that the level is 4, and falls by one in 2.5 s.
func TestAlert_reportsOncePerIncident(t *testing.T) {
	for name, tt := range map[string]struct {
		at   []float64 // seconds
		want []string
	}{
		"few":                   {[]float64{0, 0, 0, 0}, nil},
		"slow":                  {[]float64{0, 2.5, 5, 7.5, 10, 12.5, 15, 17.5, 20, 22.5, 25}, nil},
		"many":                  {[]float64{0, 0, 0, 0, 1}, []string{"ann at 1s: 5+0"}},
		"many more":             {[]float64{0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 20}, []string{"ann at 1s: 5+0"}},
		"half is not quiet":     {[]float64{0, 0, 0, 0, 0, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18}, []string{"ann at 0s: 5+0"}},
		"quiet not long enough": {[]float64{0, 0, 0, 0, 0, 14.9, 14.9, 14.9, 14.9, 14.9, 14.9}, []string{"ann at 0s: 5+0"}},
		"quiet":                 {[]float64{0, 0, 0, 0, 0, 15, 15, 15, 15, 15, 15}, []string{"ann at 0s: 5+0", "ann at 15s: 5+0"}},
		"a little in the quiet": {[]float64{0, 0, 0, 0, 0, 7.5, 15, 15, 15, 15, 15}, []string{"ann at 0s: 5+0", "ann at 15s: 5+0"}},
		"too much in the quiet": {[]float64{0, 0, 0, 0, 0, 7.5, 7.5, 15, 15, 15, 15, 15}, []string{"ann at 0s: 5+0"}},
		"clock goes back":       {[]float64{0, 0, 0, 0, 100, 50, 50, 50, 50}, []string{"ann at 50s: 5+0"}},
	} {
		var s incidents
		a := &monitor.Alert{Threshold: throttle.Limit{Count: 4, Per: 10 * time.Second}, OnIncident: s.record}
		for _, at := range tt.at {
			reject(a, "ann", time.Duration(at*float64(time.Second)))
			reject(a, "bob", time.Duration(at*float64(time.Hour))) // another key has no effect
		}
		var ann []string
		for _, line := range s.all {
			if line[:3] == "ann" {
				ann = append(ann, line)
			}
		}
		require.Equal(t, tt.want, ann, name)
	}
}

func TestAlert_countsFailures(t *testing.T) {
	var s incidents
	a := &monitor.Alert{Threshold: throttle.PerMinute(3), OnIncident: s.record}
	l := &monitor.Instrument{Limiter: throttle.WithClock(throttle.NewTokenBucket(throttle.PerMinute(5)), fixedClock(noon)), Alert: a}
	c := throttle.Claim{Key: "ann", Now: noon}
	for i, f := range []throttle.Feedback{
		{}, // a success
		{Outcome: throttle.Failed, State: throttle.Ongoing},
		{Outcome: throttle.Failed},
		{Outcome: throttle.Throttled, Now: noon},
		{Outcome: throttle.Failed, Now: noon.Add(time.Second)},
	} {
		d, err := l.Reserve(t.Context(), c)
		require.NoError(t, err)
		require.True(t, d.OK, i)
		l.Report(t.Context(), c, d, f)
	}
	require.Empty(t, s.all)
	l.Reserve(t.Context(), throttle.Claim{Key: "ann", Now: noon, DryRun: true})
	require.Empty(t, s.all, "dry runs are not counted")
	l.Reserve(t.Context(), c)
	require.Equal(t, []string{"ann at 0s: 1+3"}, s.all)
}

// TestAlert_boundsKeys checks that a tracked key is not replaced by other keys, and that other
// keys are tracked when slots are free.
func TestAlert_boundsKeys(t *testing.T) {
	var s incidents
	a := &monitor.Alert{Threshold: throttle.PerMinute(2), MaxKeys: 10, OnIncident: s.record}
	for range 3 {
		reject(a, "ann", 0)
	}
	for i := range 10_000 {
		reject(a, strconv.Itoa(i), 0)
	}
	reject(a, "ann", time.Second)
	require.Equal(t, []string{"ann at 0s: 3+0"}, s.all)
	for range 3 {
		reject(a, "eve", time.Hour)
	}
	require.Equal(t, []string{"ann at 0s: 3+0", "eve at 1h0m0s: 3+0"}, s.all)
}

func TestAlert_reportsOnceForConcurrentRejections(t *testing.T) {
	var mu sync.Mutex
	n := 0
	a := &monitor.Alert{Threshold: throttle.PerMinute(10), OnIncident: func(monitor.Incident) { mu.Lock(); n++; mu.Unlock() }}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				reject(a, "ann", 0)
			}
		})
	}
	wg.Wait()
	require.Equal(t, 1, n)
}

func TestAlert_panicsWithoutRequiredFields(t *testing.T) {
	require.PanicsWithValue(t, "monitor: Alert: OnIncident is nil", func() {
		reject(&monitor.Alert{Threshold: throttle.PerMinute(1)}, "", 0)
	})
	require.Panics(t, func() { reject(&monitor.Alert{OnIncident: new(incidents).record}, "", 0) })
}

// TestAlert_countsRejectionAfterQuiet checks that an incident that ends while the level is above 0
// leaves its record to the next one, and that each rejection is counted once. The burst is 4; the
// level reaches half of it after 5 s, and the incident ends 2 s later.
func TestAlert_countsRejectionAfterQuiet(t *testing.T) {
	var s incidents
	a := &monitor.Alert{Threshold: throttle.Limit{Count: 4, Per: 10 * time.Second}, Quiet: 2 * time.Second, OnIncident: s.record}
	for range 5 {
		reject(a, "ann", 0)
	}
	for range 3 { // the level is 4 less 2.8
		reject(a, "ann", 7*time.Second)
	}
	require.Equal(t, []string{"ann at 0s: 5+0", "ann at 7s: 3+0"}, s.all)
}

func TestAlert_countsFailureAfterQuiet(t *testing.T) {
	var s incidents
	a := &monitor.Alert{Threshold: throttle.Limit{Count: 4, Per: 10 * time.Second}, Quiet: 2 * time.Second, OnIncident: s.record}
	fail := func(at time.Duration) {
		a.Observed(throttle.Claim{Key: "ann"}, throttle.Decision{OK: true, At: noon}, throttle.Feedback{Outcome: throttle.Failed, Now: noon.Add(at)})
	}
	for range 5 {
		fail(0)
	}
	for range 2 {
		fail(7 * time.Second)
	}
	reject(a, "ann", 7*time.Second)
	require.Equal(t, []string{"ann at 0s: 0+5", "ann at 7s: 1+2"}, s.all)
}

// TestAlert_quietOfOneNanosecond checks that an incident ends when the level has been low for Quiet,
// and that Quiet is Threshold.Per only if it is not positive.
func TestAlert_quietOfOneNanosecond(t *testing.T) {
	for quiet, want := range map[time.Duration]int{1: 2, 0: 1, -1: 1} {
		var s incidents
		a := &monitor.Alert{Threshold: throttle.Limit{Count: 1, Per: 10 * time.Second}, Quiet: quiet, OnIncident: s.record}
		for _, at := range []time.Duration{0, 0, 10*time.Second + 1, 10*time.Second + 1} { // the level is low at 10 s
			reject(a, "ann", at)
		}
		require.Len(t, s.all, want, quiet)
	}
}
