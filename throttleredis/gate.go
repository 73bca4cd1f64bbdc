package throttleredis

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/throttle"
)

// A gate is the way to Redis: past the breaker, by an errand.
type gate struct {
	errands
	breaker *Breaker

	mu    sync.Mutex
	later []end // of claims, for when their node is back
	busy  bool  // a goroutine runs them
}

// An end is a Cancel or Observe that is kept until a node is back.
type end struct {
	key string // of the claim
	do  func(context.Context)
}

// breakerOf returns the Breaker of the node that has the state of a key.
func (g *gate) breakerOf(key string) *Breaker {
	if l, ok := g.to.(locator); ok {
		return g.breaker.node(l.nodeOf(key))
	}
	return g.breaker
}

// Reserve implements throttle.Limiter.
func (g *gate) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	if _, err := c.Units(); err != nil {
		return throttle.Decision{}, err
	}
	breaker := g.breakerOf(c.Key)
	turn, err := breaker.enter()
	if err != nil {
		return throttle.Decision{}, err
	}
	asked := time.Now()
	d, late, err := g.errands.Reserve(ctx, c)
	if rest := g.timeout - time.Since(asked); late != nil && ctx.Err() == nil && rest > 0 {
		go judge(breaker, turn, late, rest, err)
		return d, err
	}
	breaker.leave(turn, outcomeOf(ctx, err), err)
	if err == nil {
		g.catchUp()
	}
	return d, err
}

// judge reports the outcome of a claim whose caller could not wait for the whole timeout, so
// that short deadlines do not open the Breaker of a Redis that answers within the timeout. It
// waits for the rest of it.
func judge(b *Breaker, turn uint64, late *question, rest time.Duration, err error) {
	timer := time.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-late.end:
		b.leave(turn, outcomeOf(context.Background(), late.err), late.err)
	case <-timer.C:
		b.leave(turn, silent, err)
	}
}

// Cancel implements throttle.Limiter: what Redis granted goes back to Redis.
func (g *gate) Cancel(ctx context.Context, c throttle.Claim, d throttle.Decision) {
	g.end(ctx, c.Key, func(ctx context.Context) { g.to.Cancel(ctx, c, d) })
}

// Observe implements throttle.Observer, as Cancel does throttle.Limiter.
func (g *gate) Observe(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	o, ok := g.to.(throttle.Observer)
	if !ok {
		return
	}
	f.Windows = slices.Clone(f.Windows) // the caller's, who may leave before they are read
	g.end(ctx, c.Key, func(ctx context.Context) { o.Observe(ctx, c, d, f) })
}

// end runs do, which needs no answer, or keeps it for later if the node of key is known to be
// away. It never runs as the one claim that asks whether the node is back, because it does not
// say whether it was answered. An end that was begun and not answered may have been executed,
// and is not repeated.
func (g *gate) end(ctx context.Context, key string, do func(context.Context)) {
	if !g.breakerOf(key).away() {
		_, _ = g.run(context.WithoutCancel(ctx), do)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.later) < cap(g.places) {
		g.later = append(g.later, end{key, do})
	}
}

// catchUp runs what was kept for later, after Redis has answered.
func (g *gate) catchUp() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.later) > 0 && !g.busy {
		g.busy = true
		go g.runKept()
	}
}

func (g *gate) runKept() {
	for do := g.nextKept(); do != nil; do = g.nextKept() {
		_, _ = g.run(context.Background(), do)
	}
}

// nextKept returns the first of what was kept for a node that is not away; nil: there is none.
func (g *gate) nextKept() func(context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.later, func(e end) bool { return !g.breakerOf(e.key).away() })
	if g.busy = i >= 0; !g.busy {
		return nil
	}
	do := g.later[i].do
	g.later = slices.Delete(g.later, i, i+1)
	return do
}

// outcomeOf returns what an error means for the state of Redis.
func outcomeOf(ctx context.Context, err error) outcome {
	var answer redis.Error
	switch {
	case err == nil, errors.As(err, &answer):
		return answered
	case ctx.Err() != nil:
		return abandoned
	}
	return silent
}
