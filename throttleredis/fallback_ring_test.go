package throttleredis_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis"
	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

const keys, each = 300, 5

// fiveEach grants each key five units, and then none during a test.
func fiveEach(c redis.Scripter) *throttleredis.Fallback {
	f := slowFallback(c, throttle.Limit{Count: 1, Per: 24 * time.Hour, Burst: each})
	f.Secondary = throttle.DenyAll
	return f
}

// takeAll makes claims for each key until one is rejected, and returns the number of grants
// of each key. It counts only decisions by Redis.
func takeAll(t *testing.T, l throttle.Limiter) (granted [keys]int) {
	for i := range keys {
		for ok := true; ok; {
			d, err := l.Reserve(t.Context(), throttle.Claim{Key: strconv.Itoa(i)})
			require.NoError(t, err)
			if ok = d.OK; ok {
				granted[i]++
			}
		}
	}
	return granted
}

// movedShare returns the share of the keys with a grant, and fails the test if a key was
// granted more than a burst.
func movedShare(t *testing.T, granted [keys]int) float64 {
	n := 0
	for i, g := range granted {
		require.LessOrEqual(t, g, each, "key %d", i)
		if g > 0 {
			n++
		}
	}
	return float64(n) / keys
}

// A shard is added to three, and then one is lost: a quarter of the keys move to the new
// one, and the keys of the lost one move to the others. No other key moves. The keys that
// move begin unused, which grants one burst more for each.
func TestFallback_ringThatGrowsAndShrinks(t *testing.T) {
	servers := redistest.StartN(t, 4)
	addrs := map[string]string{}
	for i, s := range servers[:3] {
		addrs["shard"+strconv.Itoa(i)] = s.Addr
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: addrs, ContextTimeoutEnabled: true, MaxRetries: -1, HeartbeatFrequency: 20 * time.Millisecond})
	t.Cleanup(func() { _ = ring.Close() })
	f := fiveEach(ring)
	require.Equal(t, 1.0, movedShare(t, takeAll(t, f)))
	require.Zero(t, movedShare(t, takeAll(t, f)))

	addrs["shard3"] = servers[3].Addr
	ring.SetAddrs(addrs)
	require.InDelta(t, 1./4, movedShare(t, takeAll(t, f)), 0.1)

	servers[0].Kill()
	redistest.Await(t, "the ring to notice", func() bool { return ring.Len() == 3 })
	require.InDelta(t, 1./4, movedShare(t, takeAll(t, f)), 0.1)
	require.Zero(t, movedShare(t, takeAll(t, f)))
}

// The keys of a lost node, a third of all, are decided without Redis. The others are
// decided by Redis throughout, as far as the breaker is closed.
func TestFallback_lostNodeOfACluster(t *testing.T) {
	nodes := redistest.StartCluster(t, 3, "--cluster-require-full-coverage", "no")
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(nodes), ContextTimeoutEnabled: true, MaxRedirects: -1})
	t.Cleanup(func() { _ = c.Close() })
	f := slowFallback(c, slowThousand)
	f.Timeout = 0
	without := func() (n int) {
		for i := range 30 {
			d, err := f.Reserve(t.Context(), throttle.Claim{Key: strconv.Itoa(i)})
			require.NoError(t, err)
			if d.Degraded {
				n++
			}
		}
		return n
	}
	redistest.Await(t, "Redis to decide on all keys", func() bool { return without() == 0 })
	nodes[0].Kill()
	redistest.Await(t, "Redis to decide on some", func() bool { n := without(); return n > 0 && n < 30 })
	nodes[0].Restart()
	redistest.Await(t, "Redis to decide on all keys again", func() bool { return without() == 0 })
}
