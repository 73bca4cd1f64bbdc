package adaptive

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

func TestAdmissionControl_doesNotCountWaitingClaims(t *testing.T) {
	draw := 0.0
	l := NewAdmissionControl(AdmissionControlConfig{Rand: func() float64 { return draw }})
	c := throttle.Claim{Waits: true}
	for range 3 {
		draw = 1
		d, err := l.Reserve(t.Context(), c)
		require.NoError(t, err)
		require.True(t, d.OK)
		l.Report(t.Context(), c, d, throttle.Feedback{Outcome: throttle.Failed})
	}
	draw = 0
	for range 10 {
		d, err := l.Reserve(t.Context(), c)
		require.NoError(t, err)
		require.False(t, d.OK)
	}
	require.Equal(t, requestCounts{requests: 3}, l.(*admissionControl).sum)
}

// Outcomes at random instants are counted for Per, in numParts parts that are counted from the
// first one, as in a list of all outcomes.
func TestAdmissionControl_agreesWithAList(t *testing.T) {
	type outcome struct {
		part int64
		requestCounts
	}
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 3))
		draw := 0.0
		l := NewAdmissionControl(AdmissionControlConfig{K: 1.5, Per: numParts * time.Second, Rand: func() float64 { return draw }})
		start := time.Now()
		var list []outcome
		first, newest := time.Duration(-1), int64(0)
		partOf := func(now time.Duration) int64 {
			if first < 0 {
				return 0
			}
			return max(int64((now-first)/time.Second), newest)
		}
		count := func(now time.Duration, c requestCounts) {
			if first < 0 {
				first = now
			}
			newest = partOf(now)
			list = append(list, outcome{newest, c})
		}
		now := time.Duration(0)
		for step := range 300 {
			now += time.Duration(r.Int64N(2)) * time.Duration(r.Int64N(int64([]time.Duration{time.Second, 3 * time.Second, 30 * time.Second}[r.IntN(3)])))
			at := now
			if r.IntN(4) == 0 {
				at = max(now-time.Duration(r.Int64N(int64(3*time.Second))), 0)
			}
			var sum requestCounts
			for _, o := range list {
				if o.part > partOf(at)-numParts {
					sum.requests += o.requests
					sum.accepts += o.accepts
				}
			}
			require.Equal(t, sum, l.(*admissionControl).recent(l.(*admissionControl).time.Read(start.Add(at))), "seed %d, step %d", seed, step)
			dry, err := l.Reserve(t.Context(), throttle.Claim{Now: start.Add(at), DryRun: true})
			require.NoError(t, err)
			require.Equal(t, sum == requestCounts{}, dry.Fresh)
			p := (float64(sum.requests) - 1.5*float64(sum.accepts)) / float64(sum.requests+1)
			draw = r.Float64()
			n := 1 + r.Int64N(3)
			c := throttle.Claim{Cost: n, Now: start.Add(at)}
			d, err := l.Reserve(t.Context(), c)
			require.NoError(t, err)
			require.Equal(t, draw >= p, d.OK, "seed %d, step %d", seed, step)
			switch {
			case !d.OK:
				count(at, requestCounts{requests: n})
				l.Report(t.Context(), c, d, throttle.Feedback{Now: start.Add(at)})
			case r.IntN(5) > 0:
				f := throttle.Feedback{Now: start.Add(at), Outcome: []throttle.Outcome{throttle.Accepted, throttle.Throttled, throttle.Failed}[r.IntN(3)]}
				l.Report(t.Context(), c, d, f)
				counted := requestCounts{requests: n}
				if f.Outcome == throttle.Accepted {
					counted.accepts = n
				}
				count(at, counted)
			}
		}
	}
}

// A K of 1 and a Per of less than numParts nanoseconds are valid; so is a Per that divides
// into parts of one nanosecond.
func TestAdmissionControl_extremeSettings(t *testing.T) {
	require.NoError(t, AdmissionControlConfig{K: 1, Per: 1}.Validate())
	require.EqualValues(t, 1, NewAdmissionControl(AdmissionControlConfig{Per: 1}).(*admissionControl).partLength())
	require.EqualValues(t, 5*time.Second, NewAdmissionControl(AdmissionControlConfig{}).(*admissionControl).partLength())
}

// The rate changes at most once per half second, counted from the first grant.
func TestLimiter_climbsEachHalfSecond(t *testing.T) {
	for at, changes := range map[time.Duration]bool{
		0: false, time.Second/2 - 1: false, time.Second / 2: true, time.Second: true,
	} {
		l, start := New(Config{InitialRate: 10}), time.Now()
		c := throttle.Claim{Now: start}
		d, err := l.Reserve(t.Context(), c)
		require.NoError(t, err)
		require.True(t, d.OK)
		wait, err := l.Reserve(t.Context(), c)
		require.NoError(t, err)
		require.False(t, wait.OK)
		l.Report(t.Context(), c, d, throttle.Feedback{Now: start.Add(at)})
		require.Equal(t, changes, l.Rate() != 10, "%v: %v", at, l.Rate())
	}
}

// A fixedFactor is a curve that always returns the peak.
type fixedFactor float64

func (f fixedFactor) decreaseFactor() float64             { return float64(f) }
func (fixedFactor) rateAt(peak, _ float64) (rate float64) { return peak }

func TestConfig_boundsOfTheDecreaseFactor(t *testing.T) {
	for factor, valid := range map[fixedFactor]bool{-1: false, 0: false, 1e-9: true, .999: true, 1: false, fixedFactor(math.NaN()): false} {
		require.Equal(t, valid, Config{Curve: factor}.Validate() == nil, factor)
	}
	require.InDelta(t, 70+5, AIMD{}.rateAt(100, 5), 1e-9)
	require.InDelta(t, 50+10, AIMD{Beta: .5, Step: 2}.rateAt(100, 5), 1e-9)
	require.InDelta(t, 70, Cubic{}.rateAt(100, 0), 1e-9, "the rate after a cut")
	require.InDelta(t, 100, Cubic{}.rateAt(100, math.Cbrt(100*.3/.4)), 1e-9)
}

// TestLimiter_settlesCostsExactly returns and takes parts of claims on a bucket of ten units.
func TestLimiter_settlesCostsExactly(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, tt := range []struct {
		settle func(l *Limiter, c throttle.Claim, d throttle.Decision)
		want   int64 // remaining units; 3 were taken by the claim, and 5 by one before it
	}{
		{func(*Limiter, throttle.Claim, throttle.Decision) {}, 2},
		{func(l *Limiter, c throttle.Claim, d throttle.Decision) {
			l.Report(t.Context(), c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
		}, 5},
		{func(l *Limiter, c throttle.Claim, d throttle.Decision) {
			l.Report(t.Context(), c, d, throttle.Feedback{Now: now, Cost: 1})
		}, 4},
		{func(l *Limiter, c throttle.Claim, d throttle.Decision) {
			l.Report(t.Context(), c, d, throttle.Feedback{Now: now, Cost: 3})
		}, 2},
		{func(l *Limiter, c throttle.Claim, d throttle.Decision) {
			l.Report(t.Context(), c, d, throttle.Feedback{Now: now, Cost: 4})
		}, 1},
		{func(l *Limiter, c throttle.Claim, _ throttle.Decision) {
			l.Report(t.Context(), c, throttle.Decision{}, throttle.Feedback{Now: c.Now, State: throttle.Unused})
		}, 2},
	} {
		l := New(Config{InitialRate: 10, Burst: time.Second})
		reserve := func(n int64, dry bool) (throttle.Claim, throttle.Decision) {
			c := throttle.Claim{Now: now, Cost: n, DryRun: dry}
			d, err := l.Reserve(t.Context(), c)
			require.NoError(t, err)
			require.True(t, d.OK)
			return c, d
		}
		reserve(5, false)
		c, d := reserve(3, false)
		tt.settle(l, c, d)
		_, state := reserve(1, true)
		require.Equal(t, tt.want, state.Remaining)
		require.EqualValues(t, 10, state.Limit)
	}
	d, err := New(Config{InitialRate: 1000}).Reserve(t.Context(), throttle.Claim{})
	require.NoError(t, err)
	require.Equal(t, 100*time.Millisecond, d.Per, "the burst without a setting")
	require.EqualValues(t, 100, d.Limit)
}

// A burst is no reason to assume a higher rate of the server than the one that was allowed.
func TestLimiter_cutsFromTheAllowedRate(t *testing.T) {
	now := time.Unix(1e9, 0)
	for rate, want := range map[float64]float64{10: 7, 100: 14} { // ten units together, which is 20 a second
		l := New(Config{InitialRate: rate, Burst: time.Second})
		c := throttle.Claim{Now: now, Cost: 10}
		d, err := l.Reserve(t.Context(), c)
		require.NoError(t, err)
		l.Report(t.Context(), c, d, throttle.Feedback{Now: now, Outcome: throttle.Throttled})
		require.InDelta(t, want, l.Rate(), 1e-9)
	}
}

// TestThroughput_stepsBeginWithTheFirstUnits checks the rate during and after the first step.
func TestThroughput_stepsBeginWithTheFirstUnits(t *testing.T) {
	const ms = int64(time.Millisecond)
	var r throughput
	r.add(10, 10250*ms)
	r.add(10, 10600*ms)
	require.InDelta(t, 40, r.rate(10600*ms), 1e-9, "20 in a step of half a second")
	require.InDelta(t, 40, r.rate(10750*ms), 1e-9)
	r.subtract(15)
	require.InDelta(t, 10, r.rate(10750*ms), 1e-9)
	r.subtract(15)
	require.Zero(t, r.rate(10750*ms))
	r.add(5, 10760*ms)
	r.add(5, 11300*ms)
	require.InDelta(t, 10, r.rate(11300*ms), 1e-9)
	r.add(10, 11760*ms)
	require.InDelta(t, .8*10+.2*10, r.rate(11760*ms), 1e-9)
	r.add(0, 12260*ms)
	require.InDelta(t, .8*20+.2*10, r.rate(12260*ms), 1e-9)
}
