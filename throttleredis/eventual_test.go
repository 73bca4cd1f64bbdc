package throttleredis

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/throttletest"
)

// A host that is alone decides as the limiter in memory does.
func TestEventual_conformance(t *testing.T) {
	ten := throttle.Limit{Name: "ten", Count: 10, Per: time.Second, Burst: 10}
	thirds := throttle.Limit{Count: 3, Per: time.Second, Burst: 2}
	windows := func(w time.Duration) int64 { return 10 * int64(w/time.Second+2) }
	for name, tt := range map[string]struct {
		new  func(*Store) *Limiter
		spec throttletest.Spec
	}{
		"TokenBucket":         {func(s *Store) *Limiter { return s.TokenBucket(ten) }, throttletest.Spec{Limit: ten}},
		"TokenBucket, thirds": {func(s *Store) *Limiter { return s.TokenBucket(thirds) }, throttletest.Spec{Limit: thirds}},
		"FixedWindow": {func(s *Store) *Limiter {
			return s.FixedWindow(throttle.FixedWindowConfig{Count: 10, Per: time.Second})
		}, throttletest.Spec{Bound: windows}},
		"FixedWindow, each day": {func(s *Store) *Limiter {
			return s.FixedWindow(throttle.FixedWindowConfig{Count: 10, Align: throttle.EachDay})
		}, throttletest.Spec{Bound: func(w time.Duration) int64 { return 10 * int64(w/(24*time.Hour)+2) }}},
		"PermitsPerPeriod": {func(s *Store) *Limiter { return s.PermitsPerPeriod(10, time.Second) }, throttletest.Spec{Bound: windows}},
		"SlidingCounter": {func(s *Store) *Limiter {
			return s.SlidingCounter(throttle.SlidingCounterConfig{Limit: ten})
		}, throttletest.Spec{Bound: windows}},
		"SlidingCounter, rounded down": {func(s *Store) *Limiter {
			return s.SlidingCounter(throttle.SlidingCounterConfig{Limit: ten, RoundDown: true})
		}, throttletest.Spec{Bound: windows}},
	} {
		t.Run(name, func(t *testing.T) {
			network := newSimNetwork(t, 1, 1, time.Millisecond)
			s := network.host(t, 0, EventualOptions{})
			throttletest.TestLimiter(t, func(clk throttle.Clock) throttle.Limiter {
				x := &Store{Client: s.Client, Mode: Eventual, Clock: clk}
				x.eventual.once.Do(func() { x.eventual.exchange = s.eventual.exchange })
				l := tt.new(x)
				l.usage = newUsageFor(t, x, l.limit)
				return l
			}, tt.spec)
		})
	}
}

// newUsageFor returns a usage that is not shared with other limiters of the Store.
func newUsageFor(t *testing.T, s *Store, l limit) *limitUsage {
	x := s.eventual.exchange
	x.mu.Lock()
	x.limits = nil
	x.mu.Unlock()
	x.keys.Store(0)
	u, err := s.newUsage(l)
	require.NoError(t, err)
	return u
}

func TestEventual_hostsShareALimit(t *testing.T) {
	for name, kind := range eventualKinds(100, time.Minute) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := newSimNetwork(t, 3, 1, 100*time.Millisecond)
				var hosts []*Limiter
				for region := range 3 {
					hosts = append(hosts, kind(network.host(t, region, EventualOptions{})))
				}
				for _, l := range hosts {
					require.Equal(t, 20, granted(t, l, "k", 20))
				}
				time.Sleep(time.Second)
				total := 60
				for _, l := range hosts {
					require.InDelta(t, 40, remaining(t, l, "k"), 2)
					require.EqualValues(t, 100, remaining(t, l, "other"))
				}
				for range 100 {
					time.Sleep(50 * time.Millisecond)
					for _, l := range hosts {
						total += granted(t, l, "k", 5)
					}
				}
				require.LessOrEqual(t, total, 102+10, "two more because each host may always take one; a bucket restores ten in this time")
				require.GreaterOrEqual(t, total, 100)
			})
		})
	}
}

func TestEventual_rejectsLimitsThatItDoesNotHave(t *testing.T) {
	s := newSimNetwork(t, 1, 1, 0).host(t, 0, EventualOptions{})
	second := throttle.PerSecond(10)
	for text, f := range map[string]func(){
		`nginx "`:                   func() { s.Nginx(throttle.NginxConfig{Rate: 1, Per: time.Second}) },
		`leakybucket "`:             func() { s.LeakyBucket(throttle.LeakyBucketConfig{Limit: second}) },
		`slidinglog "10 per 1s": `:  func() { s.SlidingCounter(throttle.SlidingCounterConfig{Limit: second, Parts: 4}) },
		`fixedwindow "5 per 1s": M`: func() { s.FixedWindow(throttle.FixedWindowConfig{Count: 5, Per: time.Second, Align: throttle.AtFirst}) },
		"before others know":        nil,
		"use throttle.AllOf":        func() { AllOf(s.TokenBucket(second)) },
	} {
		if f == nil {
			text, f = "is over before others know", func() { s.PermitsPerPeriod(5, 299*time.Millisecond) }
		}
		require.PanicsWithValue(t, text, func() {
			defer func() {
				if r := recover(); r != nil {
					require.Contains(t, r, text)
					panic(text)
				}
			}()
			f()
		})
	}
	require.ErrorContains(t, (&Fallback{Limiter: s.TokenBucket(second)}).Validate(), "without a Fallback")
}
