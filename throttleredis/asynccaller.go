package throttleredis

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle"
)

// asyncCaller ask a limiter that may hang, each on a goroutine of its own, and wait for it
// only so long. What a client does about deadlines, dials and retries does not matter then.
//
//	caller ─ asks ───────────── timeout ─▶ goes on without an answer
//	            └─▶ errand ──────────────────── late answer ─▶ gives back what it took
//
// Each errand has a deadline too, later than the caller's by patience, so that a late
// answer is still heard. A client that heeds deadlines ends it then. Others end it when
// their own timeouts do, which is why there are never more errands than places.
type asyncCaller struct {
	limiter   throttle.Limiter
	timeout   time.Duration
	semaphore chan struct{} // has one for each errand that is on its way
}

// lateTimeout is how long a late answer is waited for.
const lateTimeout = time.Second

// errTooManyCalls is the error of a claim for which there was no place: it has taken nothing.
var errTooManyCalls = errors.New("throttleredis: too many claims wait for a Redis that does not answer: raise Fallback.MaxCalls if it is only slow")

// Reserve asks for c. The error matches ErrUncertain if there was no answer in time.
// Then late is the question, whose end is closed when it ends after all; nil: it was not asked.
func (r *asyncCaller) Reserve(ctx context.Context, c throttle.Claim) (d throttle.Decision, late *pendingCall, err error) {
	q := new(pendingCall)
	q.done, err = r.run(ctx, func(ctx context.Context) { q.reserve(ctx, r.limiter, c) })
	if err != nil && q.finished.CompareAndSwap(false, true) {
		if q.done != nil {
			late = q
		}
		return throttle.Decision{}, late, err
	}
	return q.decision, nil, q.err
}

// A pendingCall is an errand for a decision.
type pendingCall struct {
	decision throttle.Decision
	err      error
	done     <-chan struct{} // closed when decision and err are set
	finished atomic.Bool     // set by the first of both: the answer, or the caller who leaves
}

// reserve gets the answer. If nobody is there to hear it, it is given back.
func (q *pendingCall) reserve(ctx context.Context, l throttle.Limiter, c throttle.Claim) {
	q.decision, q.err = l.Reserve(ctx, c)
	if q.finished.CompareAndSwap(false, true) || q.err != nil || !q.decision.OK || c.DryRun {
		return
	}
	c.Now = time.Time{} // by now it is later
	l.Cancel(ctx, c, q.decision)
}

// timeoutFor returns how long a call with ctx waits for Redis: the timeout, or half of the
// time until the deadline of ctx if that is less, so that there is time left to decide without
// Redis.
func (r *asyncCaller) timeoutFor(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(r.timeout, time.Until(deadline)/2)
	}
	return r.timeout
}

// run runs do on a goroutine of its own and waits until it returns, for at most as long as
// timeoutFor says. The error is why it returns before that: no place was free, or there was
// no answer in time. If ctx is done, it is one of both or the error of ctx. Once do runs, the
// channel is closed when it has returned.
func (r *asyncCaller) run(ctx context.Context, f func(context.Context)) (<-chan struct{}, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	wait := r.timeoutFor(ctx)
	waitCtx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	select {
	case r.semaphore <- struct{}{}:
	case <-waitCtx.Done():
		return nil, fmt.Errorf("%w: none has come back within %v", errTooManyCalls, wait)
	}
	done := make(chan struct{})
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.timeout+lateTimeout)
		defer cancel()
		defer func() { <-r.semaphore }()
		f(ctx)
		close(done)
	}()
	select {
	case <-done:
		return done, nil
	case <-waitCtx.Done():
		return done, fmt.Errorf("%w: no reply within %v", ErrUncertain, wait)
	}
}
