package throttleredis

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/quota/fleet"
	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

func TestExchange_worksInACluster(t *testing.T) {
	addrs := threeNodes.start(t)
	for range 2 {
		prefix := newTestStore(t).Prefix
		open := func() redis.UniversalClient {
			c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true})
			t.Cleanup(func() { c.Close() })
			return c
		}
		one, _ := newTestBus(t, open(), prefix)
		other, updates := newTestBus(t, open(), prefix)
		one.Publish(fleet.Message{Account: "a", Quota: "b", Content: "one", Keep: time.Hour})
		one.Publish(fleet.Message{Account: "c", Quota: "d", Content: "two", Keep: time.Hour})
		updates.find(t, "one")
		updates.find(t, "two")
		other.Fetch("c")
		redistest.Await(t, "what was kept", func() bool { return updates.count("two") >= 2 })
	}
}

// In a ring the channel moves to another server when its server fails, and back when that
// recovers.
func TestExchange_followsARing(t *testing.T) {
	t.Parallel()
	servers := redistest.StartN(t, 2)
	open := func() *redis.Ring {
		addrs := map[string]string{}
		for i, s := range servers {
			addrs[fmt.Sprint(i)] = s.Addr
		}
		c := redis.NewRing(&redis.RingOptions{Addrs: addrs, HeartbeatFrequency: 20 * time.Millisecond, ContextTimeoutEnabled: true})
		t.Cleanup(func() { c.Close() })
		return c
	}
	one, _ := newTestBus(t, open(), "")
	_, updates := newTestBus(t, open(), "")
	round := 0
	arrives := func() {
		round++
		news := fmt.Sprint("round ", round)
		redistest.Await(t, news, func() bool {
			one.Publish(fleet.Message{Account: "a", Quota: "b", Content: news})
			return updates.count(news) > 0
		})
	}
	arrives()
	for _, s := range servers {
		s.Kill()
		arrives()
		s.Restart()
		arrives()
	}
	for _, s := range servers {
		s.Kill()
	}
	redistest.Await(t, "noticing that all are down", func() bool { return !one.Stats().Connected })
	servers[0].Restart()
	arrives()
}

func TestExchange_queueIsBounded(t *testing.T) {
	var q exchangeQueue
	now := time.Unix(0, 0)
	dropped := uint64(0)
	for i := range 3 * maxQueuedUpdates {
		dropped += q.add(fleet.Message{Content: fmt.Sprint(i), Keep: time.Duration(i%2) * time.Hour}, now)
	}
	for i := range 3 * maxAccounts {
		q.addFetch(fmt.Sprint(i))
	}
	if len(q.updates) != maxQueuedUpdates || dropped != 2*maxQueuedUpdates || len(q.fetches) != maxAccounts || len(q.accounts) != maxAccounts {
		t.Fatal(len(q.updates), dropped, len(q.fetches), len(q.accounts))
	}
	posts, _ := q.take()
	if len(posts) != maxBatch || posts[0].Content != fmt.Sprint(2*maxQueuedUpdates) {
		t.Fatal(len(posts), posts[0].Content)
	}
	// After a minute only updates that are kept longer are useful.
	dropped = q.requeue(posts, now.Add(time.Minute))
	if dropped != maxQueuedUpdates/2 || q.updates[0].Content != fmt.Sprint(2*maxQueuedUpdates+1) || len(q.updates) != maxQueuedUpdates/2 {
		t.Fatal(dropped, q.updates[0].Content, len(q.updates))
	}
	for len(q.updates) > 0 {
		q.take()
	}
	q.fetches = nil
	if q.fetchKnown(); len(q.fetches) != maxAccounts {
		t.Fatal(len(q.fetches))
	}
}

func FuzzExchange_parse(f *testing.F) {
	f.Add("1 a b c d")
	f.Add("-1 a b ")
	f.Fuzz(func(t *testing.T, text string) {
		if m, ok := parseUpdate(text); ok && (m.Age < 0 || m.Content == "") {
			t.Fatalf("%q: %+v", text, m)
		}
	})
}
