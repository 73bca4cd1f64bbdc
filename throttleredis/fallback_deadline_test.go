package throttleredis

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

// Callers have deadlines shorter than Timeout, and Redis does not respond: Secondary
// decides before each deadline, and after five such claims the Breaker is open.
func TestFallback_decidesWithinShortDeadlines(t *testing.T) {
	for _, deadline := range []time.Duration{5 * time.Millisecond, 30 * time.Millisecond, 90 * time.Millisecond, 200 * time.Millisecond} {
		t.Run(deadline.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				defer time.Sleep(2 * time.Hour) // until the pending claims have ended
				r, b := newFakeRedis(), new(Breaker)
				f := &Fallback{Limiter: r, Breaker: b}
				r.set(nil, time.Hour)
				for i := range 20 {
					ctx, cancel := context.WithTimeout(t.Context(), deadline)
					start := time.Now()
					d, err := f.Reserve(ctx, throttle.Claim{})
					took := time.Since(start)
					cancel()
					require.NoError(t, err)
					require.True(t, d.OK && d.Degraded)
					require.LessOrEqual(t, took, min(deadline/2, 50*time.Millisecond))
					time.Sleep(50*time.Millisecond - took) // a Redis that responds within Timeout is not down
					synctest.Wait()
					require.Equal(t, i >= 4, b.Open(), "after %d claims", i+1)
				}
			})
		})
	}
}

// A deadline so short that a healthy Redis may miss it does not affect the Breaker.
func TestFallback_tinyDeadlinesDoNotOpenTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, b := newFakeRedis(), new(Breaker)
		f := &Fallback{Limiter: r, Breaker: b}
		r.set(nil, 3*time.Millisecond)
		for range 50 {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Millisecond)
			d, err := f.Reserve(ctx, throttle.Claim{})
			cancel()
			require.NoError(t, err)
			require.True(t, d.Degraded)
			time.Sleep(time.Second)
		}
		require.False(t, b.Open())
		require.False(t, claim(t, f, throttle.Claim{}).Degraded)
	})
}

// A cluster is a limiter with a fakeRedis for each of its nodes; keys begin with the
// address of their node.
type cluster map[string]*fakeRedis

func (c cluster) nodeOf(key string) string        { return key[:1] }
func (c cluster) at(cl throttle.Claim) *fakeRedis { return c[c.nodeOf(cl.Key)] }
func (c cluster) Share(int, int) throttle.Limiter { return throttle.AllowAll }

func (c cluster) Reserve(ctx context.Context, cl throttle.Claim) (throttle.Decision, error) {
	return c.at(cl).Reserve(ctx, cl)
}

func (c cluster) Report(ctx context.Context, cl throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if f.State == throttle.Unused {
		c.at(cl).Report(ctx, cl, d, throttle.Feedback{Now: cl.Now, State: throttle.Unused})
	}
}

// Traits implements throttle.Limiter.
func (cluster) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }

// One node of a cluster does not respond: claims for its keys are not sent to it, and the
// other nodes decide on their keys. Claims that end in the meantime are ended at the node
// when it has recovered.
func TestFallback_eachNodeHasABreakerOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(2 * time.Hour) // until the pending claims have ended
		c, b := cluster{"a": newFakeRedis(), "b": newFakeRedis()}, new(Breaker)
		f := &Fallback{Limiter: c, Breaker: b}
		held := claim(t, f, throttle.Claim{Key: "a1"})
		c["a"].set(nil, time.Hour)
		for range 50 {
			require.True(t, claim(t, f, throttle.Claim{Key: "a1"}).Degraded)
			require.False(t, claim(t, f, throttle.Claim{Key: "b1"}).Degraded)
			time.Sleep(time.Second)
		}
		require.True(t, b.Open())
		require.True(t, b.node("a").isOpen())
		require.False(t, b.node("b").isOpen())
		calls := c["a"].callCounts().calls
		for range 10 {
			require.False(t, claim(t, f, throttle.Claim{Key: "b2"}).Degraded)
			require.True(t, claim(t, f, throttle.Claim{Key: "a2"}).Degraded)
		}
		require.LessOrEqual(t, c["a"].callCounts().calls, calls+1)

		f.Report(t.Context(), throttle.Claim{Key: "a1"}, held, throttle.Feedback{State: throttle.Unused})
		claim(t, f, throttle.Claim{Key: "b1"})
		synctest.Wait()
		require.Zero(t, c["a"].callCounts().canceled, "the node is still away")
		c["a"].set(nil, 0)
		time.Sleep(time.Second)
		require.False(t, claim(t, f, throttle.Claim{Key: "a1"}).Degraded)
		synctest.Wait()
		require.Equal(t, 1, c["a"].callCounts().canceled)
	})
}

func TestBreaker_boundsItsNodes(t *testing.T) {
	b := new(Breaker)
	for i := range 2 * maxNodes {
		b.node(strconv.Itoa(i))
	}
	require.Len(t, b.nodes, maxNodes)
	require.Same(t, b, b.node("one more"))
	require.Same(t, b.node("7"), b.node("7"))
}

// A client that knows its cluster locates a key without a request.
func TestLimiter_knowsTheNodeOfAKey(t *testing.T) {
	t.Parallel()
	addrs := redistest.Addrs(redistest.StartCluster(t, 3))
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	defer c.Close()
	l := (&Store{Client: c}).TokenBucket(throttle.PerSecond(1))
	require.Empty(t, l.nodeOf("a"), "it has not asked yet")
	take(t, l, "a")
	found := map[string]int{}
	for i := range 100 {
		key := strconv.Itoa(i)
		found[l.nodeOf(key)]++
		require.Equal(t, l.nodeOf(key), AllOf(l).(nodeLocator).nodeOf(key))
	}
	require.Len(t, found, 3)
	for _, addr := range addrs {
		require.NotZero(t, found[addr])
	}
	require.Empty(t, (&Store{Client: client(t)}).TokenBucket(throttle.PerSecond(1)).nodeOf("a"))
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": addrs[0]}})
	defer ring.Close()
	require.Equal(t, addrs[0], (&Store{Client: ring}).TokenBucket(throttle.PerSecond(1)).nodeOf("a"))
}
