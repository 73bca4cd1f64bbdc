package backoff

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBudget_zeroValueIsAFifthAndTenASecond(t *testing.T) {
	var b Budget
	now := time.Unix(0, 0)
	require.Equal(t, 100, withdrawAll(&b, now))
	for range 50 {
		b.Deposit(now, 1)
	}
	require.Equal(t, 10, withdrawAll(&b, now))
	require.Equal(t, BudgetState{Requests: 50, Retries: 110, Retried: 110, Rejected: 2}, b.Snapshot(now))
}

// withdrawAll returns how many retries b grants at now.
func withdrawAll(b *Budget, now time.Time) int {
	n := 0
	for n < 1_000_000 && b.Withdraw(now) {
		n++
	}
	return n
}

func TestBudget_fields(t *testing.T) {
	for _, c := range []struct {
		name     string
		budget   *Budget
		deposits int
		want     int
	}{
		{"neither", &Budget{Ratio: -1, MinPerSecond: -1}, 100, 0},
		{"ratio only", &Budget{Ratio: 0.5, MinPerSecond: -1}, 7, 3},
		{"floor only", &Budget{Ratio: -1, MinPerSecond: 0.1}, 100, 1},
		{"floor of a longer window", &Budget{Ratio: -1, MinPerSecond: 0.1, Window: time.Minute}, 0, 6},
		{"floor below one in a window", &Budget{Ratio: -1, MinPerSecond: 0.001, Window: s}, 0, 1},
		{"decimal fractions count as people count", &Budget{Ratio: 0.29, MinPerSecond: -1}, 100, 29},
		{"ratio above one", &Budget{Ratio: 3, MinPerSecond: -1}, 2, 6},
		{"infinite floor", &Budget{MinPerSecond: math.Inf(1)}, 0, 1_000_000},
		{"not a number", &Budget{Ratio: math.NaN(), MinPerSecond: math.NaN()}, 100, 0},
		{"tiny floor", &Budget{Ratio: -1, MinPerSecond: 1e-300}, 0, 0},
		{"tiny window", &Budget{Ratio: 1, MinPerSecond: -1, Window: 1}, 2, 2},
	} {
		now := time.Unix(0, 0)
		for range c.deposits {
			c.budget.Deposit(now, 1)
		}
		require.Equal(t, c.want, withdrawAll(c.budget, now), c.name)
	}
}

func TestBudget_forgets(t *testing.T) {
	start := time.Unix(0, 0)
	b := &Budget{Ratio: 1, MinPerSecond: 0.1}
	b.Deposit(start, 1)
	for _, step := range []struct {
		at      time.Duration
		granted int
		state   BudgetState
	}{
		{0, 2, BudgetState{Requests: 1, Retries: 2, Retried: 2, Rejected: 1}},
		{9999 * ms, 0, BudgetState{Requests: 1, Retries: 2, Retried: 2, Rejected: 2}},
		{10 * s, 0, BudgetState{Requests: 0, Retries: 2, Retried: 2, Rejected: 3}},
		{11 * s, 1, BudgetState{Retries: 1, Retried: 3, Rejected: 4}},
		{5 * s, 0, BudgetState{Retries: 1, Retried: 3, Rejected: 5}}, // the clock steps back
		{365 * 24 * time.Hour, 1, BudgetState{Retries: 1, Retried: 4, Rejected: 6}},
		{math.MaxInt64, 1, BudgetState{Retries: 1, Retried: 5, Rejected: 7}},
		{math.MinInt64, 0, BudgetState{Retries: 1, Retried: 5, Rejected: 8}},
	} {
		now := start.Add(step.at)
		require.Equal(t, step.granted, withdrawAll(b, now), "at %v", step.at)
		require.Equal(t, step.state, b.Snapshot(now), "at %v", step.at)
	}
}

func TestBudget_forgetsInAWindowOfNanoseconds(t *testing.T) {
	start := time.Unix(0, 0)
	b := &Budget{Ratio: 1, MinPerSecond: -1, Window: 10}
	b.Deposit(start, 1)
	require.Equal(t, BudgetState{Requests: 1}, b.Snapshot(start.Add(9)))
	require.Equal(t, BudgetState{}, b.Snapshot(start.Add(10)))
}

func TestBudget_allowanceIsWhatIsGranted(t *testing.T) {
	for _, tt := range []struct {
		budget   *Budget
		requests int64
		want     int64
	}{
		{&Budget{}, 0, 100},
		{&Budget{}, 50, 110},
		{&Budget{Ratio: 0.29, MinPerSecond: -1}, 100, 29},
		{&Budget{Ratio: -1, MinPerSecond: -1}, 1000, 0},
		{&Budget{MinPerSecond: math.Inf(1)}, 1, math.MaxInt64},
	} {
		now := time.Unix(1, 0)
		tt.budget.Deposit(now, tt.requests)
		require.Equal(t, tt.want, tt.budget.Allowance(now))
		granted := int64(0)
		for granted < 1000 && tt.budget.Withdraw(now) {
			granted++
		}
		require.Equal(t, min(tt.want, 1000), granted)
	}
}

// TestBudget_rejectionsChangeNothing checks that a rejected Withdraw and a Snapshot change
// nothing: a rejection at a reading in the future does not stop the Budget.
func TestBudget_rejectionsChangeNothing(t *testing.T) {
	start := time.Unix(0, 0)
	b := &Budget{Ratio: 1, MinPerSecond: -1}
	b.Deposit(start, 1)
	require.False(t, b.Withdraw(start.Add(time.Hour)))
	b.Snapshot(start.Add(time.Hour))
	require.True(t, b.Withdraw(start))
}

// An event is a request or a retry in the model, which stores all of them.
type event struct {
	at    time.Duration
	retry bool
}

// TestBudget_holdsItsInvariant compares random histories with a model that stores every
// event: a granted retry never exceeds the bound over an exact Window, and a rejected one
// would exceed it up to the resolution of tenths.
func TestBudget_holdsItsInvariant(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	granted, rejected := 0, 0
	for range 300 {
		ratio, floor := pick(rng, []float64{0.1, 0.2, 0.5, 1}), pick(rng, []float64{0.1, 0.5, 2})
		w := time.Duration(1+rng.IntN(20)) * s
		b := &Budget{Ratio: ratio, MinPerSecond: floor, Window: w}
		w = max(w, time.Duration(float64(s)/floor))
		start, at, latest := time.Unix(int64(rng.IntN(100)), 0), time.Duration(0), time.Duration(0)
		var history []event
		b.Deposit(start, 1)
		history = append(history, event{0, false})
		for range 400 {
			at += step(rng)
			now := max(at, latest)
			if rng.IntN(3) > 0 {
				b.Deposit(start.Add(at), 1)
				history = append(history, event{now, false})
				latest = now
				continue
			}
			if b.Withdraw(start.Add(at)) {
				history = append(history, event{now, true})
				latest = now
				granted++
				require.True(t, fits(history, now, w, w, ratio, floor*w.Seconds(), 0), "granted too much at %v", now)
			} else {
				rejected++
				require.False(t, fits(history, now, w-w/tenths, w+w/tenths, ratio, floor*w.Seconds(), 1), "rejected too much at %v", now)
			}
		}
	}
	t.Logf("%d granted, %d rejected", granted, rejected)
	require.Greater(t, min(granted, rejected), 1000)
}

// step returns by how much the clock moves: mostly forwards, sometimes backwards, rarely by a
// year.
func step(rng *rand.Rand) time.Duration {
	switch rng.IntN(200) {
	case 0:
		return 365 * 24 * time.Hour
	case 1, 2, 3, 4, 5:
		return -time.Duration(rng.Int64N(int64(5 * s)))
	}
	return time.Duration(rng.Int64N(int64(600 * ms)))
}

// fits reports whether the retries of the last window, plus extra ones, are covered by the
// requests within deposits.
func fits(history []event, now, deposits, window time.Duration, ratio, reserve float64, extra int) bool {
	requests, retries := 0, extra
	for _, e := range history {
		switch age := now - e.at; {
		case e.retry && age <= window:
			retries++
		case !e.retry && age < deposits:
			requests++
		}
	}
	return float64(retries) <= ratio*float64(requests)+reserve+1e-9
}

// TestBudget_boundsAnOutage simulates an outage of 60 s: 200 clients have a Budget each,
// every response is a failure, and every call makes up to 50 attempts without delays.
func TestBudget_boundsAnOutage(t *testing.T) {
	const clients, outage, before = 200, 60 * s, 30 * s
	rng := rand.New(rand.NewPCG(17, 18))
	start := time.Unix(0, 0)
	for _, perSecond := range []int{0, 1, 10} {
		first, sent := 0, 0
		for range clients {
			b := &Budget{MinPerSecond: 0.1}
			for at := time.Duration(rng.Int64N(int64(s))); at < before+outage; at += gap(rng, perSecond) {
				now := start.Add(at)
				b.Deposit(now, 1)
				if at < before {
					continue // the server is available
				}
				first, sent = first+1, sent+1
				for attempt := 2; attempt <= 50 && b.Withdraw(now); attempt++ {
					sent++
				}
			}
		}
		bound := 1.2*float64(first) + 1200
		t.Logf("%d clients, about %d calls a second each: %d first attempts, %d requests, bound %.0f", clients, perSecond, first, sent, bound)
		require.LessOrEqual(t, float64(sent), bound)
		require.Greater(t, float64(sent), 1.1*float64(first), "the budget is of use")
	}
}

// gap returns a random time to the next call. A perSecond of 0 means one call in 5 s.
func gap(rng *rand.Rand, perSecond int) time.Duration {
	mean := 5 * s
	if perSecond > 0 {
		mean = s / time.Duration(perSecond)
	}
	return mean/2 + time.Duration(rng.Int64N(int64(mean)))
}

func TestBudget_countsExactlyUnderContention(t *testing.T) {
	const users, calls = 8, 1000
	b := &Budget{Ratio: 0.5, MinPerSecond: -1}
	now := time.Unix(0, 0)
	var granted atomic.Int64
	var wg sync.WaitGroup
	for range users {
		wg.Go(func() {
			for range calls {
				b.Deposit(now, 1)
				if b.Withdraw(now) {
					granted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	granted.Add(int64(withdrawAll(b, now)))
	require.Equal(t, int64(users*calls/2), granted.Load())
	require.Equal(t, int64(users*calls), b.Snapshot(now).Requests)
}
