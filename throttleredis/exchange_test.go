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
	"github.com/heed-go/heed/quota/fleet"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

// An updateRecorder records the updates that an Exchange receives.
type updateRecorder struct {
	mu  sync.Mutex
	all []fleet.Message
}

func (e *updateRecorder) record(m fleet.Message) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, m)
}

// count returns the number of recorded updates with the given Content.
func (e *updateRecorder) count(news string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range e.all {
		if m.Content == news {
			n++
		}
	}
	return n
}

func (e *updateRecorder) find(t *testing.T, news string) (found fleet.Message) {
	redistest.Await(t, "hearing "+news, func() bool { return e.count(news) > 0 })
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range e.all {
		if m.Content == news {
			found = m
		}
	}
	return found
}

// newTestBus returns the connected bus of an Exchange and a recorder of its messages. It is
// closed at the end of the test.
func newTestBus(t *testing.T, c redis.UniversalClient, prefix string) (*exchangeBus, *updateRecorder) {
	exchange, e := &Exchange{Client: c, Prefix: prefix, Timeout: 5 * time.Second}, &updateRecorder{}
	exchange.start()
	exchange.bus.Subscribe(t.Context(), e.record)
	t.Cleanup(func() { require.NoError(t, exchange.Close(context.Background())) })
	awaitConnected(t, &exchange.bus)
	return &exchange.bus, e
}

func awaitConnected(t *testing.T, exchange *exchangeBus) {
	redistest.Await(t, "a subscription", func() bool { return exchange.Stats().Connected })
}

func dial(t *testing.T, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1})
	t.Cleanup(func() { c.Close() })
	return c
}

func TestExchange_notifiesAllSubscribers(t *testing.T) {
	c, prefix := client(t), newTestStore(t).Prefix
	one, own := newTestBus(t, c, prefix)
	_, other := newTestBus(t, c, prefix)
	_, stranger := newTestBus(t, c, prefix+" of others")
	one.Publish(fleet.Message{Account: "a", Quota: "b", Content: "a b c", Age: time.Second})
	m := other.find(t, "a b c")
	require.Equal(t, "a", m.Account)
	require.Equal(t, "b", m.Quota)
	require.GreaterOrEqual(t, m.Age, time.Second)
	own.find(t, "a b c")
	require.Zero(t, stranger.count("a b c"))
	require.Zero(t, c.Exists(t.Context(), one.link.key("a")).Val(), "nothing to keep")
	redistest.Await(t, "the count", func() bool { return one.Stats().Published == 1 })
	require.NoError(t, one.Stats().Err)
}

func TestExchange_keepsForLaterSubscribers(t *testing.T) {
	c, prefix := client(t), newTestStore(t).Prefix
	one, updates := newTestBus(t, c, prefix)
	for _, news := range []string{"old", "new"} {
		one.Publish(fleet.Message{Account: "a", Quota: "b", Content: news, Keep: time.Hour})
	}
	one.Publish(fleet.Message{Account: "a", Quota: "c", Content: "over", Keep: time.Millisecond})
	one.Publish(fleet.Message{Account: "a", Quota: "d", Content: "late", Keep: time.Hour, Age: time.Minute})
	updates.find(t, "late")
	late, found := newTestBus(t, c, prefix)
	late.Fetch("a")
	require.GreaterOrEqual(t, found.find(t, "late").Age, time.Minute)
	require.Less(t, found.find(t, "new").Age, time.Minute)
	found.find(t, "") // the end
	require.Zero(t, found.count("old")+found.count("over"))
	left := c.PTTL(t.Context(), one.link.key("a")).Val()
	require.Greater(t, left, 50*time.Minute)
	require.LessOrEqual(t, left, time.Hour)
}

func TestExchange_keepsNoMoreThanItMust(t *testing.T) {
	c := client(t)
	one, updates := newTestBus(t, c, newTestStore(t).Prefix)
	for i := range 500 {
		one.Publish(fleet.Message{Account: "a", Quota: fmt.Sprint(i), Content: fmt.Sprint("news", i), Keep: time.Hour})
		if i%100 == 99 {
			updates.find(t, fmt.Sprint("news", i))
		}
	}
	require.LessOrEqual(t, c.HLen(t.Context(), one.link.key("a")).Val(), int64(64))
}

// After a server has been restarted, updates arrive again, including those published in
// between.
func TestExchange_outlivesAServer(t *testing.T) {
	s := redistest.Start(t)
	one, _ := newTestBus(t, dial(t, s.Addr), "")
	other, updates := newTestBus(t, dial(t, s.Addr), "")
	other.Fetch("a")
	updates.find(t, "")
	s.Kill()
	redistest.Await(t, "noticing it", func() bool { return !one.Stats().Connected && !other.Stats().Connected })
	require.Error(t, other.Stats().Err)
	one.Publish(fleet.Message{Account: "a", Quota: "b", Content: "meanwhile", Keep: time.Hour})
	other.Fetch("x")
	redistest.Await(t, "nobody waits for it", func() bool { return updates.count("") >= 2 })
	s.Restart()
	updates.find(t, "meanwhile")
	awaitConnected(t, one)
	awaitConnected(t, other)
	one.Publish(fleet.Message{Account: "a", Quota: "b", Content: "after"})
	updates.find(t, "after")
	require.NoError(t, other.Stats().Err)
}

// Updates that were published while a subscription was down are fetched from the keys.
func TestExchange_fetchesWhatItMissed(t *testing.T) {
	s := redistest.Start(t)
	p := redistest.StartProxy(t, s.Addr)
	one, _ := newTestBus(t, dial(t, s.Addr), "")
	other, updates := newTestBus(t, dial(t, p.Addr), "")
	other.Fetch("a")
	updates.find(t, "")
	p.Set(redistest.Refuse)
	redistest.Await(t, "noticing it", func() bool { return !other.Stats().Connected })
	one.Publish(fleet.Message{Account: "a", Quota: "b", Content: "missed", Keep: time.Hour})
	redistest.Await(t, "posting it", func() bool { return one.Stats().Published == 1 })
	p.Set(redistest.Pass)
	updates.find(t, "missed")
}

// A server that stops responding does not delay callers or Close.
func TestExchange_closesWhateverHappens(t *testing.T) {
	s := redistest.Start(t)
	for _, fault := range []redistest.Fault{redistest.Pass, redistest.BlackHole, redistest.Refuse, redistest.Reset, redistest.NoReplies} {
		p := redistest.StartProxy(t, s.Addr)
		c := redis.NewClient(&redis.Options{Addr: p.Addr, ContextTimeoutEnabled: true, MaxRetries: -1})
		before := runtime.NumGoroutine()
		closing := &Exchange{Client: c}
		closing.Subscribe(t.Context(), func(quota.Update) {})
		exchange := &closing.bus
		awaitConnected(t, exchange)
		p.Set(fault)
		for i := range 1000 {
			exchange.Publish(fleet.Message{Account: "a", Quota: fmt.Sprint(i), Content: "n", Keep: time.Hour})
			exchange.Fetch(fmt.Sprint(i))
		}
		require.NoError(t, closing.Close(t.Context()))
		require.LessOrEqual(t, len(exchange.queue.updates), maxQueuedUpdates)
		require.NoError(t, c.Close())
		p.Set(redistest.Reset) // go-redis 9.22 does not close a connection whose handshake has timed out
		redistest.Await(t, "all goroutines to end", func() bool { return runtime.NumGoroutine() <= before+2 })
		exchange.Publish(fleet.Message{Account: "a", Content: "after the end"})
	}
}

func TestExchange_ignoresMalformedUpdates(t *testing.T) {
	c := client(t)
	exchange, updates := newTestBus(t, c, newTestStore(t).Prefix)
	for _, text := range []string{"", " ", "1 a b", "x a b c", "-1 a b c", "1 a b ", "99999999999999999999 a b c", strings.Repeat("9 ", maxUpdateBytes)} {
		require.NoError(t, c.Publish(t.Context(), exchange.link.channel, text).Err())
	}
	require.NoError(t, c.HSet(t.Context(), exchange.link.key("a"), "b", "junk", "c", "1 x y", "d", "99999999999999999999 99999999999999999999 later").Err())
	require.NoError(t, c.Publish(t.Context(), exchange.link.channel, "1 a b good").Err())
	exchange.Fetch("a")
	updates.find(t, "good")
	updates.find(t, "")
	updates.mu.Lock()
	all := slices.Clone(updates.all)
	updates.mu.Unlock()
	for _, m := range all {
		require.Contains(t, []string{"", "good", "later", "cannot be kept"}, m.Content)
		require.GreaterOrEqual(t, m.Age, time.Duration(0))
	}
	require.NoError(t, c.Set(t.Context(), exchange.link.key("text"), "no hash", time.Minute).Err())
	exchange.Publish(fleet.Message{Account: "text", Quota: "b", Content: "cannot be kept", Keep: time.Hour})
	updates.find(t, "cannot be kept")
	redistest.Await(t, "the failure", func() bool {
		exchange.Fetch("text") // again, because a success in between clears Err
		return strings.Contains(fmt.Sprint(exchange.Stats().Err), "WRONGTYPE")
	})
	redistest.Await(t, "the end", func() bool { return updates.count("") >= 2 })
	exchange.Publish(fleet.Message{Account: "a", Quota: "b", Content: "it goes on"})
	redistest.Await(t, "a success", func() bool { return exchange.Stats().Err == nil })
}

func TestExchange_Validate(t *testing.T) {
	c := redis.NewClient(&redis.Options{})
	defer c.Close()
	require.ErrorContains(t, (&Exchange{}).Validate(), "Client is nil")
	require.ErrorContains(t, (&Exchange{Client: (*redis.Client)(nil)}).Validate(), "Client is nil")
	require.ErrorContains(t, (&Exchange{Client: c, Prefix: "{x}"}).Validate(), "brace")
	require.ErrorContains(t, (&Exchange{Client: c, Timeout: -1}).Validate(), "negative")
	require.Panics(t, func() { (&Exchange{}).Publish(quota.Update{}) })
}

// When several requests of one process are rejected, each sent after the response to the one before, those of the
// other wait, too. One rejection holds no others (QUOTA section 2 rule 3).
func TestExchange_sharesAHold(t *testing.T) {
	c, prefix := client(t), newTestStore(t).Prefix
	var trackers []*quota.Tracker
	for range 2 {
		exchange := &Exchange{Client: c, Prefix: prefix, Timeout: 5 * time.Second, Secret: []byte("secret")}
		t.Cleanup(func() { require.NoError(t, exchange.Close(context.Background())) })
		exchange.start()
		awaitConnected(t, &exchange.bus)
		trackers = append(trackers, &quota.Tracker{Exchange: exchange})
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
	reject := func() {
		m, d := trackers[0].Demand(req), reserve(trackers[0], false)
		require.True(t, d.OK)
		resp := &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"3600"}}}
		m.Limiter.Report(t.Context(), throttle.Claim{}, d, trackers[0].Feedback(req, m, resp, nil, time.Now(), nil))
	}
	reject()
	require.True(t, reserve(trackers[0], true).OK)
	const most = 8 // rejections that begin a hold
	rejections := 1
	for ; reserve(trackers[0], true).OK; rejections++ {
		require.Less(t, rejections, most)
		reject()
	}
	redistest.Await(t, "the hold of the other", func() bool { return !reserve(trackers[1], true).OK })
	d := reserve(trackers[1], true)
	require.True(t, d.ServerImposed)
	require.Greater(t, d.Expected, 58*time.Minute)
	require.Less(t, d.Wait, time.Minute, "it tests the hold, if the process that was rejected does not (rule 4)")
}
