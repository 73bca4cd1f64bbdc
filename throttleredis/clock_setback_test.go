package throttleredis

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/warmup"
)

// A limit of 10 per second is exhausted, and then the server's clock is set back by a day:
// no unit is restored early, all units are restored within a window, and the limit holds
// afterwards.
func TestLimiters_clockSetBackCostsOneWindow(t *testing.T) {
	ten := throttle.Limit{Count: 10, Per: time.Second}
	for name, limiter := range map[string]func(*Store) throttle.Limiter{
		"TokenBucket":  func(s *Store) throttle.Limiter { return s.TokenBucket(ten) },
		"RefillBucket": func(s *Store) throttle.Limiter { return s.RefillBucket(throttle.RefillBucketConfig{Limit: ten}) },
		"LeakyBucket":  func(s *Store) throttle.Limiter { return s.LeakyBucket(throttle.LeakyBucketConfig{Limit: ten}) },
		"Nginx": func(s *Store) throttle.Limiter {
			return s.Nginx(throttle.NginxConfig{Rate: 10, Per: time.Second, Burst: 9, NoDelay: true})
		},
		"FixedWindow": func(s *Store) throttle.Limiter {
			return s.FixedWindow(throttle.FixedWindowConfig{Count: 10, Per: time.Second})
		},
		"FixedWindow, first": func(s *Store) throttle.Limiter {
			return s.FixedWindow(throttle.FixedWindowConfig{Count: 10, Per: time.Second, Align: throttle.AtFirst})
		},
		"SlidingCounter": func(s *Store) throttle.Limiter { return s.SlidingCounter(throttle.SlidingCounterConfig{Limit: ten}) },
		"Bursty":         func(s *Store) throttle.Limiter { return s.Bursty(warmup.BurstyConfig{Limit: ten, StartFull: true}) },
		"Penalty": func(s *Store) throttle.Limiter {
			return s.Ban(keyed.BanConfig{Rejections: 1000, Within: time.Second, Duration: time.Second}, s.TokenBucket(ten))
		},
		"SlidingLog": func(s *Store) throttle.Limiter { return s.SlidingLog(throttle.SlidingLogConfig{Limit: ten}) },
		"SlidingLog, rejections": func(s *Store) throttle.Limiter {
			return s.SlidingLog(throttle.SlidingLogConfig{Limit: ten, CountRejected: true})
		},
		"SubWindows": func(s *Store) throttle.Limiter {
			return s.SlidingCounter(throttle.SlidingCounterConfig{Limit: ten, Parts: 4})
		},
		"Concurrency": func(s *Store) throttle.Limiter {
			return s.Concurrency(throttle.ConcurrencyConfig{Count: 10, MaxAge: time.Second})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, clk := newTestStore(t), &manualClock{now: began.Add(time.Second / 2)}
			s.useLocalClock, s.Clock = true, clk
			l := limiter(s)
			takeAll := func() (n int) {
				for ; take(t, l, "").OK; n++ {
				}
				return n
			}
			all := 10
			if name == "Bursty" {
				all++ // the last claim is paid for later
			}
			require.Equal(t, all, takeAll())
			clk.now = clk.now.Add(-24 * time.Hour)
			require.Zero(t, takeAll(), "nothing comes back because the clock is set back")
			for range 3 {
				clk.now = clk.now.Add(2 * time.Second)
				require.Equal(t, all, takeAll())
				require.Zero(t, takeAll())
			}
		})
	}
}

// A claim that was granted before the clock was set back can still be ended.
func TestConcurrency_endsClaimsFromBeforeASetBack(t *testing.T) {
	s, clk := newTestStore(t), &manualClock{now: began}
	s.useLocalClock, s.Clock = true, clk
	l := s.Concurrency(throttle.ConcurrencyConfig{Count: 2, MaxAge: time.Minute})
	a, b := take(t, l, ""), take(t, l, "")
	clk.now = clk.now.Add(-time.Hour)
	require.False(t, take(t, l, "").OK)
	l.Report(t.Context(), throttle.Claim{}, a, throttle.Feedback{State: throttle.Unused})
	require.True(t, take(t, l, "").OK)
	l.Report(t.Context(), throttle.Claim{}, a, throttle.Feedback{State: throttle.Unused})
	require.False(t, take(t, l, "").OK, "a has ended already")
	l.Report(t.Context(), throttle.Claim{}, b, throttle.Feedback{State: throttle.Unused})
	require.True(t, take(t, l, "").OK)
}
