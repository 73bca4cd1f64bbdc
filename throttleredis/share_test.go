package throttleredis

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

func TestShareOf_workedExamples(t *testing.T) {
	for _, tt := range []struct {
		limit throttle.Limit
		n     int64
		want  string
	}{
		{throttle.PerSecond(100), 1, "100 per 1s"},
		{throttle.PerSecond(100), 4, "25 per 1s"},
		{throttle.PerSecond(10), 3, "10 per 3s, burst 3"},
		{throttle.Limit{Count: 100, Per: time.Second, Burst: 10}, 4, "25 per 1s, burst 2"},
		{throttle.PerMinute(1), 5, "1 per 5m0s"},
		{throttle.PerSecond(2), 5, "2 per 5s, burst 1"},
	} {
		part := shareOf(tt.limit, tt.n)
		require.Equal(t, tt.want, part.String())
		require.Equal(t, tt.limit.String(), part.Name, "it shows the name of the whole")
	}
	require.Equal(t, "search", shareOf(throttle.Limit{Name: "search", Count: 1, Per: 1}, 2).Name)
}

// The sum of all shares is at most the limit, in exact arithmetic.
func TestShareOf_sumIsNoMoreThanTheLimit(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	rate := func(l throttle.Limit, times int64) *big.Rat {
		return big.NewRat(1, 1).Mul(big.NewRat(times, 1), big.NewRat(l.Count, int64(l.Per)))
	}
	for range 20_000 {
		l := throttle.Limit{Count: 1 + random.Int64N(1<<random.IntN(40)), Per: 1 + time.Duration(random.Int64N(1<<random.IntN(50)))}
		if random.IntN(2) == 0 {
			l.Burst = 1 + random.Int64N(1<<random.IntN(20))
		}
		if l.Validate() != nil {
			continue
		}
		n := 1 + random.Int64N(1<<random.IntN(12))
		part := shareOf(l, n)
		require.NoError(t, part.Validate())
		whole := l.Burst
		if whole == 0 {
			whole = l.Count
		}
		require.LessOrEqual(t, part.Burst*n, max(whole, n), "%v among %d", l, n)
		require.LessOrEqual(t, rate(part, n).Cmp(rate(l, 1)), 0, "%v among %d", l, n)
	}
}

// Shares that would be too slow for a Limit are valid.
func TestShareOf_extremesStayValid(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, l := range []throttle.Limit{
		{Count: 1, Per: 36 * year},
		{Count: 1, Per: 20 * year},
		{Count: 3, Per: 30 * year, Burst: 3},
		{Count: 1<<63 - 1, Per: 1, Burst: 1<<63 - 1},
	} {
		require.NoError(t, l.Validate())
		require.NoError(t, shareOf(l, 1<<40).Validate(), l)
	}
}

func TestLimiter_ShareIsKeyedAndBounded(t *testing.T) {
	s := &Store{Client: client(t)}
	l := s.TokenBucket(throttle.PerHour(8)).Share(4, 100)
	for _, key := range []string{"a", "b"} {
		for i := range 3 {
			d, err := l.Reserve(t.Context(), throttle.Claim{Key: key})
			require.NoError(t, err)
			require.Equal(t, i < 2, d.OK)
			require.Equal(t, "8 per 1h0m0s", d.Policy)
		}
	}
	for i := range 1000 {
		_, err := l.Reserve(t.Context(), throttle.Claim{Key: fmt.Sprint(i)})
		require.NoError(t, err)
	}
	require.Equal(t, 100, l.(*keyed.Limiter).Len())
	require.Panics(t, func() { s.TokenBucket(throttle.PerHour(8)).Share(0, 0) })
}

// Of twenty units at the same time, each of four processes has five, for every kind of
// limit.
func TestShare_ofEachKind(t *testing.T) {
	s := &Store{Client: failingScripter{errDown}, Clock: &manualClock{now: began}}
	twenty := throttle.Limit{Name: "twenty", Count: 20, Per: time.Hour}
	for name, l := range map[string]sharer{
		"TokenBucket":      s.TokenBucket(twenty),
		"RefillBucket":     s.RefillBucket(throttle.RefillBucketConfig{Limit: twenty}),
		"LeakyBucket":      s.LeakyBucket(throttle.LeakyBucketConfig{Limit: twenty}),
		"Nginx":            s.Nginx(throttle.NginxConfig{Name: "twenty", Rate: 1, Per: time.Minute, Burst: 19, NoDelay: true}),
		"FixedWindow":      s.FixedWindow(throttle.FixedWindowConfig{Name: "twenty", Count: 20, Per: time.Hour}),
		"each day":         s.FixedWindow(throttle.FixedWindowConfig{Name: "twenty", Count: 20, Align: throttle.EachDay}),
		"PermitsPerPeriod": s.PermitsPerPeriod(20, time.Hour),
		"SlidingLog":       s.SlidingLog(throttle.SlidingLogConfig{Limit: twenty}),
		"SubWindows":       s.SlidingCounter(throttle.SlidingCounterConfig{Limit: twenty, Parts: 4}),
		"SlidingCounter":   s.SlidingCounter(throttle.SlidingCounterConfig{Limit: twenty}),
		"Concurrency":      s.Concurrency(throttle.ConcurrencyConfig{Name: "twenty", Count: 20, MaxAge: time.Hour}),
		"AllOf":            AllOf(s.TokenBucket(twenty), s.SlidingLog(throttle.SlidingLogConfig{Limit: twenty})).(sharer),
		"Penalty":          s.Ban(keyed.BanConfig{Rejections: 1000, Within: time.Hour, Duration: time.Hour}, s.TokenBucket(twenty)).(sharer),
	} {
		share, n := l.Share(4, 0), 0
		for take(t, share, "k").OK {
			n++
		}
		require.Equal(t, 5, n, name)
	}
}

// A processes simulates processes that share a limit through one Redis.
type processes struct {
	redis     *fakeRedis
	processes []*Fallback

	mu    sync.Mutex
	times []time.Time // of each unit granted
}

func newProcesses(n int) *processes {
	l := &processes{redis: newFakeRedis()}
	for range n {
		l.processes = append(l.processes, &Fallback{Limiter: l.redis, Processes: n})
	}
	return l
}

// work makes each process claim a unit every few milliseconds.
func (l *processes) work(t *testing.T, length time.Duration) {
	var wg sync.WaitGroup
	for _, f := range l.processes {
		wg.Go(func() {
			for start := time.Now(); time.Since(start) < length; time.Sleep(7 * time.Millisecond) {
				if claim(t, f, throttle.Claim{}).OK {
					l.mu.Lock()
					l.times = append(l.times, time.Now())
					l.mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
}

// burst returns the maximum by which the units granted within any time exceed rate x time:
// at most the burst if a limit of 10 per second is kept.
func burst(times []time.Time) (most int) {
	var full time.Time // when all units are restored
	for _, at := range times {
		if full.Before(at) {
			full = at
		}
		full = full.Add(time.Second / 10)
		most = max(most, int((full.Sub(at)+time.Second/10-1)/(time.Second/10)))
	}
	return most
}

// The limit is 10 per second with a burst of 20. As documented by Fallback, an outage adds
// at most one burst when Redis fails and one when it recovers.
func TestFallback_outageAddsAtMostABurstEachWay(t *testing.T) {
	for n := 1; n <= 4; n *= 2 {
		synctest.Test(t, func(t *testing.T) {
			l := newProcesses(n)
			l.work(t, 5*time.Second)
			require.LessOrEqual(t, burst(l.times), 20)
			up := len(l.times)
			l.redis.set(errDown, time.Millisecond)
			l.work(t, 10*time.Second)
			require.LessOrEqual(t, burst(l.times[up:]), 20, "%d processes", n)
			if n == 1 {
				require.LessOrEqual(t, burst(l.times[up:]), 2, "its share was as empty as Redis")
			}
			l.redis.set(nil, time.Millisecond)
			l.redis.Limiter = newFakeRedis().Limiter // its data is lost
			l.work(t, 10*time.Second)
			require.LessOrEqual(t, burst(l.times), 3*20, "%d processes", n)
			require.Greater(t, burst(l.times), 20, "or nothing was flushed")
		})
	}
}

// A process that has just started, or whose Redis grants were used by others, has its full
// share.
func TestFallback_fullSharesAreOneBurstTogether(t *testing.T) {
	for n := 1; n <= 4; n *= 2 {
		synctest.Test(t, func(t *testing.T) {
			l := newProcesses(n)
			l.redis.Limiter = drainedBucket(t)
			l.redis.set(errDown, time.Millisecond)
			l.work(t, 10*time.Second)
			require.LessOrEqual(t, burst(l.times), 20, "%d processes", n)
			require.Greater(t, len(l.times), 80)
		})
	}
}

// drainedBucket returns an empty bucket, whose units were used by other processes.
func drainedBucket(t *testing.T) throttle.Limiter {
	l := newFakeRedis().Limiter
	d, err := l.Reserve(t.Context(), throttle.Claim{Cost: 20})
	require.NoError(t, err)
	require.True(t, d.OK)
	return l
}
