package rules

import (
	"context"
	"encoding/binary"
	"math"
	"math/bits"
	"sync"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A ticket has room for throttle.MaxDemands limits. What matches beyond that is put
// into one limiter: an AllOf of gates, each of which finds its own key and cost in a
// claim for all of them. The same limits are always the same limiter, since requests
// that wait for one stand in one line.

// maxBundles is how many combinations are kept. Only a file with that many ways to
// match five limits or more at once has more; some of its requests then stand in
// lines of their own.
const maxBundles = 1024

// bundles are the limiters for combinations of limits of one Set.
type bundles struct {
	mu    sync.RWMutex
	known map[string]throttle.Limiter
}

// of returns the limiter for the limits of hits.
func (b *bundles) of(hits []hit) throttle.Limiter {
	var buf [256]byte
	id := buf[:0]
	for _, h := range hits {
		id = binary.AppendUvarint(id, uint64(h.rule.index))
	}
	b.mu.RLock()
	l := b.known[string(id)]
	b.mu.RUnlock()
	if l != nil {
		return l
	}
	return b.make(string(id), hits)
}

func (b *bundles) make(id string, hits []hit) throttle.Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.known[id]; l != nil {
		return l
	}
	if b.known == nil {
		b.known = map[string]throttle.Limiter{}
	}
	for old := range b.known {
		if len(b.known) < maxBundles {
			break
		}
		delete(b.known, old)
	}
	all := make([]throttle.Limiter, len(hits))
	for i, h := range hits {
		all[i] = &strand{h.rule.gate, i, h.rule.limit.Cost}
	}
	l := throttle.AllOf(all...)
	b.known[id] = l
	return l
}

// A strand is one limit of a bundle.
type strand struct {
	gate   *gate
	number int   // of its key in that of the claim
	cost   int64 // for each unit of the claim
}

// lookAgain is when a claim that was refused for an unknown time asks again: there is
// no news for what waits at several limits at once.
const lookAgain = 100 * time.Millisecond

// own returns c as its limit is asked.
func (s *strand) own(c throttle.Claim) throttle.Claim {
	rest := c.Key
	for range s.number + 1 {
		c.Key, rest, _ = cutPart(rest)
	}
	if n, err := c.Units(); err == nil {
		c.Cost = times(n, s.cost)
	}
	return c
}

// times returns a*b, or the largest number if that is less.
func times(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(max(b, 1)))
	if hi > 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}

// Reserve implements throttle.Limiter.
func (s *strand) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	d, err := s.gate.Reserve(ctx, s.own(c))
	if err == nil && !d.OK && d.Wait == 0 {
		d.Wait = lookAgain
	}
	return d, err
}

// Cancel implements throttle.Limiter.
func (s *strand) Cancel(ctx context.Context, c throttle.Claim, d throttle.Decision) {
	s.gate.Cancel(ctx, s.own(c), d)
}

// Observe implements throttle.Observer.
func (s *strand) Observe(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	throttle.Observe(ctx, s.gate, s.own(c), d, f)
}

// Local implements throttle.Local.
func (s *strand) Local() bool { return s.gate.Local() }
