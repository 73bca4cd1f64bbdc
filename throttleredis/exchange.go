package throttleredis

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/quota/fleet"
)

// Exchange implements quota.Exchange over Redis: it sends what one process learns about the
// limits of servers to all other processes.
//
//	exchange := &throttleredis.Exchange{Client: client, Secret: secret}
//	defer exchange.Close(ctx)
//	tracker := &quota.Tracker{Exchange: exchange}
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
// Updates are encoded, authenticated and protected against replay by package quota/fleet.
// Several Trackers of a process may share an Exchange.
//
// All keys and the channel share a hash tag, so that they are on one node of a cluster or
// ring. The fields must not be changed after the first use.
type Exchange struct {
	// Client is a Client, ClusterClient, Ring or failover client of go-redis. It must be
	// set. Exchange.Close does not close it.
	Client Subscriber

	// Prefix begins all keys and the channel. It must not contain braces. Empty means
	// "heed".
	Prefix string

	// Timeout is the time limit of one script, if the client supports deadlines: see
	// Store.Timeout. Zero means 250 ms.
	Timeout time.Duration

	// Secret is the key that authenticates updates, and of the hashes in them. All processes
	// that share must have the same, and it must not be known to others. If it is empty, only
	// accounts without credentials are shared.
	Secret []byte

	once  sync.Once
	bus   exchangeBus
	fleet fleet.Exchange // over bus
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

// Validate returns an error that describes how to correct t, or nil if t is valid.
func (t *Exchange) Validate() error {
	switch {
	case isNil(t.Client):
		return fmt.Errorf("throttleredis: exchange %q: Client is nil: set it to a client of go-redis", t.Prefix)
	case strings.ContainsAny(t.Prefix, "{}"):
		return fmt.Errorf("throttleredis: exchange %q: Prefix has a brace, which would decide on the slot of a cluster: leave it out", t.Prefix)
	case t.Timeout < 0:
		return fmt.Errorf("throttleredis: exchange %q: Timeout is %v: it must not be negative", t.Prefix, t.Timeout)
	}
	return nil
}

// start starts the bus. It panics if t is invalid.
func (t *Exchange) start() {
	t.once.Do(func() {
		if err := t.Validate(); err != nil {
			panic(err)
		}
		t.bus.link = link{
			client: t.Client, channel: "{" + cmp.Or(t.Prefix, "heed") + ":exchange}", timeout: cmp.Or(t.Timeout, 250*time.Millisecond),
			maxPause: time.Second, pingInterval: time.Second,
		}
		t.fleet.Bus, t.fleet.Secret = &t.bus, t.Secret
		t.bus.start()
	})
}

// Close stops t and waits until its goroutines have ended. If ctx ends first, it returns
// the cause of ctx. Updates that are not published yet are lost.
func (t *Exchange) Close(ctx context.Context) error {
	t.start()
	t.bus.tasks.cancel()
	return awaitClosed(ctx, t.bus.tasks.ended)
}

// Stats returns the state of t.
func (t *Exchange) Stats() ExchangeStats { return t.bus.Stats() }

// Key implements quota.Exchange. It returns Secret.
func (t *Exchange) Key() []byte { return t.Secret }

// Publish implements quota.Exchange. It queues u and does not wait for Redis.
func (t *Exchange) Publish(u quota.Update) {
	t.start()
	t.fleet.Publish(u)
}

// Subscribe implements quota.Exchange. It calls f with each update that arrives, until ctx
// is done or t is closed. A call that is running when ctx is done completes.
func (t *Exchange) Subscribe(ctx context.Context, f func(quota.Update)) {
	t.start()
	t.fleet.Subscribe(ctx, f)
}

// Fetch implements quota.Exchange. It queues a fetch of the stored updates of account and
// does not wait for Redis.
func (t *Exchange) Fetch(account string) {
	t.start()
	t.fleet.Fetch(account)
}
