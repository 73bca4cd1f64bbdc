package throttleredis

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/throttle"
)

// A gate is the way to Redis: past the breaker, by an errand.
type gate struct {
	errands
	breaker *Breaker
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
	return d, err
}

// Cancel implements throttle.Limiter. What Redis granted goes back to Redis or nowhere:
// while the breaker is open the units are left for time to give back.
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

// end runs an errand that needs no answer, unless Redis is known to be away. It never is
// the one that asks: it would not say what it got.
func (g *gate) end(ctx context.Context, do func(context.Context)) {
	if g.breaker.Open() {
		return
	}
	_ = g.run(context.WithoutCancel(ctx), do)
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
