package throttleredis

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// Two limits without a Name and with the same numbers would be one limit, of which neither
// program nor log shows anything: the second one panics. Limits with a Name are separate.
func TestStore_rejectsASecondUnnamedLimit(t *testing.T) {
	s := newTestStore(t)
	search := s.TokenBucket(throttle.PerMinute(10))
	require.PanicsWithValue(t, `throttleredis: tokenbucket "10 per 1m0s": the store has a limit without a Name and with the same numbers, and both would be one limit: set Name, or use the first Limiter`, func() {
		s.TokenBucket(throttle.PerMinute(10))
	})
	require.Panics(t, func() {
		s.PermitsPerPeriod(5, time.Hour)
		s.PermitsPerPeriod(5, time.Hour)
	})
	login := s.TokenBucket(throttle.Limit{Name: "login", Count: 10, Per: time.Minute})
	for range 10 {
		require.True(t, take(t, search, "a").OK)
	}
	require.False(t, take(t, search, "a").OK)
	require.True(t, take(t, login, "a").OK)
}

// named returns limits of count units per hour by kind, all of the same name.
func named(count int64) map[string]func(*Store) throttle.Limiter {
	l := throttle.Limit{Name: "api", Count: count, Per: time.Hour}
	return map[string]func(*Store) throttle.Limiter{
		"TokenBucket": func(s *Store) throttle.Limiter { return s.TokenBucket(l) },
		"RefillBucket": func(s *Store) throttle.Limiter {
			return s.RefillBucket(throttle.RefillBucketConfig{Limit: l})
		},
		"LeakyBucket": func(s *Store) throttle.Limiter {
			return s.LeakyBucket(throttle.LeakyBucketConfig{Limit: l})
		},
		"Nginx": func(s *Store) throttle.Limiter {
			return s.Nginx(throttle.NginxConfig{Name: "api", Rate: 1, Per: time.Minute, Burst: count - 1, NoDelay: true})
		},
		"FixedWindow": func(s *Store) throttle.Limiter {
			return s.FixedWindow(throttle.FixedWindowConfig{Name: "api", Count: count, Align: throttle.EachMonth})
		},
		"SlidingLog": func(s *Store) throttle.Limiter {
			return s.SlidingLog(throttle.SlidingLogConfig{Limit: l})
		},
		"SlidingCounter": func(s *Store) throttle.Limiter {
			return s.SlidingCounter(throttle.SlidingCounterConfig{Limit: l})
		},
		"SlidingCounter with Parts": func(s *Store) throttle.Limiter {
			return s.SlidingCounter(throttle.SlidingCounterConfig{Limit: l, Parts: 10})
		},
		"Concurrency": func(s *Store) throttle.Limiter {
			return s.Concurrency(throttle.ConcurrencyConfig{Name: "api", Count: count, MaxAge: time.Hour})
		},
		"Ban": func(s *Store) throttle.Limiter {
			return s.Ban(keyed.BanConfig{Rejections: int(count), Within: time.Hour, Duration: time.Hour}, s.TokenBucket(l))
		},
	}
}

// A limit with a Name keeps what is counted when its numbers change, also while some processes
// have the old numbers and some the new ones.
func TestLimiters_keepCountsWhenNumbersChange(t *testing.T) {
	before, after, less := named(100), named(101), named(7)
	for kind, limit := range before {
		t.Run(kind, func(t *testing.T) {
			s, clk := newTestStore(t), &manualClock{now: began}
			s.useLocalClock, s.Clock = true, clk
			old, next, reduced := limit(s), after[kind](s), less[kind](s)
			require.Equal(t, 20, granted(t, old, "k", 20))
			require.Equal(t, 20, granted(t, next, "k", 20))
			require.Equal(t, 0, granted(t, reduced, "k", 3))
			require.EqualValues(t, 60, remaining(t, old, "k"))
			require.EqualValues(t, 61, remaining(t, next, "k"))
			total := 40
			for range 200 {
				total += granted(t, old, "k", 1) + granted(t, next, "k", 1)
			}
			require.Equal(t, 101, total)
			clk.now = clk.now.Add(3 * time.Hour)
			if kind != "FixedWindow" {
				require.Equal(t, 7, granted(t, reduced, "k", 7), "nothing is counted any more")
			}
		})
	}
}

// A limit of another period is another limit, so that limits of one name may be combined.
func TestLimiters_ofAnotherPeriodAreSeparate(t *testing.T) {
	s := newTestStore(t)
	for _, align := range []throttle.Alignment{throttle.EachMinute, throttle.EachHour, throttle.EachDay} {
		l := s.FixedWindow(throttle.FixedWindowConfig{Name: "api", Count: 3, Align: align})
		require.EqualValues(t, 3, remaining(t, l, "k"))
		require.Equal(t, 1, granted(t, l, "k", 1))
	}
	for _, per := range []time.Duration{time.Minute, time.Hour} {
		require.Equal(t, 3, granted(t, s.TokenBucket(throttle.Limit{Name: "api", Count: 3, Per: per}), "k", 5))
	}
}
