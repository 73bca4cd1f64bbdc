package redistest

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// slots is the number of hash slots of a cluster.
const slots = 16384

// StartCluster starts n servers that form one cluster without replicas, and returns when
// each of them knows the owner of each slot. args are options of redis-server.
func StartCluster(t T, n int, args ...string) []*Server {
	t.Helper()
	nodes := StartN(t, n, append([]string{"--cluster-enabled", "yes", "--cluster-node-timeout", "5000", "--cluster-announce-ip", host}, args...)...)
	for i, node := range nodes {
		node.do(t, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		node.do(t, "CLUSTER", "ADDSLOTSRANGE", i*slots/n, (i+1)*slots/n-1)
	}
	host, port := nodes[0].HostPort()
	for _, node := range nodes[1:] {
		node.do(t, "CLUSTER", "MEET", host, port)
	}
	for _, node := range nodes {
		node.awaitCluster(t)
	}
	return nodes
}

// Addrs returns the addresses of servers.
func Addrs(servers []*Server) (all []string) {
	for _, s := range servers {
		all = append(all, s.Addr)
	}
	return all
}

// awaitCluster returns when s serves requests and knows an owner for each slot.
func (s *Server) awaitCluster(t T) {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer c.Close()
	Await(t, "the cluster to be complete", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
		defer cancel()
		info := c.ClusterInfo(ctx).Val()
		return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_slots_ok:16384")
	})
}

// do executes a command on s and returns its reply.
func (s *Server) do(t T, args ...any) any {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	reply, err := c.Do(ctx, args...).Result()
	if err != nil {
		t.Fatalf("redistest: %v: %v", args, err)
	}
	return reply
}
