package throttle

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// playSteps claims as steps say, from the Unix epoch or from when the clock of l starts.
func playSteps(t *testing.T, l Limiter, start time.Time, steps []step) {
	t.Helper()
	for i, s := range steps {
		d, err := l.Reserve(t.Context(), Claim{Cost: s.cost, Now: start.Add(s.at)})
		require.NoError(t, err)
		got := step{at: s.at, cost: s.cost, ok: d.OK, wait: d.Wait, left: d.Remaining}
		require.Equal(t, s, got, "step %d", i)
	}
}

// claimsOfOne returns steps at the same instant that claim one unit and are granted, until
// none is left of n.
func claimsOfOne(at time.Duration, n int64) (steps []step) {
	for left := n - 1; left >= 0; left-- {
		steps = append(steps, step{at: at, cost: 1, ok: true, left: left})
	}
	return steps
}

// Worked examples from textbooks, servers and their users.
func TestLimiters_workedExamples(t *testing.T) {
	const day = 24 * time.Hour
	for name, tt := range map[string]struct {
		new   func(clk Clock) Limiter
		start time.Time
		steps []step
	}{
		"five at 11:00:59 and five at 11:01:00 all pass a fixed window": {
			func(clk Clock) Limiter {
				return WithClock(NewFixedWindow(FixedWindowConfig{Count: 5, Per: time.Minute}), clk)
			},
			time.Date(2026, 1, 1, 11, 0, 59, 0, time.UTC),
			append(append(claimsOfOne(0, 5), claimsOfOne(time.Second, 5)...), step{at: time.Second, cost: 1, wait: time.Minute}),
		},
		"the same from the first claim on": {
			func(clk Clock) Limiter {
				return WithClock(NewFixedWindow(FixedWindowConfig{Count: 5, Per: time.Minute, Align: AtFirst}), clk)
			},
			time.Date(2026, 1, 1, 11, 0, 59, 0, time.UTC),
			append(claimsOfOne(0, 5), step{at: time.Second, cost: 1, wait: 59 * time.Second}),
		},
		"84 and 36 at 1:15 of 100 make 99: one more passes": {
			func(clk Clock) Limiter {
				return WithClock(NewSlidingCounter(SlidingCounterConfig{Limit: PerHour(100)}), clk)
			},
			time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
			[]step{
				{at: 30 * time.Minute, cost: 84, ok: true, left: 16},
				{at: 65 * time.Minute, cost: 16, ok: true, left: 7},
				{at: 75 * time.Minute, cost: 20, ok: true, left: 1},
				{at: 75 * time.Minute, cost: 1, ok: true, left: 0},
				{at: 75 * time.Minute, cost: 1, wait: 42857142858}, // until 84 weigh one less: an hour's 84th, rounded up
			},
		},
		"42 and 18 at 0:15 of 50 make 49.5: strict rejects": {
			func(clk Clock) Limiter {
				return WithClock(NewSlidingCounter(SlidingCounterConfig{Limit: PerMinute(50)}), clk)
			},
			time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
			[]step{
				{at: 0, cost: 42, ok: true, left: 8},
				{at: 75 * time.Second, cost: 18, ok: true, left: 0},
				{at: 75 * time.Second, cost: 1, wait: 714285715},
			},
		},
		"42 and 18 at 0:15 of 50 make 49.5: rounded down, one more passes": {
			func(clk Clock) Limiter {
				return WithClock(NewSlidingCounter(SlidingCounterConfig{Limit: PerMinute(50), RoundDown: true}), clk)
			},
			time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
			[]step{
				{at: 0, cost: 42, ok: true, left: 8},
				{at: 75 * time.Second, cost: 18, ok: true, left: 1},
				{at: 75 * time.Second, cost: 1, ok: true, left: 0},
				{at: 75 * time.Second, cost: 1, wait: 714285715},
			},
		},
		"sub-windows of 10, 20 and 30 make 60 of 100; at two the 10 leave": {
			func(clk Clock) Limiter {
				return WithClock(NewSlidingCounter(SlidingCounterConfig{Limit: PerHour(100), Parts: 3}), clk)
			},
			time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC),
			[]step{
				{at: 5 * time.Minute, cost: 10, ok: true, left: 90},
				{at: 25 * time.Minute, cost: 20, ok: true, left: 70},
				{at: 45 * time.Minute, cost: 30, ok: true, left: 40},
				{at: 50 * time.Minute, cost: 41, wait: 10 * time.Minute, left: 40},
				{at: 60 * time.Minute, cost: 41, ok: true, left: 9},
			},
		},
		"a bucket of 4, refilled 2 a second": {
			func(clk Clock) Limiter {
				return WithClock(NewRefillBucket(RefillBucketConfig{Limit: Limit{Count: 2, Per: time.Second, Burst: 4}}), clk)
			},
			time.Unix(0, 0),
			[]step{
				{at: 0, cost: 4, ok: true, left: 0},
				{at: 999 * time.Millisecond, cost: 1, wait: time.Millisecond, left: 0},
				{at: time.Second, cost: 3, wait: time.Second, left: 2},
				{at: time.Second, cost: 2, ok: true, left: 0},
				{at: time.Hour, cost: 5, wait: Forever, left: 4},
			},
		},
		"tries at :00, :10, :35 and :45 of 3 a minute, refilled at the minute": {
			func(clk Clock) Limiter {
				return WithClock(NewRefillBucket(RefillBucketConfig{Limit: PerMinute(3), Anchor: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}), clk)
			},
			time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC),
			[]step{
				{at: 0, cost: 1, ok: true, left: 2},
				{at: 10 * time.Second, cost: 1, ok: true, left: 1},
				{at: 35 * time.Second, cost: 1, ok: true, left: 0},
				{at: 45 * time.Second, cost: 1, wait: 15 * time.Second},
				{at: 60 * time.Second, cost: 1, ok: true, left: 2},
			},
		},
		"ten failed logins an hour, refilled one an hour": {
			func(clk Clock) Limiter {
				return WithClock(NewRefillBucket(RefillBucketConfig{Limit: Limit{Count: 1, Per: time.Hour, Burst: 10}}), clk)
			},
			time.Unix(0, 0),
			append(claimsOfOne(0, 10),
				step{at: 10 * time.Minute, cost: 1, wait: 50 * time.Minute},
				step{at: time.Hour, cost: 1, ok: true},
				step{at: time.Hour, cost: 2, wait: 2 * time.Hour}),
		},
		"200 of cost a day, refilled 50 a day": {
			func(clk Clock) Limiter {
				return WithClock(NewRefillBucket(RefillBucketConfig{Limit: Limit{Count: 50, Per: day, Burst: 200}}), clk)
			},
			time.Unix(0, 0),
			[]step{
				{at: 0, cost: 120, ok: true, left: 80},
				{at: 6 * time.Hour, cost: 81, wait: 18 * time.Hour, left: 80},
				{at: 6 * time.Hour, cost: 80, ok: true, left: 0},
				{at: 6 * time.Hour, cost: 101, wait: 3*day - 6*time.Hour, left: 0},
				{at: 3 * day, cost: 101, ok: true, left: 49},
				{at: 3 * day, cost: 201, wait: Forever, left: 49},
			},
		},
		"one a second and 150 a day": {
			func(clk Clock) Limiter {
				return AllOf(WithClock(NewTokenBucket(PerSecond(1)), clk), WithClock(NewFixedWindow(FixedWindowConfig{Count: 150, Align: EachDay}), clk))
			},
			time.Date(2026, 1, 1, 23, 57, 0, 0, time.UTC),
			append(everySecond(150), step{at: 150 * time.Second, cost: 1, wait: 30 * time.Second}, step{at: 180 * time.Second, cost: 1, ok: true}),
		},
		"five a minute plus two a second": {
			func(clk Clock) Limiter {
				return AllOf(WithClock(NewFixedWindow(FixedWindowConfig{Count: 5, Per: time.Minute}), clk), WithClock(NewFixedWindow(FixedWindowConfig{Count: 2, Per: time.Second}), clk))
			},
			time.Unix(0, 0),
			append(append(append(claimsOfOne(0, 2), step{at: 0, cost: 1, wait: time.Second}), claimsOfOne(time.Second, 2)...),
				step{at: 2 * time.Second, cost: 1, ok: true},
				step{at: 3 * time.Second, cost: 1, wait: 57 * time.Second},
				step{at: time.Minute, cost: 1, ok: true, left: 1}),
		},
		"three permits per period, not carried over": {
			func(clk Clock) Limiter {
				return WithClock(NewFixedWindow(FixedWindowConfig{Count: 3, Per: time.Second, Align: AtCreation}), clk)
			},
			time.Unix(0, 5e8),
			[]step{
				{at: 0, cost: 2, ok: true, left: 1},
				{at: 999 * time.Millisecond, cost: 2, wait: time.Millisecond, left: 1},
				{at: time.Second, cost: 3, ok: true},
				{at: 90 * time.Second, cost: 4, wait: Forever, left: 3},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			playSteps(t, tt.new(&manualClock{tt.start}), tt.start, tt.steps)
		})
	}
}

// everySecond returns n claims of one unit, a second apart, of which the tighter of
// two limits has none left each time.
func everySecond(n int) (steps []step) {
	for i := range n {
		steps = append(steps, step{at: time.Duration(i) * time.Second, cost: 1, ok: true})
	}
	return steps
}

// Eight goroutines claim and cancel while one changes the limit back and forth. At the
// end, exactly the units that were kept are missing.
func TestLimiters_setLimitUnderContention(t *testing.T) {
	const count = 1 << 20
	clk := at(time.Hour)
	limit := Limit{Count: count, Per: time.Hour}
	for name, l := range map[string]interface {
		Limiter
		SetLimit(Limit) error
	}{
		"RefillBucket":   WithClock(NewRefillBucket(RefillBucketConfig{Limit: limit}), clk),
		"LeakyBucket":    WithClock(NewLeakyBucket(LeakyBucketConfig{Limit: limit}), clk),
		"FixedWindow":    WithClock(NewFixedWindow(FixedWindowConfig{Count: count, Per: time.Hour}), clk),
		"SlidingLog":     WithClock(NewSlidingLog(SlidingLogConfig{Limit: limit}), clk),
		"SlidingCounter": WithClock(NewSlidingCounter(SlidingCounterConfig{Limit: limit}), clk),
		"SubWindows":     WithClock(NewSlidingCounter(SlidingCounterConfig{Limit: limit, Parts: 6}), clk),
	} {
		t.Run(name, func(t *testing.T) {
			var kept, lost atomic.Int64
			var wg sync.WaitGroup
			for id := range int64(8) {
				wg.Go(func() {
					for i := range int64(300) {
						c := Claim{Cost: 1 + (i+id)%5}
						d, _ := l.Reserve(t.Context(), c)
						if i%3 == 0 {
							l.Report(t.Context(), c, d, Feedback{Now: c.Now, State: Unused})
							if name == "LeakyBucket" { // nothing is returned if the limit has changed
								lost.Add(c.Cost)
							}
						} else if d.OK {
							kept.Add(c.Cost)
						}
					}
				})
			}
			for i := range int64(200) {
				require.NoError(t, l.SetLimit(Limit{Count: count + i%2, Per: time.Hour, Burst: count + i%2}))
			}
			wg.Wait()
			require.NoError(t, l.SetLimit(limit))
			d, _ := l.Reserve(t.Context(), Claim{DryRun: true})
			const rounded = 1 // what a change of the limit rounds off
			require.LessOrEqual(t, d.Remaining, count-kept.Load()+rounded)
			require.GreaterOrEqual(t, d.Remaining, count-kept.Load()-lost.Load()-rounded)
		})
	}
}
