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

// A guardedCaller sends calls to Redis, unless the breaker is open, through an asyncCaller.
type guardedCaller struct {
	asyncCaller
	breaker *Breaker

	// onOutOfMemory is called instead of returning an outOfMemoryError, for a Fallback that grants
	// all claims without Redis. Nil means that the error is returned.
	onOutOfMemory func(error)

	mu       sync.Mutex
	deferred []deferredEnd // ends of claims that wait until their node is reachable
	draining bool          // a goroutine is running them
}

// A deferredEnd is a Report that is kept until a node is reachable.
type deferredEnd struct {
	key string // of the claim
	run func(context.Context)
}

// breakerOf returns the Breaker of the node that stores the state of a key.
func (g *guardedCaller) breakerOf(key string) *Breaker {
	if l, ok := g.limiter.(nodeLocator); ok {
		return g.breaker.node(l.nodeOf(key))
	}
	return g.breaker
}

// Reserve implements throttle.Limiter.
func (g *guardedCaller) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	n, err := c.Units()
	if err != nil {
		return throttle.Decision{}, err
	}
	if l, ok := g.limiter.(*Limiter); ok && l.leases != nil {
		if d, ok := l.leases.decideLocally(c, n, l.leases.now(c)); ok {
			return d, nil
		}
	}
	breaker := g.breakerOf(c.Key)
	generation, err := breaker.allow()
	if err != nil {
		return throttle.Decision{}, err
	}
	returned := false
	defer func() {
		if !returned { // the limiter panicked, and a probe must not be in flight for good
			breaker.report(generation, outcomeAbandoned, nil)
		}
	}()
	start := time.Now()
	d, late, err := g.asyncCaller.Reserve(context.WithValue(ctx, inFallback{}, true), c)
	returned = true
	if remaining := g.timeout - time.Since(start); late != nil && ctx.Err() == nil && remaining > 0 {
		go g.reportLate(breaker, generation, late, remaining, err)
		return d, err
	}
	breaker.report(generation, outcomeOf(ctx, err), err)
	if err == nil {
		g.drainDeferred()
	}
	var full *outOfMemoryError
	if g.onOutOfMemory != nil && errors.As(err, &full) {
		g.onOutOfMemory(err)
		return full.rejection, nil
	}
	return d, err
}

// reportLate reports the outcome of a claim whose caller did not wait for the whole
// timeout. It waits for the remaining time, so that short deadlines do not open the Breaker
// of a Redis that responds within the timeout.
func (g *guardedCaller) reportLate(b *Breaker, generation uint64, late *asyncCall, remaining time.Duration, err error) {
	defer g.recoverPanic() // of a BreakerTrace
	select {
	case <-late.done:
		b.report(generation, outcomeOf(context.Background(), late.err), late.err)
	case <-time.After(remaining):
		b.report(generation, outcomeTimeout, err)
	}
}

// Report implements throttle.Limiter: it sends the outcome of a claim that Redis granted to Redis.
func (g *guardedCaller) Report(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if l, ok := g.limiter.(*Limiter); ok && l.reportLocally(c, d, f) {
		return
	}
	f.RemoteLimits = slices.Clone(f.RemoteLimits) // the caller may reuse its slice before this one is read
	g.runOrDefer(ctx, c.Key, func(ctx context.Context) { g.limiter.Report(ctx, c, d, f) })
}

// Traits implements throttle.Limiter.
func (g *guardedCaller) Traits() throttle.Traits {
	t := g.limiter.Traits()
	t.NonBlocking, t.Parts = false, nil
	return t
}

// runOrDefer runs do, whose result is not needed, or keeps it for later if the node of key
// is known to be unreachable. It never runs as a probe, because do does not report whether
// there was a response. An end that was sent and got no response may have been executed,
// and is not repeated.
func (g *guardedCaller) runOrDefer(ctx context.Context, key string, do func(context.Context)) {
	if !g.breakerOf(key).isOpen() {
		_ = g.run(context.WithoutCancel(ctx), new(asyncCall), do)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.deferred) < cap(g.semaphore) {
		g.deferred = append(g.deferred, deferredEnd{key, do})
	}
}

// drainDeferred starts the deferred ends, after Redis has responded.
func (g *guardedCaller) drainDeferred() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.deferred) > 0 && !g.draining {
		g.draining = true
		go g.runDeferred()
	}
}

func (g *guardedCaller) runDeferred() {
	for do := g.nextDeferred(); do != nil; do = g.nextDeferred() {
		func() {
			defer g.recoverPanic()
			_ = g.run(context.Background(), new(asyncCall), do)
		}()
	}
}

// recoverPanic, which must be deferred, passes a panic without a caller to onPanic.
func (g *guardedCaller) recoverPanic() {
	if v := recover(); v != nil {
		g.onPanic(v)
	}
}

// nextDeferred removes and returns the first deferred end whose node is reachable, or nil.
func (g *guardedCaller) nextDeferred() func(context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.deferred, func(e deferredEnd) bool { return !g.breakerOf(e.key).isOpen() })
	if g.draining = i >= 0; !g.draining {
		return nil
	}
	do := g.deferred[i].run
	g.deferred = slices.Delete(g.deferred, i, i+1)
	return do
}

// outcomeOf returns the outcome that an error of a claim stands for.
func outcomeOf(ctx context.Context, err error) outcome {
	var reply redis.Error
	switch {
	case err == nil, errors.As(err, &reply):
		return outcomeResponse
	case ctx.Err() != nil:
		return outcomeAbandoned
	}
	return outcomeTimeout
}
