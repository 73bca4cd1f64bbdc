package throttleredis_test

import (
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis"
	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

// slowFallback returns a Fallback with a timeout that a slow machine does not exceed: a
// decision is Degraded only if Redis did not make it.
func slowFallback(c redis.Scripter, l throttle.Limit) *throttleredis.Fallback {
	store := &throttleredis.Store{Client: c}
	return &throttleredis.Fallback{
		Limiter:   store.TokenBucket(l),
		Secondary: throttle.AllowAll,
		Timeout:   time.Minute,
	}
}

func connect(t *testing.T, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func decide(t *testing.T, l throttle.Limiter) throttle.Decision {
	d, err := l.Reserve(t.Context(), throttle.Claim{})
	require.NoError(t, err)
	return d
}

// awaitRedis returns when Redis decides again.
func awaitRedis(t *testing.T, l throttle.Limiter) {
	redistest.Await(t, "Redis to decide", func() bool {
		d, err := l.Reserve(t.Context(), throttle.Claim{DryRun: true})
		require.NoError(t, err)
		return !d.Degraded
	})
}

// slowThousand is so slow that no units are restored during a test.
var slowThousand = throttle.Limit{Count: 1, Per: 24 * time.Hour, Burst: 1000}

// Without memory Redis immediately returns an error. Each claim is sent, and the first one
// after memory is available is decided by Redis.
func TestFallback_outOfMemory(t *testing.T) {
	s := redistest.Start(t, "--maxmemory-policy", "noeviction")
	c := connect(t, s.Addr)
	f := slowFallback(c, slowThousand)
	var reported []error
	f.OnError = func(err error) { reported = append(reported, err) }
	require.False(t, decide(t, f).Degraded)
	require.NoError(t, c.ConfigSet(t.Context(), "maxmemory", "1").Err())
	for range 20 {
		require.True(t, decide(t, f).Degraded)
	}
	require.Len(t, reported, 20)
	require.ErrorContains(t, reported[0], "OOM")
	require.NotErrorIs(t, reported[0], throttleredis.ErrUncertain, "nothing was taken")
	require.NoError(t, c.ConfigSet(t.Context(), "maxmemory", "0").Err())
	d := decide(t, f)
	require.False(t, d.Degraded)
	require.EqualValues(t, 998, d.Remaining)
}

// A lost script cache is not an outage: all claims are decided by Redis.
func TestFallback_lostScripts(t *testing.T) {
	c := connect(t, redistest.Start(t).Addr)
	f := slowFallback(c, slowThousand)
	for i := range 10 {
		require.NoError(t, c.ScriptFlush(t.Context()).Err())
		d := decide(t, f)
		require.False(t, d.Degraded)
		require.EqualValues(t, 999-i, d.Remaining)
	}
}

// A Redis that has lost all data grants each key exactly one burst more.
func TestFallback_lostData(t *testing.T) {
	for name, lose := range map[string]func(*testing.T, *redistest.Server, *redis.Client){
		"flushed": func(t *testing.T, _ *redistest.Server, c *redis.Client) {
			require.NoError(t, c.FlushAll(t.Context()).Err())
		},
		"killed": func(_ *testing.T, s *redistest.Server, _ *redis.Client) {
			s.Kill()
			s.Restart()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t)
			c := connect(t, s.Addr)
			f := slowFallback(c, throttle.Limit{Count: 1, Per: 24 * time.Hour, Burst: 20})
			f.Secondary = throttle.DenyAll
			granted := takeAllUnits(t, f)
			lose(t, s, c)
			awaitRedis(t, f)
			require.LessOrEqual(t, granted+takeAllUnits(t, f), 2*20)
		})
	}
}

// takeAllUnits takes all available units from several goroutines, and returns their number.
func takeAllUnits(t *testing.T, l throttle.Limiter) (n int) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 15 {
				if d, err := l.Reserve(t.Context(), throttle.Claim{}); err == nil && d.OK {
					mu.Lock()
					n++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 20, n)
	return n
}

// Persisted buckets keep their state.
func TestFallback_keptData(t *testing.T) {
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	f := slowFallback(connect(t, s.Addr), slowThousand)
	decide(t, f)
	s.Kill()
	s.Restart()
	awaitRedis(t, f)
	require.EqualValues(t, 998, decide(t, f).Remaining)
}

// The old master fails, and its address leads to a replica, which rejects writes until it
// is the new master. It has the data that was replicated.
func TestFallback_failover(t *testing.T) {
	old, next := redistest.Start(t, "--repl-diskless-sync-delay", "0"), redistest.Start(t)
	p := redistest.StartProxy(t, old.Addr)
	direct := connect(t, next.Addr)
	host, port := old.HostPort()
	require.NoError(t, direct.Do(t.Context(), "REPLICAOF", host, port).Err())

	f := slowFallback(connect(t, p.Addr), slowThousand)
	require.False(t, decide(t, f).Degraded)
	require.EqualValues(t, 998, decide(t, f).Remaining)
	redistest.Await(t, "the replica to know", func() bool { return inSync(t, connect(t, old.Addr), direct) })

	old.Kill()
	require.True(t, decide(t, f).Degraded)
	p.Retarget(next.Addr)
	var readOnly bool
	f2 := slowFallback(connect(t, p.Addr), slowThousand)
	f2.OnError = func(err error) { readOnly = redis.HasErrorPrefix(err, "READONLY") }
	require.True(t, decide(t, f2).Degraded)
	require.True(t, readOnly)

	require.NoError(t, direct.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
	awaitRedis(t, f)
	require.EqualValues(t, 997, decide(t, f).Remaining)
}

// inSync reports whether a replica has all data of its master.
func inSync(t *testing.T, master, replica *redis.Client) bool {
	keys := master.Keys(t.Context(), "*").Val()
	require.NotEmpty(t, keys)
	for _, key := range keys {
		if a, b := master.Get(t.Context(), key), replica.Get(t.Context(), key); a.Err() != nil || b.Err() != nil || a.Val() != b.Val() {
			return false
		}
	}
	return true
}
