package throttleredis

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/throttletest"
	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

// newLeasedStore returns a Store in Mode Leased and a counter of its round trips.
func newLeasedStore(t testing.TB) (*Store, *atomic.Int64) {
	s, roundTrips := newTestStore(t), new(atomic.Int64)
	s.Mode = Leased
	s.OnOperation = func(string, time.Duration, error) { roundTrips.Add(1) }
	return s, roundTrips
}

// daily is a window that does not end during a test, and does not begin with it either.
func daily(count int64) throttle.FixedWindowConfig {
	return throttle.FixedWindowConfig{Name: "daily", Count: count, Per: 400 * 24 * time.Hour}
}

// left returns the units that another process sees.
func left(t *testing.T, s *Store) int64 {
	other := &Store{Client: s.Client, Prefix: s.Prefix, Mode: Synchronous}
	d, err := other.FixedWindow(daily(100_000)).Reserve(t.Context(), throttle.Claim{Key: "k", DryRun: true})
	require.NoError(t, err)
	return d.Remaining
}

func TestLeased_grantsInMemory(t *testing.T) {
	s, roundTrips := newLeasedStore(t)
	l := s.FixedWindow(daily(100_000))
	for range 20_000 {
		require.True(t, take(t, l, "k").OK)
	}
	require.Less(t, roundTrips.Load(), int64(400), "20,000 claims")
	require.NoError(t, s.Close(t.Context()))
	require.Equal(t, int64(80_000), left(t, s), "what is not used is returned")
}

// A process that stops returns what it has within two ticks. One that uses fewer units keeps what it
// uses.
func TestLeased_returnsWhatIsNotUsed(t *testing.T) {
	s, _ := newLeasedStore(t)
	l := s.FixedWindow(daily(100_000))
	var due []func()
	l.leases.after = func(_ time.Duration, f func()) { due = append(due, f) }
	use := func(n int) {
		for range n {
			take(t, l, "k")
		}
		(&leaseProcess{limit: l}).settle()
	}
	use(1000)
	require.Less(t, left(t, s), int64(99_000))
	due[0]()
	require.Less(t, left(t, s), int64(99_000), "it has used more than it has")
	use(1)
	due[1]()
	require.InDelta(t, 98_999, left(t, s), 2, "it may use another two")
	due[2]()
	require.Equal(t, int64(98_999), left(t, s))
	require.Len(t, due, 3)
}

// What is kept is kept of the lease in use first; further leases are returned but for the rest.
func TestLeased_returnsWhatIsNotUsedOfTheNextLease(t *testing.T) {
	for _, row := range []struct{ used, kept, current, next int64 }{
		{used: 9, kept: 0, current: 0, next: 0},
		{used: 9, kept: 2, current: 1, next: 1},
		{used: 10, kept: 2, current: 0, next: 2},
		{used: 4, kept: 2, current: 2, next: 0},
		{used: 4, kept: 30, current: 6, next: 20},
	} {
		s, _ := newLeasedStore(t)
		l := s.FixedWindow(daily(100_000))
		k := &leasedKey{key: "k"}
		now := l.leases.now(throttle.Claim{})
		newLease := func(size int64) *lease {
			l := &lease{size: size, from: now, expires: now.Add(time.Hour), wall: now.Add(time.Hour).UnixNano()}
			l.left.Store(size)
			return l
		}
		k.mu.Lock()
		k.current.Store(newLease(10))
		k.next = newLease(20)
		require.Equal(t, 10-row.used, k.current.Load().take(row.used, now))
		var returned int64
		for _, p := range l.leases.unneeded(k, row.kept) {
			returned += p.units
		}
		require.Equal(t, row.current, k.current.Load().units(), "%+v", row)
		require.Equal(t, row.next, k.next.units(), "%+v", row)
		require.Equal(t, 30-row.used-row.current-row.next, returned, "%+v", row)
		require.Equal(t, row.used, k.usedUntil(), "%+v", row)
		k.mu.Unlock()
	}
}

// While a claim is under way, other claims of the key wait for it, and the next one takes units for all of
// them.
func TestLeased_concurrentMissesShareAClaim(t *testing.T) {
	s, roundTrips := newLeasedStore(t)
	l := s.FixedWindow(daily(100_000))
	b := newBarrier(t, l.groups, "")
	var wg sync.WaitGroup
	wg.Go(func() { take(t, l, "k") })
	for b.waiting() == 0 {
		runtime.Gosched()
	}
	for range 63 {
		wg.Go(func() { take(t, l, "k") })
	}
	k := l.leases.find("k")
	for waiting := int64(0); waiting < 63; runtime.Gosched() {
		k.mu.Lock()
		waiting = k.waiting
		k.mu.Unlock()
	}
	b.open()
	wg.Wait()
	require.LessOrEqual(t, roundTrips.Load(), int64(4))
	require.NoError(t, s.Close(t.Context()))
	require.Equal(t, int64(100_000-64), left(t, s))
}

// A caller that stops waiting has taken nothing, and what its claim takes is used by others.
func TestLeased_callersThatStopWaiting(t *testing.T) {
	s, _ := newLeasedStore(t)
	l := s.FixedWindow(daily(100_000))
	var uncertain atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 500 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.Int64N(int64(200*time.Microsecond))))
				c := throttle.Claim{Key: "k", Cost: 1 + rand.Int64N(40)}
				d, err := l.Reserve(ctx, c)
				cancel()
				switch {
				case errors.Is(err, ErrUncertain):
					uncertain.Add(c.Cost)
				case err == nil && d.OK:
					l.Report(t.Context(), c, d, throttle.Feedback{State: throttle.Unused})
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, s.Close(t.Context()))
	rest := left(t, s)
	require.LessOrEqual(t, rest, int64(100_000))
	require.GreaterOrEqual(t, rest+uncertain.Load(), int64(100_000), "all that was not used is returned")
}

// Close waits for units that are being returned: a program that ends after it loses none.
func TestLeased_closeWaitsForReturns(t *testing.T) {
	s, _ := newLeasedStore(t)
	returning, proceed := make(chan struct{}), make(chan struct{})
	var block atomic.Bool
	s.OnOperation = func(name string, _ time.Duration, _ error) {
		if name == "settle" && block.CompareAndSwap(true, false) {
			close(returning)
			<-proceed
		}
	}
	l := s.FixedWindow(daily(100_000))
	for range 100 { // so many that further units are taken ahead
		require.True(t, take(t, l, "k").OK)
	}
	k := l.leases.find("k")
	require.Positive(t, func() int64 { k.mu.Lock(); defer k.mu.Unlock(); return k.held() }())
	block.Store(true)
	go func() {
		for range 3 { // the first ones keep what was used in the time before
			l.leases.tick(k)
		}
	}()
	<-returning
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Close(ctx), context.DeadlineExceeded)
	closed := make(chan error)
	go func() { closed <- s.Close(t.Context()) }()
	select {
	case <-closed:
		require.Fail(t, "closed while units are being returned")
	case <-time.After(20 * time.Millisecond):
	}
	close(proceed)
	require.NoError(t, <-closed)
	require.Equal(t, int64(99_900), left(t, s))
}

// A cluster has the keys of a limit on several servers.
func TestLeased_inACluster(t *testing.T) {
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: threeNodes.start(t), ContextTimeoutEnabled: true})
	defer c.Close()
	s := &Store{Client: c, Prefix: newTestStore(t).Prefix, Mode: Leased}
	l := s.FixedWindow(throttle.FixedWindowConfig{Count: 100, Per: 400 * 24 * time.Hour})
	granted := 0
	for i := range 12 * 101 {
		if take(t, l, "k"+strconv.Itoa(i%12)).OK {
			granted++
		}
	}
	require.Equal(t, 12*100, granted)
}

// Units of callers that stop waiting are not lost.
func TestLeased_losesNoUnits(t *testing.T) {
	s, _ := newLeasedStore(t)
	l := s.FixedWindow(daily(100_000))
	b := newBarrier(t, l.groups, "")
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := l.Reserve(ctx, throttle.Claim{Key: "k", Cost: 7})
		failed <- err
	}()
	for b.waiting() == 0 {
		runtime.Gosched()
	}
	cancel()
	err := <-failed
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, ErrUncertain)
	b.open()
	(&leaseProcess{limit: l}).settle()
	before := left(t, s)
	require.Equal(t, int64(100_000-7), before)
	d := take(t, l, "k")
	require.True(t, d.OK)
	require.Equal(t, before, left(t, s), "granted with a unit of the claim before")
	require.NoError(t, s.Close(t.Context()))
	require.Equal(t, int64(100_000-1), left(t, s))
}

// A client that is configured to repeat commands does not repeat those of Mode Leased: units that are
// returned twice would exceed the limit.
func TestLeased_commandsAreSentOnce(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	c := redis.NewClient(&redis.Options{Addr: proxy.Addr, MaxRetries: 3, ReadTimeout: 20 * time.Millisecond, ContextTimeoutEnabled: true})
	defer c.Close()
	direct := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer direct.Close()
	s := &Store{Client: c, Prefix: "x", Mode: Leased}
	l := s.FixedWindow(daily(100_000))
	look := &Store{Client: direct, Prefix: "x"}
	require.True(t, take(t, l, "k").OK)
	for _, send := range []func(){
		func() {
			_, err := l.Reserve(t.Context(), throttle.Claim{Key: "k", Cost: 50})
			require.ErrorIs(t, err, ErrUncertain)
		},
		func() {
			l.leases.giveBack(t.Context(), l.leases.find("k"), leaseParts{{&lease{grant: lastGrant(t, l, look)}, 20}})
		},
	} {
		proxy.Set(redistest.Pass)
		require.NoError(t, c.Ping(t.Context()).Err())
		proxy.Set(redistest.NoReplies)
		send()
	}
	require.InDelta(t, int64(100_000-1-50+20), left(t, look), 1, "one unit may be taken ahead")
}

// lastGrant returns the Grant of a claim of the present window.
func lastGrant(t *testing.T, l *Limiter, s *Store) uint64 {
	d, err := (&Store{Client: s.Client, Prefix: s.Prefix, Mode: Synchronous}).FixedWindow(daily(100_000)).Reserve(t.Context(), throttle.Claim{Key: "k", DryRun: true})
	require.NoError(t, err)
	return d.Grant
}

// What is leased is used when Redis is lost, and then the share of a Fallback.
func TestLeased_withoutRedis(t *testing.T) {
	server := redistest.Start(t)
	c := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1, ContextTimeoutEnabled: true})
	defer c.Close()
	s := &Store{Client: c, Mode: Leased}
	l := s.FixedWindow(daily(1000))
	l.leases.after = func(time.Duration, func()) {} // nothing is returned
	f := &Fallback{Limiter: l, Processes: 100}
	for range 100 {
		require.True(t, take(t, f, "k").OK)
	}
	(&leaseProcess{limit: l}).settle()
	k := l.leases.find("k")
	k.mu.Lock()
	held := k.held()
	k.mu.Unlock()
	require.Greater(t, held, int64(10))
	server.Kill()
	for range held {
		d := take(t, f, "k")
		require.True(t, d.OK && !d.Degraded)
	}
	d := take(t, f, "k")
	require.True(t, d.Degraded, "%+v", d)
	require.False(t, d.OK, "the share of 10 units was used before")
}

func TestLeased_otherLimitsDecideAsGrouped(t *testing.T) {
	s, _ := newLeasedStore(t)
	for _, l := range []*Limiter{
		s.SlidingLog(throttle.SlidingLogConfig{Limit: throttle.PerSecond(1000)}),
		s.Concurrency(throttle.ConcurrencyConfig{Count: 1000, MaxAge: time.Second}),
		s.TokenBucket(throttle.Limit{Count: 1000, Per: time.Second, Burst: 19}),
		s.TokenBucket(throttle.Limit{Count: 100_000, Per: time.Second, Burst: 7900}), // a twentieth in 3.95 ms
		s.FixedWindow(throttle.FixedWindowConfig{Count: 1000, Per: 7 * time.Millisecond}),
		s.FixedWindow(throttle.FixedWindowConfig{Count: 1000, Per: time.Second, Align: throttle.AtFirst}), // see fixedWindow
		s.SlidingCounter(throttle.SlidingCounterConfig{Limit: throttle.Limit{Count: 1000, Per: time.Microsecond}}),
	} {
		require.Nil(t, l.leases, "%s", l.limit.policy)
		d := take(t, l, "k")
		require.True(t, d.OK)
		require.Equal(t, d.Limit-1, d.Remaining, "all of it can be granted")
	}
	for _, l := range []*Limiter{
		s.TokenBucket(throttle.Limit{Count: 100_000, Per: time.Second, Burst: 8000}),
		s.FixedWindow(throttle.FixedWindowConfig{Count: 1000, Per: 8 * time.Millisecond}),
		s.SlidingCounter(throttle.SlidingCounterConfig{Limit: throttle.Limit{Count: 1000, Per: 8 * time.Millisecond}}),
	} {
		require.NotNil(t, l.leases, "%s", l.limit.policy)
		require.True(t, take(t, l, "k").OK)
	}
	bucket := s.TokenBucket(throttle.PerSecond(100))
	d := take(t, bucket, "k")
	require.Equal(t, []int64{95, 94}, []int64{d.Limit, d.Remaining})
	require.PanicsWithValue(t, `throttleredis: AllOf: limit 0 is leased (Mode Leased): use throttle.AllOf`, func() { AllOf(bucket) })
	require.EqualError(t, (&Store{Client: scripterOnly{s.Client}, Mode: Leased}).Validate(),
		`throttleredis: store "": Mode Leased: a throttleredis.scripterOnly may repeat commands: take a Client, ClusterClient, Ring or failover client`)
}

// A scripterOnly is a client of which only the methods of redis.Scripter are known.
type scripterOnly struct{ redis.Scripter }

// A twentieth of a bucket is left for units that are used later: a claim of more is never granted, and a
// dry run says so.
func TestLeased_dryRun(t *testing.T) {
	s, _ := newLeasedStore(t)
	l := s.TokenBucket(throttle.Limit{Name: "bucket", Count: 1, Per: 24 * time.Hour, Burst: 100})
	for units, want := range map[int64]bool{95: true, 96: false} {
		d, err := l.Reserve(t.Context(), throttle.Claim{Key: "k", Cost: units, DryRun: true})
		require.NoError(t, err)
		require.Equal(t, want, d.OK)
		require.Equal(t, []int64{95, 95}, []int64{d.Limit, d.Remaining})
		require.True(t, d.Fresh)
		require.Equal(t, !want, d.Wait == throttle.Forever)
	}
	for range 50 {
		take(t, l, "k")
	}
	d, err := l.Reserve(t.Context(), throttle.Claim{Key: "k", DryRun: true})
	require.NoError(t, err)
	require.True(t, d.OK)
	require.False(t, d.Fresh)
}

// A rejection is repeated for 50 ms, and no longer than its Wait, without a round trip.
func TestLeased_repeatsRejections(t *testing.T) {
	s, roundTrips := newLeasedStore(t)
	clk := &manualClock{now: began}
	s.Clock, s.useLocalClock = clk, true
	l := s.FixedWindow(throttle.FixedWindowConfig{Count: 10, Per: time.Second})
	claim := func(cost int64) throttle.Decision {
		d, err := l.Reserve(t.Context(), throttle.Claim{Key: "k", Cost: cost, Now: clk.now})
		require.NoError(t, err)
		return d
	}
	require.True(t, claim(10).OK)
	before := roundTrips.Load()
	for i := range 100 {
		d := claim(1)
		require.False(t, d.OK)
		require.Equal(t, clk.now.Add(d.Wait), began.Add(time.Second), "claim %d", i)
		clk.now = clk.now.Add(time.Millisecond)
	}
	require.LessOrEqual(t, roundTrips.Load()-before, int64(3), "in 100 ms")
	clk.now = began.Add(time.Second)
	require.True(t, claim(1).OK)
}

// lease.valid with the readings of both clocks.
func TestLease_valid(t *testing.T) {
	sent := time.Now()
	l := &lease{from: sent, expires: sent.Add(time.Second), wall: sent.Add(time.Second).UnixNano()}
	for name, c := range map[string]struct {
		now  time.Time
		want bool
	}{
		"when it was sent":                    {sent, true},
		"in time":                             {sent.Add(999 * time.Millisecond), true},
		"at the end":                          {sent.Add(time.Second), false},
		"the wall clock was ahead":            {sent.Round(0).Add(2 * time.Second), false}, // as after a suspension
		"the clock was set back beyond claim": {sent.Round(0).Add(-time.Millisecond), false},
	} {
		require.Equal(t, c.want, l.valid(c.now), name)
	}
	require.False(t, (*lease)(nil).valid(sent))
}

// Invented keys take the places of idle ones only, and do not grow the memory.
func TestLeased_keysAreBounded(t *testing.T) {
	s, _ := newLeasedStore(t)
	l := s.FixedWindow(daily(100_000))
	a := l.leases
	now := time.Now()
	for i := range 3 * leaseSets * leaseWays {
		a.keyOf("k"+strconv.Itoa(i), now)
	}
	n := 0
	for i := range a.sets {
		ways := a.sets[i].Load()
		for j := range ways {
			if k := ways[j].Load(); k != nil {
				n++
				require.False(t, k.isIdle(now), "all are new")
			}
		}
	}
	require.LessOrEqual(t, n, leaseSets*leaseWays)
	require.Greater(t, n, leaseSets*leaseWays*9/10)
	k := a.keyOf("later", now.Add(time.Second))
	require.NotNil(t, k, "the others are idle")
	require.Same(t, k, a.find("later"))
	require.Nil(t, a.keyOf(string(make([]byte, maxLeasedKeyBytes+1)), now.Add(time.Second)))
}

func TestLeased_allocatesNothing(t *testing.T) {
	s, _ := newLeasedStore(t)
	l := s.FixedWindow(daily(1 << 40))
	ctx := t.Context()
	for range 1000 {
		take(t, l, "k")
	}
	require.Less(t, testing.AllocsPerRun(10_000, func() {
		_, _ = l.Reserve(ctx, throttle.Claim{Key: "k"})
	}), 0.5)
}

// A hook that panics or ends its goroutine fails the claim, and nothing else.
func TestLeased_hooksThatPanic(t *testing.T) {
	s, _ := newLeasedStore(t)
	l := s.FixedWindow(daily(100_000))
	s.OnOperation = func(string, time.Duration, error) { panic("hook") }
	_, err := l.Reserve(t.Context(), throttle.Claim{Key: "k"})
	require.EqualError(t, err, "throttleredis: Store.OnOperation panicked: hook")
	s.OnOperation = nil
	require.True(t, take(t, l, "k").OK)
}

func TestLeased_conforms(t *testing.T) {
	hundred := throttle.Limit{Name: "hundred", Count: 100, Per: time.Second, Burst: 100}
	windows := func(w time.Duration) int64 { return 100 * int64((w+1000)/time.Second+2) }
	for name, l := range map[string]struct {
		new  func(*Store) *Limiter
		spec throttletest.Spec
	}{
		"TokenBucket": {func(s *Store) *Limiter { return s.TokenBucket(hundred) }, throttletest.Spec{Bound: rateBound(hundred, 100)}},
		"FixedWindow": {func(s *Store) *Limiter {
			return s.FixedWindow(throttle.FixedWindowConfig{Count: 100, Per: time.Second})
		}, throttletest.Spec{Bound: windows}},
		"SlidingCounter": {func(s *Store) *Limiter { return s.SlidingCounter(throttle.SlidingCounterConfig{Limit: hundred}) }, throttletest.Spec{Bound: windows}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client(t)
			spec := l.spec
			spec.AcceptsOlderReadings, spec.ResumesAfterSetBack, spec.Histories = true, true, histories()
			throttletest.TestLimiter(t, func(clk throttle.Clock) throttle.Limiter {
				s := newTestStore(t)
				s.Clock, s.useLocalClock, s.Mode = clk, true, Leased
				limit := l.new(s)
				limit.leases.after = func(time.Duration, func()) {} // which would depend on the speed of the machine
				return limit
			}, spec)
		})
	}
}
