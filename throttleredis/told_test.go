package throttleredis

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

// An ear writes down what a Told hears.
type ear struct {
	mu  sync.Mutex
	all []quota.Message
}

func (e *ear) hear(m quota.Message) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, m)
}

// heard returns how many messages said news.
func (e *ear) heard(news string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range e.all {
		if m.News == news {
			n++
		}
	}
	return n
}

func (e *ear) find(t *testing.T, news string) (found quota.Message) {
	redistest.Await(t, "hearing "+news, func() bool { return e.heard(news) > 0 })
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range e.all {
		if m.News == news {
			found = m
		}
	}
	return found
}

// newTold returns a Told that is connected, and what it hears. It ends with the test.
func newTold(t *testing.T, c redis.UniversalClient, prefix string) (*Told, *ear) {
	told, e := &Told{Client: c, Prefix: prefix, Timeout: 5 * time.Second}, &ear{}
	told.Listen(e.hear)
	t.Cleanup(func() { require.NoError(t, told.Close(context.Background())) })
	connected(t, told)
	return told, e
}

func connected(t *testing.T, told *Told) {
	redistest.Await(t, "a subscription", func() bool { return told.Stats().Connected })
}

func dial(t *testing.T, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1})
	t.Cleanup(func() { c.Close() })
	return c
}

func TestTold_tellsAllWhoListen(t *testing.T) {
	c, prefix := client(t), fresh(t).Prefix
	one, own := newTold(t, c, prefix)
	_, other := newTold(t, c, prefix)
	_, stranger := newTold(t, c, prefix+" of others")
	one.Post(quota.Message{Account: "a", Bucket: "b", News: "a b c", Age: time.Second})
	m := other.find(t, "a b c")
	require.Equal(t, "a", m.Account)
	require.Equal(t, "b", m.Bucket)
	require.GreaterOrEqual(t, m.Age, time.Second)
	own.find(t, "a b c")
	require.Zero(t, stranger.heard("a b c"))
	require.Zero(t, c.Exists(t.Context(), one.key("a")).Val(), "nothing to keep")
	redistest.Await(t, "the count", func() bool { return one.Stats().Posted == 1 })
	require.NoError(t, one.Stats().Err)
}

func TestTold_keepsForThoseWhoComeLater(t *testing.T) {
	c, prefix := client(t), fresh(t).Prefix
	one, heard := newTold(t, c, prefix)
	for _, news := range []string{"old", "new"} {
		one.Post(quota.Message{Account: "a", Bucket: "b", News: news, Keep: time.Hour})
	}
	one.Post(quota.Message{Account: "a", Bucket: "c", News: "over", Keep: time.Millisecond})
	one.Post(quota.Message{Account: "a", Bucket: "d", News: "late", Keep: time.Hour, Age: time.Minute})
	heard.find(t, "late")
	late, found := newTold(t, c, prefix)
	late.Recall("a")
	require.GreaterOrEqual(t, found.find(t, "late").Age, time.Minute)
	require.Less(t, found.find(t, "new").Age, time.Minute)
	found.find(t, "") // the end
	require.Zero(t, found.heard("old")+found.heard("over"))
	left := c.PTTL(t.Context(), one.key("a")).Val()
	require.Greater(t, left, 50*time.Minute)
	require.LessOrEqual(t, left, time.Hour)
}

func TestTold_keepsNoMoreThanItMust(t *testing.T) {
	c := client(t)
	one, heard := newTold(t, c, fresh(t).Prefix)
	for i := range 500 {
		one.Post(quota.Message{Account: "a", Bucket: fmt.Sprint(i), News: fmt.Sprint("news", i), Keep: time.Hour})
		if i%100 == 99 {
			heard.find(t, fmt.Sprint("news", i))
		}
	}
	require.LessOrEqual(t, c.HLen(t.Context(), one.key("a")).Val(), int64(64))
}

// A server that comes back is heard again, and told what was said meanwhile.
func TestTold_outlivesAServer(t *testing.T) {
	s := redistest.Start(t)
	one, _ := newTold(t, dial(t, s.Addr), "")
	other, heard := newTold(t, dial(t, s.Addr), "")
	other.Recall("a")
	heard.find(t, "")
	s.Kill()
	redistest.Await(t, "noticing it", func() bool { return !one.Stats().Connected && !other.Stats().Connected })
	require.Error(t, other.Stats().Err)
	one.Post(quota.Message{Account: "a", Bucket: "b", News: "meanwhile", Keep: time.Hour})
	other.Recall("x")
	redistest.Await(t, "nobody waits for it", func() bool { return heard.heard("") >= 2 })
	s.Restart()
	heard.find(t, "meanwhile")
	connected(t, one)
	connected(t, other)
	one.Post(quota.Message{Account: "a", Bucket: "b", News: "after"})
	heard.find(t, "after")
	require.NoError(t, other.Stats().Err)
}

// What was published while a subscription was away is found in the keys.
func TestTold_readsWhatItMissed(t *testing.T) {
	s := redistest.Start(t)
	p := redistest.StartProxy(t, s.Addr)
	one, _ := newTold(t, dial(t, s.Addr), "")
	other, heard := newTold(t, dial(t, p.Addr), "")
	other.Recall("a")
	heard.find(t, "")
	p.Set(redistest.Refuse)
	redistest.Await(t, "noticing it", func() bool { return !other.Stats().Connected })
	one.Post(quota.Message{Account: "a", Bucket: "b", News: "missed", Keep: time.Hour})
	redistest.Await(t, "posting it", func() bool { return one.Stats().Posted == 1 })
	p.Set(redistest.Pass)
	heard.find(t, "missed")
}

// A server that falls silent is not waited for, neither by Close.
func TestTold_endsWhateverHappens(t *testing.T) {
	s := redistest.Start(t)
	for _, fault := range []redistest.Fault{redistest.Pass, redistest.BlackHole, redistest.Refuse, redistest.Reset, redistest.Mute} {
		p := redistest.StartProxy(t, s.Addr)
		c := redis.NewClient(&redis.Options{Addr: p.Addr, ContextTimeoutEnabled: true, MaxRetries: -1})
		before := runtime.NumGoroutine()
		told := &Told{Client: c}
		told.Listen(func(quota.Message) {})
		connected(t, told)
		p.Set(fault)
		for i := range 1000 {
			told.Post(quota.Message{Account: "a", Bucket: fmt.Sprint(i), News: "n", Keep: time.Hour})
			told.Recall(fmt.Sprint(i))
		}
		require.NoError(t, told.Close(t.Context()))
		require.LessOrEqual(t, len(told.queue.posts), maxPosts)
		require.NoError(t, c.Close())
		redistest.Await(t, "all goroutines to end", func() bool { return runtime.NumGoroutine() <= before+2 })
		told.Post(quota.Message{Account: "a", News: "after the end"})
	}
}

func TestTold_ignoresWhatItDidNotWrite(t *testing.T) {
	c := client(t)
	told, heard := newTold(t, c, fresh(t).Prefix)
	for _, text := range []string{"", " ", "1 a b", "x a b c", "-1 a b c", "1 a b ", "99999999999999999999 a b c", strings.Repeat("9 ", maxHeard)} {
		require.NoError(t, c.Publish(t.Context(), told.channel(), text).Err())
	}
	require.NoError(t, c.HSet(t.Context(), told.key("a"), "b", "junk", "c", "1 x y", "d", "99999999999999999999 99999999999999999999 later").Err())
	require.NoError(t, c.Publish(t.Context(), told.channel(), "1 a b good").Err())
	told.Recall("a")
	heard.find(t, "good")
	heard.find(t, "")
	heard.mu.Lock()
	all := slices.Clone(heard.all)
	heard.mu.Unlock()
	for _, m := range all {
		require.Contains(t, []string{"", "good", "later", "cannot be kept"}, m.News)
		require.GreaterOrEqual(t, m.Age, time.Duration(0))
	}
	require.NoError(t, c.Set(t.Context(), told.key("text"), "no hash", time.Minute).Err())
	told.Post(quota.Message{Account: "text", Bucket: "b", News: "cannot be kept", Keep: time.Hour})
	heard.find(t, "cannot be kept")
	redistest.Await(t, "the failure", func() bool {
		told.Recall("text") // again, for what goes well in between takes Err away
		return strings.Contains(fmt.Sprint(told.Stats().Err), "WRONGTYPE")
	})
	redistest.Await(t, "the end", func() bool { return heard.heard("") >= 2 })
	told.Post(quota.Message{Account: "a", Bucket: "b", News: "it goes on"})
	redistest.Await(t, "a success", func() bool { return told.Stats().Err == nil })
}

func TestTold_Validate(t *testing.T) {
	c := redis.NewClient(&redis.Options{})
	defer c.Close()
	require.ErrorContains(t, (&Told{}).Validate(), "Client is nil")
	require.ErrorContains(t, (&Told{Client: c, Prefix: "{x}"}).Validate(), "brace")
	require.ErrorContains(t, (&Told{Client: c, Timeout: -1}).Validate(), "negative")
	require.Panics(t, func() { (&Told{}).Post(quota.Message{}) })
}

// A refusal that one process met holds back the other.
func TestTold_sharesARefusal(t *testing.T) {
	c, prefix := client(t), fresh(t).Prefix
	one, _ := newTold(t, c, prefix)
	other, _ := newTold(t, c, prefix)
	var trackers []*quota.Tracker
	for _, told := range []*Told{one, other} {
		trackers = append(trackers, &quota.Tracker{Share: told, Secret: []byte("secret")})
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.test/items", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer one")
	reserve := func(tr *quota.Tracker, dry bool) throttle.Decision {
		d, err := tr.Demand(req).Limiter.Reserve(t.Context(), throttle.Claim{DryRun: dry})
		require.NoError(t, err)
		return d
	}
	for _, tr := range trackers {
		redistest.Await(t, "the first request may go", func() bool { return reserve(tr, true).OK })
	}
	m := trackers[0].Demand(req)
	d := reserve(trackers[0], false)
	resp := &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"3600"}}}
	throttle.Observe(t.Context(), m.Limiter, throttle.Claim{}, d, trackers[0].Feedback(req, m, resp, nil, time.Now(), nil))
	redistest.Await(t, "the gate of the other to close", func() bool { return !reserve(trackers[1], true).OK })
	require.Greater(t, reserve(trackers[1], true).Wait, 58*time.Minute)
}
