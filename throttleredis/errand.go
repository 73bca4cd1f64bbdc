package throttleredis

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle"
)

// errands ask a limiter that may hang, each on a goroutine of its own, and wait for it
// only so long. What a client does about deadlines, dials and retries does not matter then.
//
//	caller ─ asks ───────────── timeout ─▶ goes on without an answer
//	            └─▶ errand ──────────────────── late answer ─▶ gives back what it took
//
// Each errand has a deadline too, later than the caller's by patience, so that a late
// answer is still heard. A client that heeds deadlines ends it then. Others end it when
// their own timeouts do, which is why there are never more errands than places.
type errands struct {
	to      throttle.Limiter
	timeout time.Duration
	places  chan struct{} // has one for each errand that is on its way
}

// patience is how long a late answer is waited for.
const patience = time.Second

// errBusy is the error of a claim for which there was no place: it has taken nothing.
var errBusy = errors.New("throttleredis: too many claims wait for a Redis that does not answer: raise Fallback.MaxCalls if it is only slow")

// Reserve asks for c. The error matches ErrUncertain if there was no answer in time.
func (r *errands) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	q := new(question)
	err := r.run(ctx, func(ctx context.Context) { q.ask(ctx, r.to, c) })
	if err != nil && q.over.CompareAndSwap(false, true) {
		return throttle.Decision{}, err
	}
	return q.decision, q.err
}

// A question is an errand for a decision.
type question struct {
	decision throttle.Decision
	err      error
	over     atomic.Bool // set by who is first: the answer, or the caller who leaves
}

// ask gets the answer. If nobody is there to hear it, it is given back.
func (q *question) ask(ctx context.Context, l throttle.Limiter, c throttle.Claim) {
	q.decision, q.err = l.Reserve(ctx, c)
	if q.over.CompareAndSwap(false, true) || q.err != nil || !q.decision.OK || c.DryRun {
		return
	}
	c.Now = time.Time{} // by now it is later
	l.Cancel(ctx, c, q.decision)
}

// run has an errand done. Its error is why it returns before that: there was no place for
// it, or no answer in time. Both are so, too, when ctx is done.
func (r *errands) run(ctx context.Context, do func(context.Context)) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	soon, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	select {
	case r.places <- struct{}{}:
	case <-soon.Done():
		return fmt.Errorf("%w: none has come back within %v", errBusy, r.timeout)
	}
	done := make(chan struct{})
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.timeout+patience)
		defer cancel()
		defer func() { <-r.places }()
		do(ctx)
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-soon.Done():
		return fmt.Errorf("%w: no answer within %v", ErrUncertain, r.timeout)
	}
}
