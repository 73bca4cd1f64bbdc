package throttleredis

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/heed-go/heed/quota/fleet"
)

// An exchangeBus is a fleet.Bus over Redis. Its configuration is that of the Exchange that has it.
type exchangeBus struct {
	client  Subscriber
	prefix  string
	timeout time.Duration

	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	ended  chan struct{} // closed when both goroutines have ended
	work   chan struct{} // signals that the queue is not empty

	mu          sync.Mutex
	subscribers []*func(fleet.Message) // pointers tell equal functions apart
	queue       exchangeQueue
	stats       ExchangeStats
}

// start starts the goroutines that subscribe and publish.
func (t *exchangeBus) start() {
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.work, t.ended = make(chan struct{}, 1), make(chan struct{})
	t.tasks.Go(t.keepSubscribed)
	t.tasks.Go(t.deliver)
	go func() {
		t.tasks.Wait()
		close(t.ended)
	}()
}

// Close stops t and waits until its goroutines have ended. If ctx ends first, it returns the cause
// of ctx.
func (t *exchangeBus) Close(ctx context.Context) error {
	t.cancel()
	select {
	case <-t.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Stats returns the state of t.
func (t *exchangeBus) Stats() ExchangeStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stats
}

// Subscribe implements fleet.Bus. It calls f with each message that arrives, until ctx
// is done or t is closed. A call that is running when ctx is done completes.
func (t *exchangeBus) Subscribe(ctx context.Context, f func(fleet.Message)) {
	t.mu.Lock()
	t.subscribers = append(slices.Clone(t.subscribers), &f)
	t.mu.Unlock()
	context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.subscribers = slices.DeleteFunc(slices.Clone(t.subscribers), func(h *func(fleet.Message)) bool { return h == &f })
	})
}

// Publish implements fleet.Bus. It queues m and does not wait for Redis.
func (t *exchangeBus) Publish(m fleet.Message) {
	t.mu.Lock()
	t.stats.Dropped += t.queue.add(m, time.Now())
	t.mu.Unlock()
	t.wakeDelivery()
}

// Fetch implements fleet.Bus. It queues a fetch of the stored messages of account and
// does not wait for Redis.
func (t *exchangeBus) Fetch(account string) {
	t.mu.Lock()
	t.queue.addFetch(account)
	t.mu.Unlock()
	t.wakeDelivery()
}

// wakeDelivery wakes the goroutine that processes the queue.
func (t *exchangeBus) wakeDelivery() {
	select {
	case t.work <- struct{}{}:
	default: // a signal is pending
	}
}

// notify calls all subscribers with messages.
func (t *exchangeBus) notify(all ...fleet.Message) {
	t.mu.Lock()
	subscribers := t.subscribers // the slice is replaced, never changed
	for _, m := range all {
		if m.Content != "" {
			t.stats.Received++
		}
	}
	t.mu.Unlock()
	for _, f := range subscribers {
		for _, m := range all {
			(*f)(m)
		}
	}
}

func (t *exchangeBus) channel() string           { return "{" + t.prefix + ":exchange}" }
func (t *exchangeBus) key(account string) string { return t.channel() + ":" + account }
