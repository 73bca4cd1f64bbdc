package throttleredis

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/warmup"
)

// Every key has its own bucket and a readable Redis key.
func TestLimiter_keysOfAnyBytesDoNotCollide(t *testing.T) {
	s := newTestStore(t)
	once := s.FixedWindow(throttle.FixedWindowConfig{Name: "once", Count: 1, Per: 365 * 24 * time.Hour})
	twice := s.FixedWindow(throttle.FixedWindowConfig{Name: "twice", Count: 1, Per: 365 * 24 * time.Hour})
	long := strings.Repeat("x", 1<<20)
	odd := []string{"", "~", "a", "{a}", "{a", "a}", "}{", "a b", "a\n", "a\x00", "\x00", "a\x7f", "\xff\xfe", "ä", "a:b", "a}:once", hashTag("{a}"), hashTag(long), long, long + "x", long[1:]}
	for _, key := range odd {
		require.True(t, take(t, once, key).OK, "%.20q, of %d bytes", key, len(key))
	}
	for _, key := range odd {
		require.False(t, take(t, once, key).OK, "%.20q", key)
		require.True(t, take(t, twice, key).OK, "%.20q", key)
	}
	stored, err := client(t).Keys(t.Context(), s.Prefix+":*").Result()
	require.NoError(t, err)
	require.Len(t, stored, 2*len(odd))
	for _, key := range stored {
		require.Less(t, len(key), 100)
		require.Equal(t, 1, strings.Count(key, "{"), key)
		require.Equal(t, 1, strings.Count(key, "}"), key)
		require.NotContains(t, key, "{}", "empty braces do not count as a tag")
	}
}

// The limits of a claim share the hash tag, and nothing else.
func TestLimiter_keysOfOneClaimShareATag(t *testing.T) {
	s := &Store{Client: client(t)}
	a, b := s.TokenBucket(throttle.PerSecond(1)), s.TokenBucket(throttle.PerMinute(1))
	require.Regexp(t, `^heed:\{user-7\}:[\w-]{11}$`, a.redisKey("user-7"))
	require.Regexp(t, `^heed:\{user-7\}:[\w-]{11}$`, b.redisKey("user-7"))
	require.NotEqual(t, a.redisKey("user-7"), b.redisKey("user-7"))
	require.Equal(t, a.redisKey("user-7"), (&Store{Client: s.Client}).TokenBucket(throttle.PerSecond(1)).redisKey("user-7"))
	require.NotEqual(t, a.redisKey(""), s.TokenBucket(throttle.Limit{Name: "other", Count: 1, Per: time.Second}).redisKey(""))
	l := s.LeakyBucket(throttle.LeakyBucketConfig{Limit: throttle.PerSecond(1)})
	first, second := keyed.BanConfig{Rejections: 1, Within: 1, Duration: 1}, keyed.BanConfig{Name: "second", Rejections: 1, Within: 1, Duration: 1}
	judges := map[string]bool{}
	for _, p := range []throttle.Limiter{s.Ban(first, l), s.Ban(first, a), s.Ban(second, l)} {
		limits := p.(*banned).limits
		judges[limits[len(limits)-1].redisKey("")] = true
	}
	require.Len(t, judges, 3)
}

// Data that an earlier version has stored in another format has another key: it is not
// read, and expires. The keys of all other limits do not change.
func TestLimiter_newFormatsHaveNewKeys(t *testing.T) {
	s := newTestStore(t)
	ten := throttle.PerHour(10)
	for _, tt := range []struct {
		l    *Limiter
		same bool
	}{
		{s.Nginx(throttle.NginxConfig{Rate: 1, Per: time.Second}), true},
		{s.TokenBucket(ten), false},
		{s.SlidingCounter(throttle.SlidingCounterConfig{Limit: ten}), true},
		{s.SlidingLog(throttle.SlidingLogConfig{Limit: ten}), false},
		{s.Concurrency(throttle.ConcurrencyConfig{Count: 10, MaxAge: time.Hour}), false},
	} {
		l := tt.l.limit
		sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %.17g", l.algorithm, l.policy, l.scope, l.args))
		first := base64.RawURLEncoding.EncodeToString(sum[:8])
		require.Equal(t, tt.same, strings.HasSuffix(tt.l.redisKey("a"), first), l.algorithm)
	}
}

// A key takes at most 120 bytes, including its entry in the table of Redis; one of a LeakyBucket,
// which stores its rate besides its bookings, 136.
func TestLimiter_keysAreSmall(t *testing.T) {
	s := &Store{Client: client(t), Prefix: "heed"}
	ten := throttle.PerHour(10)
	user := fmt.Sprintf("user-%07d", prefixes.Add(1))
	for name, l := range map[string]*Limiter{
		"TokenBucket":    s.TokenBucket(ten),
		"RefillBucket":   s.RefillBucket(throttle.RefillBucketConfig{Limit: ten}),
		"LeakyBucket":    s.LeakyBucket(throttle.LeakyBucketConfig{Limit: ten}),
		"Nginx":          s.Nginx(throttle.NginxConfig{Rate: 10, Per: time.Hour, Burst: 5}),
		"FixedWindow":    s.FixedWindow(throttle.FixedWindowConfig{Count: 10, Align: throttle.AtFirst, Per: time.Hour}),
		"SlidingCounter": s.SlidingCounter(throttle.SlidingCounterConfig{Limit: ten}),
	} {
		t.Run(name, func(t *testing.T) {
			require.True(t, take(t, l, user).OK)
			key := l.redisKey(user)
			bytes, err := client(t).MemoryUsage(t.Context(), key).Result()
			require.NoError(t, err)
			t.Logf("%d bytes", bytes)
			most := int64(120)
			if name == "LeakyBucket" {
				most = 136
			}
			require.LessOrEqual(t, bytes, most)
			lasts, err := client(t).PTTL(t.Context(), key).Result()
			require.NoError(t, err)
			require.Greater(t, lasts, time.Duration(0))
			require.LessOrEqual(t, lasts, 2*time.Hour+time.Minute)
		})
	}
}

// Unused keys expire soon after their state equals that of new keys.
func TestLimiter_keysVanish(t *testing.T) {
	s := &Store{Client: client(t), Prefix: "vanish"}
	ten := throttle.Limit{Count: 10, Per: 100 * time.Millisecond}
	for _, l := range []*Limiter{
		s.TokenBucket(ten),
		s.RefillBucket(throttle.RefillBucketConfig{Limit: ten}),
		s.LeakyBucket(throttle.LeakyBucketConfig{Limit: ten}),
		s.TickQueue(throttle.TickQueueConfig{Limit: ten, Queue: 3}),
		s.Nginx(throttle.NginxConfig{Rate: 100, Per: time.Second, Burst: 5}),
		s.FixedWindow(throttle.FixedWindowConfig{Count: 10, Per: ten.Per}),
		s.SlidingCounter(throttle.SlidingCounterConfig{Limit: ten}),
		s.SlidingLog(throttle.SlidingLogConfig{Limit: ten}),
		s.SlidingCounter(throttle.SlidingCounterConfig{Limit: ten, Parts: 3}),
		s.WarmUp(warmup.Config{Limit: ten, Period: ten.Per}),
		s.Bursty(warmup.BurstyConfig{Limit: ten, MaxBurst: ten.Per, StartFull: true}),
		s.Concurrency(throttle.ConcurrencyConfig{Count: 2, MaxAge: ten.Per}),
	} {
		d, err := throttle.ReserveAhead(t.Context(), l, throttle.Claim{Key: "a"}, time.Second)
		require.NoError(t, err)
		require.True(t, d.OK)
	}
	hard := s.Ban(keyed.BanConfig{Rejections: 1, Within: ten.Per, Duration: ten.Per}, s.TokenBucket(throttle.Limit{Count: 1, Per: ten.Per}))
	for take(t, hard, "b").OK {
	}
	await(t, "all keys to vanish", func() bool {
		left, err := client(t).Keys(t.Context(), "vanish:*").Result()
		return err == nil && len(left) == 0
	})
}
