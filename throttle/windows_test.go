package throttle

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// windowLimiters returns limiters with ten units per minute that correct costs in the window, the
// entry or the sub-window of the grant.
func windowLimiters(clk Clock) map[string]Limiter {
	ten := PerMinute(10)
	return map[string]Limiter{
		"FixedWindow":                WithClock(NewFixedWindow(FixedWindowConfig{Count: 10, Per: time.Minute}), clk),
		"SlidingLog":                 WithClock(NewSlidingLog(SlidingLogConfig{Limit: ten}), clk),
		"SlidingCounter":             WithClock(NewSlidingCounter(SlidingCounterConfig{Limit: ten}), clk),
		"SubWindows":                 WithClock(NewSlidingCounter(SlidingCounterConfig{Limit: ten, Parts: 4}), clk),
		"FixedWindow, from creation": WithClock(NewFixedWindow(FixedWindowConfig{Count: 10, Per: time.Minute, Align: AtCreation}), clk),
	}
}

func remaining(l Limiter) int64 {
	d, _ := l.Reserve(context.Background(), Claim{DryRun: true})
	return d.Remaining
}

func TestWindows_observeSettlesTheCost(t *testing.T) {
	clk := at(0)
	for name, l := range windowLimiters(clk) {
		t.Run(name, func(t *testing.T) {
			clk.now = time.Unix(0, 0)
			c := Claim{Cost: 4}
			d := ask(l, 4, 0)
			l.Report(t.Context(), c, d, Feedback{Cost: 9, State: Ongoing})
			require.EqualValues(t, 6, remaining(l), "it is still in use")
			l.Report(t.Context(), c, d, Feedback{Cost: 1})
			require.EqualValues(t, 9, remaining(l), "it cost 3 less")
			d = ask(l, 4, 0)
			l.Report(t.Context(), c, d, Feedback{Cost: 8})
			require.EqualValues(t, 1, remaining(l), "it cost 4 more")
			d = ask(l, 1, 0)
			l.Report(t.Context(), Claim{}, d, Feedback{Cost: math.MaxInt64})
			require.Zero(t, remaining(l), "it cost more than there is")
			clk.now = clk.now.Add(10 * time.Minute)
			require.EqualValues(t, 10, remaining(l), "and after a while that is forgotten")
		})
	}
}

func TestWindows_cancelDoesNotChangeLaterWindows(t *testing.T) {
	clk := at(0)
	for name, l := range windowLimiters(clk) {
		t.Run(name, func(t *testing.T) {
			clk.now = time.Unix(0, 0)
			c := Claim{Cost: 6}
			early := ask(l, 6, 0)
			clk.now = clk.now.Add(3 * time.Minute)
			late := ask(l, 6, 0)
			l.Report(t.Context(), c, early, Feedback{Now: c.Now, State: Unused})
			require.EqualValues(t, 4, remaining(l), "what was granted three windows ago has gone")
			l.Report(t.Context(), c, late, Feedback{Now: c.Now, State: Unused})
			require.EqualValues(t, 10, remaining(l))
			l.Report(t.Context(), Claim{Cost: math.MaxInt64}, late, Feedback{State: Unused})
			require.EqualValues(t, 10, remaining(l), "no window gives back more than was taken in it")
		})
	}
}

// A claim that is canceled in the window after its own has no weight in it.
func TestSlidingCounter_cancelsInTheNextWindow(t *testing.T) {
	clk := at(0)
	l := WithClock(NewSlidingCounter(SlidingCounterConfig{Limit: PerMinute(10)}), clk)
	early := ask(l, 8, 0)
	clk.now = time.Unix(60, 0)
	late := ask(l, 1, 0)
	require.EqualValues(t, 1, remaining(l))
	l.Report(t.Context(), Claim{Cost: 8}, early, Feedback{State: Unused})
	require.EqualValues(t, 9, remaining(l))
	l.Report(t.Context(), Claim{Cost: 1}, late, Feedback{State: Unused})
	require.EqualValues(t, 10, remaining(l))
}

// A claim with an older Now that comes when old sub-windows are being dropped is
// decided in the newest, and never sees a smaller sum.
func TestWindows_olderReadingSeesTheNewestCounts(t *testing.T) {
	clk := at(0)
	for name, l := range windowLimiters(clk) {
		t.Run(name, func(t *testing.T) {
			start := time.Unix(0, 0)
			clk.now = start
			ask(l, 5, 0)
			clk.now = start.Add(59 * time.Second)
			ask(l, 5, 0)
			clk.now = start.Add(2 * time.Minute)
			ask(l, 3, 0)
			want := remaining(l)
			for back := range 125 {
				d, _ := l.Reserve(t.Context(), Claim{Now: clk.now.Add(-time.Duration(back) * time.Second), DryRun: true})
				require.LessOrEqual(t, d.Remaining, want, "%d s ago", back)
				require.True(t, d.At.Equal(clk.now))
			}
		})
	}
}

func TestWindows_setLimitKeepsUsage(t *testing.T) {
	clk := at(time.Hour)
	for name, l := range windowLimiters(clk) {
		s, ok := l.(interface{ SetLimit(Limit) error })
		require.True(t, ok, name)
		t.Run(name, func(t *testing.T) {
			d := ask(l, 4, 0)
			require.NoError(t, s.SetLimit(PerMinute(20)))
			require.EqualValues(t, 16, remaining(l))
			require.NoError(t, s.SetLimit(PerHour(8)))
			require.EqualValues(t, 4, remaining(l), "taken under the former limit, taken under this")
			require.Error(t, s.SetLimit(Limit{Count: 5}))
			require.Error(t, s.SetLimit(Limit{Count: 5, Per: time.Second, Burst: 6}))
			require.EqualValues(t, 4, remaining(l))
			l.Report(t.Context(), Claim{Cost: 4}, d, Feedback{State: Unused})
			require.GreaterOrEqual(t, remaining(l), int64(4))
			require.LessOrEqual(t, remaining(l), int64(8))
		})
	}
}

// A reading from before the change must not hide the units taken.
func TestWindows_setLimitHoldsForOlderReadings(t *testing.T) {
	clk := at(0)
	for name, l := range windowLimiters(clk) {
		t.Run(name, func(t *testing.T) {
			clk.now = time.Unix(0, 0).Add(50 * time.Second)
			ask(l, 10, 0)
			clk.now = clk.now.Add(5 * time.Second)
			require.NoError(t, l.(interface{ SetLimit(Limit) error }).SetLimit(Limit{Count: 10, Per: 2 * time.Second}))
			before := remaining(l)
			d, _ := l.Reserve(t.Context(), Claim{Now: clk.now.Add(-4 * time.Second)})
			require.False(t, d.OK && before == 0)
		})
	}
}

func TestSubWindows_olderReadingAfterSetLimitRefundsNothing(t *testing.T) {
	clk := at(time.Minute)
	l := WithClock(NewSlidingCounter(SlidingCounterConfig{Limit: PerMinute(10), Parts: 4}), clk)
	ask(l, 6, 0)
	clk.now = clk.now.Add(15 * time.Second)
	require.NoError(t, l.SetLimit(Limit{Count: 10, Per: 8 * time.Second}))
	_, err := l.Reserve(t.Context(), Claim{Now: clk.now.Add(-12 * time.Second)})
	require.NoError(t, err)
	require.EqualValues(t, 3, remaining(l))
}

// Windows of another length are other windows, also where they have the same number.
func TestSlidingCounter_ignoresGrantsBeforePerChanged(t *testing.T) {
	l := WithClock(NewSlidingCounter(SlidingCounterConfig{Limit: PerMinute(10)}), at(0))
	d := ask(l, 4, 0)
	require.NoError(t, l.SetLimit(PerHour(10)))
	l.Report(t.Context(), Claim{Cost: 4}, d, Feedback{State: Unused})
	require.EqualValues(t, 6, remaining(l))
}

// SetLimit keeps the alignment of the windows and what was taken, and the length of a calendar's windows.
func TestFixedWindow_setLimitKeepsTheCalendar(t *testing.T) {
	l := WithClock(NewFixedWindow(FixedWindowConfig{Name: "day", Count: 5, Align: EachDay}), at(time.Hour))
	ask(l, 3, 0)
	require.NoError(t, l.SetLimit(Limit{Name: "day", Count: 9}))
	require.EqualValues(t, 6, remaining(l))
	require.ErrorContains(t, l.SetLimit(Limit{Count: 0}), "Count is 0")
	require.ErrorContains(t, l.SetLimit(Limit{Count: 3, Per: -1}), "Per is -1ns")
	require.EqualValues(t, 6, remaining(l), "an error changes nothing")
	require.NoError(t, l.SetLimit(PerHour(4)), "a day stays a day")
	require.EqualValues(t, 1, remaining(l))
	require.Equal(t, 24*time.Hour, ask(l, 1, 0).Per)
}

func TestSlidingLog_countsClaimsAtTheSameInstant(t *testing.T) {
	l := WithClock(NewSlidingLog(SlidingLogConfig{Limit: PerSecond(3)}), at(0))
	playSteps(t, l, time.Unix(0, 0), append(claimsOfOne(0, 3),
		step{at: 0, cost: 1, wait: time.Second},
		step{at: time.Second - 1, cost: 1, wait: 1},
		step{at: time.Second, cost: 3, ok: true}))
	require.Equal(t, 1, l.(*slidingLog).entries.len())
}

func TestSlidingLog_enforcesMinGap(t *testing.T) {
	l := WithClock(NewSlidingLog(SlidingLogConfig{Limit: PerMinute(3), MinGap: 10 * time.Second}), at(0))
	playSteps(t, l, time.Unix(0, 0), []step{
		{at: 0, cost: 1, ok: true, left: 2},
		{at: 4 * time.Second, cost: 1, wait: 6 * time.Second, left: 2},
		{at: 10 * time.Second, cost: 1, ok: true, left: 1},
		{at: 20 * time.Second, cost: 1, ok: true, left: 0},
		{at: 21 * time.Second, cost: 1, wait: 39 * time.Second},
	})
}

func TestSlidingLog_countRejectedExtendsTheWait(t *testing.T) {
	l := WithClock(NewSlidingLog(SlidingLogConfig{Limit: PerSecond(3), CountRejected: true}), at(0))
	now := time.Unix(0, 0)
	for i := range 100 {
		d, _ := l.Reserve(t.Context(), Claim{Now: now.Add(time.Duration(i) * 100 * time.Millisecond)})
		require.Equal(t, i < 3, d.OK)
		require.LessOrEqual(t, l.(*slidingLog).entries.len(), 3, "memory is bounded by the limit")
	}
	d, _ := l.Reserve(t.Context(), Claim{Now: now.Add(20 * time.Second)})
	require.True(t, d.OK, "a pause lets him in")
}

// The ring grows as needed, and contains the same entries as a plain list.
func TestSlidingLog_agreesWithAList(t *testing.T) {
	l := WithClock(NewSlidingLog(SlidingLogConfig{Limit: Limit{Count: 50, Per: 100}}), at(0))
	type entry struct{ at, n int64 }
	var list []entry
	for now := range int64(5000) {
		n := 1 + now*7919%13
		sum := int64(0)
		for _, e := range list {
			if e.at > now-100 {
				sum += e.n
			}
		}
		d, _ := l.Reserve(t.Context(), Claim{Cost: n, Now: time.Unix(0, now)})
		require.Equal(t, sum+n <= 50, d.OK, "at %d", now)
		switch {
		case d.OK && now%5 == 0:
			l.Report(t.Context(), Claim{Cost: n}, d, Feedback{State: Unused})
		case d.OK:
			list = append(list, entry{now, n})
		}
	}
	require.LessOrEqual(t, len(l.(*slidingLog).entries.ring), 64)
}

func TestNew_panicsOnInvalidConfig(t *testing.T) {
	for name, f := range map[string]func(){
		"refill without a limit":     func() { NewRefillBucket(RefillBucketConfig{}) },
		"refill with too much gone":  func() { NewRefillBucket(RefillBucketConfig{Limit: PerSecond(1), InitialDeficit: 2}) },
		"leak with a queue below 0":  func() { NewLeakyBucket(LeakyBucketConfig{Limit: PerSecond(1), Queue: -1}) },
		"ticks without a queue":      func() { NewTickQueue(TickQueueConfig{Limit: PerSecond(1)}) },
		"nginx without a rate":       func() { NewNginx(NginxConfig{Per: time.Second}) },
		"nginx with a large delay":   func() { NewNginx(NginxConfig{Rate: 1, Per: time.Second, Delay: 1}) },
		"nginx beyond all rates":     func() { NewNginx(NginxConfig{Rate: math.MaxInt64, Per: time.Second}) },
		"quota without a window":     func() { NewFixedWindow(FixedWindowConfig{Count: 1}) },
		"quota with two lengths":     func() { NewFixedWindow(FixedWindowConfig{Count: 1, Align: EachDay, Per: time.Hour}) },
		"quota of nothing":           func() { NewFixedWindow(FixedWindowConfig{Count: 0, Per: time.Second, Align: AtCreation}) },
		"log with a long gap":        func() { NewSlidingLog(SlidingLogConfig{Limit: PerSecond(2), MinGap: time.Minute}) },
		"log with a burst":           func() { NewSlidingLog(SlidingLogConfig{Limit: Limit{Count: 2, Per: 1, Burst: 3}}) },
		"counter with a burst":       func() { NewSlidingCounter(SlidingCounterConfig{Limit: Limit{Count: 2, Per: 1, Burst: 3}}) },
		"sub-windows without parts":  func() { NewSlidingCounter(SlidingCounterConfig{Limit: PerSecond(1), Parts: -1}) },
		"parts without an estimate":  func() { NewSlidingCounter(SlidingCounterConfig{Limit: PerSecond(1), Parts: 2, RoundDown: true}) },
		"sub-windows of no duration": func() { NewSlidingCounter(SlidingCounterConfig{Limit: Limit{Count: 1, Per: 2}, Parts: 3}) },
	} {
		require.Panics(t, f, name)
	}
}

// Actual costs of one unit more or less than claimed are corrected like any others.
func TestWindows_observeSettlesOneUnit(t *testing.T) {
	clk := at(0)
	for name, l := range windowLimiters(clk) {
		t.Run(name, func(t *testing.T) {
			clk.now = time.Unix(0, 0)
			d := ask(l, 1, 0)
			l.Report(t.Context(), Claim{}, d, Feedback{Cost: 2})
			require.EqualValues(t, 8, remaining(l))
			d = ask(l, 2, 0)
			l.Report(t.Context(), Claim{Cost: 2}, d, Feedback{Cost: 1})
			require.EqualValues(t, 7, remaining(l))
		})
	}
}

func TestFixedWindow_recoversWhenTheClockIsSetBack(t *testing.T) {
	for name, q := range map[string]FixedWindowConfig{
		"epoch": {Count: 2, Per: time.Minute},
		"first": {Count: 2, Per: time.Minute, Align: AtFirst},
		"hour":  {Count: 2, Align: EachHour},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := NewFixedWindow(q)
			ask := func(ahead time.Duration) Decision {
				d, err := l.Reserve(t.Context(), Claim{Now: time.Now().Add(ahead)})
				require.NoError(t, err)
				return d
			}
			require.True(t, ask(48*time.Hour).OK, name)
			require.True(t, ask(48*time.Hour).OK, name)
			require.False(t, ask(0).OK, "%s: an older reading counts as the newest", name)
			time.Sleep(time.Hour) // a whole window
			require.True(t, ask(0).OK, name)
			require.True(t, ask(0).OK, name)
			d := ask(0)
			require.False(t, d.OK, name)
			require.LessOrEqual(t, d.Wait, time.Hour, name)
		})
	}
}
