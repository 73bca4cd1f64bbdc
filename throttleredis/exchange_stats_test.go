package throttleredis

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/quota/fleet"
	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

// Each update is counted once where it was published, and once by each process that
// receives it. Empty updates, which test the connection, are not counted.
func TestExchange_countsUpdates(t *testing.T) {
	s := redistest.Start(t)
	one, _ := newTestBus(t, dial(t, s.Addr), "")
	other, updates := newTestBus(t, dial(t, s.Addr), "")
	require.Equal(t, ExchangeStats{Connected: true}, one.Stats())
	one.link.run(t.Context(), "ping", pingScript, []string{one.link.channel})
	for i := range 3 {
		one.Publish(fleet.Message{Account: "a", Quota: "b", Content: fmt.Sprint(i), Keep: time.Hour})
	}
	updates.find(t, "2")
	redistest.Await(t, "the counts", func() bool {
		return one.Stats() == ExchangeStats{Connected: true, Published: 3, Received: 3} && other.Stats() == ExchangeStats{Connected: true, Received: 3}
	})
	other.Fetch("a")
	updates.find(t, "")
	require.Equal(t, uint64(4), other.Stats().Received, "the last is kept, and heard again")

	s.Kill()
	redistest.Await(t, "noticing it", func() bool { return !one.Stats().Connected })
	const posts = 3 * maxQueuedUpdates
	for i := range posts {
		one.Publish(fleet.Message{Account: "a", Quota: fmt.Sprint(i), Content: fmt.Sprint("away", i), Keep: time.Hour})
	}
	require.GreaterOrEqual(t, one.Stats().Dropped, uint64(posts-maxQueuedUpdates-maxBatch))
	s.Restart()
	redistest.Await(t, "all to be posted or dropped", func() bool { return one.Stats().Published+one.Stats().Dropped >= 3+posts })
	require.Equal(t, uint64(3+posts), one.Stats().Published+one.Stats().Dropped)
}

// A subscription ends with its context. Others continue, and it leaves no goroutine.
func TestExchange_subscriptionsEnd(t *testing.T) {
	exchange, stays := newTestBus(t, client(t), newTestStore(t).Prefix)
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	var ended [10]updateRecorder
	for i := range ended {
		exchange.Subscribe(ctx, ended[i].record)
	}
	exchange.Publish(fleet.Message{Account: "a", Content: "first"})
	for i := range ended {
		ended[i].find(t, "first")
	}
	cancel()
	subscribers := func() int {
		exchange.mu.Lock()
		defer exchange.mu.Unlock()
		return len(exchange.subscribers)
	}
	redistest.Await(t, "the subscriptions to end", func() bool { return subscribers() == 1 })
	exchange.Publish(fleet.Message{Account: "a", Content: "second"})
	stays.find(t, "second")
	for i := range ended {
		require.Zero(t, ended[i].count("second"))
	}
	redistest.Await(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}

// Trackers that are closed leave no state in an Exchange, which continues for others.
func TestExchange_closedTrackersLeaveNothing(t *testing.T) {
	c, prefix := client(t), newTestStore(t).Prefix
	before := runtime.NumGoroutine()
	exchange := &Exchange{Client: c, Prefix: prefix, Secret: []byte("secret")}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.test/items", nil)
	require.NoError(t, err)
	for range 20 {
		tracker := &quota.Tracker{Exchange: exchange}
		tracker.Demand(req)
		tracker.Close()
	}
	redistest.Await(t, "the subscriptions to end", func() bool {
		exchange.bus.mu.Lock()
		defer exchange.bus.mu.Unlock()
		return len(exchange.bus.subscribers) == 0
	})
	require.NoError(t, exchange.Close(t.Context()))
	redistest.Await(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}

var _ quota.Exchange = (*Exchange)(nil)
