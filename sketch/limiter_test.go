package sketch_test

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/heed-go/heed/sketch"
	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func reserve(t testing.TB, l throttle.Limiter, key string, cost int64, at time.Time) throttle.Decision {
	d, err := l.Reserve(t.Context(), throttle.Claim{Key: key, Cost: cost, Now: at})
	assert.NoError(t, err) // may be called by any goroutine
	return d
}

func TestLimiter_slides(t *testing.T) {
	l := sketch.NewLimiter(sketch.LimiterConfig{Limit: throttle.PerHour(100), Clients: 1000, Seed: 1})
	for _, s := range []struct {
		at   time.Duration
		cost int64
		ok   bool
		wait time.Duration
		left int64
		all  time.Duration
	}{
		{at: 10 * time.Minute, cost: 84, ok: true, left: 16, all: 110 * time.Minute},
		{at: 10 * time.Minute, cost: 17, wait: 50*time.Minute + 42857142858, left: 16, all: 110 * time.Minute},
		{at: 10 * time.Minute, cost: 101, wait: throttle.Forever, left: 16, all: 110 * time.Minute},
		{at: 75 * time.Minute, cost: 36, ok: true, left: 1, all: 105 * time.Minute}, // 84*3/4 + 36 = 99
		{at: 75 * time.Minute, cost: 1, ok: true, left: 0, all: 105 * time.Minute},
		{at: 75 * time.Minute, cost: 1, wait: 42857142858, left: 0, all: 105 * time.Minute}, // until 84 has the weight 62
		{at: 3 * time.Hour, cost: 100, ok: true, left: 0, all: 2 * time.Hour},
		{at: time.Hour, cost: 1, wait: time.Hour + 36*time.Second, left: 0, all: 2 * time.Hour}, // counts as 3 h
	} {
		d := reserve(t, l, "client", s.cost, noon.Add(s.at))
		require.Equal(t, s.ok, d.OK, "%+v", s)
		require.Equal(t, s.wait, d.Wait, "%+v", s)
		require.Equal(t, s.left, d.Remaining, "%+v", s)
		require.Equal(t, s.all, d.ResetAfter, "%+v", s)
		require.Equal(t, "100 per 1h0m0s", d.Policy)
		if d.Wait > 0 && d.Wait < throttle.Forever {
			again, _ := l.Reserve(t.Context(), throttle.Claim{Key: "client", Cost: s.cost, Now: d.At.Add(d.Wait), DryRun: true})
			require.True(t, again.OK, "%+v", s)
			early, _ := l.Reserve(t.Context(), throttle.Claim{Key: "client", Cost: s.cost, Now: d.At.Add(d.Wait - 1), DryRun: true})
			require.False(t, early.OK, "%+v", s)
		}
	}
	require.True(t, reserve(t, l, "other", 100, noon.Add(3*time.Hour)).OK)
}

func TestLimiter_readsItsClock(t *testing.T) {
	clk := clock.NewMock()
	clk.Set(noon)
	l := throttle.WithClock(sketch.NewLimiter(sketch.LimiterConfig{Limit: throttle.Limit{Name: "clients", Count: 1, Per: time.Minute}, Clients: 10}), clk)
	require.True(t, reserve(t, l, "a", 1, time.Time{}).OK)
	d := reserve(t, l, "a", 1, time.Time{})
	require.False(t, d.OK)
	require.Equal(t, "clients", d.Policy)
	clk.Add(d.Wait)
	d = reserve(t, l, "a", 1, time.Time{})
	require.True(t, d.OK && d.At.Equal(clk.Now()))
	require.True(t, reserve(t, sketch.NewLimiter(sketch.LimiterConfig{Limit: throttle.PerMinute(1), Clients: 1}), "a", 1, time.Time{}).OK)
}

func TestLimiter_givesBackAllButTheFirstUnit(t *testing.T) {
	ctx := t.Context()
	l := sketch.NewLimiter(sketch.LimiterConfig{Limit: throttle.PerMinute(10), Clients: 100, Seed: 1})
	left := func(at time.Time) int64 {
		d, _ := l.Reserve(ctx, throttle.Claim{Key: "k", Now: at, DryRun: true})
		return d.Remaining
	}
	c := throttle.Claim{Key: "k", Cost: 4}
	first := reserve(t, l, "k", 4, noon)
	l.Report(ctx, c, first, throttle.Feedback{Now: c.Now, State: throttle.Unused})
	require.EqualValues(t, 9, left(noon), "the filter cannot forget the first unit")
	for range 20 {
		l.Report(ctx, c, reserve(t, l, "k", 4, noon), throttle.Feedback{Now: c.Now, State: throttle.Unused})
	}
	require.EqualValues(t, 9, left(noon))
	d := reserve(t, l, "k", 4, noon)
	l.Report(ctx, c, d, throttle.Feedback{State: throttle.Ongoing, Cost: 1})
	require.EqualValues(t, 5, left(noon))
	l.Report(ctx, c, d, throttle.Feedback{Cost: 1})
	require.EqualValues(t, 8, left(noon))
	l.Report(ctx, c, d, throttle.Feedback{Cost: 4 + 7})
	require.EqualValues(t, 1, left(noon))
	l.Report(ctx, c, throttle.Decision{}, throttle.Feedback{Now: c.Now, State: throttle.Unused})
	require.EqualValues(t, 1, left(noon), "a rejection has nothing to give back")

	later := noon.Add(time.Minute)
	require.True(t, reserve(t, l, "k", 1, later).OK)
	require.EqualValues(t, 0, left(later))
	l.Report(ctx, c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
	require.EqualValues(t, 4, left(later), "the window before still counts")
	later = later.Add(time.Minute)
	require.True(t, reserve(t, l, "k", 5, later).OK)
	l.Report(ctx, c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
	l.Report(ctx, c, d, throttle.Feedback{Cost: 9})
	require.EqualValues(t, 4, left(later), "the grant's window no longer counts")
}

// TestLimiter_givesBackNoMoreThanItCounted checks that the unit in the filter is not subtracted
// from the counters, where it would be subtracted from other clients.
func TestLimiter_givesBackNoMoreThanItCounted(t *testing.T) {
	l := sketch.NewLimiter(sketch.LimiterConfig{Limit: throttle.PerMinute(10), Clients: 100, Seed: 1})
	first := reserve(t, l, "k", 4, noon)
	require.EqualValues(t, 2, reserve(t, l, "k", 4, noon).Remaining)
	l.Report(t.Context(), throttle.Claim{Key: "k", Cost: 4}, first, throttle.Feedback{State: throttle.Unused})
	require.EqualValues(t, 4, reserve(t, l, "k", 1, noon).Remaining)
}

// TestLimiter_ignoresOtherFeedback checks that a rejection, an invalid claim, feedback that is not
// final and feedback without a cost change nothing.
func TestLimiter_ignoresOtherFeedback(t *testing.T) {
	ctx, l := t.Context(), sketch.NewLimiter(sketch.LimiterConfig{Limit: throttle.PerMinute(10), Clients: 100, Seed: 1})
	claim, invalid := throttle.Claim{Key: "k", Cost: 4}, throttle.Claim{Key: "k", Cost: -4}
	granted := reserve(t, l, "k", 4, noon)
	rejected := granted
	rejected.OK = false
	for _, tt := range []struct {
		claim    throttle.Claim
		decision throttle.Decision
		feedback throttle.Feedback
	}{
		{invalid, granted, throttle.Feedback{Cost: 2}},
		{invalid, rejected, throttle.Feedback{Cost: 2}},
		{claim, rejected, throttle.Feedback{Cost: 2}},
		{claim, granted, throttle.Feedback{Cost: 2, State: throttle.Ongoing}},
		{claim, rejected, throttle.Feedback{Cost: 2, State: throttle.Ongoing}},
		{claim, granted, throttle.Feedback{State: throttle.Ongoing}},
		{claim, granted, throttle.Feedback{}},
		{claim, granted, throttle.Feedback{Cost: -1}},
		{claim, granted, throttle.Feedback{Cost: 4}},
	} {
		l.Report(ctx, tt.claim, tt.decision, tt.feedback)
		d, err := l.Reserve(ctx, throttle.Claim{Key: "k", Now: noon, DryRun: true})
		require.NoError(t, err)
		require.EqualValues(t, 6, d.Remaining, "%+v", tt)
	}
	l.Report(ctx, invalid, granted, throttle.Feedback{Now: invalid.Now, State: throttle.Unused})
	l.Report(ctx, claim, rejected, throttle.Feedback{Now: claim.Now, State: throttle.Unused})
	require.EqualValues(t, 5, reserve(t, l, "k", 1, noon).Remaining)
	_, err := l.Reserve(ctx, invalid)
	require.ErrorIs(t, err, throttle.ErrCost)
}

// TestLimiter_staysFullWhenCountersEnded checks that a counter that has reached its maximum is not
// decremented, because its correct value is not known.
func TestLimiter_staysFullWhenCountersEnded(t *testing.T) {
	const most = 30_000
	l := sketch.NewLimiter(sketch.LimiterConfig{Limit: throttle.PerMinute(most), Clients: 1000, Bytes: 1, Seed: 1})
	var granted []throttle.Decision
	var clients []string
	for i := range 200 {
		if d := reserve(t, l, key('c', i), most, noon); d.OK {
			granted, clients = append(granted, d), append(clients, key('c', i))
		}
	}
	last := len(clients) - 1
	require.Greater(t, last, 20)
	for i, d := range granted[:last] {
		l.Report(t.Context(), throttle.Claim{Key: clients[i], Cost: most}, d, throttle.Feedback{State: throttle.Unused})
	}
	require.False(t, reserve(t, l, clients[last], 1, noon).OK)
}

func TestLimiter_countsAnOlderReadingAsTheNewest(t *testing.T) {
	for _, per := range []time.Duration{time.Minute, time.Minute - 1} { // a Per that divides noon, and an odd one
		l := sketch.NewLimiter(sketch.LimiterConfig{Limit: throttle.Limit{Count: 1, Per: per}, Clients: 100, Seed: 1})
		start := noon.Add(-time.Duration(noon.UnixNano() % int64(per))) // of the window of noon
		require.True(t, reserve(t, l, "k", 1, noon).OK)
		for _, back := range []time.Duration{1, per, time.Hour, 200 * 365 * 24 * time.Hour} {
			d := reserve(t, l, "k", 1, start.Add(-back))
			require.False(t, d.OK, "%v", back)
			require.True(t, d.At.Equal(start), "%v: %v", back, d.At)
			require.Equal(t, 2*per, d.Wait)
		}
	}
}

func TestLimiter_keepsDebts(t *testing.T) {
	for _, limit := range []int64{10, 1 << 20} { // counters of 16 and of 32 bits
		l := sketch.NewLimiter(sketch.LimiterConfig{Limit: throttle.PerMinute(limit), Clients: 100, Seed: 1})
		d := reserve(t, l, "k", 1, noon) // the unit is in the filter only
		l.Report(t.Context(), throttle.Claim{Key: "k"}, d, throttle.Feedback{Cost: 1 << 62})
		require.False(t, reserve(t, l, "k", 1, noon).OK)
		require.False(t, reserve(t, l, "k", 1, noon.Add(time.Minute+time.Second)).OK)
		require.True(t, reserve(t, l, "k", 1, noon.Add(2*time.Minute)).OK)
	}
}

// exactLimiter decides like a Limiter with exact counts for each client.
type exactLimiter struct {
	limit             int64
	per               time.Duration
	current, previous map[int]int64
}

func (e *exactLimiter) nextWindow() { e.previous, e.current = e.current, map[int]int64{} }

func (e *exactLimiter) grants(k int, into time.Duration) bool {
	weighed := float64(e.previous[k]) * (1 - float64(into)/float64(e.per))
	return weighed+float64(e.current[k])+1 <= float64(e.limit)+1e-9
}

// simulateClients sends claims of zipf-distributed clients for some windows, at the configured
// number of clients per window. It returns the number of claims that were rejected although exact
// counts would have granted them, and the number of claims that exact counts would have granted.
func simulateClients(t *testing.T, l throttle.Limiter, e *exactLimiter, draws []int, windows int) (wrong, right int) {
	for window := range windows {
		e.nextWindow()
		for i, k := range draws {
			into := e.per * time.Duration(i) / time.Duration(len(draws))
			due := e.grants(k, into)
			d := reserve(t, l, key('c', k), 1, noon.Add(e.per*time.Duration(window)+into))
			require.True(t, due || !d.OK, "client %d was granted more than its limit", k)
			if d.OK {
				e.current[k]++
			}
			if due {
				right++
			}
			if due && !d.OK {
				wrong++
			}
		}
	}
	return wrong, right
}

func TestLimiter_rejectsFewWrongly(t *testing.T) {
	if testing.Short() {
		t.Skip("only make test-long runs it")
	}
	draws := zipf(9, 60_000)
	times := map[int]int{}
	for _, k := range draws {
		times[k]++
	}
	clients, returning := int64(len(times)), int64(0)
	for _, n := range times {
		if n > 1 {
			returning++
		}
	}
	for _, rate := range []float64{0.1, 0.01, 0.001} {
		p := sketch.LimiterConfig{Limit: throttle.PerMinute(5), Clients: clients, Returning: returning, ErrorRate: rate, Seed: 3}
		l := sketch.NewLimiter(p)
		require.LessOrEqual(t, l.ErrorRate(clients, returning), rate)
		wrong, right := simulateClients(t, l, &exactLimiter{limit: 5, per: time.Minute}, draws, 4)
		require.LessOrEqual(t, float64(wrong)/float64(right), rate)
	}
}

// TestLimiter_tooManyClientsErrOnTheSafeSide checks that with four times as many clients as
// configured more claims are rejected, and no client gets more than its limit.
func TestLimiter_tooManyClientsErrOnTheSafeSide(t *testing.T) {
	draws := zipf(9, 40_000)
	l := sketch.NewLimiter(sketch.LimiterConfig{Limit: throttle.PerMinute(5), Clients: 1000, Seed: 3})
	wrong, right := simulateClients(t, l, &exactLimiter{limit: 5, per: time.Minute}, draws, 3)
	require.Positive(t, wrong)
	require.Less(t, wrong, right)
}

func TestLimiter_fitsIntoBytes(t *testing.T) {
	p := sketch.LimiterConfig{Limit: throttle.PerMinute(5), Clients: 100_000, Seed: 3}
	last := 1.0
	for _, bytes := range []int64{1, 1 << 18, 1 << 20, 1 << 22} {
		p.Bytes = bytes
		l := sketch.NewLimiter(p)
		require.LessOrEqual(t, l.Bytes(), max(bytes, 384), "%d", bytes)
		rate := l.ErrorRate(p.Clients, p.Clients/10)
		require.LessOrEqual(t, rate, last)
		last = rate
	}
	require.Less(t, last, 0.01)
}

func TestLimiter_concurrentClaims(t *testing.T) {
	const limit, clients = 50, 64
	l := sketch.NewLimiter(sketch.LimiterConfig{Limit: throttle.PerMinute(limit), Clients: clients, ErrorRate: 0.5, Seed: 1})
	var kept [clients]atomic.Int64
	concurrently(func(id int) {
		r := rand.New(rand.NewPCG(uint64(id), 1))
		for range 3000 {
			k := r.IntN(clients)
			d := reserve(t, l, key('c', k), 2, noon)
			switch {
			case d.OK && r.IntN(4) == 0:
				l.Report(t.Context(), throttle.Claim{Key: key('c', k), Cost: 2}, d, throttle.Feedback{State: throttle.Unused})
			case d.OK:
				kept[k].Add(2)
			}
		}
	})
	for k := range clients {
		require.LessOrEqual(t, kept[k].Load(), int64(limit))
	}
}

func TestLimiter_doesNotBlock(t *testing.T) {
	require.True(t, sketch.NewLimiter(sketch.LimiterConfig{Limit: throttle.PerSecond(1), Clients: 100}).Traits().NonBlocking)
}
