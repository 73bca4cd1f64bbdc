package fleet

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota"
)

// A link is a Bus whose messages a test delivers, as often and as late as it likes.
type link struct {
	published []Message
	receive   func(Message)
	fetches   []string
}

func (l *link) Publish(m Message)                                  { l.published = append(l.published, m) }
func (l *link) Subscribe(_ context.Context, receive func(Message)) { l.receive = receive }
func (l *link) Fetch(account string)                               { l.fetches = append(l.fetches, account) }

// latest returns the latest published message, as a Bus delivers it after age.
func (l *link) latest(age time.Duration) Message {
	m := l.published[len(l.published)-1]
	m.Keep, m.Age = 0, age
	return m
}

// A receiver is an Exchange that receives from a link, and what it has received.
type receiver struct {
	exchange *Exchange
	link     link
	all      []quota.Update
}

func newReceiver(ctx context.Context) *receiver {
	r := new(receiver)
	r.exchange = &Exchange{Bus: &r.link, Secret: secret}
	r.exchange.Subscribe(ctx, func(u quota.Update) { r.all = append(r.all, u) })
	return r
}

// received returns the latest update, and the number of all.
func (r *receiver) received(t *testing.T) (quota.Update, int) {
	require.NotEmpty(t, r.all)
	return r.all[len(r.all)-1], len(r.all)
}

var hold = quota.Update{Kind: quota.UpdateHold, Sender: 1, Account: "a", Route: 1, Wait: time.Minute}

func TestExchange_deliversEachMessageOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l link
		sender, r := &Exchange{Bus: &l, Secret: secret}, newReceiver(t.Context())
		for i := range 10 {
			u := hold
			u.Route = uint64(i)
			sender.Publish(u)
		}
		for range 3 {
			for _, m := range l.published {
				r.link.receive(m)
			}
		}
		require.Len(t, r.all, 10)
		require.Equal(t, Message{Account: "a", Quota: "9", Content: l.published[9].Content, Keep: time.Minute}, l.published[9])
	})
}

// A message that the Bus holds back is as old as it is, also if the clocks differ.
func TestExchange_detectsDelays(t *testing.T) {
	for _, skew := range []time.Duration{0, 5 * time.Hour, -5 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var l link
			sender, r := &Exchange{Bus: &l, Secret: secret, Clock: skewed(skew)}, newReceiver(t.Context())
			sender.Publish(hold)
			r.link.receive(l.latest(0))
			sender.Publish(hold)
			time.Sleep(40 * time.Second)
			r.link.receive(l.latest(0))
			u, _ := r.received(t)
			require.Equal(t, 40*time.Second, u.Age)
			sender.Publish(hold)
			time.Sleep(20 * time.Second)
			r.link.receive(l.latest(30 * time.Second))
			u, _ = r.received(t)
			require.Equal(t, 30*time.Second, u.Age, "the Bus knows more")
		})
	}
}

type skewed time.Duration

func (s skewed) Now() time.Time                         { return time.Now().Add(time.Duration(s)) }
func (s skewed) After(d time.Duration) <-chan time.Time { return time.After(d) }

// A process that begins to use an account gets what others have published before, from its own
// store or from the Bus, each once.
func TestExchange_fetchReturnsWhatIsValid(t *testing.T) {
	for name, tt := range map[string]struct {
		received bool // the hold, before Fetch
		numbers  int  // messages published and received after the hold
		after    time.Duration
		own      int // updates that Fetch returns by itself
		kept     int // that are accepted from the Bus afterwards
	}{
		"received before":             {true, 0, 10 * time.Second, 1, 0},
		"kept by the Bus":             {false, 0, 10 * time.Second, 0, 1},
		"kept by the Bus, low number": {false, 3000, 10 * time.Second, 0, 1},
		"over":                        {true, 0, time.Minute, 0, 0},
		"over, low number":            {false, 3000, time.Minute, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			var l link
			sender, r := &Exchange{Bus: &l, Secret: secret}, newReceiver(t.Context())
			sender.Publish(hold)
			kept := l.published[0]
			if tt.received {
				r.link.receive(kept)
			}
			for range tt.numbers {
				sender.Publish(quota.Update{Kind: quota.UpdateProbe, Sender: 1, Account: "b", Route: 2})
				r.link.receive(l.latest(0))
			}
			time.Sleep(tt.after)
			r.all, kept.Age = nil, tt.after
			if tt.numbers > 0 {
				r.link.receive(kept)
				require.Empty(t, r.all, "%s: not fetched", name)
			}
			r.exchange.Fetch("a")
			require.Equal(t, []string{"a"}, r.link.fetches)
			require.Len(t, r.all, tt.own, name)
			for range 3 {
				r.link.receive(kept)
			}
			require.Len(t, r.all, tt.own+tt.kept, name)
			for _, u := range r.all {
				require.Equal(t, tt.after, u.Age, name)
			}
			r.link.receive(Message{Account: "a"})
			u, n := r.received(t)
			require.Equal(t, quota.Update{Account: "a"}, u, "the end of the fetch")
			r.link.receive(kept)
			require.Len(t, r.all, n)
		})
	}
}

// While kept messages are fetched, an old one cannot replace a later one that was received.
func TestExchange_fetchDoesNotRepeatWhatWasReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l link
		sender, r := &Exchange{Bus: &l, Secret: secret}, newReceiver(t.Context())
		sender.Publish(hold)
		old := l.published[0]
		for range 2000 {
			shorter := hold
			shorter.Wait = 30 * time.Second
			sender.Publish(shorter)
		}
		r.link.receive(l.latest(0))
		r.exchange.Fetch("a")
		r.all = nil
		r.link.receive(old)
		require.Empty(t, r.all)
		// What this process has published itself is later, too.
		r.exchange.Publish(quota.Update{Kind: quota.UpdateRelease, Sender: 2, Account: "a", Route: 1})
		r.exchange.Fetch("a")
		require.Empty(t, r.all)
	})
}

// A message that arrives after a later one of the same quota does not replace it for Fetch.
func TestExchange_fetchReturnsTheLatest(t *testing.T) {
	for name, tt := range map[string]struct {
		before int           // messages that the sender of the first update has sent before
		apart  time.Duration // time between the updates
		other  bool          // the second update is of another sender, whose numbers begin at 1
	}{
		"one sender":             {0, time.Second, false},
		"at the same time":       {0, 0, false},
		"two senders":            {0, time.Second, true},
		"of a new process":       {5, time.Second, true},
		"one sender, many later": {2000, time.Second, false},
	} {
		for _, order := range [][2]int{{0, 1}, {1, 0}} {
			synctest.Test(t, func(t *testing.T) {
				var l link
				r, first := newReceiver(t.Context()), &Exchange{Bus: &l, Secret: secret}
				second, update, later := first, hold, hold
				if later.Wait = time.Hour; tt.other {
					second, later.Sender = &Exchange{Bus: &l, Secret: secret}, 2
				}
				for range tt.before {
					first.Publish(quota.Update{Kind: quota.UpdateProbe, Sender: 1, Account: "b"})
				}
				first.Publish(update)
				time.Sleep(tt.apart)
				second.Publish(later)
				messages := l.published[tt.before:]
				messages[0].Age = tt.apart
				for _, i := range order {
					r.link.receive(messages[i])
				}
				require.Len(t, r.all, 2, name)
				r.all = nil
				r.exchange.Fetch("a")
				require.Len(t, r.all, 1, name)
				require.Equal(t, time.Hour, r.all[0].Wait, "%s, order %v", name, order)
			})
		}
	}
}

// After the end of a fetch, messages with low numbers are ignored again.
func TestExchange_fetchEnds(t *testing.T) {
	for ended, want := range map[bool]int{false: 1, true: 0} {
		synctest.Test(t, func(t *testing.T) {
			var l link
			sender, r := &Exchange{Bus: &l, Secret: secret}, newReceiver(t.Context())
			for range 3000 {
				sender.Publish(hold)
			}
			other := hold
			other.Account = "b"
			sender.Publish(other)
			r.link.receive(l.latest(0))
			r.exchange.Fetch("a")
			if ended {
				r.link.receive(Message{Account: "a"})
			}
			r.all = nil
			r.link.receive(l.published[0])
			require.Len(t, r.all, want)
		})
	}
}

func TestExchange_subscriptionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := new(LocalBus)
		e, sender := &Exchange{Bus: bus, Secret: secret}, &Exchange{Bus: bus, Secret: secret}
		before, received := runtime.NumGoroutine(), [2]int{}
		ctx, cancel := context.WithCancel(t.Context())
		e.Subscribe(ctx, func(quota.Update) { received[0]++ })
		e.Subscribe(t.Context(), func(quota.Update) { received[1]++ })
		sender.Publish(hold)
		synctest.Wait()
		require.Equal(t, [2]int{1, 1}, received)
		cancel()
		synctest.Wait()
		sender.Publish(hold)
		synctest.Wait()
		e.Fetch("a")
		synctest.Wait()
		require.Equal(t, [2]int{1, 4}, received, "the message, what is known of the account, and the end")
		require.Len(t, bus.subscribers, 1)
		require.Len(t, e.subscriptions, 1)
		for i := 0; i < 1_000_000 && runtime.NumGoroutine() > before; i++ { // one that ends does not block, but is counted for a moment
			runtime.Gosched()
		}
		require.LessOrEqual(t, runtime.NumGoroutine(), before)

		r := newReceiver(ctx) // a Bus that does not end subscriptions
		r.link.receive(Message{Account: "a"})
		require.Empty(t, r.all)
	})
}

func TestExchange_memoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l link
		r := newReceiver(t.Context())
		s := r.exchange.subscriptions[0]
		for i := range 3000 {
			sender := &Exchange{Bus: &l, Secret: secret}
			u := hold
			u.Sender, u.Account, u.Route = uint64(i), fmt.Sprint(i), 1
			sender.Publish(u)
			r.link.receive(l.latest(0))
			u.Account, u.Route = "a", uint64(i)
			sender.Publish(u)
			r.link.receive(l.latest(0))
			r.exchange.Fetch(fmt.Sprint("unknown", i))
		}
		require.Len(t, s.guard.senders, 1024)
		require.Len(t, s.store.accounts, 1024)
		require.LessOrEqual(t, len(s.store.accounts["a"]), 8)
		require.Len(t, s.guard.fetching, 3000)
	})
}

func TestExchange_Validate(t *testing.T) {
	require.ErrorContains(t, new(Exchange).Validate(), "Bus is nil")
	require.NoError(t, (&Exchange{Bus: new(LocalBus)}).Validate())
	for _, use := range []func(*Exchange){
		func(e *Exchange) { e.Publish(quota.Update{}) },
		func(e *Exchange) { e.Subscribe(t.Context(), func(quota.Update) {}) },
		func(e *Exchange) { e.Fetch("a") },
	} {
		require.PanicsWithError(t, "fleet: exchange: Bus is nil: set it, for example to a LocalBus", func() { use(new(Exchange)) })
	}
}

func TestLocalBus_keepsMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b LocalBus
		b.Publish(Message{Account: "a", Quota: "1", Content: "old", Keep: time.Minute})
		b.Publish(Message{Account: "a", Quota: "1", Content: "new", Keep: time.Minute, Age: time.Second})
		b.Publish(Message{Account: "a", Quota: "2", Content: "short", Keep: time.Second})
		b.Publish(Message{Account: "a", Quota: "3", Content: "not kept"})
		b.Publish(Message{Account: "a", Quota: "4", Content: "old", Keep: time.Minute, Age: 50 * time.Second})
		b.Publish(Message{Account: "b", Quota: "1", Content: "another", Keep: time.Minute})
		time.Sleep(10 * time.Second)
		var all []Message
		b.Subscribe(t.Context(), func(m Message) { all = append(all, m) })
		b.Fetch("a")
		require.Equal(t, []Message{{Account: "a", Quota: "1", Content: "new", Keep: time.Minute, Age: 11 * time.Second}, {Account: "a"}}, all)
	})
}

// Subscribers are called one after the other, also while messages are published.
func TestLocalBus_deliversOneMessageAtATime(t *testing.T) {
	for _, first := range []int{1, 2, 3} { // published together
		synctest.Test(t, func(t *testing.T) {
			var b LocalBus
			var running, received atomic.Int32
			b.Subscribe(t.Context(), func(Message) {
				received.Add(1)
				assert.EqualValues(t, 1, running.Add(1))
				time.Sleep(time.Second)
				running.Add(-1)
			})
			for range first {
				b.Publish(Message{Content: "first"})
			}
			for range 3 {
				time.Sleep(100 * time.Millisecond)
				b.Publish(Message{Content: "later"})
			}
			time.Sleep(time.Minute)
			require.EqualValues(t, first+3, received.Load())
		})
	}
}

// Messages arrive in the order in which they were published, and are bounded.
func TestLocalBus_deliversInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b LocalBus
		var all []Message
		block := make(chan struct{})
		b.Subscribe(t.Context(), func(m Message) {
			<-block
			all = append(all, m)
		})
		b.Publish(Message{Content: "first"})
		synctest.Wait()
		for i := range 2 * maxQueue {
			b.Publish(Message{Content: fmt.Sprint(i)})
		}
		close(block)
		synctest.Wait()
		require.Len(t, all, 1+1024)
		for i, m := range all[1:] {
			require.Equal(t, fmt.Sprint(i), m.Content)
		}
		b.Publish(Message{Content: "again"})
		synctest.Wait()
		require.Len(t, all, 2+1024)
	})
}
