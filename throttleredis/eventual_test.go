package throttleredis

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/inventedkeys"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/throttletest"
	"github.com/heed-go/heed/throttlehttp"
	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

// A host that is alone decides as the limiter in memory does.
func TestEventual_conformance(t *testing.T) {
	ten := throttle.Limit{Name: "ten", Count: 10, Per: time.Second, Burst: 10}
	thirds := throttle.Limit{Count: 3, Per: time.Second, Burst: 2}
	windows := func(w time.Duration) int64 { return 10 * int64(w/time.Second+2) }
	for name, tt := range map[string]struct {
		new  func(*Store) *Limiter
		spec throttletest.Spec
	}{
		"TokenBucket":         {func(s *Store) *Limiter { return s.TokenBucket(ten) }, throttletest.Spec{Limit: ten}},
		"TokenBucket, thirds": {func(s *Store) *Limiter { return s.TokenBucket(thirds) }, throttletest.Spec{Limit: thirds}},
		"FixedWindow": {func(s *Store) *Limiter {
			return s.FixedWindow(throttle.FixedWindowConfig{Count: 10, Per: time.Second})
		}, throttletest.Spec{Bound: windows}},
		"FixedWindow, each day": {func(s *Store) *Limiter {
			return s.FixedWindow(throttle.FixedWindowConfig{Count: 10, Align: throttle.EachDay})
		}, throttletest.Spec{Bound: func(w time.Duration) int64 { return 10 * int64(w/(24*time.Hour)+2) }}},
		"PermitsPerPeriod": {func(s *Store) *Limiter { return s.PermitsPerPeriod(10, time.Second) }, throttletest.Spec{Bound: windows}},
		"SlidingCounter": {func(s *Store) *Limiter {
			return s.SlidingCounter(throttle.SlidingCounterConfig{Limit: ten})
		}, throttletest.Spec{Bound: windows}},
		"SlidingCounter, rounded down": {func(s *Store) *Limiter {
			return s.SlidingCounter(throttle.SlidingCounterConfig{Limit: ten, RoundDown: true})
		}, throttletest.Spec{Bound: windows}},
	} {
		t.Run(name, func(t *testing.T) {
			network := newSimNetwork(t, 1, 1, time.Millisecond)
			s := network.host(t, 0, EventualOptions{})
			throttletest.TestLimiter(t, func(clk throttle.Clock) throttle.Limiter {
				x := &Store{Client: s.Client, Mode: Eventual, Clock: clk}
				x.eventual.once.Do(func() { x.eventual.exchange = s.eventual.exchange })
				l := tt.new(x)
				l.usage = newUsageFor(t, x, l.limit)
				return l
			}, tt.spec)
		})
	}
}

// newUsageFor returns a usage that is not shared with other limiters of the Store.
func newUsageFor(t *testing.T, s *Store, l limit) *limitUsage {
	x := s.eventual.exchange
	x.mu.Lock()
	x.limits = nil
	x.mu.Unlock()
	x.keys.Store(0)
	u, err := s.newUsage(l)
	require.NoError(t, err)
	return u
}

func TestEventual_hostsShareALimit(t *testing.T) {
	for name, kind := range eventualKinds(100, time.Minute) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := newSimNetwork(t, 3, 1, 100*time.Millisecond)
				var hosts []*Limiter
				for region := range 3 {
					hosts = append(hosts, kind(network.host(t, region, EventualOptions{})))
				}
				for _, l := range hosts {
					require.Equal(t, 20, granted(t, l, "k", 20))
				}
				time.Sleep(time.Second)
				total := 60
				for _, l := range hosts {
					require.InDelta(t, 40, remaining(t, l, "k"), 2)
					require.EqualValues(t, 100, remaining(t, l, "other"))
				}
				for range 100 {
					time.Sleep(50 * time.Millisecond)
					for _, l := range hosts {
						total += granted(t, l, "k", 5)
					}
				}
				require.LessOrEqual(t, total, 102+10, "two more because each host may always take one; a bucket restores ten in this time")
				require.GreaterOrEqual(t, total, 100)
			})
		})
	}
}

func TestEventual_rejectsLimitsThatItDoesNotHave(t *testing.T) {
	s := newSimNetwork(t, 1, 1, 0).host(t, 0, EventualOptions{})
	second := throttle.PerSecond(10)
	for text, f := range map[string]func(){
		`nginx "`:                   func() { s.Nginx(throttle.NginxConfig{Rate: 1, Per: time.Second}) },
		`leakybucket "`:             func() { s.LeakyBucket(throttle.LeakyBucketConfig{Limit: second}) },
		`slidinglog "10 per 1s": `:  func() { s.SlidingCounter(throttle.SlidingCounterConfig{Limit: second, Parts: 4}) },
		`fixedwindow "5 per 1s": M`: func() { s.FixedWindow(throttle.FixedWindowConfig{Count: 5, Per: time.Second, Align: throttle.AtFirst}) },
		"before others know":        nil,
		"use throttle.AllOf":        func() { AllOf(s.TokenBucket(second)) },
	} {
		if f == nil {
			text, f = "is over before others know", func() { s.PermitsPerPeriod(5, 299*time.Millisecond) }
		}
		require.PanicsWithValue(t, text, func() {
			defer func() {
				if r := recover(); r != nil {
					require.Contains(t, r, text)
					panic(text)
				}
			}()
			f()
		})
	}
	second.Name = "another"
	require.ErrorContains(t, (&Fallback{Limiter: s.TokenBucket(second)}).Validate(), "without a Fallback")
}

// Each key is counted separately, up to MaxKeys. Records that are no longer needed make
// space, also for those of other hosts.
func TestEventual_keysAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newSimNetwork(t, 1, 1, 10*time.Millisecond)
		o := EventualOptions{MaxKeys: 100}
		one, other := network.host(t, 0, o), network.host(t, 0, o)
		a, b := one.PermitsPerPeriod(5, time.Minute), other.PermitsPerPeriod(5, time.Minute)
		time.Sleep(time.Second)
		degraded := 0
		key := func(i int) string { return fmt.Sprintf("ip:2001:db8:0:%x::/64", i) } // all of one network
		for i := range 300 {
			d, err := a.Reserve(t.Context(), throttle.Claim{Key: key(i)})
			require.NoError(t, err)
			if d.Degraded {
				degraded++
				a.Report(t.Context(), throttle.Claim{Key: key(i)}, d, throttle.Feedback{State: throttle.Unused})
			}
		}
		require.Equal(t, 200, degraded)
		require.Equal(t, 1, granted(t, b, "only here", 1))
		time.Sleep(time.Second)
		require.Equal(t, 100, one.Stats().Keys)
		require.Equal(t, 100, other.Stats().Keys)
		require.LessOrEqual(t, one.Stats().DroppedKeys, uint64(1), "it takes the place of another key, if one has the same lock (issue 26 item 2)")
		shared := 0
		for i := range 100 {
			shared += granted(t, a, key(1000+i), 5)
		}
		require.LessOrEqual(t, shared, 5, "keys of a network that have no record share a limit")
		time.Sleep(3 * time.Minute) // a host that used a key within two and a half windows is known
		require.Zero(t, one.Stats().Keys)
		require.Zero(t, other.Stats().Keys)
		require.Equal(t, 5, granted(t, a, "new", 10))
		network.mu.Lock()
		stored := len(network.regions[0].stored[one.eventual.exchange.host])
		network.mu.Unlock()
		require.Equal(t, 1, stored, "what is no longer needed is removed from Redis")
		runtime.KeepAlive(b)
	})
}

// hostsInTurn is a limit in Mode Eventual of several hosts, behind a balancer that chooses at random.
type hostsInTurn struct {
	throttle.Limiter
	all []*Limiter
}

func (l hostsInTurn) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	return l.all[rand.IntN(len(l.all))].Reserve(ctx, c)
}

var eventualKeys = flag.Int("eventual.keys", 80_000, "keys that TestEventual_inventedKeys invents; with 10,000,000 hosts track the default number of keys, and 2,000 clients are new at each of 20 moments")

// TestEventual_inventedKeys attacks three hosts with more keys than they can track, of 1, 2 and 1,000
// networks: other clients are served at each moment, and a limited client that makes all claims at one
// moment gains nothing from its own network, and at most as much again from others.
func TestEventual_inventedKeys(t *testing.T) {
	const limit = 10
	s, maxKeys := inventedkeys.Scenario{Keys: *eventualKeys, Length: 10 * time.Minute, Moments: 10, Honest: 1000}, 16384
	switch {
	case s.Keys >= 10_000_000:
		s.Moments, s.Honest, maxKeys = 20, 2000, 0
	case testing.Short(): // as many new keys in a second, for a quarter of the time
		s.Keys, s.Length, s.Honest, maxKeys = s.Keys/4, s.Length/4, s.Honest/4, maxKeys/4
	}
	for _, networks := range []int{1, 2, 1000} {
		for _, cost := range []int64{1, limit} {
			for name, make := range map[string]func(*Store) *Limiter{
				"bucket": func(s *Store) *Limiter { return s.TokenBucket(throttle.PerHour(limit)) },
				"window": func(s *Store) *Limiter {
					return s.FixedWindow(throttle.FixedWindowConfig{Count: limit, Per: 24 * time.Hour})
				},
			} {
				if testing.Short() && (networks > 1 || cost > 1 || name != "bucket") {
					continue
				}
				synctest.Test(t, func(t *testing.T) {
					network := newSimNetwork(t, 1, 1, 10*time.Millisecond)
					var l hostsInTurn
					var stores []*Store
					for range 3 {
						stores = append(stores, network.host(t, 0, EventualOptions{MaxKeys: maxKeys}))
						l.all = append(l.all, make(stores[len(stores)-1]))
					}
					time.Sleep(time.Second)
					s.Networks, s.Cost = networks, cost
					got := s.Run(l, &inventedkeys.Clock{Sleep: time.Sleep})
					most := int64(3*limit + 2) // hosts that use a key for the first time at one moment: see docs/regions.md
					if networks > 2 {
						most *= 2
					}
					t.Logf("%s, %d networks, cost %d: %+v", name, networks, cost, got)
					require.GreaterOrEqual(t, got.FirstServed, s.Honest*99/100, "%s, %d networks, cost %d: %+v", name, networks, cost, got)
					require.GreaterOrEqual(t, got.SecondServed, s.Honest*99/100, "%s, %d networks, cost %d: %+v", name, networks, cost, got)
					require.LessOrEqual(t, got.Limited, most, "%s, %d networks, cost %d: %+v", name, networks, cost, got)
					require.LessOrEqual(t, got.Late, most, "%s, %d networks, cost %d: %+v", name, networks, cost, got)
					for _, host := range stores {
						require.LessOrEqual(t, host.Stats().Keys, host.eventual.exchange.options.MaxKeys)
					}
				})
			}
		}
	}
}

// Limits that the program no longer has do not stay in memory, nor in Redis.
func TestEventual_forgetsLimits(t *testing.T) {
	network := newSimNetwork(t, 1, 1, time.Millisecond)
	s := network.host(t, 0, EventualOptions{Interval: 10 * time.Millisecond})
	for i := range 10 {
		require.Equal(t, 1, granted(t, s.PermitsPerPeriod(int64(i)+1, time.Hour), "k", 1))
	}
	x := s.eventual.exchange
	redistest.Await(t, "the limits to be forgotten", func() bool {
		runtime.GC()
		x.mu.Lock()
		defer x.mu.Unlock()
		return len(x.limits) == 0
	})
	redistest.Await(t, "their counters to be removed", func() bool {
		network.mu.Lock()
		defer network.mu.Unlock()
		return len(network.regions[0].stored[x.host]) == 1
	})
}

// The keys of limits that the program no longer has leave space for others.
func TestEventual_forgetsTheKeysOfLimits(t *testing.T) {
	network := newSimNetwork(t, 1, 1, time.Millisecond)
	s := network.host(t, 0, EventualOptions{Interval: 10 * time.Millisecond, MaxKeys: 3})
	s.Clock = hourClock // the keys of a window that has ended are forgotten, too
	for count := range int64(3) {
		l := s.PermitsPerPeriod(count+1, time.Hour)
		for key := range 3 {
			d, err := l.Reserve(t.Context(), throttle.Claim{Key: fmt.Sprint(key)})
			require.NoError(t, err)
			require.False(t, d.Degraded, "limit %d, key %d", count, key)
		}
		require.Equal(t, 3, s.Stats().Keys)
		runtime.KeepAlive(l)
		redistest.Await(t, "the keys to be forgotten", func() bool {
			runtime.GC()
			return s.Stats().Keys == 0
		})
	}
}

// A limit decides at any time.
func TestEventual_extremeTimes(t *testing.T) {
	network := newSimNetwork(t, 1, 1, time.Millisecond)
	s := network.host(t, 0, EventualOptions{})
	kinds := eventualKinds(10, time.Hour)
	kinds["each month"] = func(s *Store) *Limiter {
		return s.FixedWindow(throttle.FixedWindowConfig{Count: 10, Align: throttle.EachMonth})
	}
	for name, kind := range kinds {
		l := kind(s)
		for i, now := range []time.Time{
			time.Unix(0, math.MinInt64), time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC), time.Date(-9999, 1, 1, 0, 0, 0, 0, time.UTC),
			time.Unix(0, math.MaxInt64), time.Unix(0, math.MaxInt64).Add(-time.Hour), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
			time.Unix(1<<62, 0), time.Now(),
		} {
			c := throttle.Claim{Key: fmt.Sprint(i), Now: now}
			for range 12 {
				d, err := l.Reserve(t.Context(), c)
				require.NoError(t, err)
				require.GreaterOrEqual(t, d.Wait, time.Duration(0), "%s, %v", name, now)
				require.GreaterOrEqual(t, d.ResetAfter, time.Duration(0), "%s, %v", name, now)
				require.LessOrEqual(t, d.Remaining, int64(10), "%s, %v", name, now)
				require.Equal(t, d.OK, d.Wait == 0, "%s, %v", name, now)
				l.Report(t.Context(), c, d, throttle.Feedback{Now: now, Cost: 2})
			}
		}
	}
}

// A hook that panics in the background ends nothing, and Stats reports it.
func TestEventual_survivesPanicsOfHooks(t *testing.T) {
	c, prefix := client(t), newTestStore(t).Prefix
	one, other := newEventualStore(t, prefix, c), newEventualStore(t, prefix, c)
	one.OnOperation = func(string, time.Duration, error) { panic("hook") }
	hosts := window(100, one, other)
	for _, l := range hosts {
		require.Equal(t, 10, granted(t, l, "k", 10))
	}
	awaitRemaining(t, 80, hosts)
	require.ErrorContains(t, one.Stats().Err, "throttleredis: Store.OnOperation panicked: hook")
	require.NoError(t, other.Stats().Err)

	broken := dial(t, c.Options().Addr)
	broken.AddHook(panickingHook{})
	s := newEventualStore(t, prefix, broken)
	require.Equal(t, 10, granted(t, s.PermitsPerPeriod(1000, time.Hour), "k", 10))
	redistest.Await(t, "the error", func() bool { return s.Stats().Err != nil })
	require.ErrorContains(t, s.Stats().Err, "client hook")
}

// A panickingHook is a hook of a client of go-redis.
type panickingHook struct{ redis.Hook }

func (panickingHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (panickingHook) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { panic("client hook") }
}

func (panickingHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Units that are returned, and costs that are corrected, reach the other hosts.
func TestEventual_correctionsAreExchanged(t *testing.T) {
	for name, kind := range eventualKinds(100, 10*time.Hour) {
		synctest.Test(t, func(t *testing.T) {
			network := newSimNetwork(t, 2, 1, 10*time.Millisecond)
			hosts := []*Limiter{kind(network.host(t, 0, EventualOptions{})), kind(network.host(t, 1, EventualOptions{}))}
			c := throttle.Claim{Key: "k", Cost: 10}
			var all []throttle.Decision
			for range 3 {
				d, err := hosts[0].Reserve(t.Context(), c)
				require.NoError(t, err)
				all = append(all, d)
			}
			time.Sleep(time.Second)
			require.InDelta(t, 70, remaining(t, hosts[1], "k"), 1, name)
			hosts[0].Report(t.Context(), c, all[0], throttle.Feedback{Now: c.Now, State: throttle.Unused})
			hosts[0].Report(t.Context(), c, all[1], throttle.Feedback{Cost: 25})
			hosts[0].Report(t.Context(), c, all[2], throttle.Feedback{Cost: 5})
			time.Sleep(time.Second)
			for _, l := range hosts {
				require.InDelta(t, 70, remaining(t, l, "k"), 1, name)
			}
		})
	}
}

// A skewedClock differs from the system clock.
type skewedClock time.Duration

func (c skewedClock) Now() time.Time                         { return time.Now().Add(time.Duration(c)) }
func (c skewedClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// While the clock of a host is ahead, so that its window has ended, others still count what
// it took in theirs.
func TestEventual_clocksMayDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newSimNetwork(t, 1, 1, 10*time.Millisecond)
		slow, fast := network.host(t, 0, EventualOptions{}), network.host(t, 0, EventualOptions{})
		fast.Clock = skewedClock(2 * time.Second)
		hosts := []*Limiter{slow.PermitsPerPeriod(100, time.Minute), fast.PermitsPerPeriod(100, time.Minute)}
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + 55*time.Second)))
		require.Equal(t, 10, granted(t, hosts[1], "k", 10))
		require.Equal(t, 5, granted(t, hosts[0], "k", 5))
		time.Sleep(time.Second)
		requireRemaining(t, 85, hosts)
		time.Sleep(2500 * time.Millisecond) // the window of the fast host has ended
		require.Equal(t, 20, granted(t, hosts[1], "k", 20))
		time.Sleep(time.Second)
		requireRemaining(t, 85, hosts[:1])
		requireRemaining(t, 80, hosts[1:])
		time.Sleep(time.Second)
		requireRemaining(t, 80, hosts)
	})
}

// Decisions of a server and of its Queue take no round trip: the hosts of a service reject
// what exceeds their common limit.
func TestEventual_limitsServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newSimNetwork(t, 3, 1, 100*time.Millisecond)
		var servers []http.Handler
		for region := range 3 {
			limit := network.host(t, region, EventualOptions{}).PermitsPerPeriod(90, time.Minute)
			require.True(t, limit.Traits().NonBlocking)
			m := &throttlehttp.Middleware{Rules: []throttlehttp.Rule{{Limiter: limit, Key: throttlehttp.Header("X-User")}}}
			servers = append(servers, m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
		}
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
		served := 0
		for range 300 {
			for _, h := range servers {
				w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
				r.Header.Set("X-User", "ann")
				if h.ServeHTTP(w, r); w.Code == http.StatusOK {
					served++
					continue
				}
				require.Equal(t, http.StatusTooManyRequests, w.Code)
				require.NotEmpty(t, w.Header().Get("Retry-After"))
			}
			time.Sleep(100 * time.Millisecond)
		}
		require.GreaterOrEqual(t, served, 90)
		require.LessOrEqual(t, served, 92, "each host may always take one unit")
	})
}

func TestEventual_Validate(t *testing.T) {
	c := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
	t.Cleanup(func() { c.Close() })
	blind := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { blind.Close() })
	for text, s := range map[string]*Store{
		"Mode is 7":              {Client: c, Mode: 7},
		"cannot subscribe":       {Client: failingScripter{}},
		"the client does not":    {Client: blind},
		"region 1 does not look": {Client: c, Eventual: EventualOptions{Regions: []Subscriber{c, blind}}},
		"region 0 is nil":        {Client: c, Eventual: EventualOptions{Regions: []Subscriber{nil}}},
		"Interval is -1ns":       {Client: c, Eventual: EventualOptions{Interval: -1}},
		"Delay is 2h0m0s":        {Client: c, Eventual: EventualOptions{Delay: 2 * time.Hour}},
		"PeerTimeout is 599ms":   {Client: c, Eventual: EventualOptions{PeerTimeout: 599 * time.Millisecond}},
		"Unreachable is 2":       {Client: c, Eventual: EventualOptions{Unreachable: 2}},
		"MinHosts is -1":         {Client: c, Eventual: EventualOptions{MinHosts: -1}},
	} {
		if s.Mode == 0 {
			s.Mode = Eventual
		}
		require.ErrorContains(t, s.Validate(), text)
		require.Panics(t, func() { s.TokenBucket(throttle.PerSecond(1)) })
		require.NoError(t, s.Close(t.Context()))
	}
	require.NoError(t, (&Store{Client: c, Mode: Eventual}).Validate())
	require.Zero(t, (&Store{Client: c}).Stats())
	require.NoError(t, (&Store{Client: c}).Close(t.Context()))
}

func TestEventual_decisionsDoNotAllocate(t *testing.T) {
	l := newSimNetwork(t, 1, 1, 10*time.Millisecond).host(t, 0, EventualOptions{}).TokenBucket(throttle.PerSecond(1000))
	c := throttle.Claim{Key: "k"}
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		d, _ := l.Reserve(t.Context(), c)
		l.Report(t.Context(), c, d, throttle.Feedback{})
	}))
}
