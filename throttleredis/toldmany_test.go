package throttleredis

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

func TestTold_worksInACluster(t *testing.T) {
	nodes := redistest.StartCluster(t, 3)
	for i := range 2 {
		open := func() redis.UniversalClient {
			c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(nodes), ContextTimeoutEnabled: true})
			t.Cleanup(func() { c.Close() })
			return c
		}
		one, _ := newTold(t, open(), fmt.Sprint("cluster", i))
		other, heard := newTold(t, open(), fmt.Sprint("cluster", i))
		one.Post(quota.Message{Account: "a", Bucket: "b", News: "one", Keep: time.Hour})
		one.Post(quota.Message{Account: "c", Bucket: "d", News: "two", Keep: time.Hour})
		heard.find(t, "one")
		heard.find(t, "two")
		other.Recall("c")
		redistest.Await(t, "what was kept", func() bool { return heard.heard("two") >= 2 })
	}
}

// In a ring the place of the channel moves when a server goes, and back when it
// comes back.
func TestTold_followsARing(t *testing.T) {
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
	one, _ := newTold(t, open(), "")
	_, heard := newTold(t, open(), "")
	round := 0
	arrives := func() {
		round++
		news := fmt.Sprint("round ", round)
		redistest.Await(t, news, func() bool {
			one.Post(quota.Message{Account: "a", Bucket: "b", News: news})
			return heard.heard(news) > 0
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

func TestTold_queueIsBounded(t *testing.T) {
	var q queue
	now := time.Unix(0, 0)
	dropped := uint64(0)
	for i := range 3 * maxPosts {
		dropped += q.post(quota.Message{News: fmt.Sprint(i), Keep: time.Duration(i%2) * time.Hour}, now)
	}
	for i := range 3 * maxAccounts {
		q.recall(fmt.Sprint(i))
	}
	if len(q.posts) != maxPosts || dropped != 2*maxPosts || len(q.recalls) != maxAccounts || len(q.accounts) != maxAccounts {
		t.Fatal(len(q.posts), dropped, len(q.recalls), len(q.accounts))
	}
	posts, _ := q.take()
	if len(posts) != maxBatch || posts[0].News != fmt.Sprint(2*maxPosts) {
		t.Fatal(len(posts), posts[0].News)
	}
	// A minute later only what was to be kept for longer is of use.
	dropped = q.again(posts, now.Add(time.Minute))
	if dropped != maxPosts/2 || q.posts[0].News != fmt.Sprint(2*maxPosts+1) || len(q.posts) != maxPosts/2 {
		t.Fatal(dropped, q.posts[0].News, len(q.posts))
	}
	for len(q.posts) > 0 {
		q.take()
	}
	q.recalls = nil
	if q.recallAll(); len(q.recalls) != maxAccounts {
		t.Fatal(len(q.recalls))
	}
}

func FuzzTold_parse(f *testing.F) {
	f.Add("1 a b c d")
	f.Add("-1 a b ")
	f.Fuzz(func(t *testing.T, text string) {
		if m, ok := parseTold(text); ok && (m.Age < 0 || m.News == "") {
			t.Fatalf("%q: %+v", text, m)
		}
	})
}
