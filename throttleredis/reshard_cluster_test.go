package throttleredis

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

// A slot moves to another node of a cluster, twice, during claims for a key in it. The
// claims are redirected to the new node, and each limiter grants exactly its limit.
func TestLimiters_keepTheirUnitsWhileASlotMoves(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t, 3)
	c := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: redistest.Addrs(nodes), MaxRedirects: 16,
		ReadTimeout: time.Minute, WriteTimeout: time.Minute, PoolTimeout: time.Minute,
	})
	defer c.Close()
	const key, units = "moving", 40
	s := &Store{Client: c}
	all := kinds(s, units)
	all["AllOf"] = AllOf(
		s.TokenBucket(throttle.Limit{Name: "one", Count: units, Per: year}),
		s.SlidingLog(throttle.SlidingLogConfig{Limit: throttle.Limit{Name: "other", Count: units, Per: year}}))

	granted := map[string]*atomic.Int64{}
	for kind := range all {
		granted[kind] = new(atomic.Int64)
	}
	slot := slotOf(t, nodes[0], "{"+key+"}")
	owner := slot * len(nodes) / slots
	for range 2 * len(nodes) {
		next := (owner + 1) % len(nodes)
		for _, step := range migrationSteps(t, slot, nodes, owner, next) {
			var together sync.WaitGroup
			together.Go(step)
			for kind, l := range all {
				together.Go(func() { claimSome(t, l, key, 3, granted[kind]) })
			}
			together.Wait()
		}
		owner = next
	}
	for kind := range all {
		require.Equal(t, grantedOf(kind, units), granted[kind].Load(), kind)
	}
}

// claimSome makes n claims. A claim that returns an error has taken no units: the limits of
// an AllOf cannot be used while only some of their keys have moved.
func claimSome(t *testing.T, l throttle.Limiter, key string, n int, granted *atomic.Int64) {
	for range n {
		d, err := l.Reserve(t.Context(), throttle.Claim{Key: key})
		switch {
		case err != nil:
			assert.True(t, redis.IsTryAgainError(err), err)
		case d.OK:
			granted.Add(1)
		}
	}
}

// slots is the number of hash slots of a cluster.
const slots = 16384

func slotOf(t *testing.T, node *redistest.Server, key string) int {
	slot, err := do(t, node, "CLUSTER", "KEYSLOT", key).Int()
	require.NoError(t, err)
	return slot
}

func nodeID(t *testing.T, node *redistest.Server) string {
	id, err := do(t, node, "CLUSTER", "MYID").Text()
	require.NoError(t, err)
	return id
}

// migrationSteps returns the steps that move a slot from one node to another, as redis-cli
// does.
func migrationSteps(t *testing.T, slot int, nodes []*redistest.Server, from, to int) []func() {
	source, target := nodes[from], nodes[to]
	set := func(node *redistest.Server, args ...any) func() {
		return func() { do(t, node, append([]any{"CLUSTER", "SETSLOT", slot}, args...)...) }
	}
	targetID := nodeID(t, target)
	steps := []func(){
		set(target, "IMPORTING", nodeID(t, source)),
		set(source, "MIGRATING", targetID),
		func() { migrate(t, slot, source, target) },
	}
	for i := range nodes { // the target first, because otherwise the slot could have no owner
		steps = append(steps, set(nodes[(to+i)%len(nodes)], "NODE", targetID))
	}
	return steps
}

// migrate moves the keys of a slot.
func migrate(t *testing.T, slot int, source, target *redistest.Server) {
	keys, err := do(t, source, "CLUSTER", "GETKEYSINSLOT", slot, 1000).StringSlice()
	require.NoError(t, err)
	require.NotEmpty(t, keys)
	host, port := target.HostPort()
	half := len(keys) / 2
	for _, some := range [][]string{keys[:half], keys[half:]} {
		args := []any{"MIGRATE", host, port, "", 0, time.Minute.Milliseconds(), "KEYS"}
		for _, key := range some {
			args = append(args, key)
		}
		do(t, source, args...)
	}
}

// do executes a command on a node.
func do(t *testing.T, node *redistest.Server, args ...any) *redis.Cmd {
	c := redis.NewClient(&redis.Options{Addr: node.Addr, ReadTimeout: time.Minute, MaxRetries: -1})
	defer c.Close()
	reply := c.Do(t.Context(), args...)
	assert.NoError(t, reply.Err(), "%v", args)
	return reply
}
