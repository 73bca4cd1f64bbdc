package backoff

import (
	"cmp"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	ms = time.Millisecond
	s  = time.Second
)

// constant returns a Rand function that always returns u.
func constant(u float64) func() float64 { return func() float64 { return u } }

// belowOne is the largest float64 below 1.
var belowOne = math.Nextafter(1, 0)

// delaysOf returns the first n delays of p.
func delaysOf(p Policy, n int) []time.Duration {
	var all []time.Duration
	prev := time.Duration(0)
	for attempt := 1; attempt <= n; attempt++ {
		prev = p.Delay(attempt, prev)
		all = append(all, prev)
	}
	return all
}

func TestPolicies_delays(t *testing.T) {
	low, high := constant(0), constant(belowOne)
	for _, c := range []struct {
		name   string
		policy Policy
		want   []time.Duration
	}{
		{"58 doubling to the cap", Exponential{Base: s, Max: 5 * time.Minute, Jitter: None}, []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 64 * s, 128 * s, 256 * s, 300 * s, 300 * s}},
		{"59 cap 10 ms", Exponential{Base: ms, Max: 10 * ms, Jitter: None}, []time.Duration{ms, 2 * ms, 4 * ms, 8 * ms, 10 * ms, 10 * ms}},
		{"60 cap 30 s", Exponential{Base: 2 * s, Max: 30 * s, Jitter: None}, []time.Duration{2 * s, 4 * s, 8 * s, 16 * s, 30 * s}},
		{"65 constant", Constant(7 * ms), []time.Duration{7 * ms, 7 * ms, 7 * ms}},
		{"linear, zero value", Linear{Jitter: None}, []time.Duration{s / 2, s, 1500 * ms}},
		{"linear, below zero", Linear{Base: -s, Max: -s, Jitter: None}, []time.Duration{s / 2, s, 1500 * ms}},
		{"linear to the default cap", Linear{Base: 14 * s, Jitter: None}, []time.Duration{14 * s, 28 * s, 30 * s, 30 * s}},
		{"linear of a nanosecond", Linear{Base: 1, Max: 2, Jitter: None}, []time.Duration{1, 2, 2}},
		{"exponential, below zero", Exponential{Base: -s, Max: -s, Jitter: None}, []time.Duration{s / 2, s, 2 * s, 4 * s, 8 * s, 16 * s, 30 * s}},
		{"exponential of a nanosecond", Exponential{Base: 1, Max: 3, Jitter: None}, []time.Duration{1, 2, 3, 3}},
		{"exponential of a nanosecond, factor 3", Exponential{Base: 1, Max: 8, Factor: 3, Jitter: None}, []time.Duration{1, 3, 8, 8}},
		{"66 linear", Linear{Base: s, Jitter: None}, []time.Duration{s, 2 * s, 3 * s}},
		{"constant below zero", Constant(-1), []time.Duration{0, 0}},
		{"zero value, lowest", Exponential{Rand: low}, []time.Duration{0, 0, 0}},
		{"zero value, highest", Exponential{Rand: high}, []time.Duration{s/2 - 1, s - 1, 2*s - 1, 4*s - 1, 8*s - 1, 16*s - 1, 30*s - 1, 30*s - 1}},
		{"factor 1", Exponential{Base: s, Factor: 1, Jitter: None}, []time.Duration{s, s, s}},
		{"factor below 1", Exponential{Base: s, Factor: 0.5, Jitter: None}, []time.Duration{s, s, s}},
		{"factor 1.5", Exponential{Base: s, Factor: 1.5, Jitter: None}, []time.Duration{1000 * ms, 1500 * ms, 2250 * ms, 3375 * ms}},
		{"base above the cap", Exponential{Base: time.Minute, Jitter: None}, []time.Duration{30 * s, 30 * s}},
		{"a product that is rounded to just below the cap", Exponential{Base: 45, Max: 63, Factor: 1.4, Jitter: None}, []time.Duration{45, 63, 63}},
		{"equal, lowest", Exponential{Base: s, Jitter: Equal, Rand: low}, []time.Duration{s / 2, s, 2 * s}},
		{"equal, highest", Exponential{Base: s, Jitter: Equal, Rand: high}, []time.Duration{s - 1, 2*s - 1, 4*s - 1}},
		{"decorrelated, lowest", Exponential{Base: s, Jitter: Decorrelated, Rand: low}, []time.Duration{s, s, s}},
		{"decorrelated, highest", Exponential{Base: s, Jitter: Decorrelated, Rand: high}, []time.Duration{3 * s, 9 * s, 27 * s, 30 * s, 30 * s}},
		{"decorrelated, factor 1", Exponential{Base: s, Factor: 1, Jitter: Decorrelated, Rand: high}, []time.Duration{s, s}},
		{"decorrelated, other factor", Exponential{Base: s, Factor: 2, Jitter: Decorrelated, Rand: high}, []time.Duration{2 * s, 4 * s}},
		{"plusminus, lowest", Exponential{Base: s, Max: 9 * s, Jitter: PlusMinus, Rand: low}, []time.Duration{s / 2, s, 2 * s, 3 * s, 3 * s}},
		{"plusminus, highest", Exponential{Base: s, Max: 9 * s, Jitter: PlusMinus, Rand: high}, []time.Duration{1500 * ms, 3 * s, 6 * s, 9 * s, 9 * s}},
		{"plusminus, a tenth", Exponential{Base: s, Jitter: PlusMinus, Spread: 0.1, Rand: high}, []time.Duration{1100 * ms, 2200 * ms}},
		{"plusminus, none", Exponential{Base: s, Jitter: PlusMinus, Spread: -1}, []time.Duration{s, 2 * s, 4 * s}},
		{"plusminus, spread above 1 counts as 1", Exponential{Base: s, Max: 2 * s, Jitter: PlusMinus, Spread: 1.5, Rand: high}, []time.Duration{2 * s, 2 * s}},
		{"linear full, highest", Linear{Base: s, Max: 2 * s, Rand: high}, []time.Duration{s - 1, 2*s - 1, 2*s - 1}},
		{"linear equal, lowest", Linear{Base: s, Jitter: Equal, Rand: low}, []time.Duration{s / 2, s}},
		{"linear equal, highest", Linear{Base: s, Jitter: Equal, Rand: high}, []time.Duration{s - 1, 2*s - 1}},
		{"linear decorrelated is full", Linear{Base: s, Jitter: Decorrelated, Rand: high}, []time.Duration{s - 1, 2*s - 1}},
		{"linear plusminus, lowest", Linear{Base: s, Jitter: PlusMinus, Rand: low}, []time.Duration{s / 2, s}},
	} {
		require.Equal(t, c.want, delaysOf(c.policy, len(c.want)), c.name)
	}
}

// TestPolicies_saturateAtAnyAttempt checks that a delay that does not fit saturates at
// Max and is never negative.
func TestPolicies_saturateAtAnyAttempt(t *testing.T) {
	for _, p := range []Policy{
		Exponential{Base: 1, Max: math.MaxInt64, Jitter: None},
		Exponential{Base: math.MaxInt64 / 2, Max: math.MaxInt64, Factor: 2.1, Jitter: None},
		Exponential{Base: 1000, Max: math.MaxInt64, Factor: 1.5, Jitter: None},
		Exponential{Base: s, Max: math.MaxInt64, Factor: 1.0001, Jitter: None},
		Exponential{Base: s, Max: math.MaxInt64, Factor: math.Inf(1), Jitter: None},
		Linear{Base: 2, Max: math.MaxInt64, Jitter: None},
	} {
		first := p.Delay(1, 0)
		for _, attempt := range []int{0, -1, math.MinInt} {
			require.Equal(t, first, p.Delay(attempt, 0), "%+v", p)
		}
		if _, linear := p.(Linear); bits.UintSize == 64 || !linear {
			require.Equal(t, time.Duration(math.MaxInt64), p.Delay(math.MaxInt, 0), "%+v", p)
		}
	}
	huge := Exponential{Base: math.MaxInt64 / 2, Max: math.MaxInt64, Factor: 2.1, Jitter: None}
	require.Equal(t, time.Duration(math.MaxInt64), huge.Delay(2, 0))
}

// TestPolicies_keepTheirBounds checks that for any values of the fields, delays are
// between 0 and Max, and do not decrease with the attempt if the random numbers are equal.
func TestPolicies_keepTheirBounds(t *testing.T) {
	lengths := []time.Duration{math.MinInt64, -1, 0, 1, 2, 3, 999, ms, s, time.Hour, math.MaxInt64 - 1, math.MaxInt64}
	factors := []float64{0, 1, 1.0000001, 1.5, 2, 2.1, 3, 1e300, math.Inf(1), math.NaN(), -1}
	spreads := []float64{0, 1e-18, 0.1, 0.5, 1, 7, -1, math.NaN()}
	us := []float64{0, belowOne, 0.5, 1, -1, math.NaN(), math.Inf(1)}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		e := Exponential{
			Base: pick(rng, lengths), Max: pick(rng, lengths), Factor: pick(rng, factors),
			Jitter: Jitter(rng.IntN(6)), Spread: pick(rng, spreads), Rand: constant(pick(rng, us)),
		}
		l := Linear{Base: e.Base, Max: e.Max, Jitter: e.Jitter, Spread: e.Spread, Rand: e.Rand}
		if rng.IntN(4) == 0 {
			e.Rand, l.Rand = nil, nil
		}
		attempt, prev := rng.IntN(202)-1, pick(rng, lengths)
		for _, p := range []Policy{e, l} {
			d := p.Delay(attempt, prev)
			require.GreaterOrEqual(t, d, time.Duration(0), "%+v, attempt %d, prev %d", p, attempt, prev)
			require.LessOrEqual(t, d, cmp.Or(max(e.Max, 0), defaultMax), "%+v, attempt %d, prev %d", p, attempt, prev)
		}
	}
}

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

func TestJitters_drawWithinTheirRange(t *testing.T) {
	const most = 30 * s
	for attempt := range 201 {
		c := Exponential{Jitter: None}.Delay(attempt, 0)
		for _, j := range []struct {
			kind     Jitter
			prev     time.Duration
			low, top time.Duration
		}{
			{Full, 0, 0, c - 1},
			{None, 0, c, c},
			{Equal, 0, c / 2, c - 1},
			{Decorrelated, 0, s / 2, s * 3 / 2},
			{Decorrelated, 4 * s, s / 2, 12 * s},
			{Decorrelated, most, s / 2, most},
			{PlusMinus, 0, min(c, most*2/3) / 2, min(c, most*2/3) * 3 / 2},
		} {
			e := Exponential{Jitter: j.kind}
			for range 3 {
				d := e.Delay(attempt, j.prev)
				require.True(t, j.low <= d && d <= j.top, "%v attempt %d: %v", j.kind, attempt, d)
			}
			e.Rand = constant(0)
			require.Equal(t, j.low, e.Delay(attempt, j.prev), "%v attempt %d", j.kind, attempt)
			e.Rand = constant(belowOne)
			require.Equal(t, j.top, e.Delay(attempt, j.prev), "%v attempt %d", j.kind, attempt)
		}
	}
}

// TestPlusMinus_drawsEachNanosecondAlike checks that PlusMinus returns each delay
// within its range with equal probability.
func TestPlusMinus_drawsEachNanosecondAlike(t *testing.T) {
	for u, want := range map[float64]time.Duration{0: 1, 0.33: 1, 0.34: 2, 0.66: 2, 0.67: 3, 0.99: 3} {
		e := Exponential{Base: 2, Jitter: PlusMinus, Spread: 0.5, Rand: constant(u)}
		require.Equal(t, want, e.Delay(1, 0), "draw %v", u)
	}
}

// TestFull_isUniform applies a chi-square test with 100 bins to 100,000 delays from a
// fixed seed, and to as many from the random source of the runtime, which has no seed. The
// bound of the latter is exceeded by chance once in 10^12 runs.
func TestFull_isUniform(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	require.Less(t, chiSquare(Exponential{Rand: rng.Float64}), 149.5) // 99.9 % quantile with 99 degrees of freedom
	require.Less(t, chiSquare(Exponential{}), 230.0)
}

func chiSquare(e Exponential) float64 {
	const bins, n = 100, 100_000
	var seen [bins]float64
	for range n {
		seen[e.Delay(3, 0)*bins/(2*s)]++
	}
	sum := 0.0
	for _, k := range seen {
		sum += (k - n/bins) * (k - n/bins) / (n / bins)
	}
	return sum
}

// TestFull_usesTheFactor checks that without a Rand too, the range depends on Factor.
func TestFull_usesTheFactor(t *testing.T) {
	for factor, want := range map[float64]time.Duration{0: 8 * s, 1: s, 3: 27 * s} {
		longest := time.Duration(0)
		for range 1000 {
			longest = max(longest, Exponential{Base: s, Factor: factor}.Delay(4, 0))
		}
		require.Less(t, longest, want, "factor %v", factor)
		require.Greater(t, longest, want*9/10, "factor %v", factor) // fails by chance once in 10^45 runs
	}
}

// TestFull_isAsEvenAsUniform simulates 10,000 clients that fail at the same time. It
// checks that for each retry the maximum number of clients within 10 ms is at most 1.15
// times that of rand.Uint64N, on average of 20 outages. Single maxima vary by more than
// that.
func TestFull_isAsEvenAsUniform(t *testing.T) {
	if testing.Short() {
		t.Skip("only make test-long runs it")
	}
	const clients, outages = 10_000, 20
	rng, peer := rand.New(rand.NewPCG(5, 6)), rand.New(rand.NewPCG(7, 8))
	e := Exponential{Base: 100 * ms, Max: 10 * s, Rand: rng.Float64}
	ours, uniform := make([]time.Duration, clients), make([]time.Duration, clients)
	for attempt := 1; attempt <= 10; attempt++ {
		a, b := 0, 0
		for range outages {
			for i := range clients {
				ours[i] = e.Delay(attempt, 0)
				uniform[i] = time.Duration(peer.Uint64N(uint64(double(e.Base, e.Max, attempt))))
			}
			a += maxWithin(ours, 10*ms)
			b += maxWithin(uniform, 10*ms)
		}
		ratio := float64(a) / float64(b)
		t.Logf("retry %2d: largest crowd in 10 ms: %6.1f, of uniform draws %6.1f, ratio %.3f",
			attempt, float64(a)/outages, float64(b)/outages, ratio)
		require.LessOrEqual(t, ratio, 1.15, "retry %d", attempt)
	}
}

// TestMax_spreadsDelaysAtTheCap checks that delays of all jitters stay spread when they
// have reached Max.
func TestMax_spreadsDelaysAtTheCap(t *testing.T) {
	const clients = 10_000
	for _, j := range []Jitter{Full, Equal, Decorrelated, PlusMinus} {
		rng := rand.New(rand.NewPCG(9, uint64(j)))
		e := Exponential{Base: 100 * ms, Max: 10 * s, Jitter: j, Rand: rng.Float64}
		var last []time.Duration
		for range clients {
			last = append(last, delaysOf(e, 12)[11])
		}
		require.Less(t, maxWithin(last, 10*ms), 100, "%v", j) // if the delay itself were limited, 3,000 decorrelated ones would be at Max
	}
}

// maxWithin returns the maximum number of elements of at within any interval of length span.
func maxWithin(at []time.Duration, span time.Duration) int {
	slices.Sort(at)
	largest, first := 0, 0
	for i, t := range at {
		for t-at[first] >= span {
			first++
		}
		largest = max(largest, i-first+1)
	}
	return largest
}

func TestRetryAfterJitter_addsAGrowingRange(t *testing.T) {
	for _, c := range []struct {
		name    string
		floor   RetryAfterJitter
		said    time.Duration
		attempt int
		low     time.Duration
		width   time.Duration
	}{
		{"a second", RetryAfterJitter{}, s, 1, s, s / 2},
		{"again", RetryAfterJitter{}, s, 2, s, s},
		{"and again", RetryAfterJitter{}, s, 3, s, 2 * s},
		{"a minute", RetryAfterJitter{}, time.Minute, 1, time.Minute, 6 * s},
		{"a minute again", RetryAfterJitter{}, time.Minute, 2, time.Minute, 12 * s},
		{"widest", RetryAfterJitter{}, time.Minute, math.MaxInt, time.Minute, 30 * s},
		{"an hour", RetryAfterJitter{}, time.Hour, 1, time.Hour, 30 * s},
		{"zero", RetryAfterJitter{}, 0, 1, s / 2, s / 2},
		{"a past date", RetryAfterJitter{}, -time.Hour, 1, s / 2, s / 2},
		{"a fraction", RetryAfterJitter{}, ms, 1, s / 2, s / 2},
		{"attempt zero", RetryAfterJitter{}, s, 0, s, s / 2},
		{"own fields", RetryAfterJitter{Min: 2 * s, Max: 5 * s, Spread: 0.5}, 8 * s, 2, 8 * s, 5 * s},
		{"without a share", RetryAfterJitter{Spread: -1}, time.Hour, 1, time.Hour, s / 2},
	} {
		c.floor.Rand = constant(0)
		require.Equal(t, c.low, c.floor.Delay(c.said, c.attempt), c.name)
		c.floor.Rand = constant(belowOne)
		require.Equal(t, c.low+c.width-1, c.floor.Delay(c.said, c.attempt), c.name)
	}
	require.Equal(t, time.Duration(math.MaxInt64), RetryAfterJitter{}.Delay(math.MaxInt64, 1))
}

func TestValidate_namesTheField(t *testing.T) {
	require.NoError(t, Exponential{}.Validate())
	require.NoError(t, Exponential{Base: s, Max: s, Factor: 1, Jitter: PlusMinus, Spread: 1}.Validate())
	require.NoError(t, Exponential{Base: time.Minute, Factor: math.MaxFloat64}.Validate()) // the default of Max is shorter
	require.NoError(t, Linear{}.Validate())
	for field, p := range map[string]interface{ Validate() error }{
		"Base is -1s":               Exponential{Base: -s},
		"Max is -1s":                Linear{Max: -s},
		"Base 1m0s is above Max 1s": Linear{Base: time.Minute, Max: s},
		"Base 2ns is above Max 1ns": Exponential{Base: 2, Max: 1},
		"Base is -1ns":              Exponential{Base: -1},
		"Max is -1ns":               Exponential{Max: -1},
		"Spread is -0.1":            Exponential{Spread: -0.1},
		"Factor is 0.5":             Exponential{Factor: 0.5},
		"Factor is NaN":             Exponential{Factor: math.NaN()},
		"Factor is +Inf":            Exponential{Factor: math.Inf(1)},
		"Jitter is 5":               Exponential{Jitter: 5},
		"Jitter is decorrelated":    Linear{Jitter: Decorrelated},
		"Spread is 2":               Exponential{Spread: 2},
		"Spread is NaN":             Linear{Spread: math.NaN()},
	} {
		require.ErrorContains(t, p.Validate(), field)
	}
}

func TestJitter_hasAName(t *testing.T) {
	require.Equal(t, []string{"full", "none", "equal", "decorrelated", "plusminus", "jitter 9"},
		[]string{Full.String(), None.String(), Equal.String(), Decorrelated.String(), PlusMinus.String(), Jitter(9).String()})
}

func TestHotPaths_allocateNothing(t *testing.T) {
	now := time.Unix(0, 0)
	policies := []Policy{
		Exponential{}, Exponential{Factor: 1.5}, Exponential{Jitter: Equal}, Exponential{Jitter: Decorrelated},
		Exponential{Jitter: PlusMinus}, Linear{}, Constant(s),
	}
	var budget Budget
	for name, f := range map[string]func(){
		"policies": func() {
			for _, p := range policies {
				sinkDelay += ForCall(p).Delay(3, s)
			}
		},
		"literal":  func() { sinkDelay += Exponential{Base: s}.Delay(3, s) },
		"Floor":    func() { sinkDelay += RetryAfterJitter{}.Delay(s, 2) },
		"Deposit":  func() { budget.Deposit(now, 1) },
		"Withdraw": func() { sinkOK = budget.Withdraw(now) },
		"Snapshot": func() { sinkOK = budget.Snapshot(now).Rejected > 0 },
		"SplayOf":  func() { sinkDelay += OffsetFor("device").In(s) },
		"Next":     func() { sinkOK = RandomOffset().Next(now, s).IsZero() },
	} {
		require.Zero(t, testing.AllocsPerRun(100, f), name)
	}
}

func TestForCall_returnsStatelessPoliciesUnchanged(t *testing.T) {
	require.Equal(t, Policy(Constant(s)), ForCall(Constant(s)))
	require.Nil(t, ForCall(nil))
}
