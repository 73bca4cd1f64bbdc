package batch

import (
	"context"
	"sync"
	"time"

	"github.com/heed-go/heed/internal/httpbody"
)

// A gate delays callers until the end of a pause.
type gate struct {
	mu     sync.Mutex
	until  time.Time     // end of the latest pause
	paused time.Duration // length of all pauses, without overlaps
}

// pause begins or extends a pause.
func (g *gate) pause(now, until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !until.After(g.until) {
		return
	}
	if now.Before(g.until) {
		now = g.until
	}
	g.paused += until.Sub(now)
	g.until = until
}

// wait returns nil when there is no pause, or the cause of ctx when it ends.
func (g *gate) wait(ctx context.Context) error {
	for {
		g.mu.Lock()
		d := time.Until(g.until)
		g.mu.Unlock()
		if d <= 0 {
			return context.Cause(ctx)
		}
		if err := httpbody.Sleep(ctx, nil, d); err != nil {
			return err
		}
	}
}

// pausedUntil returns the end of the pause, or zero if there is none.
func (g *gate) pausedUntil(now time.Time) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.Before(g.until) {
		return g.until
	}
	return time.Time{}
}

// total returns the time for which there was a pause.
func (g *gate) total(now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.paused - max(g.until.Sub(now), 0)
}
