package fleet

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A LocalBus is a Bus within one process, for programs with several Trackers and for tests. Publish
// calls subscribers one after the other in a goroutine, which ends when all messages are delivered;
// Fetch calls them itself. The zero LocalBus is ready to use. It keeps the messages of at most 1,024
// accounts, of each at most 8, and drops messages while 1,024 are not delivered yet.
type LocalBus struct {
	// Clock is the source of time. Nil means the system clock.
	Clock throttle.Clock

	mu          sync.Mutex
	subscribers []*func(Message) // pointers tell equal functions apart
	store       store[published]
	queue       []Message
	delivering  bool
}

type published struct {
	message Message
	at      time.Time
}

const maxQueue = 1024

// Publish implements Bus.
func (b *LocalBus) Publish(m Message) {
	now := throttle.ClockOr(b.Clock).Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if valid := m.Keep - m.Age; valid > 0 {
		b.store.put(m.Account, m.Quota, published{m, now}, now.Add(valid), now)
	}
	if len(b.queue) >= maxQueue {
		return
	}
	b.queue = append(b.queue, m)
	if !b.delivering {
		b.delivering = true
		go b.deliver()
	}
}

// Subscribe implements Bus.
func (b *LocalBus) Subscribe(ctx context.Context, receive func(Message)) {
	b.mu.Lock()
	b.subscribers = append(slices.Clone(b.subscribers), &receive)
	b.mu.Unlock()
	context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.subscribers = slices.DeleteFunc(slices.Clone(b.subscribers), func(r *func(Message)) bool { return r == &receive })
	})
}

// Fetch implements Bus.
func (b *LocalBus) Fetch(account string) {
	now := throttle.ClockOr(b.Clock).Now()
	b.mu.Lock()
	var all []Message
	for _, p := range b.store.get(account, now) {
		p.message.Age += now.Sub(p.at)
		all = append(all, p.message)
	}
	subscribers := b.subscribers
	b.mu.Unlock()
	notify(subscribers, append(all, Message{Account: account}))
}

// deliver passes all queued messages to the subscribers.
func (b *LocalBus) deliver() {
	for {
		b.mu.Lock()
		queue, subscribers := b.queue, b.subscribers
		b.queue, b.delivering = nil, len(queue) > 0
		b.mu.Unlock()
		if len(queue) == 0 {
			return
		}
		notify(subscribers, queue)
	}
}

// notify passes messages to subscribers, without a lock: the slice is replaced, never changed.
func notify(subscribers []*func(Message), messages []Message) {
	for _, m := range messages {
		for _, receive := range subscribers {
			(*receive)(m)
		}
	}
}
