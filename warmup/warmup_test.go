package warmup_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/warmup"
)

var start = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

// A limiterAt is a limiter with a current time.
type limiterAt struct {
	*testing.T
	throttle.Adjustable
	now time.Time
}

func newLimiterAt(t *testing.T, c warmup.Config) *limiterAt {
	s := &limiterAt{T: t, now: start}
	s.Adjustable = throttle.WithClock(warmup.New(c), s)
	return s
}

func newBurstyAt(t *testing.T, b warmup.BurstyConfig) *limiterAt {
	s := &limiterAt{T: t, now: start}
	s.Adjustable = throttle.WithClock(warmup.NewBursty(b), s)
	return s
}

func (s *limiterAt) Now() time.Time                       { return s.now }
func (s *limiterAt) After(time.Duration) <-chan time.Time { return nil }

func (s *limiterAt) reserve(n int64, longest time.Duration) throttle.Decision {
	s.Helper()
	d, err := throttle.ReserveAhead(s.Context(), s, throttle.Claim{Cost: n}, longest)
	require.NoError(s, err)
	return d
}

// book claims n units as early as possible and returns when they may be used.
func (s *limiterAt) book(n int64) (throttle.Decision, time.Duration) {
	s.Helper()
	d := s.reserve(n, throttle.Forever)
	require.True(s, d.OK)
	return d, s.now.Add(d.Wait).Sub(start)
}

func (s *limiterAt) cancel(n int64, d throttle.Decision) {
	s.Report(s.Context(), throttle.Claim{Cost: n}, d, throttle.Feedback{State: throttle.Unused})
}

// next returns the earliest instant at which a new claim could act.
func (s *limiterAt) next() time.Duration {
	d, err := throttle.ReserveAhead(s.Context(), s, throttle.Claim{DryRun: true}, throttle.Forever)
	require.NoError(s, err)
	return s.now.Add(d.Wait).Sub(start)
}

var twenty = warmup.Config{Limit: throttle.PerSecond(20), Period: 3 * time.Second}

// TestLimiter_warmsUpInPeriod checks that a limit becomes warm within Period for claims of
// any size, and then grants units at its rate.
func TestLimiter_warmsUpInPeriod(t *testing.T) {
	for _, size := range []int64{1, 2, 5, 30} {
		s := newLimiterAt(t, twenty)
		for used := int64(0); used < 30; used += size { // 2*3 s / (50 ms + 150 ms)
			s.book(size)
		}
		require.Equal(t, 3*time.Second, s.next().Round(time.Microsecond), "%d at a time", size)
		s.book(100)
		require.Equal(t, 8*time.Second, s.next().Round(time.Microsecond))
	}
}

// TestLimiter_nextClaimWaits checks that the cost of a claim delays the next claim and not
// the claim itself.
func TestLimiter_nextClaimWaits(t *testing.T) {
	s := newBurstyAt(t, warmup.BurstyConfig{Limit: throttle.PerSecond(1)})
	_, at := s.book(100)
	require.Zero(t, at)
	d := s.reserve(1, time.Minute)
	require.False(t, d.OK)
	require.Equal(t, 40*time.Second, d.Wait) // after that the wait is the minute that the claim accepts
	_, at = s.book(1)
	require.Equal(t, 100*time.Second, at)
}

func TestLimiter_withoutWarmUpIsEven(t *testing.T) {
	s := newLimiterAt(t, warmup.Config{Limit: throttle.PerSecond(3)})
	s.now = start.Add(time.Hour) // idle time has no effect; Guava would not limit any more
	first := s.now.Sub(start)
	for i := range 3000 {
		_, at := s.book(1)
		require.Equal(t, time.Duration((int64(i)*1e9+2)/3), at-first)
	}
}

func TestLimiter_isColdAgainAfterIdleness(t *testing.T) {
	s := newLimiterAt(t, twenty)
	s.book(1000)
	s.now = start.Add(s.next() + twenty.Period)
	again := s.now.Sub(start)
	for i := range int64(40) {
		_, at := s.book(1)
		require.InDelta(t, twenty.After(i), at-again, 1000, "unit %d", i)
	}
}

func TestLimiter_isColdAfterAnOutage(t *testing.T) {
	s := newLimiterAt(t, warmup.Config{Limit: throttle.PerSecond(20), Period: time.Hour, Outage: 2 * time.Second})
	s.book(1e6)
	s.now = start.Add(s.next())
	observe := func(o throttle.Outcome) {
		d, _ := s.book(1)
		s.Report(t.Context(), throttle.Claim{}, d, throttle.Feedback{Now: s.now, Outcome: o})
	}
	interval := func() time.Duration {
		_, a := s.book(1)
		_, b := s.book(1)
		return (b - a).Round(time.Millisecond)
	}
	observe(throttle.Failed)
	s.now = s.now.Add(1900 * time.Millisecond)
	observe(throttle.Accepted)
	observe(throttle.Failed)
	s.now = s.now.Add(1900 * time.Millisecond)
	observe(throttle.Throttled)
	require.Equal(t, 50*time.Millisecond, interval())
	s.now = s.now.Add(200 * time.Millisecond)
	observe(throttle.Failed)
	require.Greater(t, interval(), 140*time.Millisecond)
}

// TestLimiter_cancelInReverseRestoresTheState checks that canceling claims in reverse
// order restores the initial state.
func TestLimiter_cancelInReverseRestoresTheState(t *testing.T) {
	for name, s := range map[string]*limiterAt{
		"curve": newLimiterAt(t, twenty),
		"burst": newBurstyAt(t, warmup.BurstyConfig{Limit: throttle.PerSecond(7), StartFull: true}),
	} {
		t.Run(name, func(t *testing.T) {
			sizes := []int64{3, 9, 1, 20, 2}
			var granted []throttle.Decision
			var ends []time.Duration
			for _, n := range sizes {
				ends = append(ends, s.next())
				d, _ := s.book(n)
				granted = append(granted, d)
			}
			for i, d := range slices.Backward(granted) {
				s.cancel(sizes[i], d)
				require.Equal(t, ends[i], s.next(), "claim %d", i)
			}
			require.Equal(t, s.reserve(1, 0).Remaining, s.unused(name).Remaining)
		})
	}
}

// unused returns the decision of an equal limiter that has not been used.
func (s *limiterAt) unused(name string) throttle.Decision {
	if name == "curve" {
		return newLimiterAt(s.T, twenty).reserve(1, 0)
	}
	return newBurstyAt(s.T, warmup.BurstyConfig{Limit: throttle.PerSecond(7), StartFull: true}).reserve(1, 0)
}

// TestLimiter_cancelKeepsLaterBookings checks that Cancel does not return time if a later
// claim is booked.
func TestLimiter_cancelKeepsLaterBookings(t *testing.T) {
	s := newLimiterAt(t, warmup.Config{Limit: throttle.PerSecond(1)})
	a, _ := s.book(5)
	_, at := s.book(1)
	require.Equal(t, 5*time.Second, at)
	s.cancel(5, a)
	require.Equal(t, 6*time.Second, s.next())
}

// TestLimiter_cancelKeepsItCold checks that canceled claims do not warm up the limit.
func TestLimiter_cancelKeepsItCold(t *testing.T) {
	s := newLimiterAt(t, twenty)
	for range 1000 {
		d, _ := s.book(3)
		s.cancel(3, d)
	}
	for i := range int64(40) {
		_, at := s.book(1)
		require.InDelta(t, twenty.After(i), at, 1000)
	}
}

// TestLimiter_observeSettlesTheCost checks that a claim with a settled cost has the same
// effect as a claim of that cost.
func TestLimiter_observeSettlesTheCost(t *testing.T) {
	for _, cost := range []int64{1, 4, 9, 10, 11, 200} {
		for _, later := range []time.Duration{0, 100 * time.Millisecond, 300 * time.Millisecond} {
			for name, s := range map[string][2]*limiterAt{
				"curve": {newLimiterAt(t, twenty), newLimiterAt(t, twenty)},
				"burst": {newBurstyAt(t, warmup.BurstyConfig{Limit: throttle.PerSecond(7), StartFull: true}), newBurstyAt(t, warmup.BurstyConfig{Limit: throttle.PerSecond(7), StartFull: true})},
			} {
				d, _ := s[0].book(10)
				s[1].book(cost)
				s[0].now, s[1].now = start.Add(later), start.Add(later)
				s[0].Report(t.Context(), throttle.Claim{Cost: 10}, d, throttle.Feedback{Cost: cost, State: throttle.Ongoing})
				s[0].Report(t.Context(), throttle.Claim{Cost: 10}, d, throttle.Feedback{Cost: cost})
				require.InDelta(t, s[1].next(), s[0].next(), 2, "%s: %d instead of 10 after %v", name, cost, later)
			}
		}
	}
}

func TestLimiter_setLimit(t *testing.T) {
	s := newLimiterAt(t, twenty)
	s.book(15) // half of the warm-up
	paid := s.next()
	require.Error(t, s.SetLimit(throttle.Limit{Count: -1, Per: time.Second}))
	require.Error(t, s.SetLimit(throttle.Limit{Count: 1, Per: time.Second, Burst: 3}))
	require.NoError(t, s.SetLimit(throttle.Limit{Name: "slow", Count: 2, Per: time.Second}))
	require.Equal(t, paid, s.next(), "a debt stays as it is")
	d, from := s.book(3) // the limit has 3 idle units above the threshold now instead of 30, and half of them are left
	require.Equal(t, "slow", d.Policy)
	half := time.Duration(1.5*(.5+1)/2*1e9) + 1500*time.Millisecond/2
	require.InDelta(t, half, s.next()-from, 1000)

	b := newBurstyAt(t, warmup.BurstyConfig{Limit: throttle.PerSecond(10), StartFull: true})
	b.reserve(5, 0)
	require.NoError(t, b.SetLimit(throttle.PerSecond(100)))
	require.EqualValues(t, 51, b.reserve(1, 0).Remaining+1)
}

// TestLimiter_saturates checks that a claim waits forever if the time at which previous
// claims are paid for cannot be represented.
func TestLimiter_saturates(t *testing.T) {
	s := newLimiterAt(t, warmup.Config{Limit: throttle.PerHour(1), Period: time.Hour})
	s.book(math.MaxInt64)
	d := s.reserve(1, throttle.Forever)
	require.False(t, d.OK)
	require.Equal(t, throttle.Forever, d.Wait)
}

func TestNew_panicsOnInvalidConfig(t *testing.T) {
	one := throttle.PerSecond(1)
	for _, c := range []warmup.Config{{}, {Limit: one, Period: -1}, {Limit: one, ColdFactor: -1}, {Limit: one, ColdFactor: math.NaN()},
		{Limit: one, ColdFactor: math.Inf(1)}, {Limit: one, Outage: -1}, {Limit: throttle.Limit{Count: 1, Per: 1, Burst: 1}}} {
		require.Error(t, c.Validate())
		require.Panics(t, func() { warmup.New(c) })
	}
	for _, b := range []warmup.BurstyConfig{{}, {Limit: one, MaxBurst: -1}, {Limit: throttle.Limit{Count: 1, Per: 1, Burst: 1}}} {
		require.Error(t, b.Validate())
		require.Panics(t, func() { warmup.NewBursty(b) })
	}
}

// TestLimiter_usageObeysBound checks that acts obey the bound of the rate for any sequence
// of claims, cancellations and settled costs. Unlike in the conformance suite, claims are
// large and most of them are booked ahead.
func TestLimiter_usageObeysBound(t *testing.T) {
	seeds := uint64(1500)
	if testing.Short() {
		seeds = 500
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 7))
		limit, saved := throttle.PerSecond(1+r.Int64N(20)), int64(0)
		s := newLimiterAt(t, warmup.Config{Limit: limit, Period: time.Duration(r.Int64N(5e9)), ColdFactor: 1 + 4*r.Float64()})
		if seed%2 == 0 {
			saved = limit.Count * 3
			s = newBurstyAt(t, warmup.BurstyConfig{Limit: limit, MaxBurst: 3 * time.Second, StartFull: seed%4 == 0})
		}
		usages, largest := randomClaims(s, r)
		for i := range usages {
			sum := int64(0)
			for _, a := range usages[i:] {
				sum += a.n
				w := a.at - usages[i].at + 1
				bound := largest + saved + int64(w)*limit.Count/int64(time.Second)
				if sum > bound {
					require.LessOrEqual(t, sum, bound, "seed %d: within %v from %v on", seed, w, usages[i].at)
				}
			}
		}
	}
}

type usage struct {
	at time.Duration
	n  int64
}

// randomClaims makes random claims and ends them at random. It returns the units that were
// used, in order of time.
func randomClaims(s *limiterAt, r *rand.Rand) (usages []usage, largest int64) {
	type held struct {
		n  int64
		d  throttle.Decision
		at time.Duration
	}
	var all []held
	for range 60 {
		s.now = s.now.Add(time.Duration(r.Int64N(3)*r.Int64N(15e8) + r.Int64N(2)*17))
		n := 1 + r.Int64N(1+r.Int64N(60))
		if d := s.reserve(n, time.Duration(r.Int64N(2)*r.Int64N(20e9))); d.OK {
			all = append(all, held{n, d, s.now.Add(d.Wait).Sub(start)})
		}
		all = slices.DeleteFunc(all, func(h held) bool {
			c := throttle.Claim{Cost: h.n}
			switch r.IntN(12) {
			case 0, 1:
				s.Report(context.Background(), c, h.d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
				return true
			case 2:
				used := 1 + r.Int64N(h.n)
				s.Report(context.Background(), c, h.d, throttle.Feedback{Cost: used})
				usages = append(usages, usage{h.at, used})
				return true
			case 3:
				usages = append(usages, usage{h.at, h.n})
				return true
			}
			return false
		})
	}
	for _, h := range all {
		usages = append(usages, usage{h.at, h.n})
	}
	slices.SortStableFunc(usages, func(a, b usage) int { return int(min(max(a.at-b.at, -1), 1)) })
	for _, a := range usages {
		largest = max(largest, a.n)
	}
	return usages, largest
}

func TestLimiter_decisionFields(t *testing.T) {
	s := newBurstyAt(t, warmup.BurstyConfig{Limit: throttle.PerSecond(4), StartFull: true})
	describe := func(d throttle.Decision) string {
		return fmt.Sprintf("%v wait %v, %d of %d, reset %v, per %v", d.OK, d.Wait, d.Remaining, d.Limit, d.ResetAfter, d.Per)
	}
	require.Equal(t, "true wait 0s, 4 of 5, reset 250ms, per 1.25s", describe(s.reserve(1, 0)))
	require.Equal(t, "true wait 0s, 0 of 5, reset 1.25s, per 1.25s", describe(s.reserve(4, 0)))
	require.Equal(t, "false wait 250ms, 0 of 5, reset 1.25s, per 1.25s", describe(s.reserve(9, 0)))
	c := newLimiterAt(t, twenty)
	require.Equal(t, "true wait 0s, 0 of 1, reset 148.333334ms, per 50ms", describe(c.reserve(1, 0)))
	require.Equal(t, "false wait 148.333334ms, 0 of 1, reset 148.333334ms, per 50ms", describe(c.reserve(1, 0)))
}

// TestLimiter_cancelKeepsLaterBookingsAtAnyRate checks that booked claims act at different
// instants even if a unit takes less than a nanosecond.
func TestLimiter_cancelKeepsLaterBookingsAtAnyRate(t *testing.T) {
	s := newLimiterAt(t, warmup.Config{Limit: throttle.Limit{Count: 2, Per: 1}})
	a, _ := s.book(1)
	_, at := s.book(1)
	require.EqualValues(t, 1, at)
	s.cancel(1, a)
	require.EqualValues(t, 2, s.next())
}

// TestLimiter_acceptsReadingsBeforeItsCreation checks that claims whose readings of the
// clock precede the creation of the limiter are decided by their own readings.
func TestLimiter_acceptsReadingsBeforeItsCreation(t *testing.T) {
	s := newLimiterAt(t, twenty)
	for i := range 3 {
		c := throttle.Claim{Now: start.Add(-time.Hour + time.Duration(i)*140*time.Millisecond)}
		d, err := s.Reserve(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, i != 1, d.OK, "140 ms is too early for the second unit")
	}
}

// TestValidate_boundaries checks the extreme values of each field that are accepted, and the
// first ones that are not.
func TestValidate_boundaries(t *testing.T) {
	one := throttle.PerSecond(1)
	for _, tt := range []struct {
		config interface{ Validate() error }
		want   string // part of the error; "": valid
	}{
		{warmup.Config{Limit: one}, ""},
		{warmup.Config{Limit: one, Period: 1, ColdFactor: math.SmallestNonzeroFloat64, Outage: 1}, ""},
		{warmup.Config{Limit: one, Period: -1}, "Period is -1ns"},
		{warmup.Config{Limit: one, ColdFactor: -1}, "ColdFactor is -1"},
		{warmup.Config{Limit: one, ColdFactor: math.NaN()}, "ColdFactor is NaN"},
		{warmup.Config{Limit: one, ColdFactor: math.Inf(1)}, "ColdFactor is +Inf"},
		{warmup.Config{Limit: one, Outage: -1}, "Outage is -1ns"},
		{warmup.Config{Limit: one.WithBurst(1)}, "Burst is 1"},
		{warmup.Config{}, "Count is 0"},
		{warmup.BurstyConfig{Limit: one, MaxBurst: 1}, ""},
		{warmup.BurstyConfig{Limit: one, MaxBurst: -1}, "MaxBurst is -1ns"},
		{warmup.BurstyConfig{Limit: one.WithBurst(1)}, "Burst is 1"},
		{warmup.BurstyConfig{}, "Count is 0"},
	} {
		if err := tt.config.Validate(); tt.want == "" {
			require.NoError(t, err, "%+v", tt.config)
		} else {
			require.ErrorContains(t, err, tt.want, "%+v", tt.config)
		}
	}
}

func TestLimiter_nameOfItsLimit(t *testing.T) {
	limit := throttle.PerSecond(10)
	require.Equal(t, "10 per 1s", newLimiterAt(t, warmup.Config{Limit: limit}).reserve(1, 0).Policy)
	limit.Name = "own"
	require.Equal(t, "own", newBurstyAt(t, warmup.BurstyConfig{Limit: limit}).reserve(1, 0).Policy)
}

// TestLimiter_keepsTheRateOfFractionalIntervals claims each unit when it becomes free. An
// interval of a third of a second is rounded up, and the rounding does not add up.
func TestLimiter_keepsTheRateOfFractionalIntervals(t *testing.T) {
	s := newLimiterAt(t, warmup.Config{Limit: throttle.PerSecond(3)})
	s.book(1)
	for i := 1; i <= 3000; i++ {
		d := s.reserve(1, 0)
		require.False(t, d.OK)
		s.now = s.now.Add(d.Wait)
		require.True(t, s.reserve(1, 0).OK)
		if i%3 == 0 {
			require.Equal(t, time.Duration(i/3)*time.Second, s.now.Sub(start))
		}
	}
}

// TestLimiter_statesTheLargestLimit checks a burst that exceeds int64.
func TestLimiter_statesTheLargestLimit(t *testing.T) {
	s := newBurstyAt(t, warmup.BurstyConfig{Limit: throttle.Limit{Count: math.MaxInt64, Per: 1}, MaxBurst: math.MaxInt64, StartFull: true})
	d := s.reserve(1, 0)
	require.True(t, d.OK)
	require.Equal(t, int64(math.MaxInt64), d.Limit)
	require.Equal(t, int64(math.MaxInt64), d.Remaining)
}

// TestLimiter_ignoresRejectedClaims settles claims that were not granted, or have a negative cost.
func TestLimiter_ignoresRejectedClaims(t *testing.T) {
	s := newLimiterAt(t, warmup.Config{Limit: throttle.PerSecond(1)})
	s.book(1)
	next := s.next()
	rejected := s.reserve(5, 0)
	require.False(t, rejected.OK)
	for _, c := range []throttle.Claim{{Cost: 5}, {Cost: -5}} {
		for _, d := range []throttle.Decision{rejected, {OK: true, At: s.now, ResetAfter: time.Second}} {
			if d.OK && c.Cost > 0 {
				continue // a granted claim
			}
			s.Report(t.Context(), c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
			s.Report(t.Context(), c, d, throttle.Feedback{Now: s.now, Cost: 1})
			s.Report(t.Context(), c, d, throttle.Feedback{Now: s.now, Cost: 50})
			require.Equal(t, next, s.next(), "%+v, %+v", c, d)
		}
	}
}

// TestLimiter_outageOfZeroAndOne reports failed work for an hour.
func TestLimiter_outageOfZeroAndOne(t *testing.T) {
	for outage, want := range map[time.Duration]time.Duration{0: 100 * time.Millisecond, 1: 300 * time.Millisecond} {
		s := newLimiterAt(t, warmup.Config{Limit: throttle.PerSecond(10), Period: time.Second, Outage: outage})
		d, at := s.book(1000) // warm when it is paid
		paid := at + d.ResetAfter
		s.now = start.Add(paid)
		for _, after := range []time.Duration{0, time.Hour} {
			s.Report(t.Context(), throttle.Claim{Cost: 1000}, d, throttle.Feedback{Now: s.now.Add(-time.Hour).Add(after), Outcome: throttle.Failed})
		}
		_, first := s.book(1)
		_, second := s.book(1)
		require.InDelta(t, want.Seconds(), (second - first).Seconds(), 0.02, outage)
	}
}

// TestLimiter_setLimitWithoutWarmUp checks that a limit that saves no idle units can change.
func TestLimiter_setLimitWithoutWarmUp(t *testing.T) {
	s := newLimiterAt(t, warmup.Config{Limit: throttle.PerSecond(1)})
	s.book(1)
	require.NoError(t, s.SetLimit(throttle.PerSecond(2)))
	_, first := s.book(1)
	_, second := s.book(1)
	require.Equal(t, time.Second, first)
	require.Equal(t, 1500*time.Millisecond, second)
}
