package heed

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/backoff"
)

// A start is when a Transport with a Splay begins to send.
type start struct {
	once sync.Once
	at   time.Time
	open atomic.Bool // at has passed
}

// splay waits until the Transport begins to send.
func (c *call) splay() error {
	t := c.t
	t.start.once.Do(func() {
		slot := t.Slot
		if slot == 0 {
			slot = backoff.RandomSplay()
		}
		t.start.at = t.now().Add(slot.In(t.Splay))
	})
	now := t.now()
	wait := t.start.at.Sub(now)
	if wait <= 0 {
		t.start.open.Store(true)
		return nil
	}
	why := error(nil)
	switch deadline, limited := c.ctx.Deadline(); {
	case (c.said.NoWait || c.said.MaxWait > 0) && wait > c.mostWait():
		why = c.errMaxWait()
	case limited && time.Until(deadline) <= wait:
		why = context.DeadlineExceeded
	}
	if why != nil {
		return fmt.Errorf("heed: Transport.Splay lets nobody send for another %v: %w", wait, why)
	}
	ctx := c.waiting(false)
	err := sleep(ctx, t.Clock, wait)
	ctx.end()
	c.info.Paused += t.now().Sub(now)
	return err
}
