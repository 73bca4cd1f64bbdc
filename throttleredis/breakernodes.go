package throttleredis

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// maxNodes is the maximum number of nodes for which a Breaker keeps separate states.
const maxNodes = 1024

// node returns the Breaker of the node at addr, which has the settings of b and its own
// state. It returns b if addr is empty or there are too many nodes.
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

// isOpen reports whether b itself is not closed, regardless of its nodes.
func (b *Breaker) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state != stateClosed
}

// A nodeLocator returns the address of the node that stores the state of a key, or "" if
// there is only one server or the node is not known yet.
type nodeLocator interface{ nodeOf(key string) string }

func (l *Limiter) nodeOf(key string) string {
	return nodeOf(l.store.Client, func() string { return l.redisKey(key) })
}

// nodeOf returns the node of the first limit: the state of all limits of a key is on one
// node.
func (a *allOf) nodeOf(key string) string { return a.limits[0].nodeOf(key) }

// doneContext is a context that is done. It prevents a ClusterClient that does not know its
// nodes yet from querying them.
var doneContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// nodeOf returns the address of the node of a ClusterClient or Ring that stores a Redis
// key.
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
