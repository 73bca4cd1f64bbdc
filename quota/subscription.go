package quota

import "context"

// Close ends the use of Exchange: t publishes no more updates, ignores those of other
// processes, and ends its subscription. The Tracker may still be used after Close. Without an
// Exchange, Close does nothing.
func (t *Tracker) Close() {
	t.once.Do(t.init)
	if t.convoy != nil {
		t.convoy.close()
	}
}

// listen subscribes to the messages of other processes until the convoy is closed.
func (f *convoy) listen() {
	ctx, cancel := context.WithCancel(context.Background())
	f.mu.Lock()
	f.closed, f.cancel = ctx.Done(), cancel
	f.mu.Unlock()
	f.share.Subscribe(ctx, f.hear)
}

func (f *convoy) close() {
	f.cancel()
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.early)
	clear(f.guard.senders)
}

// isClosed reports whether close was called.
func (f *convoy) isClosed() bool {
	select {
	case <-f.closed:
		return true
	default:
		return false
	}
}
