package throttleredis

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle"
)

// An asyncCaller asks a limiter that may block, each time on a separate goroutine, and
// waits for it only until a timeout. The timeout holds regardless of the client's
// deadlines, dials and retries.
//
//	caller ─ asks ───────────── timeout ─▶ continues without a decision
//	            └─▶ goroutine ─────────────── late decision ─▶ cancels its units
//
// Each goroutine has a deadline, which is lateTimeout after that of the caller, so that a
// late decision can be cancelled. A client that supports deadlines returns then. Other
// clients return after timeouts of their own, so the number of goroutines is limited by
// semaphore.
type asyncCaller struct {
	limiter   throttle.Limiter
	timeout   time.Duration
	semaphore chan struct{} // contains one element for each goroutine that is running

	// onPanic is called with a panic of limiter, or of a hook that it calls, if no caller
	// waits for it any longer.
	onPanic func(value any)
}

// lateTimeout is the time for which a goroutine waits for a late decision.
const lateTimeout = time.Second

// errTooManyCalls is the error of a claim that was not sent because the semaphore was full.
var errTooManyCalls = errors.New("throttleredis: too many claims wait for a Redis that does not answer: raise Fallback.MaxCalls if it is only slow")

// Reserve claims c. If there is no decision in time, the error matches ErrUncertain, and
// late is the pending call, whose done is closed when it ends. late is nil if the claim was
// not sent.
func (r *asyncCaller) Reserve(ctx context.Context, c throttle.Claim) (d throttle.Decision, late *asyncCall, err error) {
	q := new(asyncCall)
	err = r.run(ctx, q, func(ctx context.Context) {
		q.decision, q.err = r.limiter.Reserve(ctx, c)
		if q.decided.CompareAndSwap(false, true) || q.err != nil || !q.decision.OK || c.DryRun {
			return
		}
		r.limiter.Report(ctx, c, q.decision, throttle.Feedback{State: throttle.Unused}) // the caller has stopped waiting
	})
	switch {
	case err == nil:
		return q.decision, nil, q.err
	case q.done == nil:
		q = nil
	}
	return throttle.Decision{}, q, err
}

// timeoutFor returns how long a call with ctx waits for Redis: the timeout, or half of the
// time until the deadline of ctx if that is less, so that there is time left to decide
// without Redis.
func (r *asyncCaller) timeoutFor(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(r.timeout, time.Until(deadline)/2)
	}
	return r.timeout
}

// run runs f, the function of q, on a separate goroutine and waits until it returns, but not longer
// than timeoutFor returns. It returns an error if it stops waiting: the semaphore was full, so that
// f was not started, or there was no result in time. If ctx is done, the error is one of both or
// that of ctx. A panic of f is raised by run while it waits, and passed to onPanic afterwards.
func (r *asyncCaller) run(ctx context.Context, q *asyncCall, f func(context.Context)) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	wait := r.timeoutFor(ctx)
	waitCtx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	select {
	case r.semaphore <- struct{}{}:
	case <-waitCtx.Done():
		return fmt.Errorf("%w: none has come back within %v", errTooManyCalls, wait)
	}
	q.done = make(chan struct{})
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.timeout+lateTimeout)
		defer cancel()
		defer func() { <-r.semaphore }()
		if v := q.run(ctx, f); v != nil && !q.decided.CompareAndSwap(false, true) {
			r.onPanic(v)
		}
	}()
	select {
	case <-q.done:
	case <-waitCtx.Done():
		if q.decided.CompareAndSwap(false, true) {
			return fmt.Errorf("%w: no reply within %v", ErrUncertain, wait)
		}
		<-q.done // it ended at the same moment
	}
	if q.panicked != nil {
		panic(q.panicked)
	}
	return nil
}

// An asyncCall is a function that runs on its own goroutine.
type asyncCall struct {
	done     chan struct{} // closed when the function has returned or panicked; nil: it was not started
	panicked any           // the value of its panic; nil: none. Set before done is closed
	decided  atomic.Bool   // set by whichever is first: the decision, a panic, or the caller that stops waiting

	// of Reserve, set before done is closed
	decision throttle.Decision
	err      error
}

// run calls f and returns the value of its panic, or nil.
func (q *asyncCall) run(ctx context.Context, f func(context.Context)) (panicked any) {
	returned := false
	defer func() {
		if panicked = recover(); returned || panicked != nil { // else runtime.Goexit
			q.panicked = panicked
			close(q.done)
		}
	}()
	f(ctx)
	returned = true
	return nil
}
