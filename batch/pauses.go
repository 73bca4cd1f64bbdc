package batch

import (
	"context"
	"sync"
	"time"

	"github.com/heed-go/heed/internal/httpbody"
)

// pauses are the times in which no item may begin.
type pauses struct {
	mu     sync.Mutex
	until  time.Time     // end of the latest pause
	paused time.Duration // length of all pauses, without overlaps
}

// begin begins or extends a pause.
func (p *pauses) begin(now, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !until.After(p.until) {
		return
	}
	if now.Before(p.until) {
		now = p.until
	}
	p.paused += until.Sub(now)
	p.until = until
}

// wait returns nil when there is no pause, or the cause of ctx when it ends.
func (p *pauses) wait(ctx context.Context) error {
	for {
		p.mu.Lock()
		d := time.Until(p.until)
		p.mu.Unlock()
		if d <= 0 {
			return context.Cause(ctx)
		}
		if err := httpbody.Sleep(ctx, nil, d); err != nil {
			return err
		}
	}
}

// pausedUntil returns the end of the pause, or zero if there is none.
func (p *pauses) pausedUntil(now time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Before(p.until) {
		return p.until
	}
	return time.Time{}
}

// total returns the time for which there was a pause.
func (p *pauses) total(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paused - max(p.until.Sub(now), 0)
}
