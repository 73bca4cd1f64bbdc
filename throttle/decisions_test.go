package throttle_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// start is the time of the first claims.
var start = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func TestDecision_texts(t *testing.T) {
	for want, got := range map[string]string{
		"10 per 1s":             throttle.Limit{Count: 10, Per: time.Second}.String(),
		"10 per 1s, burst 5":    throttle.Limit{Count: 10, Per: time.Second, Burst: 5}.String(),
		"12 per 1m0s, burst 34": throttle.Limit{Count: 12, Per: time.Minute, Burst: 34}.String(),
		"123 per 1h0m0s":        throttle.FixedWindowConfig{Count: 123, Per: time.Hour}.String(),
		"123 each day":          throttle.FixedWindowConfig{Count: 123, Align: throttle.EachDay}.String(),
		"456 each month":        throttle.FixedWindowConfig{Count: 456, Align: throttle.EachMonth}.String(),
		`throttle: rejected by limit "a": ask again later`:                                                         (&throttle.RejectedError{Decision: throttle.Decision{Policy: "a"}}).Error(),
		`throttle: rejected by limit "a" for key "k": ask again in 1 s`:                                            (&throttle.RejectedError{Key: "k", Decision: throttle.Decision{Policy: "a", Wait: time.Second}}).Error(),
		`throttle: rejected by limit "a": it can never grant this claim; at most 12 units can be granted together`: (&throttle.RejectedError{Decision: throttle.Decision{Policy: "a", Wait: throttle.Forever, Limit: 12}}).Error(),
		`throttle: rejected by limit "blocked": it can never grant this claim`:                                     (&throttle.RejectedError{Decision: throttle.Decision{Policy: "blocked", Wait: throttle.Forever}}).Error(),
		`throttle: rejected by limit "" for key "\n": ask again in 0.1 ms: context deadline exceeded`:              (&throttle.RejectedError{Key: "\n", Decision: throttle.Decision{Wait: 1}, Reason: context.DeadlineExceeded}).Error(),
	} {
		require.Equal(t, want, got)
	}
}

// TestDecision_statesItsLimit checks the fields that describe the limit, of a grant, of a
// rejection and of a permanent rejection.
func TestDecision_statesItsLimit(t *testing.T) {
	for name, tt := range map[string]struct {
		l     throttle.Limiter
		limit int64
		per   time.Duration
		more  int64 // units of a claim that can never be granted
	}{
		"FixedWindow":    {throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 3, Per: time.Second}), 3, time.Second, 4},
		"SlidingLog":     {throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: throttle.PerSecond(3)}), 3, time.Second, 4},
		"SlidingCounter": {throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: throttle.PerSecond(3)}), 3, time.Second, 4},
		"parts":          {throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: throttle.PerSecond(3), Parts: 10}), 3, time.Second, 4},
		"TokenBucket":    {throttle.NewTokenBucket(throttle.PerSecond(3)), 3, time.Second, 4},
		"RefillBucket":   {throttle.NewRefillBucket(throttle.RefillBucketConfig{Limit: throttle.PerSecond(3)}), 3, time.Second, 4},
		"LeakyBucket":    {throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: throttle.PerSecond(3)}), 3, time.Second, 4},
		"Concurrency":    {throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 3}), 3, 0, 4},
		"Nginx":          {throttle.NewNginx(throttle.NginxConfig{Rate: 3, Per: time.Second, Burst: 2, NoDelay: true}), 3, time.Second, 4},
	} {
		for i, cost := range []int64{1, tt.more, 2, 1} {
			d, err := tt.l.Reserve(t.Context(), throttle.Claim{Now: start, Cost: cost})
			require.NoError(t, err, name)
			require.Equal(t, i == 0 || i == 2, d.OK, "%s, claim %d", name, i)
			require.Equal(t, tt.limit, d.Limit, "%s, claim %d", name, i)
			require.Equal(t, tt.per.Round(time.Millisecond), d.Per.Round(time.Millisecond), "%s, claim %d", name, i)
			require.Equal(t, i == 1, d.Wait == throttle.Forever, "%s, claim %d", name, i)
			require.Equal(t, []int64{2, 2, 0, 0}[i], d.Remaining, "%s, claim %d", name, i)
		}
	}
}

// A fixedLimiter decides every claim in the same way. It records the last claim.
type fixedLimiter struct {
	d        throttle.Decision
	err      error
	claim    throttle.Claim
	canceled int
}

func (l *fixedLimiter) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	if l.claim = c; !c.Now.IsZero() {
		l.d.At = c.Now
	}
	return l.d, l.err
}
func (l *fixedLimiter) Report(_ context.Context, _ throttle.Claim, _ throttle.Decision, f throttle.Feedback) {
	if f.State == throttle.Unused {
		l.canceled++
	}
}

// Traits implements throttle.Limiter.
func (*fixedLimiter) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }

// A limiter that combines others is Fresh if all of them are.
func TestDecision_freshOfCombinations(t *testing.T) {
	full, used := &fixedLimiter{d: throttle.Decision{OK: true, Fresh: true, Limit: 3, Remaining: 3}}, &fixedLimiter{d: throttle.Decision{OK: true, Limit: 3, Remaining: 3}}
	for _, tt := range []struct {
		l    throttle.Limiter
		want bool
	}{
		{throttle.AllOf(full, full), true}, {throttle.AllOf(full, used), false}, {throttle.AllOf(used, full), false},
		{throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: full, Hard: full}), true}, {throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: used, Hard: full}), false}, {throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: full, Hard: used}), false},
	} {
		d, err := tt.l.Reserve(t.Context(), throttle.Claim{Now: start, DryRun: true})
		require.NoError(t, err)
		require.Equal(t, tt.want, d.Fresh)
	}
}

// TestTraits_countsRejectedOfALog also checks that the limiter is usable afterwards.
func TestTraits_countsRejectedOfALog(t *testing.T) {
	for _, want := range []bool{false, true} {
		l := throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: throttle.PerSecond(1), CountRejected: want})
		for range 2 {
			require.Equal(t, want, l.Traits().CountsRejected)
		}
		d, err := l.Reserve(t.Context(), throttle.Claim{Now: start})
		require.NoError(t, err)
		require.True(t, d.OK)
	}
}

// TestAllOf_mergesDecisions checks the decision of two limiters that grant or reject.
func TestAllOf_mergesDecisions(t *testing.T) {
	ok := func(limit, remaining int64) throttle.Decision {
		return throttle.Decision{OK: true, At: start, Limit: limit, Remaining: remaining}
	}
	rejected := func(wait time.Duration) throttle.Decision { return throttle.Decision{At: start, Wait: wait} }
	with := func(d throttle.Decision, change func(*throttle.Decision)) throttle.Decision { change(&d); return d }
	degraded := func(d *throttle.Decision) { d.Degraded = true }
	over := func(d *throttle.Decision) { d.OverLimit = true }
	for name, tt := range map[string]struct{ a, b, want throttle.Decision }{
		"fewer left":            {ok(5, 3), ok(9, 2), ok(9, 2)},
		"more left":             {ok(5, 3), ok(9, 4), ok(5, 3)},
		"equal":                 {ok(5, 3), ok(9, 3), ok(5, 3)},
		"no limit first":        {ok(0, 0), ok(9, 4), ok(9, 4)},
		"no limit last":         {ok(9, 4), ok(0, 0), ok(9, 4)},
		"degraded":              {with(ok(5, 3), degraded), ok(9, 2), with(ok(9, 2), degraded)},
		"degraded last":         {ok(5, 3), with(ok(9, 4), degraded), with(ok(5, 3), degraded)},
		"over":                  {with(ok(5, 3), over), ok(9, 2), with(ok(9, 2), over)},
		"over last":             {ok(5, 3), with(ok(9, 4), over), with(ok(5, 3), over)},
		"second rejects":        {ok(5, 3), rejected(1), rejected(1)},
		"degraded, then reject": {with(ok(5, 3), degraded), rejected(1), with(rejected(1), degraded)},
		"longer":                {rejected(1), rejected(2), rejected(2)},
		"shorter":               {rejected(2), rejected(1), rejected(2)},
		"degraded and longer":   {with(rejected(1), degraded), rejected(2), with(rejected(2), degraded)},
		"longer and degraded":   {rejected(1), with(rejected(2), degraded), with(rejected(2), degraded)},
		"unknown":               {rejected(1), rejected(0), rejected(1)},
		"unknown first":         {rejected(0), rejected(1), rejected(1)},
		"never":                 {rejected(1), rejected(throttle.Forever), rejected(throttle.Forever)},
		"never, first":          {rejected(throttle.Forever), rejected(1), rejected(throttle.Forever)},
		"unknown and never":     {rejected(0), rejected(throttle.Forever), rejected(throttle.Forever)},
	} {
		a, b := &fixedLimiter{d: tt.a}, &fixedLimiter{d: tt.b}
		d, err := throttle.AllOf(a, b).Reserve(t.Context(), throttle.Claim{Now: start})
		require.NoError(t, err)
		got := throttle.Decision{OK: d.OK, At: d.At, Wait: d.Wait, Limit: d.Limit, Remaining: d.Remaining, Degraded: d.Degraded, OverLimit: d.OverLimit}
		require.Equal(t, tt.want, got, name)
		require.Equal(t, tt.a.OK && !tt.b.OK, a.canceled == 1, name)
	}
}

// TestSoftLimit_asksBothAtOneTime checks the claims of Soft and Hard, and that both get back what
// they granted.
func TestSoftLimit_asksBothAtOneTime(t *testing.T) {
	for _, tt := range []struct {
		now  time.Time
		soft bool // Soft grants
	}{{time.Time{}, true}, {start, true}, {time.Time{}, false}, {start, false}} {
		hard, soft := &fixedLimiter{d: throttle.Decision{OK: true, At: start.Add(time.Hour)}}, &fixedLimiter{d: throttle.Decision{OK: tt.soft}}
		l := throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: soft, Hard: hard})
		d, err := l.Reserve(t.Context(), throttle.Claim{Now: tt.now})
		require.NoError(t, err)
		require.True(t, d.OK)
		require.Equal(t, !tt.soft, d.OverLimit)
		require.Equal(t, tt.now, hard.claim.Now)
		require.Equal(t, d.At, soft.claim.Now)
		for range 2 { // the second call does nothing
			l.Report(t.Context(), throttle.Claim{Now: start}, d, throttle.Feedback{Now: start, State: throttle.Unused})
			require.Equal(t, 1, hard.canceled)
			require.Equal(t, tt.soft, soft.canceled == 1)
		}
	}
}
