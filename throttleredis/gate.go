package throttleredis

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/throttle"
)

// A gate is the way to Redis: past the breaker, by an errand.
type gate struct {
	errands
	breaker *Breaker

	mu    sync.Mutex
	later []func(context.Context) // ends of claims, for when Redis is back
	busy  bool                    // somebody runs them
}

// Reserve implements throttle.Limiter.
func (g *gate) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	if _, err := c.Units(); err != nil {
		return throttle.Decision{}, err
	}
	turn, err := g.breaker.enter()
	if err != nil {
		return throttle.Decision{}, err
	}
	d, err := g.errands.Reserve(ctx, c)
	g.breaker.leave(turn, outcomeOf(ctx, err), err)
	if err == nil {
		g.catchUp()
	}
	return d, err
}

// Cancel implements throttle.Limiter: what Redis granted goes back to Redis.
func (g *gate) Cancel(ctx context.Context, c throttle.Claim, d throttle.Decision) {
	g.end(ctx, func(ctx context.Context) { g.to.Cancel(ctx, c, d) })
}

// Observe implements throttle.Observer, as Cancel does throttle.Limiter.
func (g *gate) Observe(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	o, ok := g.to.(throttle.Observer)
	if !ok {
		return
	}
	f.Windows = slices.Clone(f.Windows) // the caller's, who may leave before they are read
	g.end(ctx, func(ctx context.Context) { o.Observe(ctx, c, d, f) })
}

// end runs an errand that needs no answer, or keeps it for later if Redis is known to be
// away. It is never the one that asks: it would not say what it got. One that was begun and
// not answered may have been done, and is not done again.
func (g *gate) end(ctx context.Context, do func(context.Context)) {
	if !g.breaker.Open() {
		_ = g.run(context.WithoutCancel(ctx), do)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.later) < cap(g.places) {
		g.later = append(g.later, do)
	}
}

// catchUp has what was kept for later done, now that Redis answers.
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
		_ = g.run(context.Background(), do)
	}
}

// nextKept returns what to do next; nil: nothing, as nothing is left or Redis is away again.
func (g *gate) nextKept() (do func(context.Context)) {
	away := g.breaker.Open()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy = !away && len(g.later) > 0; g.busy {
		do, g.later[0], g.later = g.later[0], nil, g.later[1:]
	}
	return do
}

// outcomeOf returns what an error says of Redis.
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
