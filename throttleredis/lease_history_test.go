package throttleredis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A leaseWorld is several processes in Mode Leased, their clocks, and a connection to Redis that loses
// commands and replies. Nothing happens by itself: time passes, and units are returned, when a test
// says so.
type leaseWorld struct {
	t         testing.TB
	limit     func(*Store) *Limiter
	oracle    func(throttle.Clock) throttle.Limiter // the same limit in memory
	prefix    string
	now       time.Time // of the server
	processes []*leaseProcess
	uses      []use
	executed  time.Time // when the server decided on the latest claim
	lose      int       // commands before one is not executed; 0: none
	loseReply int       // commands before a reply is lost; 0: none
	late      time.Duration
	pipe      func(context.Context, redis.Cmder) error
}

// A use is units that were granted at a time of the server.
type use struct {
	at    time.Time
	units int64
	key   string
}

// A leaseProcess is a process of a leaseWorld.
type leaseProcess struct {
	w       *leaseWorld
	limit   *Limiter
	ahead   time.Duration // of its clock before that of the server
	pending []func()      // ticks that are due
	unused  []func()      // reports of claims that were not used
}

var errLost = errors.New("the connection was lost")

// newProcess starts a process.
func (w *leaseWorld) newProcess() *leaseProcess {
	p := &leaseProcess{w: w}
	p.limit = w.limit(&Store{
		Client: &lossyClient{w: w}, Prefix: w.prefix, Mode: Leased,
		Clock: clockFunc(func() time.Time { return w.now.Add(p.ahead) }), useLocalClock: true, serverClock: func() time.Time { return w.now },
	})
	if p.limit.leases != nil {
		p.limit.leases.after = func(_ time.Duration, f func()) { p.pending = append(p.pending, f) }
	}
	return p
}

// A clockFunc is a clock that shows what a function returns.
type clockFunc func() time.Time

func (f clockFunc) Now() time.Time                       { return f() }
func (clockFunc) After(d time.Duration) <-chan time.Time { return time.After(d) }

// A lossyClient is a client on the connection of a leaseWorld.
type lossyClient struct {
	redis.Scripter
	w *leaseWorld
}

// Process implements processor.
func (c *lossyClient) Process(ctx context.Context, cmd redis.Cmder) error {
	w := c.w
	if w.lose--; w.lose == 0 {
		cmd.SetErr(errLost)
		return errLost
	}
	if isClaim(cmd) {
		w.executed = w.now
	}
	err := w.pipe(ctx, cmd)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return err
	}
	if w.loseReply--; w.loseReply == 0 {
		cmd.SetErr(errLost)
		return errLost
	}
	w.now = w.now.Add(w.late.Truncate(time.Microsecond))
	return err
}

// isClaim reports whether cmd has a claim of a caller: an operation "lease" of more than 0 units.
func isClaim(cmd redis.Cmder) bool {
	return slices.ContainsFunc(sentClaims(cmd), func(c sentClaim) bool { return c.op == opLease && c.numbers[0] > 0 })
}

// settle waits for the claims that p has under way.
func (p *leaseProcess) settle() {
	a := p.limit.leases
	for i := range a.sets {
		ways := a.sets[i].Load()
		if ways == nil {
			continue
		}
		for j := range ways {
			for k := ways[j].Load(); k != nil; runtime.Gosched() {
				k.mu.Lock()
				done := k.flight == nil
				k.mu.Unlock()
				if done {
					break
				}
			}
		}
	}
}

// claim claims units. If unused is set, they are not used, which p reports later.
func (p *leaseProcess) claim(key string, units int64, unused bool) (throttle.Decision, error) {
	w := p.w
	w.executed = time.Time{}
	at := w.now
	c := throttle.Claim{Key: key, Cost: units}
	d, err := p.limit.Reserve(context.Background(), c)
	p.settle()
	switch {
	case err != nil:
		require.ErrorIs(w.t, err, errLost)
	case d.OK && unused:
		p.unused = append(p.unused, func() {
			p.limit.Report(context.Background(), c, d, throttle.Feedback{State: throttle.Unused})
		})
	case d.OK:
		if !w.executed.IsZero() { // Redis has granted it
			at = w.executed
		}
		w.uses = append(w.uses, use{at, units, key})
	}
	return d, err
}

// drain claims units of a key until there are none.
func (p *leaseProcess) drain(key string, units int64) {
	for range 300 {
		if d, err := p.claim(key, units, false); err != nil || !d.OK {
			return
		}
	}
}

// tick returns what p does not need.
func (p *leaseProcess) tick() {
	due := p.pending
	p.pending = nil
	for _, f := range due {
		f()
	}
}

// check fails the test if the limit in memory rejects one of the uses.
func (w *leaseWorld) check(history fmt.Stringer) {
	now := began
	keys := map[string]throttle.Limiter{}
	for _, u := range w.uses {
		if keys[u.key] == nil {
			keys[u.key] = w.oracle(clockFunc(func() time.Time { return now }))
		}
		now = u.at
		d, err := keys[u.key].Reserve(w.t.Context(), throttle.Claim{Cost: u.units, Now: u.at})
		require.NoError(w.t, err)
		require.True(w.t, d.OK, "%d units of %q at %v exceed the limit by time; the uses are %v\n%v", u.units, u.key, u.at, w.uses, history)
	}
}

// leasedLimits are limits of Mode Leased and the same in memory.
var leasedLimits = []struct {
	name   string
	limit  func(*Store) *Limiter
	oracle func(throttle.Clock) throttle.Limiter
	most   int64
	per    time.Duration
}{
	{"TokenBucket", func(s *Store) *Limiter { return s.TokenBucket(throttle.PerSecond(200)) }, func(c throttle.Clock) throttle.Limiter {
		return throttle.WithClock(throttle.NewTokenBucket(throttle.PerSecond(200)), c)
	}, 190, time.Second},
	{"TokenBucket, small burst", func(s *Store) *Limiter { return s.TokenBucket(throttle.Limit{Count: 600, Per: time.Minute, Burst: 45}) }, func(c throttle.Clock) throttle.Limiter {
		return throttle.WithClock(throttle.NewTokenBucket(throttle.Limit{Count: 600, Per: time.Minute, Burst: 45}), c)
	}, 43, time.Second},
	{"FixedWindow", func(s *Store) *Limiter {
		return s.FixedWindow(throttle.FixedWindowConfig{Count: 100, Per: time.Second})
	}, func(c throttle.Clock) throttle.Limiter {
		return throttle.WithClock(throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 100, Per: time.Second}), c)
	}, 100, time.Second},
	{"FixedWindow, each minute", func(s *Store) *Limiter {
		return s.FixedWindow(throttle.FixedWindowConfig{Count: 100, Align: throttle.EachMinute})
	}, func(c throttle.Clock) throttle.Limiter {
		return throttle.WithClock(throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 100, Align: throttle.EachMinute}), c)
	}, 100, time.Minute},
	{"SlidingCounter", func(s *Store) *Limiter {
		return s.SlidingCounter(throttle.SlidingCounterConfig{Limit: throttle.Limit{Count: 100, Per: time.Second}})
	}, func(c throttle.Clock) throttle.Limiter {
		return throttle.WithClock(throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: throttle.Limit{Count: 100, Per: time.Second}}), c)
	}, 100, time.Second},
}

// A steps is the history of a leaseWorld, for messages.
type steps struct{ strings.Builder }

// Processes that crash, pause, lose commands and replies, get them late, and whose clocks are set
// forward, use together no more than the limit in memory grants.
func TestLeased_isNeverExceeded(t *testing.T) {
	c := client(t)
	histories := 1000
	if testing.Short() {
		histories = 25
	}
	for _, l := range leasedLimits {
		t.Run(l.name, func(t *testing.T) {
			var leased, used int
			for seed := range histories / len(leasedLimits) {
				w := &leaseWorld{t: t, limit: l.limit, oracle: l.oracle, prefix: newTestStore(t).Prefix, now: began, pipe: c.Process}
				leased += w.run(rand.New(rand.NewPCG(uint64(seed), 1)), l.most, l.per)
				used += len(w.uses)
			}
			t.Logf("%d histories: %d claims granted, %d of them in memory, the limit was never exceeded", histories/len(leasedLimits), used, leased)
			require.Greater(t, leased, histories/len(leasedLimits), "claims that needed no round trip")
			require.Greater(t, used, leased)
		})
	}
}

// run lets random things happen. It returns the number of claims that were granted in memory.
func (w *leaseWorld) run(r *rand.Rand, most int64, per time.Duration) (leased int) {
	for range 1 + r.IntN(4) {
		w.processes = append(w.processes, w.newProcess())
	}
	h := new(steps)
	for range 20 + r.IntN(40) {
		i := r.IntN(len(w.processes))
		p := w.processes[i]
		w.lose, w.loseReply, w.late = 0, 0, 0
		switch r.IntN(12) {
		case 0:
			w.lose = 1 + r.IntN(2)
		case 1:
			w.loseReply = 1 + r.IntN(2)
		case 2:
			w.late = time.Duration(r.Int64N(int64(per) / 4))
		}
		fmt.Fprintf(h, "%v: process %d, lose %d, %d, late %v: ", w.now.Sub(began), i, w.lose, w.loseReply, w.late)
		switch r.IntN(20) {
		case 0:
			h.WriteString("crashes")
			w.processes[i] = w.newProcess()
		case 1:
			step := time.Duration(r.Int64N(int64(per) / 5))
			fmt.Fprintf(h, "its clock is set forward by %v", step)
			p.ahead += step
		case 2, 3, 4:
			fmt.Fprintf(h, "returns %d", len(p.pending))
			p.tick()
		case 5:
			h.WriteString("ends")
			_ = p.limit.store.Close(context.Background())
			w.processes[i] = w.newProcess()
		case 6:
			fmt.Fprintf(h, "%d claims were not used", len(p.unused))
			for _, f := range p.unused {
				f()
			}
			p.unused = nil
		case 7, 11:
			rest, wait := []time.Duration{0, per}[r.IntN(2)], time.Duration(r.Int64N(int64(per)/[]int64{4, 20}[r.IntN(2)])).Truncate(time.Microsecond)
			fmt.Fprintf(h, "after %v it claims units, and after %v all take what they can get", rest, wait)
			w.now = w.now.Add(rest)
			for range 2 + r.IntN(6) {
				_, _ = p.claim("k0", 1+r.Int64N(1+r.Int64N(most/8)), r.IntN(9) == 0)
			}
			w.now = w.now.Add(wait)
			for _, i := range r.Perm(len(w.processes)) {
				w.processes[i].drain("k0", 1+most/20)
				w.processes[i].drain("k0", 1)
			}
		case 8, 9, 10:
			wait := time.Duration(r.Int64N(int64(per) / []int64{1, 10, 20, 100}[r.IntN(4)]))
			fmt.Fprintf(h, "%v pass", wait)
			w.now = w.now.Add(wait.Truncate(time.Microsecond))
		default:
			for range 1 + r.IntN(10) {
				units := 1 + r.Int64N(1+r.Int64N(most/8))
				d, err := p.claim("k"+fmt.Sprint(r.IntN(4)/3), units, r.IntN(6) == 0)
				fmt.Fprintf(h, "claims %d: %v, %v; ", units, d.OK, err)
				if d.OK && w.executed.IsZero() {
					leased++
				}
			}
		}
		h.WriteByte('\n')
	}
	w.check(h)
	return leased
}

// Two and three processes do everything that can happen in each order, with a window of 12 units.
func TestLeased_everyOrder(t *testing.T) {
	limit := throttle.FixedWindowConfig{Count: 12, Per: time.Second}
	depth := 4
	if testing.Short() {
		depth = 2
	}
	var leased, sequences int
	for processes := 2; processes <= 3; processes++ {
		world := func() *leaseWorld {
			server := &memoryWindow{count: limit.Count}
			w := &leaseWorld{t: t, now: began, prefix: "x", pipe: server.process}
			server.now = func() time.Time { return w.now }
			w.limit = func(s *Store) *Limiter { return s.FixedWindow(limit) }
			w.oracle = func(c throttle.Clock) throttle.Limiter { return throttle.WithClock(throttle.NewFixedWindow(limit), c) }
			for range processes {
				w.processes = append(w.processes, w.newProcess())
			}
			return w
		}
		events := leaseEvents(processes)
		for number := range pow(len(events), depth-processes+2) {
			sequences++
			w, h := world(), new(steps)
			for rest := number; ; rest /= len(events) {
				e := events[rest%len(events)]
				h.WriteString(e.name + "; ")
				w.lose, w.loseReply = 0, 0
				e.happen(w)
				if rest < len(events) {
					break
				}
			}
			for _, p := range w.processes { // then all use what they have
				for range 12 {
					if _, err := p.claim("k", 1, false); err == nil && w.executed.IsZero() {
						leased++
					}
				}
			}
			w.check(h)
		}
	}
	t.Logf("%d sequences of events, %d claims granted in memory", sequences, leased)
	require.Positive(t, leased)
}

func pow(a, n int) int {
	if n <= 0 {
		return 1
	}
	return a * pow(a, n-1)
}

// A leaseEvent is something that may happen in a leaseWorld.
type leaseEvent struct {
	name   string
	happen func(*leaseWorld)
}

// leaseEvents are the events of a number of processes.
func leaseEvents(processes int) (all []leaseEvent) {
	for i := range processes {
		on := func(name string, f func(w *leaseWorld, p *leaseProcess)) {
			all = append(all, leaseEvent{fmt.Sprintf("%d %s", i, name), func(w *leaseWorld) { f(w, w.processes[i]) }})
		}
		on("claims 1, 3 times", func(_ *leaseWorld, p *leaseProcess) {
			for range 3 {
				_, _ = p.claim("k", 1, false)
			}
		})
		on("loses a reply", func(w *leaseWorld, p *leaseProcess) {
			w.loseReply = 1
			_, _ = p.claim("k", 2, false)
		})
		on("crashes", func(w *leaseWorld, _ *leaseProcess) { w.processes[i] = w.newProcess() })
		on("returns units", func(_ *leaseWorld, p *leaseProcess) { p.tick() })
		on("returns units and loses the reply", func(w *leaseWorld, p *leaseProcess) {
			w.loseReply = 1
			p.tick()
		})
		on("clock is set forward", func(_ *leaseWorld, p *leaseProcess) { p.ahead += 500 * time.Millisecond })
	}
	return append(all,
		leaseEvent{"400 ms pass", func(w *leaseWorld) { w.now = w.now.Add(400 * time.Millisecond) }},
		leaseEvent{"the window ends", func(w *leaseWorld) { w.now = w.now.Truncate(time.Second).Add(time.Second) }},
	)
}

// A memoryWindow decides as the script of a FixedWindow of a second for one key. It is a hundred times
// faster than Redis. TestMemoryWindow compares both.
type memoryWindow struct {
	count, used int64
	start       int64
	now         func() time.Time
}

func (m *memoryWindow) process(_ context.Context, cmd redis.Cmder) error {
	c := sentClaims(cmd)[0]
	now := m.now().UnixMicro()
	if start := now - now%1_000_000; start != m.start {
		m.start, m.used = start, 0
	}
	n, arg, further := int64(c.numbers[0]), int64(c.numbers[1]), int64(c.numbers[2])
	var reply string
	if c.op == opLease {
		reply = m.lease(now, n, arg, further)
	} else if further == m.start { // of the grant
		m.used = max(m.used+arg, 0)
	}
	cmd.(sentOnceStringCmd).SetVal(reply)
	return nil
}

func (m *memoryWindow) lease(now, n, waiting, ahead int64) string {
	left, stop := m.count-m.used, m.start+1_000_000
	ok, wait, more, again := int64(0), stop-now, int64(0), int64(0)
	if n <= left {
		ok, wait = 1, 0
		more = min(waiting, left-n)
		more += min(ahead, (left-n-more)/4)
		m.used += n + more
		if more < waiting && n > m.count-m.used {
			again = stop - now
		}
	}
	reset := int64(0)
	if m.used > 0 {
		reset = stop - now
	}
	return encodeReply(now, ok, wait, m.count-m.used, reset, now, m.start, more, again)
}

// encodeReply returns the reply of a script to a lease.
func encodeReply(now, ok, wait, left, reset, at, grant, more, again int64) string {
	var reply []byte
	for _, n := range []int64{now, ok, wait, left, reset, at, grant, more, again} {
		reply = appendFloats(reply, float64(n))
	}
	return string(reply)
}

// The exploration of all orders shows something of the script only if memoryWindow decides as it does.
func TestMemoryWindow_decidesAsTheScript(t *testing.T) {
	c, r := client(t), rand.New(rand.NewPCG(1, 2))
	limit := throttle.FixedWindowConfig{Count: 12, Per: time.Second}
	for range 20 {
		now := began
		server := &memoryWindow{count: limit.Count, now: func() time.Time { return now }}
		s := newTestStore(t)
		s.Mode, s.useLocalClock = Leased, true
		s.Client = &lossyClient{w: &leaseWorld{pipe: func(ctx context.Context, cmd redis.Cmder) error {
			err := c.Process(ctx, cmd)
			if redis.HasErrorPrefix(err, "NOSCRIPT") {
				return err
			}
			want := cmd.(sentOnceStringCmd).Val()
			require.NoError(t, server.process(ctx, cmd))
			require.Equal(t, want, cmd.(sentOnceStringCmd).Val())
			return err
		}}}
		l := s.FixedWindow(limit)
		for range 100 {
			now = now.Add(time.Duration(r.Int64N(int64(200 * time.Millisecond))))
			n, waiting, ahead := r.Int64N(5), r.Int64N(5), r.Int64N(20)
			reply, _, err := l.leases.send(t.Context(), throttle.Claim{Key: "k", Now: now}, n, waiting, ahead)
			require.NoError(t, err)
			if units := reply.more(); units > 1 && r.IntN(2) == 0 {
				l.settle(t.Context(), throttle.Claim{Key: "k", Cost: units}, throttle.Decision{OK: true, Grant: reply.part(0).grant()}, throttle.Feedback{State: throttle.Unused, Now: now})
			}
		}
	}
}
