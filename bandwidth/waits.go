package bandwidth

import (
	"context"
	"os"
	"sync"
	"time"
)

// A waits holds the context of the waits of a stream: it ends with the context of the
// request, when the stream ends, and at a deadline. It is made when it is needed first, and
// a new one is made after a deadline has passed and was set again.
type waits struct {
	parent context.Context

	mu      sync.Mutex
	ctx     context.Context // nil: not made yet, or it has ended at a deadline
	cancel  context.CancelCauseFunc
	timer   *time.Timer // cancels ctx at the deadline; nil: there is none
	expired bool        // the deadline has passed
	ended   error       // the cause given to end; nil: it was not called
}

// context returns a context for one wait, or the error because of which it must not begin.
func (w *waits) context() (context.Context, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.ended != nil:
		return nil, w.ended
	case w.expired:
		return nil, os.ErrDeadlineExceeded
	case w.ctx == nil:
		w.ctx, w.cancel = context.WithCancelCause(w.parent)
	}
	return w.ctx, nil
}

// end ends all waits with cause, which the second call does not change.
func (w *waits) end(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended != nil {
		return
	}
	w.ended = cause
	w.stopTimer()
	w.endContext(cause)
}

// setDeadline ends all waits at t with os.ErrDeadlineExceeded, also one that is under way.
// The zero t means no deadline.
func (w *waits) setDeadline(t time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopTimer()
	w.expired = false
	if t.IsZero() || w.ended != nil {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		w.expire()
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(left, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.timer == timer { // else another deadline was set
			w.expire()
		}
	})
	w.timer = timer
}

// expire ends the context at a deadline.
func (w *waits) expire() {
	w.expired = true
	w.endContext(os.ErrDeadlineExceeded)
}

func (w *waits) endContext(cause error) {
	if w.cancel != nil {
		w.cancel(cause)
	}
	w.ctx, w.cancel = nil, nil
}

func (w *waits) stopTimer() {
	if w.timer != nil {
		w.timer.Stop()
	}
	w.timer = nil
}
