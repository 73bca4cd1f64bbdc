package queue

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

func TestTicket_takesAllOrNothing(t *testing.T) {
	now := time.Unix(0, 0)
	a, b := bucket(time.Second, 3), bucket(time.Minute, 1)
	left := func(l throttle.Limiter) int64 {
		d, err := l.Reserve(t.Context(), throttle.Claim{DryRun: true, Now: now})
		require.NoError(t, err)
		return d.Remaining
	}
	one, two := ticket(a, b), ticket(a, b)
	d, err := one.Reserve(t.Context(), now)
	require.NoError(t, err)
	require.Equal(t, throttle.Decision{OK: true, At: now}, d)
	granted, ok := one.Decision(1)
	require.True(t, ok && granted.OK)
	require.Equal(t, "1m0s", granted.Policy)

	d, err = two.Reserve(t.Context(), now)
	require.NoError(t, err)
	require.False(t, d.OK)
	require.Equal(t, "1m0s", d.Policy)
	_, ok = two.Decision(0)
	require.False(t, ok)
	require.EqualValues(t, 2, left(a), "what the first limit granted was given back")

	_, err = one.Reserve(t.Context(), now)
	require.ErrorContains(t, err, "granted already")
	require.Equal(t, err, new(Queue).Wait(t.Context(), one))

	one.Report(t.Context(), throttle.Feedback{Now: now, State: throttle.Unused})
	require.EqualValues(t, 3, left(a))
	require.EqualValues(t, 1, left(b))
}

func TestTicket_endsOnce(t *testing.T) {
	now := time.Unix(0, 0)
	for name, end := range map[string]func(*Ticket){
		"cancel":  func(tk *Ticket) { tk.Report(t.Context(), throttle.Feedback{Now: now, State: throttle.Unused}) },
		"observe": func(tk *Ticket) { tk.Report(t.Context(), throttle.Feedback{Now: now}) },
	} {
		s := &slotLimiter{free: 3}
		mine, other := ticket(s), ticket(s)
		_, err := mine.Reserve(t.Context(), now)
		require.NoError(t, err)
		copied := *mine
		mine.Report(t.Context(), throttle.Feedback{State: throttle.Ongoing})
		require.EqualValues(t, 2, s.free, name)
		end(mine)
		_, err = other.Reserve(t.Context(), now) // may reuse the memory of the grant
		require.NoError(t, err)
		end(mine)
		end(&copied)
		require.EqualValues(t, 2, s.free, name)
		end(other)
		require.EqualValues(t, 3, s.free, name)
	}
}

func TestTicket_withoutDemandsIsGranted(t *testing.T) {
	tk := new(Ticket)
	require.NoError(t, new(Queue).Wait(t.Context(), tk))
	tk.Report(t.Context(), throttle.Feedback{State: throttle.Unused})
	_, ok := tk.Decision(0)
	require.False(t, ok)
}

func TestTicket_negativeCost(t *testing.T) {
	l := bucket(time.Second, 1)
	tk := ticket(l, l)
	tk.Demands[1].Cost = -1
	require.ErrorIs(t, new(Queue).Wait(t.Context(), tk), throttle.ErrCost)
	require.NoError(t, new(Queue).Wait(t.Context(), ticket(l)), "nothing was taken")
}

// TestTicket_anyNumberOfDemands checks tickets with more demands than the memory for a grant that is used again holds:
// each limit is asked, one that rejects takes nothing of the others, and each gets the report of the end.
func TestTicket_anyNumberOfDemands(t *testing.T) {
	for n := range 3 * maxPooledParts {
		limits := make([]throttle.Limiter, n)
		for i := range limits {
			limits[i] = throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 2})
		}
		inUse := func() []int64 {
			all := []int64{}
			for _, l := range limits {
				d, err := l.Reserve(t.Context(), throttle.Claim{DryRun: true})
				require.NoError(t, err)
				all = append(all, d.Limit-d.Remaining)
			}
			return all
		}
		first, second, third := ticket(limits...), ticket(limits...), ticket(limits...)
		for _, tk := range []*Ticket{first, second} {
			d, err := tk.Reserve(t.Context(), time.Time{})
			require.NoError(t, err)
			require.True(t, d.OK)
		}
		require.Equal(t, slices.Repeat([]int64{2}, n), inUse())
		second.Report(t.Context(), throttle.Feedback{})
		if n == 0 {
			continue
		}
		last := limits[n-1].(throttle.Adjustable)
		require.NoError(t, last.SetLimit(throttle.Limit{Count: 1}))
		d, err := third.Reserve(t.Context(), time.Time{})
		require.NoError(t, err)
		require.False(t, d.OK)
		_, ok := third.Decision(n - 1)
		require.False(t, ok)
		require.Equal(t, slices.Repeat([]int64{1}, n), inUse())
		_, ok = first.Decision(n - 1)
		require.True(t, ok)
		first.Add(throttle.Demand{Limiter: throttle.DenyAll}) // after the grant: it has no part in it
		_, ok = first.Decision(n)
		require.False(t, ok)
		first.Settle(n, 3)
		first.Report(t.Context(), throttle.Feedback{})
		require.Equal(t, make([]int64, n), inUse())
	}
}

// TestQueue_waitersOfManyLimits lets tickets of up to 40 limits wait. Those that need the same limits are one class,
// in whatever order they name them.
func TestQueue_waitersOfManyLimits(t *testing.T) {
	for _, n := range []int{1, 7, 8, 9, 40} {
		synctest.Test(t, func(t *testing.T) {
			limits := make([]throttle.Limiter, n)
			for i := range limits {
				limits[i] = bucket(time.Second, 1)
			}
			var q Queue
			start := time.Now()
			require.NoError(t, q.Wait(t.Context(), ticket(limits...)))
			ends := make(chan time.Duration, 4)
			classes := func() [2]int {
				q.lock()
				defer q.unlock()
				return [2]int{len(q.classes), len(q.limitQueues)}
			}
			for range 4 {
				rand.Shuffle(n, func(i, j int) { limits[i], limits[j] = limits[j], limits[i] })
				tk := ticket(limits...)
				go func() {
					assert.NoError(t, q.Wait(t.Context(), tk))
					ends <- time.Since(start)
				}()
				synctest.Wait()
				require.Equal(t, [2]int{1, n}, classes())
			}
			for i := range 4 {
				require.Equal(t, time.Duration(i+1)*time.Second, <-ends)
			}
			require.Zero(t, classes())
		})
	}
}

func TestTicket_reservesNonBlockingLimitsFirst(t *testing.T) {
	var order []int
	record := func(i int, l throttle.Limiter) throttle.Limiter {
		return recordedLimiter{l, func() { order = append(order, i) }}
	}
	x, y := &remoteLimiter{Limiter: throttle.AllowAll}, &remoteLimiter{Limiter: throttle.DenyAll}
	tk := ticket(record(0, x), record(1, throttle.AllowAll), record(2, y), record(3, throttle.AllowAll))
	d, err := tk.Reserve(t.Context(), time.Time{})
	require.NoError(t, err)
	require.False(t, d.OK)
	require.Equal(t, []int{1, 3, 0, 2}, order)
}

// A recordedLimiter calls reserved before each Reserve.
type recordedLimiter struct {
	throttle.Limiter
	reserved func()
}

func (r recordedLimiter) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	r.reserved()
	return r.Limiter.Reserve(ctx, c)
}

// Traits implements throttle.Limiter.
func (r recordedLimiter) Traits() throttle.Traits {
	t := r.Limiter.Traits()
	t.NonBlocking = r.Limiter.Traits().NonBlocking
	return t
}

func TestTicket_allocatesNothing(t *testing.T) {
	ctx, q, l := context.Background(), new(Queue), bucket(time.Nanosecond, 1000)
	tk := ticket(l, throttle.AllOf(l, l))
	for name, use := range map[string]func(){
		"reserve, cancel":  func() { tk.Reserve(ctx, time.Time{}); tk.Report(ctx, throttle.Feedback{State: throttle.Unused}) },
		"reserve, observe": func() { tk.Reserve(ctx, time.Time{}); tk.Report(ctx, throttle.Feedback{}) },
		"wait, cancel":     func() { q.Wait(ctx, tk); q.Report(ctx, tk, throttle.Feedback{State: throttle.Unused}) },
		"wait, observe":    func() { q.Wait(ctx, tk); q.Report(ctx, tk, throttle.Feedback{}) },
	} {
		use()
		n := testing.AllocsPerRun(100, use)
		require.True(t, Racing || n == 0, "%s: %v allocations", name, n)
	}
}

// The channel of a waiter takes 112 bytes, and its position in a heap 10 on average.
func TestTicket_waiterMemoryIsSmall(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(Ticket{})+unsafe.Sizeof(waiter{})+112+10, uintptr(410))
}

// An endCount is a blocking limiter that counts the claims that end with a live context.
type endCount struct{ cancels, observes int }

func (*endCount) Reserve(context.Context, throttle.Claim) (throttle.Decision, error) {
	return throttle.Decision{OK: true}, nil
}

func (e *endCount) Report(ctx context.Context, _ throttle.Claim, _ throttle.Decision, f throttle.Feedback) {
	if f.State == throttle.Unused {
		if ctx.Err() == nil {
			e.cancels++
		}
		return
	}
	if ctx.Err() == nil {
		e.observes++
	}
}

// Traits implements throttle.Limiter.
func (*endCount) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }

func TestTicket_cancelAndObserveReachTheLimiterAfterTheContextEnded(t *testing.T) {
	q, e, tk := new(Queue), new(endCount), new(Ticket)
	tk.Add(throttle.Demand{Limiter: e})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, end := range []func(){
		func() { q.Report(ctx, tk, throttle.Feedback{State: throttle.Unused}) },
		func() { tk.Report(ctx, throttle.Feedback{State: throttle.Unused}) },
		func() { q.Report(ctx, tk, throttle.Feedback{}) },
		func() { tk.Report(ctx, throttle.Feedback{}) },
		func() { tk.Settle(0, 0); tk.Report(ctx, throttle.Feedback{}) },
	} {
		require.NoError(t, q.Wait(t.Context(), tk))
		end()
	}
	assert.Equal(t, endCount{cancels: 3, observes: 2}, *e)
}

// requireFree fails unless each of ls has a free slot.
func requireFree(t *testing.T, ls ...throttle.Limiter) {
	t.Helper()
	for _, l := range ls {
		d, err := l.Reserve(t.Context(), throttle.Claim{DryRun: true})
		require.NoError(t, err)
		require.True(t, d.OK, "units were lost")
	}
}

// A limiter between two others panics in each of its methods.
func TestTicket_losesNoUnitsWhenALimiterPanics(t *testing.T) {
	for name, wrap := range map[string]func(ls ...throttle.Limiter) *Ticket{
		"demands": ticket,
		"AllOf":   func(ls ...throttle.Limiter) *Ticket { return ticket(throttle.AllOf(ls...)) },
		"SoftLimit": func(ls ...throttle.Limiter) *Ticket {
			return ticket(throttle.NewSoftLimit(throttle.SoftLimitConfig{Hard: ls[0], Soft: ls[1]}))
		},
		"remote": func(ls ...throttle.Limiter) *Ticket {
			return ticket(ls[0], &remoteLimiter{Limiter: ls[1]}, &remoteLimiter{Limiter: ls[2]})
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b, inner := concurrencyOf(1), concurrencyOf(1), concurrencyOf(1)
			p := &panicky{Limiter: inner}
			tk, q := wrap(a, p, b), new(Queue)

			p.reserve = true
			require.Panics(t, func() { _ = q.Wait(t.Context(), tk) })
			requireFree(t, a, b, inner)

			p.reserve, p.cancel = false, true
			require.NoError(t, q.Wait(t.Context(), tk))
			require.Panics(t, func() { q.Report(t.Context(), tk, throttle.Feedback{State: throttle.Unused}) })
			requireFree(t, a, b)
			inner = concurrencyOf(1)
			p.Limiter = inner

			p.cancel, p.observe = false, true
			require.NoError(t, q.Wait(t.Context(), tk))
			require.Panics(t, func() { q.Report(t.Context(), tk, throttle.Feedback{}) })
			requireFree(t, a, b)
			inner = concurrencyOf(1)
			p.Limiter = inner

			p.observe = false
			require.NoError(t, q.Wait(t.Context(), tk), "the ticket has ended")
			q.Report(t.Context(), tk, throttle.Feedback{})
			requireFree(t, a, b, inner)
		})
	}
}

// TestTicket_sameLimitInSeveralDemands checks that a ticket fails immediately if its demands together need
// more units of one limit than it ever has, and is granted otherwise.
func TestTicket_sameLimitInSeveralDemands(t *testing.T) {
	type demands = []throttle.Demand
	one := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1})
	two := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 2})
	three := throttle.NewTokenBucket(throttle.PerSecond(1).WithBurst(3))
	for name, tt := range map[string]struct {
		demands demands
		fails   bool
	}{
		"once":                  {demands{{Limiter: one}}, false},
		"twice, of one":         {demands{{Limiter: one}, {Limiter: one}}, true},
		"not next to another":   {demands{{Limiter: one}, {Limiter: throttle.AllowAll}, {Limiter: one}}, true},
		"twice, of two":         {demands{{Limiter: two}, {Limiter: two}}, false},
		"three times, of two":   {demands{{Limiter: two}, {Limiter: two}, {Limiter: two}}, true},
		"costs, of two":         {demands{{Limiter: two}, {Limiter: two, Cost: 2}}, true},
		"bucket":                {demands{{Limiter: three, Cost: 2}, {Limiter: three}}, false},
		"bucket, too many":      {demands{{Limiter: three, Cost: 2}, {Limiter: three, Cost: 2}}, true},
		"beside an AllOf":       {demands{{Limiter: one}, {Limiter: throttle.AllOf(three, one)}}, true},
		"after an AllOf":        {demands{{Limiter: throttle.AllOf(one, three)}, {Limiter: one}}, true},
		"in two AllOfs":         {demands{{Limiter: throttle.AllOf(one, three)}, {Limiter: throttle.AllOf(two, one)}}, true},
		"AllOf, of two":         {demands{{Limiter: throttle.AllOf(two, one)}, {Limiter: two}}, false},
		"incomparable parts":    {demands{{Limiter: throttle.AllOf(incomparable{}, three)}, {Limiter: incomparable{}}}, false},
		"incomparable limiters": {demands{{Limiter: incomparable{}}, {Limiter: incomparable{}}}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := new(Queue)
			for range 2 { // the second ticket waits for the bucket
				var tk Ticket
				for _, d := range tt.demands {
					tk.Add(d)
				}
				start := time.Now()
				err := q.Wait(t.Context(), &tk)
				if !tt.fails {
					require.NoError(t, err, name)
					q.Report(t.Context(), &tk, throttle.Feedback{})
					continue
				}
				require.ErrorIs(t, err, throttle.ErrRejected, name)
				require.Zero(t, time.Since(start), name)
				var r *throttle.RejectedError
				require.ErrorAs(t, err, &r, name)
				require.Equal(t, throttle.Forever, r.Decision.Wait, name)
			}
			d, err := one.Reserve(t.Context(), throttle.Claim{DryRun: true})
			require.NoError(t, err)
			require.True(t, d.OK, "%s: a unit is missing", name)
		})
	}
}

// An incomparable is a limiter whose type cannot be compared. It grants everything.
type incomparable []int

func (incomparable) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	return throttle.Decision{OK: true, At: c.Now}, nil
}
func (incomparable) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {}

// Traits implements throttle.Limiter.
func (incomparable) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }
