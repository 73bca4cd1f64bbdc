package rules

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"github.com/heed-go/heed/internal/adapter"
	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A queue.Ticket has space for queue.MaxDemands limits. Further limits that match a request are
// combined into one limiter: an AllOf of members, each of which takes its own key and cost from
// the common claim. The same combination of limits always uses the same limiter, because a
// queue.Queue keeps one queue per limiter; up to four members share the queues of their limits.

// maxBundles is the maximum number of combinations that are kept. Beyond it a random combination
// is dropped, and requests that use it again wait in a queue of their own.
const maxBundles = 1024

// bundles holds the limiters for combinations of limits of one Set.
type bundles struct {
	mu       sync.RWMutex
	limiters map[string]throttle.Limiter
}

// limiterFor returns the limiter for the limits of hits.
func (b *bundles) limiterFor(hits []hit) throttle.Limiter {
	var buf [256]byte
	id := buf[:0]
	for _, h := range hits {
		id = binary.AppendUvarint(id, uint64(h.rule.index))
	}
	b.mu.RLock()
	limiter := b.limiters[string(id)]
	b.mu.RUnlock()
	if limiter != nil {
		return limiter
	}
	return b.make(string(id), hits)
}

func (b *bundles) make(id string, hits []hit) throttle.Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	if limiter := b.limiters[id]; limiter != nil {
		return limiter
	}
	if b.limiters == nil {
		b.limiters = map[string]throttle.Limiter{}
	}
	for old := range b.limiters {
		if len(b.limiters) < maxBundles {
			break
		}
		delete(b.limiters, old)
	}
	all := make([]throttle.Limiter, len(hits))
	for i, h := range hits {
		all[i] = &member{h.rule.limiter, i, h.rule.limit.Cost}
	}
	limiter := throttle.AllOf(all...)
	b.limiters[id] = limiter
	return limiter
}

// A member is one limit of a bundle.
type member struct {
	limiter *activeLimit
	index   int   // index of its key in the key of the claim
	cost    int64 // cost for each unit of the claim
}

// retryWait is the wait of a claim that was rejected for an unknown time. Bundles do not report
// that capacity has become free, so waiters ask again.
const retryWait = 100 * time.Millisecond

// keyIn returns the key of s in the key of a claim.
func (s *member) keyIn(key string) (own string) {
	for range s.index + 1 {
		own, key, _ = cutPart(key)
	}
	return own
}

// Adapted implements adapter.Adapter. A queue counts the units of claims, so a limit with another
// cost has a queue for each bundle.
func (s *member) Adapted(key string) adapter.Target {
	if s.cost > 1 {
		return adapter.Target{Limiter: s, Key: key}
	}
	return adapter.Target{Limiter: s.limiter, Key: s.keyIn(key)}
}

// memberClaim returns the claim on the limit of s that is part of c.
func (s *member) memberClaim(c throttle.Claim) throttle.Claim {
	c.Key = s.keyIn(c.Key)
	if n, err := c.Units(); err == nil {
		c.Cost = ticks.Mul(n, max(s.cost, 1))
	}
	return c
}

// Reserve implements throttle.Limiter.
func (s *member) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	d, err := s.limiter.Reserve(ctx, s.memberClaim(c))
	if err == nil && !d.OK && d.Wait == 0 {
		d.Wait = retryWait
	}
	return d, err
}

// Report implements throttle.Limiter.
func (s *member) Report(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	s.limiter.Report(ctx, s.memberClaim(c), d, f)
}

// Traits implements throttle.Limiter.
func (s *member) Traits() throttle.Traits { return s.limiter.Traits() }
