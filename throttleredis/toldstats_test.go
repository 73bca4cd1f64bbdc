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
	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

// Each message is counted once where it was posted, and once by each process that hears it.
// Probes of the connection, which carry nothing, are not counted.
func TestTold_countsMessages(t *testing.T) {
	s := redistest.Start(t)
	one, _ := newTold(t, dial(t, s.Addr), "")
	other, heard := newTold(t, dial(t, s.Addr), "")
	require.Equal(t, ToldStats{Connected: true}, one.Stats())
	one.Post(quota.Message{})
	for i := range 3 {
		one.Post(quota.Message{Account: "a", Bucket: "b", News: fmt.Sprint(i), Keep: time.Hour})
	}
	heard.find(t, "2")
	redistest.Await(t, "the counts", func() bool {
		return one.Stats() == ToldStats{Connected: true, Posted: 3, Heard: 3} && other.Stats() == ToldStats{Connected: true, Heard: 3}
	})
	other.Recall("a")
	heard.find(t, "")
	require.Equal(t, uint64(4), other.Stats().Heard, "the last is kept, and heard again")

	s.Kill()
	redistest.Await(t, "noticing it", func() bool { return !one.Stats().Connected })
	const posts = 3 * maxPosts
	for i := range posts {
		one.Post(quota.Message{Account: "a", Bucket: fmt.Sprint(i), News: fmt.Sprint("away", i), Keep: time.Hour})
	}
	require.GreaterOrEqual(t, one.Stats().Dropped, uint64(posts-maxPosts-maxBatch))
	s.Restart()
	redistest.Await(t, "all to be posted or dropped", func() bool { return one.Stats().Posted+one.Stats().Dropped >= 3+posts })
	require.Equal(t, uint64(3+posts), one.Stats().Posted+one.Stats().Dropped)
}

// A subscription ends with its context, others go on, and nothing of it is left.
func TestTold_subscriptionsEnd(t *testing.T) {
	told, stays := newTold(t, client(t), fresh(t).Prefix)
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	var ended [10]ear
	for i := range ended {
		told.Subscribe(ctx, ended[i].hear)
	}
	told.Post(quota.Message{Account: "a", News: "first"})
	for i := range ended {
		ended[i].find(t, "first")
	}
	cancel()
	hearers := func() int {
		told.mu.Lock()
		defer told.mu.Unlock()
		return len(told.hearers)
	}
	redistest.Await(t, "the subscriptions to end", func() bool { return hearers() == 1 })
	told.Post(quota.Message{Account: "a", News: "second"})
	stays.find(t, "second")
	for i := range ended {
		require.Zero(t, ended[i].heard("second"))
	}
	redistest.Await(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}

// Trackers that are closed leave nothing in a Told, which goes on for others.
func TestTold_closedTrackersLeaveNothing(t *testing.T) {
	c, prefix := client(t), fresh(t).Prefix
	before := runtime.NumGoroutine()
	told := &Told{Client: c, Prefix: prefix}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.test/items", nil)
	require.NoError(t, err)
	for range 20 {
		tracker := &quota.Tracker{Share: told, Secret: []byte("secret")}
		tracker.Demand(req)
		tracker.Close()
	}
	redistest.Await(t, "the subscriptions to end", func() bool {
		told.mu.Lock()
		defer told.mu.Unlock()
		return len(told.hearers) == 0
	})
	require.NoError(t, told.Close(t.Context()))
	redistest.Await(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}

var (
	_ quota.Share      = (*Told)(nil)
	_ quota.Subscriber = (*Told)(nil)
)
