package throttle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWaiter_thousandInLine(t *testing.T) {
	everyWay(t, func(t *testing.T, as func(Limiter) Limiter) {
		w, l, d := new(Waiter), as(NewTokenBucket(Limit{Count: 2000, Per: time.Second, Burst: 1}, nil)), newDiary()
		require.NoError(t, w.Wait(t.Context(), ticket(l)))
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				for range 10 {
					assert.NoError(t, w.Wait(t.Context(), ticket(l)))
					d.note(fmt.Sprint(i))
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		require.Equal(t, 10000*500*time.Microsecond, time.Since(d.start))
		for i, who := range d.order {
			require.Equal(t, fmt.Sprint(i%1000), who, "turn %d", i)
		}
		idle(t, w)
	})
}

func TestWaiter_cancelledLoseNothing(t *testing.T) {
	everyWay(t, func(t *testing.T, as func(Limiter) Limiter) {
		w, l, d := new(Waiter), as(bucket(time.Millisecond, 1)), newDiary()
		require.NoError(t, w.Wait(t.Context(), ticket(l)))
		gone, cancel := context.WithCancelCause(t.Context())
		why := errors.New("gone")
		var wg sync.WaitGroup
		for i := range 2000 {
			ctx := t.Context()
			if i%2 == 1 {
				ctx = gone
			}
			wg.Go(func() {
				if err := w.Wait(ctx, ticket(l)); err != nil {
					assert.Equal(t, why, err)
					return
				}
				d.note("ok")
			})
		}
		synctest.Wait()
		cancel(why)
		wg.Wait()
		require.Len(t, d.order, 1000)
		require.Equal(t, time.Second, d.last("ok"))
		idle(t, w)
	})
}

func TestWaiter_shutLimitHoldsUpOnlyWhoNeedIt(t *testing.T) {
	everyWay(t, func(t *testing.T, as func(Limiter) Limiter) {
		w, host, d := new(Waiter), as(bucket(100*time.Millisecond, 1)), newDiary()
		search, core := &gateLimiter{until: time.Now().Add(time.Minute)}, &gateLimiter{}
		var wg sync.WaitGroup
		for range 50 {
			for name, l := range map[string]Limiter{"search": search, "core": core} {
				wg.Go(func() {
					assert.NoError(t, w.Wait(t.Context(), ticket(l, host)))
					d.note(name)
				})
			}
			synctest.Wait()
		}
		wg.Wait()
		require.Equal(t, 4900*time.Millisecond, d.last("core"))
		require.Equal(t, 64900*time.Millisecond, d.last("search"))
		idle(t, w)
	})
}

func TestWaiter_retryKeepsItsTurn(t *testing.T) {
	everyWay(t, func(t *testing.T, as func(Limiter) Limiter) {
		w, l, d := new(Waiter), as(bucket(100*time.Millisecond, 1)), newDiary()
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				tk := ticket(l)
				assert.NoError(t, w.Wait(t.Context(), tk))
				d.note(fmt.Sprint(i))
				if i == 1 {
					time.Sleep(150 * time.Millisecond)
					w.Observe(t.Context(), tk, Feedback{Outcome: Throttled})
					assert.NoError(t, w.Wait(t.Context(), tk))
					d.note("1 again")
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		require.Equal(t, []string{"0", "1", "2", "1 again", "3", "4"}, d.order)
	})
}

func TestWaiter_noBurstAfterPause(t *testing.T) {
	everyWay(t, func(t *testing.T, as func(Limiter) Limiter) {
		w, g, l, d := new(Waiter), &gateLimiter{}, as(bucket(time.Second, 1)), newDiary()
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				assert.NoError(t, w.Wait(t.Context(), ticket(g, l)))
				d.note("act")
				if i == 3 {
					g.set(time.Now().Add(time.Minute))
					w.Wake()
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		require.Equal(t, 63*time.Second, d.notes["act"][4])
		for i, at := range d.notes["act"][1:] {
			require.GreaterOrEqual(t, at-d.notes["act"][i], time.Second)
		}
	})
}

func TestWaiter_unknownWaitsEndWithNews(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(*Waiter, *slots, *Ticket)
		want time.Duration
	}{
		"observe": {func(w *Waiter, _ *slots, tk *Ticket) { w.Observe(context.Background(), tk, Feedback{}) }, 3 * time.Second},
		"cancel":  {func(w *Waiter, _ *slots, tk *Ticket) { w.Cancel(context.Background(), tk) }, 3 * time.Second},
		"wake":    {func(w *Waiter, s *slots, _ *Ticket) { s.end(); w.Wake() }, 3 * time.Second},
		"no news": {func(_ *Waiter, s *slots, _ *Ticket) { s.end() }, 5 * time.Second},
	} {
		everyWay(t, func(t *testing.T, as func(Limiter) Limiter) {
			w, s, d := new(Waiter), &slots{free: 10}, newDiary()
			l := as(s)
			var wg sync.WaitGroup
			for range 30 {
				wg.Go(func() {
					tk := ticket(l)
					assert.NoError(t, w.Wait(t.Context(), tk))
					time.Sleep(999 * time.Millisecond)
					tt.end(w, s, tk)
					d.note("done")
				})
			}
			wg.Wait()
			require.LessOrEqual(t, d.last("done"), tt.want, name)
			idle(t, w)
		})
	}
}

func TestWaiter_failsAtOnceWhenItCannotEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := new(Waiter), bucket(10*time.Second, 1)
		require.NoError(t, w.Wait(t.Context(), ticket(l)))
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
		defer cancel()
		err := w.Wait(ctx, ticket(l))
		var refused *RefusedError
		require.ErrorAs(t, err, &refused)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, ErrRefused)
		require.Equal(t, 10*time.Second, refused.Decision.Wait)
		require.Equal(t, "10s", refused.Decision.Policy)

		go w.Wait(t.Context(), ticket(l)) // others in line change nothing
		synctest.Wait()
		require.ErrorIs(t, w.Wait(ctx, ticket(l)), context.DeadlineExceeded)

		err = w.Wait(t.Context(), &Ticket{Demands: [MaxDemands]Demand{{Limiter: l, Cost: 2}}})
		require.ErrorAs(t, err, &refused)
		require.Equal(t, Forever, refused.Decision.Wait)
		require.Zero(t, time.Since(start))
		time.Sleep(time.Minute)
		idle(t, w)
	})
}

func TestWaiter_maxWait(t *testing.T) {
	everyWay(t, func(t *testing.T, as func(Limiter) Limiter) {
		w, l, d := &Waiter{MaxWait: 3500 * time.Millisecond}, as(bucket(time.Second, 1)), newDiary()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if err := w.Wait(t.Context(), ticket(l)); err != nil {
					assert.ErrorIs(t, err, ErrRefused)
					assert.NotErrorIs(t, err, context.DeadlineExceeded)
					d.note("refused")
					return
				}
				d.note("granted")
			})
		}
		wg.Wait()
		require.Len(t, d.notes["granted"], 4)
		require.LessOrEqual(t, d.last("refused"), w.MaxWait)
		idle(t, w)
	})
}

func TestWaiter_maxWaitEndsWaitsThatAreUnknown(t *testing.T) {
	everyWay(t, func(t *testing.T, as func(Limiter) Limiter) {
		w, l := &Waiter{MaxWait: 300 * time.Millisecond}, as(&slots{})
		start := time.Now()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				var refused *RefusedError
				assert.ErrorAs(t, w.Wait(t.Context(), ticket(l)), &refused)
				assert.Equal(t, "slots", refused.Decision.Policy)
				assert.Equal(t, w.MaxWait, time.Since(start))
			})
		}
		wg.Wait()
		idle(t, w)
	})
}

func TestWaiter_longerThanMaxWaitIsRefusedAtOnce(t *testing.T) {
	everyWay(t, func(t *testing.T, as func(Limiter) Limiter) {
		w, l := &Waiter{MaxWait: time.Second}, as(&gateLimiter{until: time.Now().Add(time.Minute)})
		start := time.Now()
		require.ErrorIs(t, w.Wait(t.Context(), ticket(l)), ErrRefused)
		require.Zero(t, time.Since(start))
	})
}

// TestWaiter_longerThanMaxToldIsRefusedAtOnce has some in line when the other side
// says to stay away for an hour. Whoever finds that too long is told at once, also
// behind somebody who does not.
func TestWaiter_longerThanMaxToldIsRefusedAtOnce(t *testing.T) {
	everyWay(t, func(t *testing.T, as func(Limiter) Limiter) {
		w, g := new(Waiter), &gateLimiter{until: time.Now().Add(10 * time.Second), told: true}
		l, start := as(g), time.Now()
		var took [6]time.Duration
		var errs [6]error
		var wg sync.WaitGroup
		join := func(i int, most time.Duration) {
			wg.Go(func() {
				tk := ticket(l)
				tk.MaxTold = most
				errs[i] = w.Wait(t.Context(), tk)
				took[i] = time.Since(start)
			})
			synctest.Wait()
		}
		join(0, time.Minute)
		join(1, 0)
		join(2, time.Minute)
		join(3, 2*time.Hour)
		join(4, time.Minute)
		time.Sleep(time.Second)
		g.set(time.Now().Add(time.Hour))
		w.Wake()
		synctest.Wait()
		join(5, 3*time.Hour)
		wg.Wait()
		const opened = time.Hour + time.Second
		require.Equal(t, [6]time.Duration{time.Second, opened, time.Second, opened, time.Second, opened}, took)
		for i, err := range errs {
			var r *RefusedError
			if took[i] == opened {
				require.NoError(t, err)
				continue
			}
			require.ErrorAs(t, err, &r)
			require.Equal(t, time.Hour, r.Decision.Wait)
			require.NoError(t, r.Reason)
		}
		idle(t, w)
	})
}

// So are those of other tenants, who are not asked for while another goes first.
func TestWaiter_longerThanMaxToldIsRefusedInAllLines(t *testing.T) {
	everyWay(t, func(t *testing.T, as func(Limiter) Limiter) {
		w, g := new(Waiter), &gateLimiter{until: time.Now().Add(10 * time.Second), told: true}
		l, other, start := as(g), as(bucket(time.Second, 5)), time.Now()
		took := map[string]time.Duration{}
		var mu sync.Mutex
		var wg sync.WaitGroup
		join := func(name string, tk *Ticket, most time.Duration) {
			tk.MaxTold = most
			wg.Go(func() {
				w.Wait(t.Context(), tk)
				mu.Lock()
				defer mu.Unlock()
				took[name] = time.Since(start)
			})
			synctest.Wait()
		}
		tenant := ticket(l)
		tenant.Tenant = "b"
		join("patient", ticket(l), 0)
		join("tenant", tenant, time.Minute)
		join("two limits", ticket(other, l), time.Minute)
		time.Sleep(time.Second)
		g.set(time.Now().Add(time.Hour))
		w.Wake()
		wg.Wait()
		require.Equal(t, map[string]time.Duration{"patient": time.Hour + time.Second, "tenant": time.Second, "two limits": time.Second}, took)
		idle(t, w)
	})
}

func TestWaiter_longerThanMaxToldIsNotEvenBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, g, start := new(Waiter), &gateLimiter{until: time.Now().Add(time.Hour), told: true}, time.Now()
		for range 3 {
			tk := ticket(g)
			tk.MaxTold = time.Minute
			require.ErrorIs(t, w.Wait(t.Context(), tk), ErrRefused)
		}
		require.Zero(t, time.Since(start))

		tk := ticket(g)
		tk.MaxTold = time.Minute
		g.told = false // a limit of our own is waited for, however long
		require.NoError(t, w.Wait(t.Context(), tk))
		require.Equal(t, time.Hour, time.Since(start))
	})
}

func TestWaiter_doesNotRunHotOnALimiterThatLies(t *testing.T) {
	everyWay(t, func(t *testing.T, as func(Limiter) Limiter) {
		w, liar := new(Waiter), new(liar)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		require.ErrorIs(t, w.Wait(ctx, ticket(as(liar))), context.Canceled)
		require.Less(t, liar.asked.Load(), int64(1100))
		idle(t, w)
	})
}

// A liar refuses whatever it has promised.
type liar struct{ asked atomic.Int64 }

func (l *liar) Reserve(_ context.Context, c Claim) (Decision, error) {
	l.asked.Add(1)
	return Decision{At: c.Now, Wait: 1}, nil
}
func (*liar) Cancel(context.Context, Claim, Decision) {}
func (*liar) Local() bool                             { return true }

func TestWaiter_close(t *testing.T) {
	everyWay(t, func(t *testing.T, as func(Limiter) Limiter) {
		w, g := new(Waiter), as(&gateLimiter{until: time.Now().Add(time.Hour)})
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { assert.ErrorIs(t, w.Wait(t.Context(), ticket(g)), ErrClosed) })
		}
		synctest.Wait()
		require.NoError(t, w.Close())
		wg.Wait()
		require.ErrorIs(t, w.Wait(t.Context(), ticket(bucket(1, 1))), ErrClosed)
		require.NoError(t, w.Close())
		idle(t, w)
	})
}

// afterwards refuses for ever, the first time after it has run f.
type afterwards struct {
	once sync.Once
	f    func()
}

func (a *afterwards) Reserve(context.Context, Claim) (Decision, error) {
	a.once.Do(a.f)
	return Decision{Policy: "afterwards", Wait: Forever}, nil
}

func (*afterwards) Cancel(context.Context, Claim, Decision) {}

// A ticket that is refused by its second limit has held the units of the first for a
// moment. Who was refused because of that does not wait until they flow back.
func TestWaiter_whatWasHeldForAMomentIsNoRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := new(Waiter), bucket(time.Hour, 1)
		start := time.Now()
		var waited atomic.Int64
		waited.Store(-1)
		first := ticket(l, &afterwards{f: func() {
			go func() {
				if w.Wait(t.Context(), ticket(l)) == nil {
					waited.Store(int64(time.Since(start)))
				}
			}()
			synctest.Wait()
			require.Negative(t, waited.Load())
		}})
		require.ErrorIs(t, w.Wait(t.Context(), first), ErrRefused)
		require.Zero(t, waited.Load())
	})
}

func TestWaiter_unknownWaitIsNoReasonToRefuse(t *testing.T) {
	for name, set := range map[string]func(g *unknownGate){
		"imposed": func(g *unknownGate) { g.imposed = true },
		"own":     func(*unknownGate) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, w := new(unknownGate), new(Waiter)
				set(g)
				require.NoError(t, w.Wait(t.Context(), new(Ticket))) // starts the time of w
				time.Sleep(time.Millisecond)
				go func() {
					time.Sleep(10 * time.Millisecond)
					g.open.Store(true)
					w.Wake()
				}()
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
				tk, start := ticket(g), time.Now()
				require.NoError(t, w.Wait(ctx, tk), "the deadline is later than the grant")
				require.Equal(t, 10*time.Millisecond, time.Since(start))
				idle(t, w)
			})
		})
	}
}

// An unknownGate refuses until it is opened, and does not know when that is.
type unknownGate struct {
	imposed bool
	open    atomic.Bool
}

func (g *unknownGate) Reserve(_ context.Context, c Claim) (Decision, error) {
	open := g.open.Load()
	return Decision{OK: open, Told: g.imposed && !open, At: c.Now}, nil
}
func (*unknownGate) Cancel(context.Context, Claim, Decision) {}
func (*unknownGate) Local() bool                             { return true }
