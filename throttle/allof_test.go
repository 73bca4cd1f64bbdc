package throttle_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A fakeLimiter returns the configured decisions and records the calls of its methods.
type fakeLimiter struct {
	decision throttle.Decision
	err      error
	delay    time.Duration // how long it takes to answer

	mu          sync.Mutex
	claims      []throttle.Claim
	granted     []throttle.Decision
	cancelled   []throttle.Decision
	observed    []throttle.Decision
	cancelTimes []time.Time // Feedback.Now of units that were returned
}

func (s *fakeLimiter) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	if s.delay > 0 {
		time.Sleep(s.delay)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims = append(s.claims, c)
	d := s.decision
	if d.At = c.Now; d.At.IsZero() {
		d.At = time.Unix(1, 0)
	}
	if s.err == nil && d.OK && !c.DryRun {
		d.Grant += uint64(len(s.granted))
		s.granted = append(s.granted, d)
	}
	return d, s.err
}

func (s *fakeLimiter) Report(_ context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if f.State == throttle.Unused {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cancelled, s.cancelTimes = append(s.cancelled, d), append(s.cancelTimes, f.Now)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observed = append(s.observed, d)
}

// Traits implements throttle.Limiter.
func (*fakeLimiter) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }

func granting(grant uint64, left int64) *fakeLimiter {
	return &fakeLimiter{decision: throttle.Decision{OK: true, Policy: fmt.Sprint("grant ", grant), Limit: 100, Remaining: left, Grant: grant}}
}

func rejecting(wait time.Duration) *fakeLimiter {
	return &fakeLimiter{decision: throttle.Decision{Policy: "rejection", Wait: wait, Limit: 100}}
}

func reserve(t *testing.T, l throttle.Limiter, c throttle.Claim) throttle.Decision {
	d, err := l.Reserve(t.Context(), c)
	if err != nil {
		t.Helper()
		require.NoError(t, err)
	}
	return d
}

func reserveAhead(t *testing.T, l throttle.Limiter, c throttle.Claim, maxWait time.Duration) throttle.Decision {
	t.Helper()
	d, err := throttle.ReserveAhead(t.Context(), l, c, maxWait)
	require.NoError(t, err)
	return d
}

func remaining(t *testing.T, l throttle.Limiter) int64 {
	t.Helper()
	return reserve(t, l, throttle.Claim{DryRun: true}).Remaining
}

// embeddingLimiter wraps a limiter by embedding it, as other modules may do.
type embeddingLimiter struct{ throttle.Limiter }

func (e embeddingLimiter) Report(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	e.Limiter.Report(ctx, c, d, f)
}

func TestAllOf_rejectionTakesNothing(t *testing.T) {
	wide, narrow := newBucket(100, time.Second, 100)(new(atomicClock)), newBucket(1, time.Second, 1)(new(atomicClock))
	l := throttle.AllOf(wide, narrow)
	var granted atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 100 {
				if d, _ := l.Reserve(t.Context(), throttle.Claim{}); d.OK {
					granted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, granted.Load())
	require.EqualValues(t, 99, remaining(t, wide))
}

func TestAllOf_reportsTheFewestRemaining(t *testing.T) {
	d := reserve(t, throttle.AllOf(throttle.AllowAll, granting(1, 7), granting(2, 3), granting(3, 5)), throttle.Claim{})
	require.True(t, d.OK)
	require.Equal(t, "grant 2", d.Policy)
	require.EqualValues(t, 3, d.Remaining)
	require.Equal(t, "unlimited", reserve(t, throttle.AllOf(throttle.AllowAll), throttle.Claim{}).Policy)
}

// The reading of the first limiter that reads a clock is used for all.
func TestAllOf_readsTheClockOnce(t *testing.T) {
	first, second := granting(1, 1), granting(2, 2)
	d := reserveAhead(t, throttle.AllOf(throttle.AllowAll, first, second), throttle.Claim{}, time.Hour)
	require.Equal(t, time.Unix(1, 0), second.claims[0].Now)
	require.Equal(t, time.Unix(1, 0), d.At)
	require.Zero(t, d.Wait, "nothing is booked ahead")
}

func TestAllOf_reportsTheLongestWait(t *testing.T) {
	for _, tt := range []struct {
		waits []time.Duration
		want  time.Duration
	}{
		{[]time.Duration{2}, 2},
		{[]time.Duration{2, 5, 3}, 5},
		{[]time.Duration{5, 2}, 5},
		{[]time.Duration{2, throttle.Forever, 5}, throttle.Forever},
		{[]time.Duration{throttle.Forever, 0, 2}, throttle.Forever},
		{[]time.Duration{0, 2}, 2},
		{[]time.Duration{2, 0}, 2},
		{[]time.Duration{0, 0}, 0},
	} {
		ls := []throttle.Limiter{granting(1, 1)}
		for _, w := range tt.waits {
			ls = append(ls, rejecting(w), granting(2, 2))
		}
		d := reserve(t, throttle.AllOf(ls...), throttle.Claim{})
		require.False(t, d.OK)
		require.Equal(t, tt.want, d.Wait, "%v", tt.waits)
		for _, l := range ls {
			s := l.(*fakeLimiter)
			require.Equal(t, s.granted, s.cancelled, "what was taken comes back")
		}
	}
}

func TestAllOf_cancelsOnError(t *testing.T) {
	first, broken, last := granting(1, 1), &fakeLimiter{err: errUnavailable}, granting(3, 1)
	d, err := throttle.AllOf(first, broken, last).Reserve(t.Context(), throttle.Claim{})
	require.ErrorIs(t, err, errUnavailable)
	require.Zero(t, d)
	require.Len(t, first.cancelled, 1)
	require.Equal(t, first.granted, first.cancelled)
	require.Empty(t, broken.cancelled)
	require.Empty(t, last.claims)
}

// Every limiter gets back the Decision that it returned, however limiters are nested and
// whichever claim ends first.
func TestAllOf_returnsEachDecisionToItsLimiter(t *testing.T) {
	parts := []*fakeLimiter{granting(1000, 4), granting(2000, 3), granting(3000, 2), granting(4000, 1)}
	l := throttle.AllOf(parts[0], embeddingLimiter{throttle.AllOf(parts[1],
		embeddingLimiter{throttle.NewFallback(throttle.FallbackConfig{Primary: unreachable{}, Secondary: embeddingLimiter{throttle.AllOf(parts[2])}})})},
		throttle.NewFallback(throttle.FallbackConfig{Primary: embeddingLimiter{throttle.AllOf(parts[3])}, Secondary: throttle.DenyAll}))
	var ds []throttle.Decision
	for range 50 {
		ds = append(ds, reserve(t, l, throttle.Claim{}))
	}
	c := throttle.Claim{}
	for i := range ds {
		d := ds[(i*7)%50]
		l.Report(t.Context(), c, d, throttle.Feedback{State: throttle.Ongoing})
		if i%2 == 0 {
			l.Report(t.Context(), c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
		} else {
			l.Report(t.Context(), c, d, throttle.Feedback{})
		}
		for _, p := range parts {
			want := p.granted[(i*7)%50]
			require.Equal(t, want, p.observed[len(p.observed)-1])
			if i%2 == 0 {
				require.Equal(t, want, p.cancelled[len(p.cancelled)-1])
			}
		}
	}
	for _, p := range parts {
		require.Len(t, p.cancelled, 25)
		require.Len(t, p.observed, 75)
	}
}

// A claim ends once, even if eight goroutines end it at the same time and its subGrant is
// in use for another claim by then.
func TestAllOf_endsOnce(t *testing.T) {
	for name, wrap := range map[string]func(throttle.Limiter) throttle.Limiter{
		"AllOf": func(l throttle.Limiter) throttle.Limiter { return throttle.AllOf(l) },
		"Fallback": func(l throttle.Limiter) throttle.Limiter {
			return throttle.NewFallback(throttle.FallbackConfig{Primary: unreachable{}, Secondary: l})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := granting(1, 1)
			l := wrap(s)
			var old []throttle.Decision
			for range 100 {
				d := reserve(t, l, throttle.Claim{})
				old = append(old, d)
				var wg sync.WaitGroup
				for range 8 {
					wg.Go(func() { l.Report(t.Context(), throttle.Claim{}, d, throttle.Feedback{State: throttle.Unused}) })
				}
				wg.Wait()
			}
			now := reserve(t, l, throttle.Claim{})
			for _, d := range old {
				l.Report(t.Context(), throttle.Claim{}, d, throttle.Feedback{State: throttle.Unused})
				l.Report(t.Context(), throttle.Claim{}, d, throttle.Feedback{})
			}
			require.Len(t, s.cancelled, 100)
			require.Empty(t, s.observed)
			l.Report(t.Context(), throttle.Claim{}, now, throttle.Feedback{State: throttle.Unused})
			require.Equal(t, s.granted, s.cancelled)
		})
	}
}

// A limiter that takes a second to reject lets the bucket before it refill in the
// meantime: returning all units would then grant 19 units within 10 ms with a burst of 10.
func TestAllOf_cancelAfterSlowRejectionStaysWithinLimit(t *testing.T) {
	for name, given := range map[string]bool{"its own clock": false, "the caller's reading": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := throttle.NewTokenBucket(throttle.PerSecond(10))
				slow := rejecting(time.Minute)
				slow.delay = time.Second
				c := throttle.Claim{Cost: 10}
				if given {
					c.Now = time.Now()
				}
				go throttle.AllOf(b, slow).Reserve(t.Context(), c)
				time.Sleep(990 * time.Millisecond)
				used := int64(0)
				if reserve(t, b, throttle.Claim{Cost: 9}).OK {
					used = 9
				}
				time.Sleep(10 * time.Millisecond)
				synctest.Wait()
				for reserve(t, b, throttle.Claim{}).OK {
					used++
				}
				require.EqualValues(t, 10, used, "units within 10 ms")
			})
		})
	}
}

func TestAllOf_slowRejectionCountsAsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, slow, start := granting(1, 1), rejecting(time.Minute), time.Now()
		slow.delay = time.Second
		l := throttle.AllOf(first, slow)
		reserve(t, l, throttle.Claim{Now: start})
		reserve(t, l, throttle.Claim{Now: time.Unix(1000, 0)}) // a given reading, although the claim took a second
		reserve(t, l, throttle.Claim{})
		require.Equal(t, []time.Time{start.Add(time.Second), time.Unix(1001, 0), {}}, first.cancelTimes)
	})
}

// A replay of claims from data does not depend on how fast it runs.
func TestAllOf_rollbackInDataTimeIsExact(t *testing.T) {
	now := time.Unix(1000, 0)
	first := granting(1, 1)
	reserve(t, throttle.AllOf(first, rejecting(time.Minute)), throttle.Claim{Now: now})
	require.Equal(t, []time.Time{now}, first.cancelTimes)
}

func TestAllOf_panicsOnNil(t *testing.T) {
	require.PanicsWithValue(t, "throttle: AllOf: limiter 1 is nil: leave it out, or use AllowAll", func() {
		throttle.AllOf(throttle.AllowAll, nil)
	})
}

// TestComposed_panicsOnNil checks that a composed limiter names the limiter that is missing.
func TestComposed_panicsOnNil(t *testing.T) {
	for want, f := range map[string]func(){
		"throttle: NewFallback: Primary or Secondary is nil: set both":  func() { throttle.NewFallback(throttle.FallbackConfig{Primary: throttle.AllowAll}) },
		"throttle: NewSoftLimit: Soft is nil: set it":                   func() { throttle.NewSoftLimit(throttle.SoftLimitConfig{Hard: throttle.AllowAll}) },
		"throttle: Shadow: the limiter is nil: give the one to try out": func() { throttle.Shadow(nil, nil) },
	} {
		require.PanicsWithValue(t, want, f)
	}
}

// AllOf returns the units of a rejected claim through a Fallback.
func TestAllOf_rollsBackThroughFallback(t *testing.T) {
	up, local := newBucket(1, time.Hour, 5)(nil), newBucket(1, time.Hour, 5)(nil)
	l := throttle.AllOf(up, embeddingLimiter{throttle.NewFallback(throttle.FallbackConfig{Primary: unreachable{}, Secondary: local})}, throttle.DenyAll)
	require.False(t, reserve(t, l, throttle.Claim{Cost: 2}).OK)
	require.EqualValues(t, 5, remaining(t, up))
	require.EqualValues(t, 5, remaining(t, local))
}

// A limit in shadow mode is not the one whose state an AllOf returns, unless all are. A soft limit that can
// reject, or whose borrowing is decided by a function, is not in shadow mode.
func TestAllOf_returnsNoStateOfALimitInShadowMode(t *testing.T) {
	perHour := func(n int64) throttle.Limiter { return newBucket(n, time.Hour, n)(nil) }
	for name, tt := range map[string]struct {
		limiters []throttle.Limiter
		limit    int64
		shadow   bool
	}{
		"shadow first":  {[]throttle.Limiter{throttle.Shadow(perHour(1), nil), perHour(10)}, 10, false},
		"shadow second": {[]throttle.Limiter{perHour(10), throttle.Shadow(perHour(1), nil)}, 10, false},
		"two in shadow": {[]throttle.Limiter{throttle.Shadow(perHour(1), nil), throttle.Shadow(perHour(2), nil), perHour(10)}, 10, false},
		"all in shadow": {[]throttle.Limiter{throttle.Shadow(perHour(2), nil), throttle.Shadow(perHour(1), nil)}, 2, true},
		"soft":          {[]throttle.Limiter{perHour(10), throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: perHour(1), Hard: perHour(2)})}, 2, false},
		"borrow": {[]throttle.Limiter{perHour(10), throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: perHour(1), CanBorrow: func(throttle.Claim, throttle.Decision) bool {
			return true
		}})}, 1, false},
	} {
		for range 2 { // within the limit, and over it
			d := reserve(t, throttle.AllOf(tt.limiters...), throttle.Claim{})
			require.True(t, d.OK, name)
			require.Equal(t, tt.limit, d.Limit, name)
			require.Equal(t, tt.shadow, d.Shadow, name)
		}
	}
}
