package throttleredis

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

// hourClock is the system clock, set ahead so that an hour began when the tests did: no limit per
// hour begins a new window during a test.
var hourClock = skewedClock(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)))

// newEventualStore returns a Store in Mode Eventual, which is closed at the end of the test.
func newEventualStore(t *testing.T, prefix string, c redis.Scripter, regions ...Subscriber) *Store {
	s := &Store{Client: c, Prefix: prefix, Mode: Eventual, Timeout: 5 * time.Second, Clock: hourClock, Eventual: EventualOptions{
		Interval: 20 * time.Millisecond, PeerTimeout: time.Minute, Regions: regions, // long, so that a slow machine does not divide the limit
	}}
	t.Cleanup(func() { require.NoError(t, s.Close(context.Background())) })
	return s
}

// awaitRemaining waits until all hosts have want units left.
func awaitRemaining(t *testing.T, want int64, hosts []*Limiter) {
	t.Helper()
	for i, l := range hosts {
		redistest.Await(t, fmt.Sprint("the total of host ", i), func() bool { return remaining(t, l, "k") == want })
	}
}

// Hosts that use the same Redis share their limits. What they store expires, and what they
// no longer need is removed.
func TestEventual_overOneRedis(t *testing.T) {
	t.Parallel()
	c, prefix := client(t), newTestStore(t).Prefix
	var operations sync.Map
	one, other := newEventualStore(t, prefix, c), newEventualStore(t, prefix, c)
	one.OnOperation = func(name string, took time.Duration, err error) { operations.Store(fmt.Sprint(name, " ", err), took) }
	hosts := window(1000, one, other)
	for _, l := range hosts {
		require.Equal(t, 10, granted(t, l, "k", 10))
	}
	awaitRemaining(t, 980, hosts)
	require.Equal(t, EventualStats{Hosts: 2, Reachable: 2, Regions: 1, Keys: 1}, one.Stats())
	link := &redisLink{link{channel: "{" + prefix + ":usage}"}}
	for _, s := range []*Store{one, other} {
		key := link.key(strconv.FormatUint(s.eventual.exchange.host, 36))
		require.EqualValues(t, 2, c.HLen(t.Context(), key).Val(), "a counter, and the latest message")
		left := c.PTTL(t.Context(), key).Val()
		require.Greater(t, left, time.Hour)
		require.LessOrEqual(t, left, 2*time.Hour+time.Minute)
	}
	require.Greater(t, c.PTTL(t.Context(), link.key("hosts")).Val(), time.Hour)
	late := window(1000, newEventualStore(t, prefix, c))
	awaitRemaining(t, 980, late)

	fast := one.TokenBucket(throttle.Limit{Count: 10, Per: 8 * time.Second}) // full again after 4 s: time enough to see it stored
	require.Equal(t, 5, granted(t, fast, "fast", 5))
	key := link.key(strconv.FormatUint(one.eventual.exchange.host, 36))
	redistest.Await(t, "the bucket to be stored", func() bool { return c.HLen(t.Context(), key).Val() == 3 })
	redistest.Await(t, "the full bucket to be removed", func() bool { return c.HLen(t.Context(), key).Val() == 2 })
	for _, name := range []string{"publish <nil>", "fetch <nil>"} {
		_, ok := operations.Load(name)
		require.True(t, ok, name)
	}
	runtime.KeepAlive(fast)
	runtime.KeepAlive(hosts) // a limit that nothing refers to is forgotten
}

// Three regions with a Redis each. Responses of other regions are late, and a region is cut
// off in different ways.
func TestEventual_regionsOverLinksWithFaults(t *testing.T) {
	t.Parallel()
	const regions = 3
	servers := redistest.StartN(t, regions)
	var links [regions][]*redistest.Proxy // to the Redis of each region
	var hosts []*Limiter
	for region := range regions {
		var others []Subscriber
		for other, s := range servers {
			if other != region {
				p := redistest.StartProxy(t, s.Addr)
				p.Latency = 100 * time.Millisecond
				p.Set(redistest.Slow)
				links[other] = append(links[other], p)
				others = append(others, dial(t, p.Addr))
			}
		}
		hosts = append(hosts, window(10_000, newEventualStore(t, "", dial(t, servers[region].Addr), others...))...)
	}
	left := int64(10_000)
	use := func() {
		for _, l := range hosts {
			left -= int64(granted(t, l, "k", 10))
		}
	}
	use()
	awaitRemaining(t, left, hosts)
	for _, fault := range []redistest.Fault{redistest.BlackHole, redistest.Refuse, redistest.Reset, redistest.NoReplies} {
		for _, p := range links[2] {
			p.Set(fault)
		}
		use()
		awaitRemaining(t, left, hosts[2:]) // it receives
		for _, p := range links[2] {
			p.Set(redistest.Slow)
		}
		use()
		awaitRemaining(t, left, hosts)
	}
	servers[0].Kill()
	use()
	servers[0].Restart() // without its data
	awaitRemaining(t, left, hosts)
}

func TestEventual_worksInACluster(t *testing.T) {
	addrs, prefix := threeNodes.start(t), newTestStore(t).Prefix
	var stores []*Store
	for range 2 {
		c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true})
		t.Cleanup(func() { c.Close() })
		stores = append(stores, newEventualStore(t, prefix, c))
	}
	hosts := window(100, stores...)
	for _, l := range hosts {
		require.Equal(t, 10, granted(t, l, "k", 10))
	}
	awaitRemaining(t, 80, hosts)
}

// A server that stops responding delays neither decisions nor, for longer than its timeouts,
// Close.
func TestEventual_closesWhateverHappens(t *testing.T) {
	server := redistest.Start(t)
	for _, fault := range []redistest.Fault{redistest.Pass, redistest.BlackHole, redistest.Refuse, redistest.Reset, redistest.NoReplies} {
		p := redistest.StartProxy(t, server.Addr)
		c := redis.NewClient(&redis.Options{Addr: p.Addr, ContextTimeoutEnabled: true, MaxRetries: -1})
		before := runtime.NumGoroutine()
		s := &Store{Client: c, Mode: Eventual, Timeout: 200 * time.Millisecond, Eventual: EventualOptions{Regions: []Subscriber{c}}}
		l := s.PermitsPerPeriod(1000, time.Hour)
		redistest.Await(t, "a connection", func() bool { return s.Stats().Regions == 2 })
		p.Set(fault)
		for i := range 1000 {
			require.Equal(t, 1, granted(t, l, fmt.Sprint(i), 1))
		}
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		_ = s.Close(canceled)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { s.Close(t.Context()) })
		}
		wg.Wait()
		require.NoError(t, s.Close(t.Context()))
		require.Equal(t, 1, granted(t, l, "after", 1))
		require.NoError(t, c.Close())
		p.Set(redistest.Reset) // go-redis 9.22 does not close a connection whose handshake has timed out
		redistest.Await(t, "all goroutines to end", func() bool { return runtime.NumGoroutine() <= before+2 })
	}
}

func TestEventual_ignoresMalformedMessages(t *testing.T) {
	c, prefix := client(t), newTestStore(t).Prefix
	hosts := window(100, newEventualStore(t, prefix, c), newEventualStore(t, prefix, c))
	link := &redisLink{link{channel: "{" + prefix + ":usage}"}}
	good := usageMessage{host: 7, sequence: 3}
	valid := string(good.appendHeader(nil))
	for _, text := range []string{"", "x", strings.Repeat("x", 100_000), valid[:5], valid + "x", valid + strings.Repeat("\xff", 100), "\x02" + valid[1:]} {
		require.NoError(t, c.Publish(t.Context(), link.channel, text).Err())
	}
	require.NoError(t, c.ZAdd(t.Context(), link.key("hosts"), redis.Z{Score: 1e15, Member: "!"}, redis.Z{Score: 1e15, Member: "a"}).Err())
	require.NoError(t, c.HSet(t.Context(), link.key("a"), "x", "junk", "", "1 ", "y", "99999999999999999999 z").Err())
	require.NoError(t, c.Publish(t.Context(), link.channel, valid).Err())
	for _, l := range hosts {
		require.Equal(t, 10, granted(t, l, "k", 10))
	}
	awaitRemaining(t, 80, hosts)
}

// A message of any numbers changes nothing but the counters in it.
func FuzzParseUsage(f *testing.F) {
	m := usageMessage{host: 1, sequence: 2}
	i := usageItem{limit: 3, tag: "k", counter: usageCounter{4, 5, 6}, level: 7}
	f.Add(string(i.appendCounter(i.appendName(m.appendHeader(nil)))))
	f.Fuzz(func(t *testing.T, text string) {
		m, ok := parseUsage(text)
		if !ok {
			return
		}
		again := m.appendHeader(nil)
		for _, i := range m.items {
			again = i.appendCounter(i.appendName(again))
		}
		same, ok := parseUsage(string(again))
		require.True(t, ok)
		require.Equal(t, m, same)
		x := &usageExchange{options: EventualOptions{}.withDefaults(), start: time.Now()}
		x.slotLength = time.Second
		x.current.Store(&hostCounts{all: 2, reachable: 2, share: true})
		for _, rule := range []usageRule{newBucketUsage(throttle.PerSecond(10), time.Second), &windowUsage{config: throttle.FixedWindowConfig{Count: 10, Per: time.Second}, sliding: true}} {
			u := &limitUsage{exchange: x, rule: rule, keys: new(atomic.Int64), seed: maphash.MakeSeed(), capacity: 10, per: time.Second}
			u.networks.Init(100, nil)
			for _, i := range m.items {
				u.merge(&usagePeer{id: m.host}, i)
				d := u.reserve(throttle.Claim{Key: i.tag}, 1+rand.Int64N(10))
				require.GreaterOrEqual(t, d.Wait, time.Duration(0))
				require.GreaterOrEqual(t, d.Remaining, int64(0))
			}
		}
	})
}
