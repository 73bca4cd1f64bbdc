package throttle_test

import (
	"cmp"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A usage is the use of n units at an instant.
type usage struct {
	at time.Duration
	n  int64
}

// A grantedClaim is a granted claim that may still be canceled.
type grantedClaim struct {
	c      throttle.Claim
	d      throttle.Decision
	limits int // number of limits so far when it was granted
}

// In 2,000 random histories of grants and cancels, the units that were kept obey the limit
// in every window, exact to the unit.
func TestTokenBucket_usageObeysLimit(t *testing.T) {
	l := throttle.Limit{Count: 10, Per: time.Second, Burst: 10}
	seeds := uint64(2000)
	if testing.Short() {
		seeds = 500
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 3))
		clk := new(atomicClock)
		b := throttle.WithClock(throttle.NewTokenBucket(l), clk)
		var held []grantedClaim
		var usages []usage
		use := func(h grantedClaim) { usages = append(usages, usage{h.d.At.Sub(time.Unix(0, 0)), h.c.Cost}) }
		for range 200 {
			clk.ns.Add(r.Int64N(2) * r.Int64N(int64(400*time.Millisecond)))
			c := throttle.Claim{Cost: 1 + r.Int64N(l.Burst)}
			if d, _ := b.Reserve(t.Context(), c); d.OK {
				held = append(held, grantedClaim{c: c, d: d})
			}
			held = slices.DeleteFunc(held, func(h grantedClaim) bool {
				switch r.IntN(20) {
				case 0, 1:
					b.Report(t.Context(), h.c, h.d, throttle.Feedback{Now: h.c.Now, State: throttle.Unused})
				case 2, 3, 4, 5, 6, 7, 8:
					use(h)
				default:
					return false
				}
				return true
			})
		}
		for _, h := range held {
			use(h)
		}
		requireWithinLimit(t, l, usages, seed)
	}
}

// requireWithinLimit fails if the units used within any window exceed burst + rate*window.
func requireWithinLimit(t *testing.T, l throttle.Limit, usages []usage, seed uint64) {
	t.Helper()
	slices.SortStableFunc(usages, func(a, b usage) int { return cmp.Compare(a.at, b.at) })
	for i := range usages {
		sum := int64(0)
		for _, a := range usages[i:] {
			sum += a.n
			if w := a.at - usages[i].at; (sum-l.Burst)*int64(l.Per) > l.Count*int64(w) {
				t.Fatalf("seed %d: %d units within %v from %v on, under %v", seed, sum, w, usages[i].at, l)
			}
		}
	}
}

// Random limits, costs, times and actual costs are compared with a bucket in rational
// numbers.
func TestTokenBucket_isExact(t *testing.T) {
	runs, seeds := 0, 1000
	if testing.Short() {
		seeds = 120
	}
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 4))
		l := throttle.Limit{Count: 1 + r.Int64N(1<<r.IntN(24)), Per: periods[r.IntN(len(periods))], Burst: 1 + r.Int64N(1<<r.IntN(16))}
		if float64(l.Burst)*float64(l.Per) < 1<<59 { // beyond, the rate is a little lower
			newComparison(t, r, l).run(60, 0)
			runs++
		}
	}
	require.Greater(t, runs, seeds*3/4)
}

var periods = []time.Duration{7, time.Microsecond, time.Millisecond, time.Second, 1001 * time.Millisecond, time.Minute, time.Hour, 24 * time.Hour}

// SetLimit keeps the units in the bucket, with an error of less than the units of a
// nanosecond.
func TestTokenBucket_setLimitKeepsUnits(t *testing.T) {
	seeds := uint64(500)
	if testing.Short() {
		seeds = 150
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 5))
		l := throttle.Limit{Count: 1 + r.Int64N(1000), Per: time.Second, Burst: 1 + r.Int64N(100)}
		newComparison(t, r, l).run(60, 8)
	}
}

// A comparison makes the same claims on a TokenBucket and on its model.
type comparison struct {
	*testing.T
	r        *rand.Rand
	clk      *atomicClock
	b        throttle.Adjustable
	model    *exactBucket
	held     []grantedClaim
	rounding float64 // units that may be lost by rounding; rounding never adds any
}

func newComparison(t *testing.T, r *rand.Rand, l throttle.Limit) *comparison {
	clk := new(atomicClock)
	return &comparison{T: t, r: r, clk: clk, b: throttle.WithClock(throttle.NewTokenBucket(l), clk), model: newExactBucket(l)}
}

// run makes n claims, and sets a new limit after each of them with a probability of one in
// the given number; 0: never.
func (d *comparison) run(n, oneIn int) {
	d.Helper()
	for range n {
		unit := float64(d.model.limit.Per) / float64(d.model.limit.Count)
		d.clk.ns.Add(int64(min(unit*d.r.ExpFloat64()*float64(d.r.Int64N(4)*(1+d.r.Int64N(d.model.limit.Burst))), 1<<56)))
		d.claim(1 + d.r.Int64N(d.model.limit.Burst+1))
		if len(d.held) > 0 && d.r.IntN(3) == 0 {
			i := d.r.IntN(len(d.held))
			d.end(d.held[i])
			d.held = slices.Delete(d.held, i, i+1)
		}
		if oneIn > 0 && d.r.IntN(oneIn) == 0 {
			l := throttle.Limit{Count: 1 + d.r.Int64N(1000), Per: time.Second, Burst: 1 + d.r.Int64N(100)}
			require.NoError(d, d.b.SetLimit(l))
			d.model.setLimit(l, d.clk.ns.Load())
			d.rounding += 1e-6 // a tick of the shortest interval
		}
	}
}

func (d *comparison) claim(n int64) {
	d.Helper()
	now := d.clk.ns.Load()
	slack := int64(math.Ceil(d.rounding * float64(d.model.limit.Per) / float64(d.model.limit.Count)))
	c := throttle.Claim{Cost: n}
	got, err := d.b.Reserve(d.Context(), c)
	require.NoError(d, err)
	want := d.model.wait(n, now)
	switch {
	case n > d.model.limit.Burst:
		require.Equal(d, throttle.Forever, got.Wait)
	case got.OK:
		require.Zero(d, want, "granted %d of %v too early", n, d.model.limit)
		d.model.take(n, now)
		d.held = append(d.held, grantedClaim{c, got, d.model.limits})
	default:
		require.GreaterOrEqual(d, int64(got.Wait), want, "%d of %v", n, d.model.limit)
		require.LessOrEqual(d, int64(got.Wait), want+slack, "%d of %v", n, d.model.limit)
	}
	left := new(big.Rat).Sub(whole(d.model.limit.Burst), d.model.at(now))
	reset := ceil(left.Mul(left, perUnit(d.model.limit)))
	if after := int64(got.ResetAfter); after < reset || after > reset+slack {
		require.Fail(d, "wrong reset", "%d, want %d to %d, %v", after, reset, reset+slack, d.model.limit)
	}
	if slack == 0 {
		require.Equal(d, max(floor(d.model.at(now)), 0), got.Remaining, "%v", d.model.limit)
	}
}

// end cancels h, or observes an actual cost above or below the claimed one.
func (d *comparison) end(h grantedClaim) {
	now, granted := d.clk.ns.Load(), h.d.At.UnixNano()
	d.rounding += 1e-6 * float64(d.model.limits-1)
	if d.r.IntN(2) == 0 {
		d.b.Report(d.Context(), h.c, h.d, throttle.Feedback{Now: h.c.Now, State: throttle.Unused})
		d.model.refund(h.c.Cost, granted, now, h.limits)
		return
	}
	f := throttle.Feedback{Cost: 1 + d.r.Int64N(2*h.c.Cost)}
	d.b.Report(d.Context(), h.c, h.d, throttle.Feedback{Cost: f.Cost, State: throttle.Ongoing}) // partial: has no effect
	d.b.Report(d.Context(), h.c, h.d, f)
	if more := f.Cost - h.c.Cost; more > 0 {
		d.model.take(more, now)
	} else {
		d.model.refund(-more, granted, now, h.limits)
	}
}

// Thirty-two goroutines take exactly the units that are restored.
func TestTokenBucket_losesNoUnitsUnderContention(t *testing.T) {
	l := throttle.Limit{Count: 7919, Per: time.Second, Burst: 1 << 20}
	for name, cancels := range map[string]int{"kept": 0, "some cancelled": 4} {
		t.Run(name, func(t *testing.T) {
			clk := new(atomicClock)
			b := throttle.WithClock(throttle.NewTokenBucket(l), clk)
			kept := take(t, b, l.Burst)
			var wg sync.WaitGroup
			for id := range uint64(32) {
				wg.Go(func() {
					r := rand.New(rand.NewPCG(id, 6))
					for i := range 300 {
						c := throttle.Claim{Cost: 1 + r.Int64N(3)}
						d, _ := b.Reserve(t.Context(), c)
						switch {
						case d.OK && cancels > 0 && i%cancels == 0:
							b.Report(t.Context(), c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
						case d.OK:
							kept.Add(c.Cost)
						}
						clk.ns.Add(r.Int64N(100_000))
					}
				})
			}
			wg.Wait()
			d, _ := b.Reserve(t.Context(), throttle.Claim{DryRun: true})
			due := l.Burst + floor(inflow(l, clk.ns.Load()))
			if cancels == 0 {
				require.Equal(t, due, kept.Load()+d.Remaining, "units kept and left; want rate*time + burst")
			}
			require.LessOrEqual(t, kept.Load()+d.Remaining, due, "units kept and left; at most rate*time + burst")
		})
	}
}

// take takes n units and returns a count that begins with them.
func take(t *testing.T, l throttle.Limiter, n int64) *atomic.Int64 {
	t.Helper()
	d, err := l.Reserve(t.Context(), throttle.Claim{Cost: n})
	require.True(t, d.OK && err == nil, "%+v, %v", d, err)
	kept := new(atomic.Int64)
	kept.Store(n)
	return kept
}

// With years, primes and the largest numbers, the origin of ticks moves before they
// overflow.
func TestTokenBucket_scaleOverflows(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, l := range []throttle.Limit{
		{Count: 7919, Per: time.Second, Burst: 5},
		{Count: 999_999_937, Per: time.Second, Burst: 5},
		{Count: 999_999_929, Per: 999_999_893, Burst: 999_999_883},
		{Count: math.MaxInt64, Per: time.Second, Burst: 5},
		{Count: math.MaxInt64, Per: math.MaxInt64, Burst: 5},
		{Count: math.MaxInt64, Per: time.Hour, Burst: math.MaxInt64},
		{Count: 1, Per: 30 * year, Burst: 1},
	} {
		clk := new(atomicClock)
		b := throttle.WithClock(throttle.NewTokenBucket(l), clk)
		full, _ := b.Reserve(t.Context(), throttle.Claim{DryRun: true})
		for _, idle := range []time.Duration{0, 40 * year, time.Nanosecond, 40 * year, 100 * year} {
			clk.ns.Add(int64(idle))
			d, _ := b.Reserve(t.Context(), throttle.Claim{DryRun: true})
			if idle > 30*year {
				require.Equal(t, full.Limit, d.Remaining, "%v after %v", l, idle)
			}
			d, _ = b.Reserve(t.Context(), throttle.Claim{Cost: max(d.Remaining, 1)})
			again, _ := b.Reserve(t.Context(), throttle.Claim{Cost: full.Limit})
			require.False(t, again.OK, "%v: the burst twice after %v: %+v", l, idle, again)
			require.Positive(t, again.Wait, "%v", l)
			exact := float64(full.Limit-again.Remaining) / float64(l.Count) * float64(l.Per)
			require.LessOrEqual(t, float64(again.Wait), exact*(1+1e-6)+2+600*float64(l.Count)/math.MaxInt64*exact, "%v: %+v", l, again)
		}
	}
}

// The rate is never higher than the limit, and hardly lower, even with the shortest ticks.
func TestTokenBucket_primeRates(t *testing.T) {
	for _, count := range []int64{7919, 1_000_003, 999_999_937, 15_999_999_989} {
		l := throttle.Limit{Count: count, Per: time.Second, Burst: 1000}
		clk := new(atomicClock)
		b := throttle.WithClock(throttle.NewTokenBucket(l), clk)
		kept := take(t, b, l.Burst)
		kept.Store(0)
		for range 20_000 {
			clk.ns.Add(max(500*int64(time.Second)/count, 1))
			d, _ := b.Reserve(t.Context(), throttle.Claim{DryRun: true})
			if n := d.Remaining; n > 0 {
				take(t, b, n)
				kept.Add(n)
			}
		}
		exact := inflow(l, clk.ns.Load())
		require.LessOrEqual(t, kept.Load(), floor(exact), "%v", l)
		nearly, _ := exact.Float64()
		require.Greater(t, float64(kept.Load()), nearly*(1-1e-6)-1, "%v", l)
	}
}

// Claims replayed from data may be older than the bucket itself.
func TestTokenBucket_cancelInDataTime(t *testing.T) {
	b := throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: time.Second, Burst: 5})
	c := throttle.Claim{Cost: 5, Now: time.Unix(0, 0)}
	d, _ := b.Reserve(t.Context(), c)
	require.True(t, d.OK)
	c.Now = time.Unix(2, 0)
	b.Report(t.Context(), c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
	d, _ = b.Reserve(t.Context(), throttle.Claim{DryRun: true, Now: time.Unix(2, 0)})
	require.EqualValues(t, 5, d.Remaining)
}
