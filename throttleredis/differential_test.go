package throttleredis

import (
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/warmup"
)

// A limiterPair is a limit in a store and the same limit in memory.
type limiterPair struct {
	name     string
	remote   func(*Store) throttle.Limiter
	local    func(throttle.Clock) throttle.Limiter
	maxCost  int64         // the largest useful claim
	unitTime time.Duration // in which about one unit is restored

	// paysLater means that any claim is granted. Claims that take centuries are then
	// excluded, because doubles cannot represent their nanoseconds exactly.
	paysLater bool

	small bool // all claims are of a few units
}

// began is the start time of differential tests: a multiple of all their periods.
var began = time.UnixMicro(1_764_000_000_000_000).UTC()

func pairs() []limiterPair {
	limit := func(count int64, per time.Duration, burst int64) throttle.Limit {
		return throttle.Limit{Count: count, Per: per, Burst: burst}
	}
	return []limiterPair{
		bucketPair("TokenBucket", limit(10, time.Second, 10)),
		bucketPair("TokenBucket, thirds", limit(3, time.Second, 2)),
		bucketPair("TokenBucket, primes", limit(997, 1013*time.Millisecond, 7)),
		bucketPair("TokenBucket, nanoseconds", limit(7, 1234567, 20)),
		bucketPair("TokenBucket, one a day", limit(1, 24*time.Hour, 2)),
		refillPair("RefillBucket", throttle.RefillBucketConfig{Limit: limit(3, time.Second, 10), Anchor: began.Add(123456 * time.Microsecond)}),
		refillPair("RefillBucket, more than it holds", throttle.RefillBucketConfig{Limit: limit(7, time.Minute, 4), Anchor: began}),
		leakyPair("LeakyBucket, meter", throttle.LeakyBucketConfig{Limit: limit(10, time.Second, 10)}),
		leakyPair("LeakyBucket, queue", throttle.LeakyBucketConfig{Limit: limit(3, time.Second, 2), Queue: 9}),
		leakyPair("LeakyBucket, endless queue", throttle.LeakyBucketConfig{Limit: limit(7, time.Second, 3), Queue: math.MaxInt64}),
		leakyPair("LeakyBucket, split", throttle.LeakyBucketConfig{Limit: limit(997, 1013*time.Millisecond, 7), Queue: 20, Split: true}),
		ticksPair("TickQueue", throttle.TickQueueConfig{Limit: limit(10, time.Second, 0), Queue: 6, Anchor: began.Add(-123 * time.Hour)}),
		ticksPair("TickQueue, thirds", throttle.TickQueueConfig{Limit: limit(3, time.Second, 0), Queue: 9, Anchor: began.Add(12345 * time.Microsecond)}),
		ticksPair("TickQueue, primes", throttle.TickQueueConfig{Limit: limit(997, 1013*time.Millisecond, 0), Queue: 20, Anchor: began}),
		nginxPair("Nginx", throttle.NginxConfig{Rate: 10, Per: time.Second, Burst: 5}),
		nginxPair("Nginx, delay", throttle.NginxConfig{Rate: 100, Per: time.Minute, Burst: 9, Delay: 5}),
		nginxPair("Nginx, nodelay", throttle.NginxConfig{Rate: 300, Per: time.Second, Burst: 9, NoDelay: true}),
		windowPair("FixedWindow, epoch", throttle.FixedWindowConfig{Count: 10, Per: 7 * time.Second}),
		windowPair("FixedWindow, first", throttle.FixedWindowConfig{Count: 10, Per: time.Second, Align: throttle.AtFirst}),
		windowPair("FixedWindow, creation", throttle.FixedWindowConfig{Count: 10, Per: time.Second, Align: throttle.AtCreation}),
		windowPair("FixedWindow, each minute", throttle.FixedWindowConfig{Count: 9, Align: throttle.EachMinute}),
		windowPair("FixedWindow, each hour", throttle.FixedWindowConfig{Count: 9, Align: throttle.EachHour, Zone: zone("Asia/Kolkata")}),
		windowPair("FixedWindow, each day", throttle.FixedWindowConfig{Count: 9, Align: throttle.EachDay, Zone: zone("Europe/Berlin")}),
		windowPair("FixedWindow, each month", throttle.FixedWindowConfig{Count: 9, Align: throttle.EachMonth, Zone: zone("America/New_York")}),
		logPair("SlidingLog", throttle.SlidingLogConfig{Limit: limit(10, time.Second, 0)}),
		logPair("SlidingLog, gap", throttle.SlidingLogConfig{Limit: limit(10, time.Second, 0), MinGap: 10 * time.Millisecond}),
		logPair("SlidingLog, rejections", throttle.SlidingLogConfig{Limit: limit(10, time.Second, 0), CountRejected: true}),
		logPair("SlidingLog, large", throttle.SlidingLogConfig{Limit: limit(150, time.Minute, 0), MinGap: time.Microsecond, CountRejected: true}),
		logPair("SlidingLog, blocks", throttle.SlidingLogConfig{Limit: limit(20_000, time.Minute, 0)}),
		logPair("SlidingLog, blocks, rejections", throttle.SlidingLogConfig{Limit: limit(5_000, time.Second, 0), CountRejected: true}),
		counterPair("SlidingCounter", throttle.SlidingCounterConfig{Limit: limit(10, time.Second, 0)}),
		counterPair("SlidingCounter, floor", throttle.SlidingCounterConfig{Limit: limit(10, time.Second, 0), RoundDown: true}),
		counterPair("SlidingCounter, large", throttle.SlidingCounterConfig{Limit: limit(1e12, 24*time.Hour, 0)}),
		partsPair("SubWindows", throttle.SlidingCounterConfig{Limit: limit(10, time.Second, 0), Parts: 3}),
		partsPair("SubWindows, one", throttle.SlidingCounterConfig{Limit: limit(10, time.Second, 0), Parts: 1}),
		partsPair("SubWindows, many", throttle.SlidingCounterConfig{Limit: limit(100, time.Minute, 0), Parts: 61}),
		concurrencyPair("Concurrency", throttle.ConcurrencyConfig{Count: 10, MaxAge: time.Second}),
		concurrencyPair("InFlight, thousands", throttle.ConcurrencyConfig{Count: 5_000, MaxAge: 5 * time.Second}),
		warmPair("WarmUp", warmup.Config{Limit: limit(10, time.Second, 0), Period: 3 * time.Second}),
		warmPair("WarmUp, thirds", warmup.Config{Limit: limit(3, time.Second, 0), Period: 10 * time.Second, ColdFactor: 7}),
		warmPair("WarmUp, even pace", warmup.Config{Limit: limit(7, time.Second, 0)}),
		banPair("Penalty", keyed.BanConfig{Rejections: 3, Within: 2 * time.Second, Duration: time.Second, MaxDuration: 4 * time.Second}),
		banPair("Penalty, forgiving", keyed.BanConfig{Rejections: 1, Within: 300 * time.Millisecond, Duration: 200 * time.Millisecond, MaxDuration: time.Second, ForgetAfter: 500 * time.Millisecond}),
		burstyPair("Bursty", warmup.BurstyConfig{Limit: limit(5, time.Second, 0), StartFull: true}),
		burstyPair("Bursty, thirds", warmup.BurstyConfig{Limit: limit(3, time.Second, 0), MaxBurst: 2500 * time.Millisecond, StartFull: true}),
	}
}

func zone(name string) *time.Location {
	z, err := time.LoadLocation(name)
	if err != nil {
		panic(err)
	}
	return z
}

func unitTimeOf(l throttle.Limit) (most int64, unitTime time.Duration) {
	most = max(l.Burst, 1)
	if l.Burst == 0 {
		most = l.Count
	}
	return most, max(l.Per/time.Duration(l.Count), 3*time.Microsecond)
}

func bucketPair(name string, l throttle.Limit) limiterPair {
	most, unitTime := unitTimeOf(l)
	return limiterPair{name, func(s *Store) throttle.Limiter { return s.TokenBucket(l) },
		func(clk throttle.Clock) throttle.Limiter { return throttle.WithClock(throttle.NewTokenBucket(l), clk) }, most, unitTime, false, false}
}

func refillPair(name string, r throttle.RefillBucketConfig) limiterPair {
	most, unitTime := unitTimeOf(r.Limit)
	return limiterPair{name, func(s *Store) throttle.Limiter { return s.RefillBucket(r) },
		func(clk throttle.Clock) throttle.Limiter { return throttle.WithClock(throttle.NewRefillBucket(r), clk) }, most, unitTime, false, false}
}

func leakyPair(name string, l throttle.LeakyBucketConfig) limiterPair {
	most, unitTime := unitTimeOf(l.Limit)
	if l.Split {
		most += l.Queue
	}
	return limiterPair{name, func(s *Store) throttle.Limiter { return s.LeakyBucket(l) },
		func(clk throttle.Clock) throttle.Limiter { return throttle.WithClock(throttle.NewLeakyBucket(l), clk) }, most, unitTime, false, false}
}

func ticksPair(name string, q throttle.TickQueueConfig) limiterPair {
	_, unitTime := unitTimeOf(q.Limit)
	return limiterPair{name, func(s *Store) throttle.Limiter { return s.TickQueue(q) },
		func(clk throttle.Clock) throttle.Limiter { return throttle.WithClock(throttle.NewTickQueue(q), clk) }, q.Queue, unitTime, false, false}
}

func nginxPair(name string, l throttle.NginxConfig) limiterPair {
	return limiterPair{name, func(s *Store) throttle.Limiter { return s.Nginx(l) },
		func(clk throttle.Clock) throttle.Limiter { return throttle.WithClock(throttle.NewNginx(l), clk) }, l.Burst, l.Per / time.Duration(l.Rate), false, false}
}

func windowPair(name string, q throttle.FixedWindowConfig) limiterPair {
	from, to := q.Window(began)
	return limiterPair{name, func(s *Store) throttle.Limiter { return s.FixedWindow(q) },
		func(clk throttle.Clock) throttle.Limiter { return throttle.WithClock(throttle.NewFixedWindow(q), clk) }, q.Count, to.Sub(from) / time.Duration(q.Count), false, false}
}

func logPair(name string, l throttle.SlidingLogConfig) limiterPair {
	most, unitTime := unitTimeOf(l.Limit)
	return limiterPair{name, func(s *Store) throttle.Limiter { return s.SlidingLog(l) },
		func(clk throttle.Clock) throttle.Limiter { return throttle.WithClock(throttle.NewSlidingLog(l), clk) }, most, unitTime, false, false}
}

func counterPair(name string, c throttle.SlidingCounterConfig) limiterPair {
	most, unitTime := unitTimeOf(c.Limit)
	return limiterPair{name, func(s *Store) throttle.Limiter { return s.SlidingCounter(c) },
		func(clk throttle.Clock) throttle.Limiter {
			return throttle.WithClock(throttle.NewSlidingCounter(c), clk)
		}, most, unitTime, false, false}
}

func partsPair(name string, p throttle.SlidingCounterConfig) limiterPair {
	most, unitTime := unitTimeOf(p.Limit)
	return limiterPair{name, func(s *Store) throttle.Limiter { return s.SlidingCounter(p) },
		func(clk throttle.Clock) throttle.Limiter {
			return throttle.WithClock(throttle.NewSlidingCounter(p), clk)
		}, most, unitTime, false, false}
}

func concurrencyPair(name string, c throttle.ConcurrencyConfig) limiterPair {
	return limiterPair{name, func(s *Store) throttle.Limiter { return s.Concurrency(c) },
		func(clk throttle.Clock) throttle.Limiter { return throttle.WithClock(throttle.NewConcurrency(c), clk) }, c.Count, c.MaxAge / time.Duration(c.Count), false, false}
}

func warmPair(name string, c warmup.Config) limiterPair {
	_, unitTime := unitTimeOf(c.Limit)
	return limiterPair{name, func(s *Store) throttle.Limiter { return s.WarmUp(c) },
		func(clk throttle.Clock) throttle.Limiter { return throttle.WithClock(warmup.New(c), clk) }, 12, unitTime, true, false}
}

func burstyPair(name string, b warmup.BurstyConfig) limiterPair {
	_, unitTime := unitTimeOf(b.Limit)
	return limiterPair{name, func(s *Store) throttle.Limiter { return s.Bursty(b) },
		func(clk throttle.Clock) throttle.Limiter { return throttle.WithClock(warmup.NewBursty(b), clk) }, 12, unitTime, true, false}
}

func banPair(name string, v keyed.BanConfig) limiterPair {
	l := throttle.LeakyBucketConfig{Limit: throttle.Limit{Count: 5, Per: time.Second, Burst: 3}, Queue: 4}
	return limiterPair{name, func(s *Store) throttle.Limiter { return s.Ban(v, s.LeakyBucket(l)) },
		func(clk throttle.Clock) throttle.Limiter {
			return throttle.WithClock(keyed.NewBan(throttle.WithClock(throttle.NewLeakyBucket(l), clk), v), clk)
		}, 3, 200 * time.Millisecond, false, false}
}

// TestLimiters_decideAsInMemory makes the same random claims in Redis and in memory.
// HEED_STEPS=1000000 sets the total number of claims; make redis-million uses it.
func TestLimiters_decideAsInMemory(t *testing.T) {
	all := pairs()
	steps, rare := 24_000, 10
	if testing.Short() {
		rare = 4
	}
	if s := os.Getenv("HEED_STEPS"); s != "" {
		steps, _ = strconv.Atoi(s)
	}
	for i, p := range all {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			const round = 400
			rounds := max(steps/len(all)/round, 1)
			if strings.HasPrefix(p.name, "LeakyBucket") {
				rounds *= rare // some of its state matters only in rare sequences
			}
			for seed := range rounds {
				compareRandomClaims(t, p, uint64(seed*len(all)+i), round)
			}
		})
	}
}

// Thousands of entries fill more blocks than one claim removes, and a tree of several
// levels.
func TestLimiters_decideAsInMemoryWithThousandsOfEntries(t *testing.T) {
	steps := 10_000
	if testing.Short() {
		steps = 2500
	}
	for i, p := range []limiterPair{
		logPair("SlidingLog", throttle.SlidingLogConfig{Limit: throttle.Limit{Count: 50_000, Per: time.Minute}}),
		logPair("SlidingLog, rejections", throttle.SlidingLogConfig{Limit: throttle.Limit{Count: 50_000, Per: time.Minute}, CountRejected: true}),
		partsPair("SubWindows", throttle.SlidingCounterConfig{Limit: throttle.Limit{Count: 50_000, Per: time.Minute}, Parts: 4000}),
		concurrencyPair("Concurrency", throttle.ConcurrencyConfig{Count: 50_000, MaxAge: time.Minute}),
	} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			p.small = true
			compareRandomClaims(t, p, uint64(i), steps)
		})
	}
}

// A manualClock returns the time that it was set to.
type manualClock struct{ now time.Time }

func (w *manualClock) Now() time.Time                       { return w.now }
func (w *manualClock) After(time.Duration) <-chan time.Time { panic("no claim waits here") }

// A comparison makes the same claims on both limiters of a pair.
type comparison struct {
	*testing.T
	limiterPair
	seed   uint64
	r      *rand.Rand
	clk    *manualClock
	remote throttle.Limiter
	locals map[string]throttle.Limiter
	held   []heldClaim
	step   int

	forward bool      // time does not run backwards
	latest  time.Time // latest reading of clk
}

type heldClaim struct {
	c             throttle.Claim
	remote, local throttle.Decision
}

func compareRandomClaims(t *testing.T, p limiterPair, seed uint64, steps int) {
	clk := &manualClock{now: began}
	s := newTestStore(t)
	s.useLocalClock, s.Clock = true, clk
	g := &comparison{T: t, limiterPair: p, seed: seed, r: rand.New(rand.NewPCG(seed, 3)), clk: clk, remote: p.remote(s), locals: map[string]throttle.Limiter{}}
	for _, key := range keys {
		g.locals[key] = p.local(clk)
	}
	for g.step = range steps {
		g.advanceClock()
		if g.r.IntN(4) > 0 || len(g.held) == 0 {
			g.claim()
		} else {
			g.end()
		}
	}
}

// advanceClock advances the clock or sets it back, by at most a window from its latest
// reading: after a larger step the limiter in Redis continues from the stored reading, see
// TestLimiters_clockSetBackCostsOneWindow. The clock of a limiter in memory is monotonic.
func (g *comparison) advanceClock() {
	var d time.Duration
	switch n := g.r.IntN(100); {
	case n < 50:
	case n < 85:
		d = time.Duration(g.r.Int64N(int64(2*g.unitTime) + 1))
	case n < 90:
		d = g.unitTime * time.Duration(g.r.Int64N(g.maxCost+1))
	case n < 94:
		d = -time.Duration(g.r.Int64N(int64(3*g.unitTime) + 1))
	case n < 96:
		d = -g.unitTime * time.Duration(g.r.Int64N(g.maxCost+1))
	case n < 98:
		d = 1000
	case n < 99:
		d = 4 * g.unitTime * time.Duration(g.maxCost)
	}
	if g.forward {
		d = max(d, 0)
	}
	g.clk.now = g.clk.now.Add(d.Truncate(time.Microsecond))
	window := min(g.unitTime*time.Duration(g.maxCost), 24*time.Hour)
	if g.paysLater {
		window = g.unitTime
	}
	if g.latest.Sub(g.clk.now) > window {
		g.clk.now = g.latest.Add(-window).Truncate(time.Microsecond).Add(time.Microsecond)
	}
	if g.clk.now.After(g.latest) {
		g.latest = g.clk.now
	}
	if g.clk.now.Before(began) { // before the limiter in memory was created, a time that the other limiter does not have
		g.clk.now = began
	}
}

// keys are the keys of the claims. The first is used most often.
var keys = []string{"a", "", "b{c}\x00"}

func (g *comparison) key() string { return keys[max(g.r.IntN(4)-1, 0)] }

func (g *comparison) claim() {
	c := throttle.Claim{Key: g.key(), Cost: 1 + g.r.Int64N(min(g.maxCost, 12)), DryRun: g.r.IntN(12) == 0}
	kind := g.r.IntN(20)
	if g.small && g.r.IntN(500) > 0 {
		kind = 4
	}
	switch kind {
	case 0:
		c.Cost = g.maxCost
	case 1:
		c.Cost = g.maxCost + 1
	case 2:
		if c.Cost = math.MaxInt64; g.paysLater {
			c.Cost = 100
		}
	case 3:
		c.Cost = 1 + g.r.Int64N(g.maxCost)
	}
	maxWait := time.Duration(0)
	// A TokenBucket books ahead only in memory.
	if g.r.IntN(3) > 0 && !strings.HasPrefix(g.name, "TokenBucket") && !strings.HasPrefix(g.name, "Penalty") {
		maxWait = time.Duration(g.r.Int64N(int64(g.unitTime) * min(g.maxCost+2, 20))).Truncate(time.Microsecond)
	}
	if g.r.IntN(2) == 0 {
		c.Now = g.clk.now
	}
	if c.Waits = g.r.IntN(3) == 0; c.Waits {
		c.Waited = time.Duration(g.r.Int64N(int64(g.unitTime) * min(g.maxCost+2, 20))).Truncate(time.Microsecond)
	}
	if g.r.IntN(3) == 0 {
		c.Deadline = g.clk.now.Add(time.Duration(g.r.Int64N(int64(g.unitTime) * 20)))
	}
	remote, err := throttle.ReserveAhead(g.Context(), g.remote, c, maxWait)
	require.NoError(g, err)
	local, err := throttle.ReserveAhead(g.Context(), g.locals[c.Key], c, maxWait)
	require.NoError(g, err)
	g.compare(c, remote, local)
	if remote.OK && !c.DryRun {
		g.held = append(g.held, heldClaim{c, remote, local})
	}
}

// compare expects equal decisions. It excludes what only one of the limiters can know.
func (g *comparison) compare(c throttle.Claim, remote, local throttle.Decision) {
	if !local.OK {
		local.Wait = wholeMicros(local.Wait)
	}
	local.ResetAfter, remote.ResetAfter = wholeMicros(local.ResetAfter), wholeMicros(remote.ResetAfter)
	require.True(g, remote.At.Equal(local.At), "seed %d, step %d: %+v\nin Redis  %+v\nin memory %+v", g.seed, g.step, c, remote, local)
	shown := func(d throttle.Decision) throttle.Decision {
		return throttle.Decision{OK: d.OK, Policy: d.Policy, Wait: d.Wait, Limit: d.Limit, Remaining: d.Remaining, ResetAfter: d.ResetAfter, Per: d.Per}
	}
	require.Equal(g, shown(local), shown(remote), "seed %d, step %d: %+v at %v", g.seed, g.step, c, g.clk.now)
	require.Equal(g, local.QueueBound, remote.QueueBound, "seed %d, step %d: %+v at %v", g.seed, g.step, c, g.clk.now)
}

// end ends a claim in a random way.
func (g *comparison) end() {
	i := g.r.IntN(len(g.held))
	if g.r.IntN(2) == 0 {
		i = len(g.held) - 1
	}
	h := g.held[i]
	g.held = append(g.held[:i], g.held[i+1:]...)
	if h.c.Now = (time.Time{}); g.r.IntN(2) == 0 {
		h.c.Now = g.clk.now
	}
	if g.r.IntN(2) == 0 {
		g.remote.Report(g.Context(), h.c, h.remote, throttle.Feedback{Now: h.c.Now, State: throttle.Unused})
		g.locals[h.c.Key].Report(g.Context(), h.c, h.local, throttle.Feedback{Now: h.c.Now, State: throttle.Unused})
		return
	}
	f := throttle.Feedback{Now: h.c.Now}
	if g.r.IntN(3) > 0 {
		f.Cost = 1 + g.r.Int64N(h.c.Cost+2)
	}
	g.remote.Report(g.Context(), h.c, h.remote, f)
	g.locals[h.c.Key].Report(g.Context(), h.c, h.local, f)
}
