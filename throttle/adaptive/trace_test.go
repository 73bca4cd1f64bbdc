package adaptive_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/adaptive"
)

// decision returns the fields of d that depend on time and state. Durations are rounded to
// microseconds, because floating point numbers differ between processors.
func decision(d throttle.Decision) string {
	return fmt.Sprintf("%t wait %v, %d of %d, all in %v, per %v", d.OK, d.Wait.Round(time.Microsecond), d.Remaining, d.Limit,
		d.ResetAfter.Round(time.Microsecond), d.Per.Round(time.Microsecond))
}

// TestLimiter_decisionsAtExactTimes checks every number of the decisions of a limiter with the
// rate 10 and a burst of 500 ms: AIMD restores 2 more per second for each second in which a
// caller waited.
func TestLimiter_decisionsAtExactTimes(t *testing.T) {
	p := newPacer(t, adaptive.Config{Curve: adaptive.AIMD{Beta: .5, Step: 2}, InitialRate: 10, MaxRate: 25, Burst: 500 * time.Millisecond})
	var granted []throttle.Decision
	claim := func(cost int64, dry bool) string {
		d := reserve(t, p.l, throttle.Claim{Cost: cost, DryRun: dry})
		if d.OK && !dry {
			granted = append(granted, d)
		}
		return decision(d)
	}
	observe := func(i int, claimed int64, f throttle.Feedback) string {
		p.l.Report(t.Context(), throttle.Claim{Cost: claimed}, granted[i], f)
		return fmt.Sprintf("rate %.6g", p.l.Rate())
	}
	cancel := func(i int, cost int64) string {
		p.l.Report(t.Context(), throttle.Claim{Cost: cost}, granted[i], throttle.Feedback{State: throttle.Unused})
		return fmt.Sprintf("rate %.6g", p.l.Rate())
	}
	accepted := throttle.Feedback{}
	for i, s := range []struct {
		after time.Duration
		do    func() string
		want  string
	}{
		{0, func() string { return claim(1, true) }, `true wait 0s, 5 of 5, all in 0s, per 500ms`},
		{0, func() string { return claim(2, false) }, `true wait 0s, 3 of 5, all in 200ms, per 500ms`},
		{0, func() string { return claim(3, false) }, `true wait 0s, 0 of 5, all in 500ms, per 500ms`},
		{0, func() string { return claim(1, true) }, `false wait 100ms, 0 of 5, all in 500ms, per 500ms`},
		{100 * time.Millisecond, func() string { return claim(1, false) }, `true wait 0s, 0 of 5, all in 500ms, per 500ms`},
		{0, func() string { return claim(1, false) }, `false wait 100ms, 0 of 5, all in 500ms, per 500ms`}, // a caller waits
		{399 * time.Millisecond, func() string { return observe(0, 2, accepted) }, `rate 10`},              // less than half a second
		{0, func() string { return claim(50, true) }, `false wait 101ms, 3 of 5, all in 101ms, per 500ms`}, // larger than the burst
		{1 * time.Millisecond, func() string { return observe(0, 2, accepted) }, `rate 11`},
		{0, func() string { return claim(4, false) }, `true wait 0s, 0 of 5, all in 454.545ms, per 500ms`},
		{0, func() string { return claim(4, false) }, `false wait 318.182ms, 0 of 5, all in 454.545ms, per 500ms`},
		{2 * time.Second, func() string { return observe(1, 3, accepted) }, `rate 8`}, // no more than a second counts
		{0, func() string { return claim(50, false) }, `true wait 0s, 0 of 4, all in 6.25s, per 500ms`},
		{0, func() string { return claim(1, false) }, `false wait 5.875s, 0 of 4, all in 6.25s, per 500ms`},
		{0, func() string { return cancel(4, 50) }, `rate 8`},
		{0, func() string { return claim(1, true) }, `true wait 0s, 4 of 4, all in 0s, per 500ms`},
		{0, func() string { return claim(5, false) }, `true wait 0s, 0 of 4, all in 625ms, per 500ms`},
		{0, func() string { return claim(5, false) }, `false wait 625ms, 0 of 4, all in 625ms, per 500ms`},
		{500 * time.Millisecond, func() string { return observe(3, 4, throttle.Feedback{Cost: 6}) }, `rate 14`}, // 2 more than claimed
		{0, func() string { return claim(1, true) }, `true wait 0s, 3 of 7, all in 214.286ms, per 500ms`},
		{0, func() string { return observe(5, 5, throttle.Feedback{Cost: 1, State: throttle.Ongoing}) }, `rate 14`},
		{0, func() string { return claim(1, true) }, `true wait 0s, 3 of 7, all in 214.286ms, per 500ms`},
		{10 * time.Millisecond, func() string { return observe(5, 5, throttle.Feedback{Cost: 1}) }, `rate 14`}, // 4 less
		{0, func() string { return claim(1, true) }, `true wait 0s, 4 of 7, all in 204.286ms, per 500ms`},
		{0, func() string {
			return observe(2, 1, throttle.Feedback{Outcome: throttle.Throttled, RetryAfter: 3 * time.Second})
		}, `rate 4.4`},
		{0, func() string { return claim(1, false) }, `false wait 3.227273s, 0 of 2, all in 3.5s, per 500ms`},
		{0, func() string { return observe(3, 4, throttle.Feedback{Outcome: throttle.Throttled}) }, `rate 4.4`}, // of before the cut
		{4 * time.Second, func() string { return claim(1, false) }, `true wait 0s, 1 of 2, all in 227.273ms, per 500ms`},
		{0, func() string { return claim(9, false) }, `false wait 227.273ms, 1 of 2, all in 227.273ms, per 500ms`},
		{0, func() string { return observe(6, 1, throttle.Feedback{Outcome: throttle.Failed}) }, `rate 4.4`},
		{0, func() string { return observe(6, 1, accepted) }, `rate 3.37778`},
		{time.Second, func() string { return observe(6, 1, accepted) }, `rate 2.27556`},
		{0, func() string { return claim(1, false) }, `true wait 0s, 0 of 1, all in 439.453ms, per 500ms`},
		{0, func() string {
			return observe(7, 1, throttle.Feedback{Outcome: throttle.Throttled, RetryAfter: -time.Hour})
		}, `rate 0.568889`},
		{0, func() string { return claim(1, true) }, `false wait 1.757813s, 0 of 1, all in 1.757813s, per 1.757813s`},
		{time.Hour, func() string { return claim(1, true) }, `true wait 0s, 1 of 1, all in 0s, per 1.757813s`},
	} {
		p.now = p.now.Add(s.after)
		require.Equal(t, s.want, s.do(), "step %d", i)
	}
}

// TestLimiter_withoutARateGrantsAll checks a limiter before the first rejection by the server,
// and the rate that results from it.
func TestLimiter_withoutARateGrantsAll(t *testing.T) {
	p := newPacer(t, adaptive.Config{})
	require.Zero(t, p.l.Rate())
	d := reserve(t, p.l, throttle.Claim{Cost: 40})
	require.Equal(t, throttle.Decision{OK: true, Policy: "adaptive", At: p.now}, d)
	require.Equal(t, "mine", reserve(t, adaptive.New(adaptive.Config{Name: "mine"}), throttle.Claim{}).Policy)
	require.True(t, reserve(t, p.l, throttle.Claim{Cost: 1e6, DryRun: true}).OK, "a dry run does not count")
	p.l.Report(t.Context(), throttle.Claim{Cost: 40}, d, throttle.Feedback{Cost: 100})
	require.Zero(t, p.l.Rate(), "an accepted claim sets no rate")
	p.now = p.now.Add(time.Second) // 40 in 2 steps of half a second
	p.l.Report(t.Context(), throttle.Claim{Cost: 40}, d, throttle.Feedback{Outcome: throttle.Throttled})
	require.InDelta(t, .7*40, p.l.Rate(), 1e-9)
}

// TestLimiter_initialRateIsThatOfACut checks that the rate increases from InitialRate as after a
// cut to it, both by AIMD and along the whole cubic curve.
func TestLimiter_initialRateIsThatOfACut(t *testing.T) {
	for _, curve := range []adaptive.Curve{adaptive.AIMD{Step: 5}, adaptive.Cubic{}} {
		p := newPacer(t, adaptive.Config{Curve: curve, InitialRate: 70})
		p.work(time.Microsecond, 3*time.Second)
		require.InDelta(t, adaptive.RateAt(curve, 100, 2.5), p.l.Rate(), 3)
	}
}

// TestLimiter_cutsTheSmoothedRate checks the rate of a cut after steps of half a second with different
// numbers of units.
func TestLimiter_cutsTheSmoothedRate(t *testing.T) {
	for sent, rate := range map[string]float64{
		"10":        20,                       // a step that has not ended
		"10 0":      20,                       // one step of 10
		"10 20 0":   .8*40 + .2*20,            // two steps
		"10 20 5 0": .8*10 + .2*(.8*40+.2*20), // three steps
		"10 - 0":    10,                       // 10 in two steps
		"10 20 - 0": .8*20 + .2*20,            // 20 in two steps
		"10 - 8 3":  .8*16 + .2*10,            // the last has not ended
		"0 0 0 0":   .5,                       // MinRate
	} {
		p := newPacer(t, adaptive.Config{Curve: adaptive.AIMD{Beta: .9999999}})
		var d throttle.Decision
		for i, n := range strings.Fields(sent) {
			if i > 0 {
				p.now = p.now.Add(500 * time.Millisecond)
			}
			var units int64
			if _, err := fmt.Sscan(n, &units); err == nil {
				for range units {
					d = reserve(t, p.l, throttle.Claim{})
				}
			}
		}
		p.l.Report(t.Context(), throttle.Claim{}, throttle.Decision{OK: true, Grant: d.Grant}, throttle.Feedback{Outcome: throttle.Throttled})
		require.InDelta(t, rate, p.l.Rate(), 1e-4, sent)
	}
}

func TestLimiter_freshAfterTenMinutes(t *testing.T) {
	p := newPacer(t, adaptive.Config{InitialRate: 10, Burst: 500 * time.Millisecond})
	reserve(t, p.l, throttle.Claim{Cost: 5}) // returned after half a second
	for after, want := range map[time.Duration]bool{0: false, 10*time.Minute + 500*time.Millisecond - 1: false, 10*time.Minute + 500*time.Millisecond: true} {
		require.Equal(t, want, reserve(t, p.l, throttle.Claim{Now: p.now.Add(after), DryRun: true}).Fresh, after)
	}
}

// TestValidate_boundaries checks the extreme values of each field that are accepted, and the
// first ones that are not.
func TestValidate_boundaries(t *testing.T) {
	const day = 24 * 60 * 60
	for _, tt := range []struct {
		config interface{ Validate() error }
		want   string // part of the error; "": valid
	}{
		{adaptive.Config{}, ""},
		{adaptive.Config{InitialRate: math.MaxInt64}, ""},
		{adaptive.Config{InitialRate: 1e19}, "InitialRate is 1e+19"},
		{adaptive.Config{InitialRate: -1e-9}, "InitialRate is -1e-09"},
		{adaptive.Config{MinRate: -1}, "MinRate is -1"},
		{adaptive.Config{MaxRate: math.NaN()}, "MaxRate is NaN"},
		{adaptive.Config{Burst: -1}, "Burst is -1"},
		{adaptive.Config{MinRate: 1. / day}, ""},
		{adaptive.Config{MinRate: 1. / (day + 1)}, "at least one unit a day"},
		{adaptive.Config{MinRate: 2, MaxRate: 2}, ""},
		{adaptive.Config{MinRate: 2, MaxRate: 1.9}, "MinRate is 2 and MaxRate 1.9"},
		{adaptive.Config{MaxRate: .5}, ""},
		{adaptive.Config{MaxRate: .4}, "MinRate is 0.5 and MaxRate 0.4"},
		{adaptive.Config{MinRate: 1e9}, ""},
		{adaptive.Config{MinRate: 1.1e9}, "MaxRate 1e+09"},
		{adaptive.Config{Curve: adaptive.Cubic{Beta: 1}}, "a cut leaves 1 of the rate"},
		{adaptive.Config{Curve: adaptive.AIMD{Beta: -.1}}, "a cut leaves -0.1 of the rate"},
		{adaptive.AdmissionControlConfig{}, ""},
		{adaptive.AdmissionControlConfig{K: 1, Per: 1}, ""},
		{adaptive.AdmissionControlConfig{K: .99}, "K is 0.99"},
		{adaptive.AdmissionControlConfig{K: -1}, "K is -1"},
		{adaptive.AdmissionControlConfig{K: math.NaN()}, "K is NaN"},
		{adaptive.AdmissionControlConfig{Per: -1}, "Per is -1ns"},
	} {
		if err := tt.config.Validate(); tt.want == "" {
			require.NoError(t, err, "%+v", tt.config)
		} else {
			require.ErrorContains(t, err, tt.want, "%+v", tt.config)
		}
	}
}

// TestAdmissionControl_defaults checks the policy, the factor and the span of the zero config.
func TestAdmissionControl_defaults(t *testing.T) {
	p := newPacer(t, adaptive.Config{})
	draw := 0.5
	l := throttle.WithClock(adaptive.NewAdmissionControl(adaptive.AdmissionControlConfig{Rand: func() float64 { return draw }}), p)
	d := reserve(t, l, throttle.Claim{Cost: 9})
	require.Equal(t, throttle.Decision{OK: true, Policy: "admission control", At: p.now}, d)
	for _, outcome := range []throttle.Outcome{throttle.Accepted, throttle.Failed, throttle.Throttled} {
		l.Report(t.Context(), throttle.Claim{Cost: 9}, d, throttle.Feedback{Outcome: outcome}) // 27 requests, 9 accepted
	}
	const reject = (27 - 2*9.) / (27 + 1)
	draw = reject
	require.True(t, reserve(t, l, throttle.Claim{}).OK)
	draw = math.Nextafter(reject, 0)
	require.False(t, reserve(t, l, throttle.Claim{DryRun: true}).OK)
	require.False(t, reserve(t, l, throttle.Claim{Now: p.now.Add(2*time.Minute - 1), DryRun: true}).Fresh)
	require.True(t, reserve(t, l, throttle.Claim{Now: p.now.Add(2 * time.Minute), DryRun: true}).Fresh)
	p.now = p.now.Add(2 * time.Minute)
	draw = 0
	require.True(t, reserve(t, l, throttle.Claim{}).OK)
	require.Equal(t, "mine", reserve(t, adaptive.NewAdmissionControl(adaptive.AdmissionControlConfig{Name: "mine"}), throttle.Claim{}).Policy)
}
