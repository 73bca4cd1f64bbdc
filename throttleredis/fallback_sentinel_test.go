package throttleredis_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

// When Sentinel promotes another server, claims are decided there, with the replicated
// data.
func TestFallback_followsSentinel(t *testing.T) {
	t.Parallel()
	sentinel, master, replica := redistest.StartSentinel(t)
	c := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: redistest.SentinelMaster, SentinelAddrs: []string{sentinel.Addr},
		ContextTimeoutEnabled: true, MaxRetries: -1,
	})
	defer c.Close()
	f := slowFallback(c, slowThousand)
	require.False(t, decide(t, f).Degraded)
	require.EqualValues(t, 998, decide(t, f).Remaining)
	direct := connect(t, replica.Addr)
	redistest.Await(t, "the replica to know", func() bool { return inSync(t, connect(t, master.Addr), direct) })

	sentinelClient := connect(t, sentinel.Addr)
	redistest.Await(t, "the sentinel to find the replica good enough", func() bool {
		return sentinelClient.Do(t.Context(), "SENTINEL", "FAILOVER", redistest.SentinelMaster).Err() == nil
	})
	redistest.Await(t, "the replica to be the master", func() bool {
		role, err := direct.Do(t.Context(), "ROLE").Slice()
		return err == nil && role[0] == "master"
	})
	master.Kill()
	awaitRedis(t, f)
	require.EqualValues(t, 997, decide(t, f).Remaining)
}
