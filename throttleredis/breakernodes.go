package throttleredis

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// maxNodes is the maximum number of nodes for which a Breaker keeps a state of their own.
const maxNodes = 1024

// node returns the Breaker of the node at addr, which has the settings of b and a state of
// its own. It returns b if addr is empty or there are too many nodes.
func (b *Breaker) node(addr string) *Breaker {
	if addr == "" {
		return b
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.nodes[addr]
	if n == nil && len(b.nodes) < maxNodes {
		if b.nodes == nil {
			b.nodes = make(map[string]*Breaker)
		}
		n = &Breaker{Failures: b.Failures, OpenFor: b.OpenFor, Trace: b.Trace, Clock: b.Clock}
		b.nodes[addr] = n
	}
	if n == nil {
		return b
	}
	return n
}

// isOpen reports whether claims are kept from the one place that b itself stands for.
func (b *Breaker) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state != stateClosed
}

// A nodeLocator knows the address of the node that has the state of a key; "": there is only one
// place, or the node is not known yet.
type nodeLocator interface{ nodeOf(key string) string }

func (l *Limiter) nodeOf(key string) string {
	return nodeOf(l.store.Client, func() string { return l.redisKey(key) })
}

// nodeOf returns where the first limit has its state: all of a key are on one node.
func (a *allOf) nodeOf(key string) string { return a.limits[0].nodeOf(key) }

// doneContext is a context that is done: a ClusterClient that does not know its nodes yet must not
// ask for them here.
var doneContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// nodeOf returns the address of the node of a ClusterClient or Ring that has a Redis key.
func nodeOf(client redis.Scripter, key func() string) string {
	var node *redis.Client
	var err error
	switch c := client.(type) {
	case *redis.ClusterClient:
		node, err = c.MasterForKey(doneContext, key())
	case *redis.Ring:
		node, err = c.GetShardClientForKey(key())
	default:
		return ""
	}
	if err != nil {
		return ""
	}
	return node.Options().Addr
}
