package throttleredis

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

func groupsOf(l throttle.Limiter) *groups {
	switch l := l.(type) {
	case *Limiter:
		return l.groups
	case *allOf:
		return l.groups
	case *banned:
		return l.groups
	}
	panic(fmt.Sprintf("%T", l))
}

// A barrier makes the calls of a group wait until open is called, and determines their order.
type barrier struct {
	g  *groups
	q  *group
	wg sync.WaitGroup
}

// newBarrier pretends that a round trip of g for key is under way.
func newBarrier(t *testing.T, g *groups, key string) *barrier {
	q, waits := g.enter(t.Context(), &call{key: key})
	require.False(t, waits)
	return &barrier{g: g, q: q}
}

// send runs f until the call that it makes waits, or it returns without one.
func (g *barrier) send(f func()) {
	before := g.waiting()
	var returned atomic.Bool
	g.wg.Go(func() {
		f()
		returned.Store(true)
	})
	for g.waiting() == before && !returned.Load() {
		runtime.Gosched()
	}
	g.g.mu.Lock()
	defer g.g.mu.Unlock()
	if g.q.impatient != nil {
		g.q.impatient.Stop() // the test may take longer than groupPatience
	}
}

func (g *barrier) waiting() int {
	n, _ := g.state()
	return n
}

// state returns the numbers of calls that wait and of round trips under way.
func (g *barrier) state() (waiting, roundTrips int) {
	g.g.mu.Lock()
	defer g.g.mu.Unlock()
	return len(g.q.queue), g.q.roundTrips
}

// open lets the calls travel and waits for their replies.
func (g *barrier) open() {
	g.g.follow(g.q, g.g.leave(g.q))
	g.wg.Wait()
	for _, n := g.state(); n > 0; _, n = g.state() {
		runtime.Gosched() // the last round trip is about to end
	}
}

// TestGroups_decideAsOneByOne makes the same claims and reports in round trips of random sizes and
// one by one, with limits of each kind: the decisions are the same, in the order of arrival. With odd
// seeds most claims are equal and for one key.
func TestGroups_decideAsOneByOne(t *testing.T) {
	all, seeds := pairs(), 5
	if testing.Short() {
		seeds = 1
	}
	for i, p := range all {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			for seed := range seeds {
				compareGroups(t, p.remote, p, uint64(seed*101+i))
			}
		})
	}
	for seed := range uint64(4 * seeds) {
		chosen := choose(rand.New(rand.NewPCG(seed, 7)))
		t.Run("AllOf", func(t *testing.T) {
			t.Parallel()
			compareGroups(t, func(s *Store) throttle.Limiter {
				var limits []*Limiter
				for _, p := range chosen {
					limits = append(limits, p.remote(s).(*Limiter))
				}
				return AllOf(limits...)
			}, limiterPair{maxCost: 5, unitTime: 200 * time.Millisecond}, seed)
		})
	}
}

func compareGroups(t *testing.T, remote func(*Store) throttle.Limiter, p limiterPair, seed uint64) {
	clk := &manualClock{now: began}
	r := rand.New(rand.NewPCG(seed, 6))
	steps := &comparison{T: t, limiterPair: p, r: r, clk: clk}
	stores := []*Store{newTestStore(t), newTestStore(t)}
	for i, s := range stores {
		s.useLocalClock, s.Mode = true, []Mode{Grouped, Synchronous}[i]
	}
	grouped, single := remote(stores[0]), remote(stores[1])
	type held struct {
		c               throttle.Claim
		grouped, single throttle.Decision
	}
	var granted []*held
	hot := seed%2 == 1
	for range 12 {
		g := newBarrier(t, groupsOf(grouped), "")
		var claims []*held
		for range r.IntN(map[bool]int{false: 20, true: 100}[hot]) {
			if !hot || r.IntN(8) == 0 {
				steps.advanceClock()
			}
			if len(granted) > 0 && r.IntN(map[bool]int{false: 4, true: 16}[hot]) == 0 {
				n := r.IntN(len(granted))
				h := granted[n]
				granted = append(granted[:n], granted[n+1:]...)
				f := throttle.Feedback{Now: clk.now}
				if r.IntN(2) == 0 {
					f.State = throttle.Unused
				} else {
					f.Cost = h.c.Cost + 1 + r.Int64N(3)
				}
				g.send(func() { grouped.Report(t.Context(), h.c, h.grouped, f) })
				single.Report(t.Context(), h.c, h.single, f)
				continue
			}
			h := &held{c: throttle.Claim{Key: keys[0], Cost: 1, Now: clk.now}}
			if !hot || r.IntN(5) == 0 {
				h.c = throttle.Claim{Key: steps.key(), Cost: 1 + r.Int64N(min(p.maxCost, 4)), Now: clk.now, DryRun: r.IntN(8) == 0, Waits: r.IntN(8) == 0}
				h.c.Ahead = time.Duration(r.Int64N(int64(8*p.unitTime))) * time.Duration(r.IntN(2))
				h.c.Waited = time.Duration(r.Int64N(int64(8 * p.unitTime)))
			}
			claims = append(claims, h)
			g.send(func() {
				var err error
				h.grouped, err = grouped.Reserve(t.Context(), h.c)
				require.NoError(t, err)
			})
			var err error
			h.single, err = single.Reserve(t.Context(), h.c)
			require.NoError(t, err)
		}
		g.open()
		for i, h := range claims {
			a, b := h.grouped, h.single
			require.Equal(t, plain(b), plain(a), "seed %d, claim %d: %+v", seed, i, h.c)
			if a.OK && !h.c.DryRun {
				granted = append(granted, h)
			}
		}
	}
	stored, err := client(t).Keys(t.Context(), stores[0].Prefix+":*").Result()
	require.NoError(t, err)
	for _, key := range stored {
		require.Positive(t, client(t).PTTL(t.Context(), key).Val(), "%s does not expire", key)
	}
}

// plain returns d without what differs between stores: what identifies the grant.
func plain(d throttle.Decision) string {
	return fmt.Sprintf("%v %s %v %v %d %d %v %v", d.OK, d.Policy, d.At, d.Wait, d.Limit, d.Remaining, d.ResetAfter, d.Per)
}

// Many goroutines, some of which stop waiting, take all units of a limit and no more: a claim whose
// error is not ErrUncertain has taken none.
func TestGroups_callersThatStopWaiting(t *testing.T) {
	const units = 500
	for name, make := range map[string]func(s *Store) throttle.Limiter{
		"one": func(s *Store) throttle.Limiter { return s.TokenBucket(throttle.Limit{Count: units, Per: year}) },
		"both": func(s *Store) throttle.Limiter {
			return AllOf(s.TokenBucket(throttle.Limit{Name: "a", Count: units, Per: year}), s.TokenBucket(throttle.Limit{Name: "b", Count: units, Per: year}))
		},
	} {
		l := make(newTestStore(t))
		var granted, uncertain, failed, rejected atomic.Int64
		var wg sync.WaitGroup
		for range 48 {
			wg.Go(func() {
				for rejected.Load() < 100 {
					patience := 2 * time.Millisecond
					if rand.IntN(10) == 0 { // on a slow machine no others get a reply
						patience = time.Second
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.Int64N(int64(patience))))
					switch d, err := l.Reserve(ctx, throttle.Claim{}); {
					case errors.Is(err, ErrUncertain):
						uncertain.Add(1)
					case err != nil:
						failed.Add(1)
					case d.OK:
						granted.Add(1)
					default:
						rejected.Add(1)
					}
					cancel()
				}
			})
		}
		wg.Wait()
		require.LessOrEqual(t, granted.Load(), int64(units), name)
		require.GreaterOrEqual(t, granted.Load()+uncertain.Load(), int64(units), name)
		require.Positive(t, failed.Load(), name)
		require.Positive(t, uncertain.Load(), name)
	}
}

// The state of a key is read and written once for consecutive claims, which share the key and, if they
// are equal, their encoding.
func TestGroups_shareWhatIsEqual(t *testing.T) {
	c := dial(t, redistest.Start(t).Addr)
	l := (&Store{Client: c}).TokenBucket(throttle.PerHour(1000))
	take(t, l, "a")
	require.NoError(t, c.ConfigResetStat(t.Context()).Err())
	g := newBarrier(t, l.groups, "")
	send := func(key string, cost int64, n int) {
		for range n {
			g.send(func() {
				_, err := l.Reserve(t.Context(), throttle.Claim{Key: key, Cost: cost})
				require.NoError(t, err)
			})
		}
	}
	send("a", 1, 30)
	send("a", 2, 20)
	send("b", 2, 10)
	command := commandOf(g.q.queue)
	var times []int
	for _, sent := range sentClaims(redis.NewCmd(t.Context(), command...)) {
		times = append(times, sent.times)
	}
	require.Equal(t, []int{30, 20, 10}, times)
	require.Equal(t, []any{l.redisKey("a"), l.redisKey("b")}, command[3:3+command[2].(int)])
	g.open()
	stats, err := c.InfoMap(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	for command, want := range map[string]string{"evalsha": "1", "time": "1", "get": "2", "set": "2"} {
		require.Contains(t, stats["Commandstats"]["cmdstat_"+command], "calls="+want+",", command)
	}
	require.EqualValues(t, 1000-1-30-40-1, take(t, l, "a").Remaining)
	require.EqualValues(t, 1000-20-1, take(t, l, "b").Remaining)
}

// If the states of keys cannot be stored, claims that need that fail, and the others are decided on as
// one by one.
func TestGroups_withoutMemory(t *testing.T) {
	c := dial(t, redistest.Start(t, "--maxmemory-policy", "noeviction").Addr)
	decisions := map[Mode][]string{}
	for _, mode := range []Mode{Grouped, Synchronous} {
		s := &Store{Client: c, Prefix: fmt.Sprint(mode), Mode: mode, useLocalClock: true}
		l := s.FixedWindow(throttle.FixedWindowConfig{Count: 3, Per: time.Hour})
		for _, key := range []string{"a", "b", "c"} {
			_, err := l.Reserve(t.Context(), throttle.Claim{Key: key, Now: began})
			require.NoError(t, err)
		}
		require.NoError(t, c.ConfigSet(t.Context(), "maxmemory", "1").Err())
		g, made := newBarrier(t, l.groups, ""), make([]throttle.Decision, 0, 10)
		for _, claim := range []throttle.Claim{
			{Key: "a", DryRun: true}, {Key: "a"}, {Key: "a"}, {Key: "a"}, {Key: "a", Cost: 4}, {Key: "b", Cost: 3}, {Key: "a", DryRun: true}, {Key: "c"}, {Key: "c", Cost: 2}, {Key: "c", Cost: 3},
		} {
			claim.Now, made = began, append(made, throttle.Decision{})
			d := &made[len(made)-1]
			g.send(func() {
				var err error
				*d, err = l.Reserve(t.Context(), claim)
				require.NoError(t, err)
			})
		}
		g.open()
		for _, d := range made {
			decisions[mode] = append(decisions[mode], fmt.Sprint(plain(d), d.Degraded))
		}
		require.NoError(t, c.ConfigSet(t.Context(), "maxmemory", "0").Err())
		d, err := l.Reserve(t.Context(), throttle.Claim{Key: "a", Now: began})
		require.NoError(t, err)
		require.EqualValues(t, 1, d.Remaining, "claims that fail take nothing")
	}
	require.Equal(t, decisions[Synchronous], decisions[Grouped])
}

// A claim that fails does not affect the others of its round trip.
func TestGroups_oneClaimFails(t *testing.T) {
	s := newTestStore(t)
	l := s.TokenBucket(throttle.PerHour(5))
	require.NoError(t, client(t).RPush(t.Context(), l.redisKey("list"), 1).Err())
	g := newBarrier(t, l.groups, "")
	for i, key := range []string{"a", "list", "a", "b"} {
		g.send(func() {
			d, err := l.Reserve(t.Context(), throttle.Claim{Key: key})
			if key == "list" {
				require.ErrorContains(t, err, "WRONGTYPE")
				require.NotErrorIs(t, err, ErrUncertain)
				return
			}
			require.NoError(t, err)
			require.Equal(t, []int64{4, 0, 3, 4}[i], d.Remaining)
		})
	}
	g.open()
}

// A client of one server of a cluster groups by key once the server has refused to run a script with
// keys of several slots.
func TestGroups_onOneServerOfACluster(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(&redis.Options{Addr: threeNodes.start(t)[0], MaxRetries: -1})
	defer c.Close()
	l := (&Store{Client: c, Prefix: newTestStore(t).Prefix}).TokenBucket(throttle.PerHour(9))
	var own []string
	for i := 0; len(own) < 8; i++ {
		if _, err := l.Reserve(t.Context(), throttle.Claim{Key: strconv.Itoa(i)}); err == nil {
			own = append(own, strconv.Itoa(i))
		}
	}
	require.False(t, l.store.separatesKeys.Load())
	g := newBarrier(t, l.groups, "")
	for _, key := range own {
		g.send(func() { require.EqualValues(t, 7, take(t, l, key).Remaining) })
	}
	g.open()
	require.True(t, l.store.separatesKeys.Load())
	g = newBarrier(t, l.groups, own[0])
	require.EqualValues(t, 6, take(t, l, own[1]).Remaining, "another key does not wait")
	for i := range 3 {
		g.send(func() { require.EqualValues(t, 6-i, take(t, l, own[0]).Remaining) })
	}
	g.open()
	require.Empty(t, l.groups.byKey)
}

// A sentClaim is a claim in a command for one limit.
type sentClaim struct {
	op      operation
	times   int
	numbers []float64
	last    []byte // the last number, in the command
}

func sentClaims(cmd redis.Cmder) (all []sentClaim) {
	args := cmd.Args()
	args = args[3+args[2].(int):]
	b, ok := args[1].([]byte)
	if !ok {
		b = args[1].(*claimArg).bytes
	}
	for len(b) > 0 {
		c, n := sentClaim{op: operation(b[2]), times: int(b[1])}, 2+int(b[0]/hasTime)
		switch c.op {
		case opSettle, opCancel:
			n += 4
		case opLease:
			n += 2
		}
		for i := range n {
			c.last = b[3+8*i:][:8]
			c.numbers = append(c.numbers, math.Float64frombits(binary.LittleEndian.Uint64(c.last)))
		}
		b, all = b[3+8*n:], append(all, c)
	}
	return all
}

// A fakeScripter runs f for each script.
type fakeScripter struct {
	failingScripter
	f func(ctx context.Context, claims int) (any, error)
}

func (s fakeScripter) EvalSha(ctx context.Context, _ string, keys []string, args ...any) *redis.Cmd {
	cmd, claims := redis.NewCmd(ctx, append([]any{nil, nil, 0}, args...)...), 0
	for _, c := range sentClaims(cmd) {
		claims += c.times
	}
	v, err := s.f(ctx, claims)
	cmd.SetVal(v)
	cmd.SetErr(err)
	return cmd
}

// grantReplies returns n replies of a limit that grants.
func grantReplies(n int) any {
	return strings.Repeat(encodeReply(0, 1, 0, 0, 0, 0, 0, 0, 0)[:56], n)
}

// Calls that wait for a reply that does not arrive travel without it once they are maxGrouped, or
// the first has waited for groupPatience.
func TestGroups_aReplyIsLost(t *testing.T) {
	for _, tt := range []struct {
		callers int
		took    time.Duration
		sizes   []int
	}{
		{5, groupPatience + time.Millisecond, []int{1, 5}},
		{maxGrouped - 1, groupPatience + time.Millisecond, []int{1, maxGrouped - 1}},
		{maxGrouped, time.Millisecond, []int{1, maxGrouped}},
		{200, 2 * time.Millisecond, []int{1, maxGrouped, 200 - maxGrouped}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var sizes []int
			l := (&Store{Client: fakeScripter{f: func(ctx context.Context, claims int) (any, error) {
				if sizes = append(sizes, claims); len(sizes) == 1 {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				time.Sleep(time.Millisecond)
				return grantReplies(claims), nil
			}}}).TokenBucket(throttle.PerSecond(9))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			start := time.Now()
			lost := make(chan error, 1)
			go func() {
				_, err := l.Reserve(ctx, throttle.Claim{})
				lost <- err
			}()
			synctest.Wait()
			var wg sync.WaitGroup
			for range tt.callers {
				wg.Go(func() { require.True(t, take(t, l, "").OK) })
			}
			wg.Wait()
			require.Equal(t, tt.took, time.Since(start))
			require.Equal(t, tt.sizes, sizes)
			require.ErrorIs(t, <-lost, context.DeadlineExceeded)
			require.True(t, take(t, l, "").OK)
			require.Empty(t, l.groups.byKey)
		})
	}
}

// The context of a round trip ends when no caller waits for it, and has the latest deadline.
func TestGroups_contextOfARoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var deadlines []time.Duration
		l := (&Store{Client: fakeScripter{f: func(ctx context.Context, claims int) (any, error) {
			if claims == 1 {
				return grantReplies(1), nil
			}
			at, ok := ctx.Deadline()
			deadlines = append(deadlines, map[bool]time.Duration{true: time.Until(at)}[ok])
			<-ctx.Done()
			return nil, ctx.Err()
		}}}).TokenBucket(throttle.PerSecond(9))
		g := newBarrier(t, l.groups, "")
		for _, d := range []time.Duration{3, 5, 4} {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), d*time.Second)
				defer cancel()
				start := time.Now()
				_, err := l.Reserve(ctx, throttle.Claim{})
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, err, ErrUncertain)
				require.Equal(t, d*time.Second, time.Since(start))
			}()
		}
		synctest.Wait()
		g.g.follow(g.q, g.g.leave(g.q))
		time.Sleep(10 * time.Second)

		g = newBarrier(t, l.groups, "")
		ctx, cancel := context.WithCancel(t.Context())
		for range 2 {
			go func() {
				_, err := l.Reserve(ctx, throttle.Claim{})
				require.ErrorIs(t, err, context.Canceled)
			}()
		}
		synctest.Wait()
		g.g.follow(g.q, g.g.leave(g.q))
		synctest.Wait()
		cancel()
		synctest.Wait()
		require.Equal(t, []time.Duration{5 * time.Second, 0}, deadlines)

		g = newBarrier(t, l.groups, "")
		ctx, cancel = context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := l.Reserve(ctx, throttle.Claim{})
			done <- err
		}()
		synctest.Wait()
		cancel()
		err := <-done
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, ErrUncertain, "it was not sent")
		g.open()
		require.True(t, take(t, l, "").OK)
	})
}

// Whatever a client or its hooks do, callers get an error, and later ones are served.
func TestGroups_theClientFails(t *testing.T) {
	for name, fail := range map[string]func() (any, error){
		"panic":             func() (any, error) { panic("hook") },
		"Goexit":            func() (any, error) { runtime.Goexit(); return nil, nil },
		"error":             func() (any, error) { return nil, errors.New("broken pipe") },
		"too few":           func() (any, error) { return grantReplies(2), nil },
		"no list":           func() (any, error) { return "OK", nil },
		"nil":               func() (any, error) { return nil, nil },
		"a list of strange": func() (any, error) { return []any{1, nil, "x"}, nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			fails := false
			l := (&Store{Client: fakeScripter{f: func(_ context.Context, claims int) (any, error) {
				if fails {
					return fail()
				}
				return grantReplies(claims), nil
			}}}).TokenBucket(throttle.PerSecond(9))
			for range 3 {
				g := newBarrier(t, l.groups, "")
				fails = true
				var failed atomic.Int64
				for range 3 {
					g.send(func() {
						if _, err := l.Reserve(t.Context(), throttle.Claim{}); err != nil {
							failed.Add(1)
						}
					})
				}
				g.open()
				require.Equal(t, map[bool]int64{true: 1, false: 3}[name == "too few"], failed.Load(), name)
				fails = false
				require.True(t, take(t, l, "").OK, name)
			}
		})
	}
	// A panic reaches the caller that is alone.
	panics := true
	l := (&Store{Client: fakeScripter{f: func(context.Context, int) (any, error) {
		if panics {
			panic("hook")
		}
		return grantReplies(1), nil
	}}}).TokenBucket(throttle.PerSecond(9))
	require.PanicsWithValue(t, "hook", func() { _, _ = l.Reserve(t.Context(), throttle.Claim{}) })
	panics = false
	require.True(t, take(t, l, "").OK)
}

func TestGroups_aLoneCallerAllocatesNoMore(t *testing.T) {
	if racing {
		t.Skip("the race detector allocates")
	}
	allocs := map[Mode]float64{}
	for _, m := range []Mode{Grouped, Synchronous} {
		s := newTestStore(t)
		s.Mode = m
		l := s.TokenBucket(throttle.PerHour(1))
		allocs[m] = testing.AllocsPerRun(200, func() { _, _ = l.Reserve(t.Context(), throttle.Claim{Key: "a"}) })
	}
	require.Equal(t, allocs[Synchronous], allocs[Grouped])
}
