package throttleredis

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/quota/fleet"
)

// An exchangeBus is a fleet.Bus over Redis. Its link is set before it is started.
type exchangeBus struct {
	link  link
	tasks background
	work  signal // the queue is not empty

	mu          sync.Mutex
	subscribers []*func(fleet.Message) // pointers tell equal functions apart
	queue       exchangeQueue
	stats       ExchangeStats
}

// start starts the goroutines that subscribe and publish.
func (t *exchangeBus) start() {
	t.work, t.link.onOperation = newSignal(), t.recordOperation
	t.tasks.start(t.receive, func(ctx context.Context) { t.work.work(ctx, time.Second, t.process) })
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
	t.work.send()
}

// Fetch implements fleet.Bus. It queues a fetch of the stored messages of account and
// does not wait for Redis.
func (t *exchangeBus) Fetch(account string) {
	t.mu.Lock()
	t.queue.addFetch(account)
	t.mu.Unlock()
	t.work.send()
}

func (t *exchangeBus) notify(m fleet.Message) {
	t.mu.Lock()
	subscribers := t.subscribers // the slice is replaced, never changed
	if m.Content != "" {
		t.stats.Received++
	}
	t.mu.Unlock()
	for _, f := range subscribers {
		(*f)(m)
	}
}

// receive receives messages until ctx is done. When it has connected, it fetches those that were
// published before.
func (t *exchangeBus) receive(ctx context.Context) {
	t.link.subscribe(ctx, linkEvents{
		connected: func() {
			t.mu.Lock()
			t.stats.Connected, t.stats.Err = true, nil
			t.queue.fetchKnown()
			t.mu.Unlock()
			t.work.send()
		},
		lost: func(err error) {
			t.mu.Lock()
			defer t.mu.Unlock()
			if t.stats.Connected = false; err != nil {
				t.stats.Err = err
			}
		},
		receive: func(message string) {
			if m, ok := parseUpdate(message); ok {
				t.notify(m)
			}
		},
	})
}

// recordOperation stores the result of a round trip for Stats.
func (t *exchangeBus) recordOperation(_ string, _ time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil || t.stats.Connected {
		t.stats.Err = err
	}
}

// process fetches accounts and publishes updates until the queue is empty. Updates that cannot be
// published are put back into the queue.
func (t *exchangeBus) process(ctx context.Context) error {
	for {
		t.mu.Lock()
		updates, fetches := t.queue.take()
		t.mu.Unlock()
		if len(updates)+len(fetches) == 0 {
			return nil
		}
		err := t.fetch(ctx, fetches)
		if err == nil {
			err = t.publish(ctx, updates)
		}
		t.mu.Lock()
		if err != nil {
			t.stats.Dropped += t.queue.requeue(updates, time.Now())
		} else {
			t.stats.Published += uint64(len(updates))
		}
		t.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

var publishScript = redis.NewScript(readLua("exchange_publish"))

func (t *exchangeBus) publish(ctx context.Context, updates []queuedUpdate) error {
	if len(updates) == 0 {
		return nil
	}
	now := time.Now()
	keys, args := make([]string, 0, len(updates)), []any{t.link.channel}
	for _, p := range updates {
		keys = append(keys, t.link.key(p.Account))
		args = append(args, p.Account, p.Quota, p.Keep.Microseconds(), max(now.Sub(p.queuedAt)+p.Age, 0).Microseconds(), p.Content)
	}
	return t.link.run(ctx, "publish", publishScript, keys, args...).Err()
}

// fetch passes the stored updates of accounts to the subscribers. It also reports that a
// fetch has ended if it failed, so that no subscriber waits for it.
func (t *exchangeBus) fetch(ctx context.Context, accounts []string) error {
	err := t.link.fetch(ctx, accounts, func(account string, fields []storedField) {
		for _, f := range fields {
			if m, ok := parseStoredUpdate(account, f); ok {
				t.notify(m)
			}
		}
	})
	for _, account := range accounts {
		t.notify(fleet.Message{Account: account})
	}
	return err
}

// parseStoredUpdate parses a field that exchange_publish.lua has stored: the time in microseconds
// for which the update is kept, and its payload. It reports false if that time is over.
func parseStoredUpdate(account string, f storedField) (m fleet.Message, ok bool) {
	text, content, _ := strings.Cut(f.value, " ")
	keep, err := strconv.ParseInt(text, 10, 64)
	m = fleet.Message{Account: account, Quota: f.name, Content: content, Age: f.age}
	return m, err == nil && content != "" && f.age.Microseconds() < keep
}

// maxUpdateBytes is the maximum length of a message in bytes.
const maxUpdateBytes = 16 << 10

// parseUpdate parses a message that exchange_publish.lua wrote:
//
//	age in microseconds, account, quota, payload
func parseUpdate(text string) (m fleet.Message, ok bool) {
	parts := strings.SplitN(text, " ", 4)
	if len(parts) < 4 || len(text) > maxUpdateBytes {
		return m, false
	}
	age, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil || age < 0 || age > maxUnits {
		return m, false
	}
	m = fleet.Message{Account: parts[1], Quota: parts[2], Content: parts[3], Age: time.Duration(age) * time.Microsecond}
	return m, m.Content != ""
}

const (
	maxQueuedUpdates = 256  // updates that are not published yet
	maxAccounts      = 4096 // accounts whose updates are fetched again after a reconnect
	maxBatch         = 64   // updates per script
	staleAfter       = time.Second
)

// An exchangeQueue holds what is to be done: updates to publish and accounts to fetch.
type exchangeQueue struct {
	updates  []queuedUpdate
	fetches  []string
	accounts map[string]struct{} // accounts that Fetch was called for
}

type queuedUpdate struct {
	fleet.Message
	queuedAt time.Time // time of Publish
}

// add appends m. If the queue is full it drops the oldest update.
func (q *exchangeQueue) add(m fleet.Message, now time.Time) (dropped uint64) {
	q.updates = append(q.updates, queuedUpdate{m, now})
	return q.dropOldest()
}

// requeue puts back a batch that could not be published, before the updates that were added
// since. It drops those that have been queued for so long that no process can use them.
func (q *exchangeQueue) requeue(batch []queuedUpdate, now time.Time) (dropped uint64) {
	all := append(batch, q.updates...)
	q.updates = slices.DeleteFunc(all, func(p queuedUpdate) bool { return now.Sub(p.queuedAt) > max(p.Keep, staleAfter) })
	return uint64(len(all)-len(q.updates)) + q.dropOldest()
}

// dropOldest drops the updates beyond maxQueuedUpdates.
func (q *exchangeQueue) dropOldest() (dropped uint64) {
	over := max(len(q.updates)-maxQueuedUpdates, 0)
	q.updates = slices.Delete(q.updates, 0, over)
	return uint64(over)
}

// addFetch queues a fetch of an account, now and after each reconnect.
func (q *exchangeQueue) addFetch(account string) {
	if q.accounts == nil {
		q.accounts = make(map[string]struct{})
	}
	if len(q.accounts) >= maxAccounts {
		for other := range q.accounts {
			delete(q.accounts, other)
			break
		}
	}
	q.accounts[account] = struct{}{}
	if len(q.fetches) < maxAccounts {
		q.fetches = append(q.fetches, account)
	}
}

// fetchKnown queues a fetch of all stored accounts.
func (q *exchangeQueue) fetchKnown() { q.fetches = slices.Collect(maps.Keys(q.accounts)) }

// take removes and returns the next batch.
func (q *exchangeQueue) take() (updates []queuedUpdate, fetches []string) {
	return takeFirst(&q.updates, maxBatch), takeFirst(&q.fetches, maxFetched)
}

// takeFirst removes and returns the first n elements of all, or all if there are fewer.
func takeFirst[T any](all *[]T, n int) []T {
	n = min(n, len(*all))
	first := slices.Clone((*all)[:n])
	*all = slices.Delete(*all, 0, n)
	return first
}
