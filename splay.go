package heed

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/internal/httpbody"
)

// A startDelay is when a Transport with a Splay begins to send.
type startDelay struct {
	once   sync.Once
	at     time.Time
	passed atomic.Bool // at has passed
}

// waitForStart waits until the Transport begins to send.
func (rt *roundTrip) waitForStart() error {
	t := rt.t
	t.startDelay.once.Do(func() {
		offset := t.StartSeed
		if offset == 0 {
			offset = backoff.RandomOffset()
		}
		t.startDelay.at = t.now().Add(offset.In(t.StartJitter))
	})
	now := t.now()
	wait := t.startDelay.at.Sub(now)
	if wait <= 0 {
		t.startDelay.passed.Store(true)
		return nil
	}
	reason := error(nil)
	switch deadline, hasDeadline := rt.ctx.Deadline(); {
	case (rt.opts.NoWait || rt.opts.MaxWait > 0) && wait > rt.maxWait():
		reason = rt.errMaxWait()
	case hasDeadline && time.Until(deadline) <= wait:
		reason = context.DeadlineExceeded
	}
	if reason != nil {
		return fmt.Errorf("heed: Transport.StartJitter delays the first request by another %v: %w", wait, reason)
	}
	ctx := rt.newWaitContext(false)
	err := httpbody.Sleep(ctx, t.Clock, wait)
	ctx.end()
	rt.info.BackoffWait += t.now().Sub(now)
	return err
}
