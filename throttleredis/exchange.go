package throttleredis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/quota"
)

// Exchange implements quota.Exchange over Redis: it sends what one process learns about the
// limits of servers to all other processes.
//
//	exchange := &throttleredis.Exchange{Client: client}
//	defer exchange.Close(ctx)
//	tracker := &quota.Tracker{Exchange: exchange, Secret: secret}
//	defer tracker.Close()
//
// Updates are published on a channel. Updates that stay valid are also stored under a key
// for each account, so that processes that start later can fetch them; the key expires when
// none of its updates is valid any more. The age of a stored update is measured by the
// server's clock.
//
// While Redis is unavailable each process works alone, which Stats shows. The Exchange
// reconnects by itself and then fetches the updates of all accounts that were asked for,
// because it may have missed some. No request waits for Redis.
//
// All keys and the channel share a hash tag, so that they are on one node of a cluster or
// ring. The fields must not be changed after the first use.
type Exchange struct {
	// Client is a Client, ClusterClient, Ring or failover client of go-redis. It must be
	// set. Exchange.Close does not close it.
	Client interface {
		redis.Scripter
		Subscribe(ctx context.Context, channels ...string) *redis.PubSub
	}

	// Prefix begins all keys and the channel. It must not contain braces. Empty means
	// "heed".
	Prefix string

	// Timeout is the time limit of one script, if the client supports deadlines: see
	// Store.Timeout. Zero means 250 ms.
	Timeout time.Duration

	once   sync.Once
	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	ended  chan struct{} // closed when both goroutines have ended
	work   chan struct{} // signals that the queue is not empty

	mu          sync.Mutex
	subscribers []*func(quota.Update) // pointers tell equal functions apart
	queue       exchangeQueue
	stats       ExchangeStats
}

// ExchangeStats describes the state of an Exchange.
type ExchangeStats struct {
	// Connected reports whether updates of other processes arrive.
	Connected bool

	// Published is the number of updates that Redis accepted.
	Published uint64

	// Received is the number of updates that arrived, including those that this process
	// published.
	Received uint64

	// Dropped is the number of updates that this process lost, because Redis was
	// unavailable or slow for too long, or because the queue was full.
	Dropped uint64

	// Err is the latest error. Nil means none since the last success.
	Err error
}

const exchangeTimeout = 250 * time.Millisecond

// Validate returns an error that describes how to correct t, or nil if t is valid.
func (t *Exchange) Validate() error {
	switch {
	case t.Client == nil:
		return fmt.Errorf("throttleredis: exchange %q: Client is nil: set it to a client of go-redis", t.Prefix)
	case strings.ContainsAny(t.Prefix, "{}"):
		return fmt.Errorf("throttleredis: exchange %q: Prefix has a brace, which would decide on the slot of a cluster: leave it out", t.Prefix)
	case t.Timeout < 0:
		return fmt.Errorf("throttleredis: exchange %q: Timeout is %v: it must not be negative", t.Prefix, t.Timeout)
	}
	return nil
}

// start starts the goroutines that subscribe and publish. It panics if t is invalid.
func (t *Exchange) start() {
	t.once.Do(func() {
		if err := t.Validate(); err != nil {
			panic(err)
		}
		t.ctx, t.cancel = context.WithCancel(context.Background())
		t.work, t.ended = make(chan struct{}, 1), make(chan struct{})
		t.tasks.Go(t.keepSubscribed)
		t.tasks.Go(t.deliver)
		go func() {
			t.tasks.Wait()
			close(t.ended)
		}()
	})
}

// Close stops t and waits until its goroutines have ended. If ctx ends first, it returns
// the cause of ctx. Updates that are not published yet are lost.
func (t *Exchange) Close(ctx context.Context) error {
	t.start()
	t.cancel()
	select {
	case <-t.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Stats returns the state of t.
func (t *Exchange) Stats() ExchangeStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stats
}

// Subscribe implements quota.Exchange. It calls f with each update that arrives, until ctx
// is done or t is closed. A call that is running when ctx is done completes.
func (t *Exchange) Subscribe(ctx context.Context, f func(quota.Update)) {
	t.start()
	t.mu.Lock()
	t.subscribers = append(slices.Clone(t.subscribers), &f)
	t.mu.Unlock()
	context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.subscribers = slices.DeleteFunc(slices.Clone(t.subscribers), func(h *func(quota.Update)) bool { return h == &f })
	})
}

// Publish implements quota.Exchange. It queues m and does not wait for Redis.
func (t *Exchange) Publish(m quota.Update) {
	t.start()
	t.mu.Lock()
	t.stats.Dropped += t.queue.add(m, time.Now())
	t.mu.Unlock()
	t.wakeDelivery()
}

// Fetch implements quota.Exchange. It queues a fetch of the stored updates of account and
// does not wait for Redis.
func (t *Exchange) Fetch(account string) {
	t.start()
	t.mu.Lock()
	t.queue.addFetch(account)
	t.mu.Unlock()
	t.wakeDelivery()
}

// wakeDelivery wakes the goroutine that processes the queue.
func (t *Exchange) wakeDelivery() {
	select {
	case t.work <- struct{}{}:
	default: // a signal is pending
	}
}

// notify calls all subscribers with updates.
func (t *Exchange) notify(all ...quota.Update) {
	t.mu.Lock()
	subscribers := t.subscribers // the slice is replaced, never changed
	for _, m := range all {
		if m.News != "" {
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

func (t *Exchange) prefix() string {
	if t.Prefix == "" {
		return "heed"
	}
	return t.Prefix
}

func (t *Exchange) channel() string           { return "{" + t.prefix() + ":exchange}" }
func (t *Exchange) key(account string) string { return t.channel() + ":" + account }

// A retryDelay is the delay before the next attempt to reach Redis.
type retryDelay time.Duration

// next doubles the delay, between 50 ms and 1 s, and returns it.
func (p *retryDelay) next() time.Duration {
	*p = min(max(2**p, retryDelay(50*time.Millisecond)), retryDelay(time.Second))
	return time.Duration(*p)
}

// sleep waits for d. It returns false if t was closed.
func (t *Exchange) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-t.ctx.Done():
		return false
	}
}
