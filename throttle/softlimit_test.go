package throttle_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// 100 per minute and 10 % more: 1 to 100 are granted, 101 to 110 are marked, 111 is
// rejected.
func TestSoftLimit_marksClaimsOverSoftAndRejectsOverHard(t *testing.T) {
	l := throttle.PerMinute(100)
	window := func(l throttle.Limit, clk throttle.Clock) throttle.Limiter {
		return throttle.WithClock(throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: l.Count, Per: l.Per}), clk)
	}
	bucket := func(l throttle.Limit, clk throttle.Clock) throttle.Limiter {
		return throttle.WithClock(throttle.NewTokenBucket(l), clk)
	}
	for name, build := range map[string]func(throttle.Limit, throttle.Clock) throttle.Limiter{"fixed window": window, "bucket": bucket} {
		clk := clock.NewMock()
		s := throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: build(l, clk), Hard: build(l.PlusPercent(10), clk)})
		for range 2 {
			for i := 1; i <= 112; i++ {
				d := reserve(t, s, throttle.Claim{})
				require.Equal(t, i <= 110, d.OK, "%s: claim %d", name, i)
				require.Equal(t, i > 100 && i <= 110, d.OverLimit, "%s: claim %d", name, i)
			}
			clk.Add(time.Minute)
		}
	}
}

// manualClock shows the time that it was set to.
type manualClock struct{ now time.Time }

func (c *manualClock) Now() time.Time                       { return c.now }
func (c *manualClock) After(time.Duration) <-chan time.Time { return nil }

// A steady excess is marked, not only a burst.
func TestSoftLimit_marksSteadyExcess(t *testing.T) {
	clk := &manualClock{now: time.Unix(0, 0)}
	l := throttle.Limit{Count: 100, Per: time.Second, Burst: 10}
	s := throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: throttle.WithClock(throttle.NewTokenBucket(l), clk), Hard: throttle.WithClock(throttle.NewTokenBucket(l.PlusPercent(10)), clk)})
	over := 0
	for range 10 * 105 {
		d := reserve(t, s, throttle.Claim{})
		require.True(t, d.OK)
		if d.OverLimit {
			over++
		}
		clk.now = clk.now.Add(time.Second / 105)
	}
	require.InDelta(t, 10*5-10, over, 1, "105 a second for 10 s are 50 too many, less the burst")
}

func TestSoftLimit_cancelRefundsBothLimits(t *testing.T) {
	clk := clock.NewMock()
	limit, hard := newWindow(10, clk), newWindow(12, clk)
	s := throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: limit, Hard: hard})

	within := reserve(t, s, throttle.Claim{Cost: 9})
	over := reserve(t, s, throttle.Claim{Cost: 2})
	require.True(t, over.OverLimit)
	require.Equal(t, []int64{1, 1}, []int64{remaining(t, limit), remaining(t, hard)}, "what is over is taken from Hard alone")

	s.Report(t.Context(), throttle.Claim{Cost: 2}, over, throttle.Feedback{State: throttle.Unused})
	require.Equal(t, []int64{1, 3}, []int64{remaining(t, limit), remaining(t, hard)})
	s.Report(t.Context(), throttle.Claim{Cost: 9}, within, throttle.Feedback{Cost: 4})
	require.Equal(t, []int64{6, 8}, []int64{remaining(t, limit), remaining(t, hard)})
	s.Report(t.Context(), throttle.Claim{Cost: 9}, within, throttle.Feedback{State: throttle.Unused})
	require.Equal(t, []int64{6, 8}, []int64{remaining(t, limit), remaining(t, hard)}, "a claim ends once")
}

// In random histories, claims without a mark obey Soft and all claims obey Hard.
func TestSoftLimit_unmarkedClaimsObeySoft(t *testing.T) {
	for seed := range uint64(200) {
		r, clk := rand.New(rand.NewPCG(seed, 3)), clock.NewMock()
		s := throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: newWindow(20, clk), Hard: newWindow(25, clk)})
		var all, unmarked int64
		for range 60 {
			n := 1 + r.Int64N(4)
			d := reserve(t, s, throttle.Claim{Cost: n})
			switch {
			case d.OK && r.IntN(4) == 0:
				s.Report(t.Context(), throttle.Claim{Cost: n}, d, throttle.Feedback{State: throttle.Unused})
			case d.OK:
				all += n
				if !d.OverLimit {
					unmarked += n
				}
			}
		}
		require.LessOrEqual(t, unmarked, int64(20), "seed %d", seed)
		require.LessOrEqual(t, all, int64(25), "seed %d", seed)
		require.Greater(t, all, int64(20), "seed %d: nothing was over", seed)
	}
}

func TestSoftLimit_takesNothingOnError(t *testing.T) {
	hard := newWindow(10, clock.NewMock())
	s := throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: unreachable{}, Hard: hard})
	_, err := s.Reserve(t.Context(), throttle.Claim{})
	require.ErrorIs(t, err, errUnavailable)
	require.EqualValues(t, 10, remaining(t, hard))
}

// With Hard and CanBorrow both must allow what Soft rejects.
func TestSoftLimit_hardAndCanBorrow(t *testing.T) {
	clk := clock.NewMock()
	allowed, reports := true, 0
	soft, hard := newWindow(1, clk), newWindow(3, clk)
	s := throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: soft, Hard: hard,
		CanBorrow:   func(throttle.Claim, throttle.Decision) bool { return allowed },
		OnOverLimit: func(throttle.Claim, throttle.Decision) { reports++ },
	})
	require.False(t, reserve(t, s, throttle.Claim{}).OverLimit)
	require.True(t, reserve(t, s, throttle.Claim{}).OverLimit)
	require.True(t, reserve(t, s, throttle.Claim{DryRun: true}).OverLimit)
	require.Equal(t, 1, reports, "dry runs are not reported")
	allowed = false
	d := reserve(t, s, throttle.Claim{})
	require.False(t, d.OK)
	require.EqualValues(t, 1, d.Limit, "the decision of Soft")
	require.Equal(t, time.Minute, d.Wait)
	require.EqualValues(t, 1, remaining(t, hard), "a rejected claim takes nothing")
	allowed = true
	require.True(t, reserve(t, s, throttle.Claim{}).OK)
	require.EqualValues(t, 3, reserve(t, s, throttle.Claim{}).Limit, "the rejection of Hard")
	require.Equal(t, 2, reports)

	clk.Add(time.Minute)
	reserve(t, s, throttle.Claim{})
	s = throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: soft, Hard: hard, OnOverLimit: func(throttle.Claim, throttle.Decision) { panic("hook") }})
	require.Panics(t, func() { s.Reserve(t.Context(), throttle.Claim{}) })
	require.EqualValues(t, 2, remaining(t, hard), "a claim whose hook panics takes nothing")
}

func TestSoftLimit_grantsWhileCanBorrow(t *testing.T) {
	clk := clock.NewMock()
	room := true
	inner := newWindow(2, clk)
	e := throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: inner, CanBorrow: func(c throttle.Claim, d throttle.Decision) bool {
		require.False(t, d.OK)
		require.Positive(t, d.Wait)
		return room
	}})
	require.False(t, reserve(t, e, throttle.Claim{Cost: 2}).OverLimit)
	lent := reserve(t, e, throttle.Claim{})
	require.True(t, lent.OK && lent.OverLimit && lent.Wait == 0, "%+v", lent)
	require.True(t, reserve(t, e, throttle.Claim{Cost: 5}).OK, "more than the limit can be lent")

	e.Report(t.Context(), throttle.Claim{}, lent, throttle.Feedback{State: throttle.Unused})
	require.Zero(t, remaining(t, inner), "what was lent was never taken")
	e.Report(t.Context(), throttle.Claim{}, lent, throttle.Feedback{Cost: 100})

	room = false
	require.Equal(t, time.Minute, reserve(t, e, throttle.Claim{}).Wait)
	clk.Add(time.Minute)
	require.True(t, reserve(t, e, throttle.Claim{Cost: 2}).OK)
}

func TestShadow_countsAndRejectsNothing(t *testing.T) {
	clk := clock.NewMock()
	var rejections []throttle.Decision
	s := throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: newWindow(3, clk), OnOverLimit: func(_ throttle.Claim, d throttle.Decision) { rejections = append(rejections, d) }})
	var over []bool
	for range 5 {
		d := reserveAhead(t, s, throttle.Claim{}, throttle.Forever)
		require.True(t, d.OK && d.Wait == 0)
		over = append(over, d.OverLimit)
	}
	require.True(t, reserve(t, s, throttle.Claim{DryRun: true}).OverLimit)
	require.Equal(t, []bool{false, false, false, true, true}, over)
	require.Len(t, rejections, 2, "a dry run is told to nobody")
	require.Equal(t, time.Minute, rejections[0].Wait)
	require.False(t, rejections[0].OK)
}

func TestShadow_delaysNothing(t *testing.T) {
	clk := clock.NewMock()
	s := throttle.Shadow(throttle.WithClock(throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: throttle.Limit{Count: 1, Per: time.Second}, Queue: 9}), clk), nil)
	for range 5 {
		require.Zero(t, reserveAhead(t, s, throttle.Claim{}, throttle.Forever).Wait)
	}
}

func TestShadow_marksClaimsInAllOf(t *testing.T) {
	clk := clock.NewMock()
	inner := newWindow(1, clk)
	all := throttle.AllOf(throttle.Shadow(inner, nil), newWindow(5, clk))
	first := reserve(t, all, throttle.Claim{})
	second := reserve(t, all, throttle.Claim{})
	require.False(t, first.OverLimit)
	require.True(t, second.OK && second.OverLimit)
	all.Report(t.Context(), throttle.Claim{}, second, throttle.Feedback{State: throttle.Unused})
	require.Zero(t, remaining(t, inner), "the second took nothing from it")
	all.Report(t.Context(), throttle.Claim{}, first, throttle.Feedback{State: throttle.Unused})
	require.EqualValues(t, 1, remaining(t, inner))
}

func newWindow(count int64, clk throttle.Clock) throttle.Limiter {
	return throttle.WithClock(throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: count, Per: time.Minute}), clk)
}

// A grant is OverLimit if the Decision of one of the two limiters is, or if Soft rejects
// the claim.
func TestSoftLimit_marksWhatEitherLimiterMarks(t *testing.T) {
	granted := throttle.AllowAll
	marked := throttle.Shadow(throttle.DenyAll, nil) // grants everything with OverLimit
	for _, tt := range []struct {
		name       string
		soft, hard throttle.Limiter
		over       bool
	}{
		{"neither", granted, granted, false},
		{"the soft limit marks", marked, granted, true},
		{"the hard limit marks", granted, marked, true},
		{"both mark", marked, marked, true},
		{"the soft limit rejects", throttle.DenyAll, granted, true},
	} {
		s := throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: tt.soft, Hard: tt.hard})
		for _, dry := range []bool{false, true} {
			d := reserve(t, s, throttle.Claim{DryRun: dry})
			require.True(t, d.OK, tt.name)
			require.Equal(t, tt.over, d.OverLimit, tt.name)
		}
	}
}

// A decision in which one of the two limiters was replaced by its fallback is Degraded.
func TestSoftLimit_isDegradedIfEitherLimiterIs(t *testing.T) {
	degraded := throttle.NewFallback(throttle.FallbackConfig{Primary: unreachable{}, Secondary: throttle.AllowAll})
	for _, tt := range []struct {
		name         string
		soft, hard   throttle.Limiter
		ok, degraded bool
	}{
		{"neither", throttle.AllowAll, throttle.AllowAll, true, false},
		{"the soft limit", degraded, throttle.AllowAll, true, true},
		{"the hard limit", throttle.AllowAll, degraded, true, true},
		{"the hard limit, and the soft limit rejects", throttle.DenyAll, degraded, false, true},
	} {
		s := throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: tt.soft, Hard: tt.hard, CanBorrow: func(throttle.Claim, throttle.Decision) bool { return false }})
		for _, dry := range []bool{false, true} {
			d := reserve(t, s, throttle.Claim{DryRun: dry})
			require.Equal(t, []bool{tt.ok, tt.degraded}, []bool{d.OK, d.Degraded}, tt.name)
		}
	}
}

// A reporter is a limiter that grants every claim, and keeps the latest decision that was reported to it.
type reporter struct {
	throttle.Limiter
	reported *throttle.Decision
}

func (r reporter) Report(_ context.Context, _ throttle.Claim, d throttle.Decision, _ throttle.Feedback) {
	*r.reported = d
}

// What is reported to a limiter is its own decision, whatever the other one was: it may find what it has taken by it.
func TestSoftLimit_reportsToEachItsOwnDecision(t *testing.T) {
	for name, secondary := range map[string]throttle.Limiter{"granted": throttle.AllowAll, "rejected, so canceled at Hard": throttle.DenyAll} {
		soft := throttle.NewFallback(throttle.FallbackConfig{Primary: unreachable{}, Secondary: secondary})
		hard := reporter{throttle.AllowAll, &throttle.Decision{}}
		s := throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: soft, Hard: hard, CanBorrow: func(throttle.Claim, throttle.Decision) bool { return false }})
		d := reserve(t, s, throttle.Claim{})
		require.True(t, d.Degraded, name)
		if d.OK {
			s.Report(t.Context(), throttle.Claim{}, d, throttle.Feedback{})
		}
		require.Equal(t, []bool{true, false}, []bool{hard.reported.OK, hard.reported.Degraded}, name)
	}
}
