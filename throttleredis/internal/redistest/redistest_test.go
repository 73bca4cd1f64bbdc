package redistest_test

import (
	"cmp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

func TestServer_restartsEmptyAtTheSameAddress(t *testing.T) {
	s := redistest.Start(t)
	c := client(t, s.Addr)
	require.NoError(t, c.Set(t.Context(), "k", "v", 0).Err())
	s.Kill()
	s.Kill()
	require.Error(t, c.Get(t.Context(), "k").Err())
	s.Restart()
	require.ErrorIs(t, client(t, s.Addr).Get(t.Context(), "k").Err(), redis.Nil)
}

func TestServer_restartsWithItsData(t *testing.T) {
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	require.NoError(t, client(t, s.Addr).Set(t.Context(), "k", "v", 0).Err())
	s.Kill()
	s.Restart()
	require.Equal(t, "v", client(t, s.Addr).Get(t.Context(), "k").Val())
}

func TestStartCluster_eachNodeKnowsAllSlots(t *testing.T) {
	nodes := redistest.StartCluster(t, 3)
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(nodes)})
	t.Cleanup(func() { _ = c.Close() })
	for i := range 50 {
		require.NoError(t, c.Set(t.Context(), strconv.Itoa(i), "v", 0).Err())
	}
	for _, node := range nodes {
		require.NotZero(t, client(t, node.Addr).DBSize(t.Context()).Val())
	}
}

func TestStartN_serversAreIndependent(t *testing.T) {
	servers := redistest.StartN(t, 3)
	for i, s := range servers {
		require.NoError(t, client(t, s.Addr).Set(t.Context(), "k", i, 0).Err())
	}
	for i, s := range servers {
		require.Equal(t, strconv.Itoa(i), client(t, s.Addr).Get(t.Context(), "k").Val())
	}
}

// Each fault affects a client that was connected before, and ends when it is removed. The
// test checks what the server has executed by then.
func TestProxy_hasFaults(t *testing.T) {
	for name, tt := range map[string]struct {
		fault         redistest.Fault
		answers, done bool
		patience      time.Duration // timeout of the client, if there is no response
	}{
		"pass":       {fault: redistest.Pass, answers: true, done: true},
		"slow":       {fault: redistest.Slow, answers: true, done: true},
		"reset":      {fault: redistest.Reset},
		"black hole": {fault: redistest.BlackHole, patience: 50 * time.Millisecond},
		"mute":       {fault: redistest.NoReplies, done: true, patience: 2 * time.Second}, // in this time the write must complete
		"refuse":     {fault: redistest.Refuse},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			p := redistest.StartProxy(t, s.Addr)
			direct, through := client(t, s.Addr), client(t, p.Addr)
			require.NoError(t, through.Ping(t.Context()).Err())
			p.Set(tt.fault)
			err := through.WithTimeout(cmp.Or(tt.patience, time.Minute)).Incr(t.Context(), "n").Err()
			require.Equal(t, tt.answers, err == nil, err)
			want := ""
			if tt.done {
				want = "1"
				redistest.Await(t, "the server to do it", func() bool { return direct.Get(t.Context(), "n").Val() == want })
			}
			p.Set(redistest.Pass)
			redistest.Await(t, "the proxy to let through", func() bool { return through.Ping(t.Context()).Err() == nil })
			require.Equal(t, want, direct.Get(t.Context(), "n").Val())
		})
	}
}

func client(t *testing.T, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = c.Close() })
	return c
}
