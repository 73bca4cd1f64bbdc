package throttle_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

func TestConcurrency_endingTwiceReleasesOnce(t *testing.T) {
	l := throttle.WithClock(throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 2}), clock.NewMock())
	a := reserve(t, l, throttle.Claim{})
	b := reserve(t, l, throttle.Claim{})
	rejected := reserve(t, l, throttle.Claim{})
	require.False(t, rejected.OK)
	require.Zero(t, rejected.Wait, "nobody knows when a or b end")
	require.Equal(t, throttle.Forever, reserve(t, l, throttle.Claim{Cost: 3}).Wait)

	l.Report(t.Context(), throttle.Claim{}, a, throttle.Feedback{State: throttle.Ongoing})
	require.False(t, reserve(t, l, throttle.Claim{}).OK, "a is still in use")
	l.Report(t.Context(), throttle.Claim{}, a, throttle.Feedback{Cost: 7})
	c := reserve(t, l, throttle.Claim{})
	require.True(t, c.OK)
	for range 3 { // c has the entry of a now, and keeps it
		l.Report(t.Context(), throttle.Claim{}, a, throttle.Feedback{State: throttle.Unused})
		l.Report(t.Context(), throttle.Claim{}, a, throttle.Feedback{})
	}
	require.False(t, reserve(t, l, throttle.Claim{}).OK)
	l.Report(t.Context(), throttle.Claim{}, b, throttle.Feedback{State: throttle.Unused})
	l.Report(t.Context(), throttle.Claim{}, c, throttle.Feedback{State: throttle.Unused})
	require.EqualValues(t, 2, remaining(t, l))
}

func TestConcurrency_releasesClaimsOlderThanMaxAge(t *testing.T) {
	clk := clock.NewMock()
	l := throttle.WithClock(throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 3, MaxAge: time.Minute}), clk)
	lost := reserve(t, l, throttle.Claim{Cost: 2})
	clk.Add(time.Second)
	kept := reserve(t, l, throttle.Claim{})
	clk.Add(59*time.Second - 1)
	require.Zero(t, remaining(t, l))
	clk.Add(1)
	require.EqualValues(t, 2, remaining(t, l))
	require.True(t, reserve(t, l, throttle.Claim{Cost: 2}).OK)
	l.Report(t.Context(), throttle.Claim{Cost: 2}, lost, throttle.Feedback{State: throttle.Unused})
	require.Zero(t, remaining(t, l), "who was given up does not free the place of others")
	l.Report(t.Context(), throttle.Claim{}, kept, throttle.Feedback{State: throttle.Unused})
	require.EqualValues(t, 1, remaining(t, l))
}

// A rejected claim with a reading in the future must not remove any claim.
func TestConcurrency_rejectionsReleaseNothing(t *testing.T) {
	clk := clock.NewMock()
	l := throttle.WithClock(throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 2, MaxAge: time.Minute}), clk)
	d := reserve(t, l, throttle.Claim{Cost: 2})
	later := clk.Now().Add(time.Hour)
	require.True(t, reserve(t, l, throttle.Claim{Now: later, DryRun: true}).OK)
	require.False(t, reserve(t, l, throttle.Claim{Now: later, Cost: 3}).OK)
	require.False(t, reserve(t, l, throttle.Claim{}).OK)
	l.Report(t.Context(), throttle.Claim{Cost: 2}, d, throttle.Feedback{State: throttle.Unused})
	require.EqualValues(t, 2, remaining(t, l))
}

// Random claims and ends are compared with a plain list of claims in use.
func TestConcurrency_agreesWithAList(t *testing.T) {
	type guest struct {
		d throttle.Decision
		n int64
		t time.Time
	}
	seeds := uint64(300)
	if testing.Short() {
		seeds = 100
	}
	for seed := range seeds {
		r, now := rand.New(rand.NewPCG(seed, 4)), time.Unix(0, 0)
		count, age := 1+r.Int64N(12), time.Duration(1+r.IntN(20))
		l := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: count, MaxAge: age})
		var in, ended []guest
		for range 200 {
			now = now.Add(time.Duration(r.IntN(3)))
			for len(in) > 0 && now.Sub(in[0].t) >= age {
				in, ended = in[1:], append(ended, in[0])
			}
			used := int64(0)
			for _, g := range in {
				used += g.n
			}
			n := 1 + r.Int64N(4)
			d := reserve(t, l, throttle.Claim{Cost: n, Now: now})
			require.Equal(t, n <= count-used, d.OK, "seed %d", seed)
			if d.OK {
				in, used = append(in, guest{d, n, now}), used+n
			}
			require.Equal(t, count-used, d.Remaining, "seed %d", seed)
			if len(in) > 0 && r.IntN(2) == 0 {
				i := r.IntN(len(in))
				l.Report(t.Context(), throttle.Claim{Cost: in[i].n, Now: now}, in[i].d, throttle.Feedback{Now: now, State: throttle.Unused})
				ended, in = append(ended, in[i]), slices.Delete(in, i, i+1)
			}
			if len(ended) > 0 {
				g := ended[r.IntN(len(ended))]
				l.Report(t.Context(), throttle.Claim{Cost: g.n, Now: now}, g.d, throttle.Feedback{Now: now, State: throttle.Unused})
			}
		}
	}
}

func TestConcurrency_neverExceedsCountUnderContention(t *testing.T) {
	l := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 5})
	var using atomic.Int64
	var wg sync.WaitGroup
	for id := range uint64(8) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(id, 5))
			for range 1000 {
				c := throttle.Claim{Cost: 1 + r.Int64N(3)}
				d, _ := l.Reserve(context.Background(), c)
				if !d.OK {
					continue
				}
				if n := using.Add(c.Cost); n > 5 {
					t.Errorf("%d units in use", n)
				}
				using.Add(-c.Cost)
				l.Report(context.Background(), c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
				l.Report(context.Background(), c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 5, remaining(t, l))
}

// A Queue admits the next waiter when a claim ends.
func TestConcurrency_wakesWaitersOfAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue.Queue
		defer q.Close()
		l := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 2})
		start := time.Now()
		var mu sync.Mutex
		var began []time.Duration
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				ticket := queue.Ticket{}
				ticket.Add(throttle.Demand{Limiter: l})
				assert.NoError(t, q.Wait(t.Context(), &ticket))
				mu.Lock()
				began = append(began, time.Since(start))
				mu.Unlock()
				time.Sleep(time.Second)
				q.Report(t.Context(), &ticket, throttle.Feedback{})
			})
		}
		wg.Wait()
		require.Equal(t, []time.Duration{0, 0, time.Second, time.Second, 2 * time.Second, 2 * time.Second}, began)
	})
}

func TestNewConcurrency_panicsOnInvalidConfig(t *testing.T) {
	require.PanicsWithValue(t, `throttle: concurrency "": Count is 0: it must be positive (NewConcurrency)`, func() {
		throttle.NewConcurrency(throttle.ConcurrencyConfig{})
	})
	require.Panics(t, func() { throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1, MaxAge: -1}) })
}

// SetLimit changes how many units may be in use, and nothing about those that are.
func TestConcurrency_setLimit(t *testing.T) {
	ctx, now := t.Context(), time.Unix(0, 0)
	l := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 2})
	claim := func(dry bool) throttle.Decision {
		d, err := l.Reserve(ctx, throttle.Claim{Now: now, DryRun: dry})
		require.NoError(t, err)
		return d
	}
	first, second := claim(false), claim(false)
	require.False(t, claim(false).OK)
	require.NoError(t, l.SetLimit(throttle.Limit{Count: 3}))
	third := claim(false)
	require.True(t, third.OK)
	require.NoError(t, l.SetLimit(throttle.Limit{Name: "one", Count: 1}))
	require.ErrorContains(t, l.SetLimit(throttle.Limit{}), "Count is 0")
	require.ErrorContains(t, l.SetLimit(throttle.PerSecond(5)), "leave both 0")
	require.ErrorContains(t, l.SetLimit(throttle.Limit{Count: 5, Burst: 1}), "leave both 0")
	d := claim(false)
	require.Equal(t, "one", d.Policy)
	require.Equal(t, []any{false, int64(1), int64(0)}, []any{d.OK, d.Limit, d.Remaining})
	for _, used := range []throttle.Decision{first, second} {
		l.Report(ctx, throttle.Claim{}, used, throttle.Feedback{})
		require.False(t, claim(true).OK, "one is in use")
	}
	l.Report(ctx, throttle.Claim{}, third, throttle.Feedback{})
	require.True(t, claim(true).OK)
}
