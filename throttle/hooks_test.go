package throttle

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A hooked limiter calls hook for each claim that it is asked for, and refuses it for d.
type hooked struct {
	d    time.Duration
	hook func(c Claim)
}

func (h *hooked) Reserve(_ context.Context, c Claim) (Decision, error) {
	h.hook(c)
	return Decision{Policy: "hooked", At: c.Now, Wait: h.d}, nil
}
func (*hooked) Cancel(context.Context, Claim, Decision) {}
func (*hooked) Local() bool                             { return true }

// TestWaiter_hooksMayCallTheWaiter has limiters that call the Waiter which asks them: no
// lock is held while a limiter or a hook runs.
func TestWaiter_hooksMayCallTheWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, other := new(Waiter), bucket(time.Millisecond, 100)
		l := &hooked{d: time.Second}
		l.hook = func(Claim) {
			w.Snapshot()
			tk := ticket(other)
			assert.NoError(t, w.Wait(t.Context(), tk))
			w.Cancel(t.Context(), tk)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { assert.ErrorIs(t, w.Wait(ctx, ticket(l)), context.DeadlineExceeded) })
		}
		wg.Wait()
		idle(t, w)
	})
}

func TestWaiter_staysUsableWhenALimiterPanics(t *testing.T) {
	for _, asked := range []int64{1, 2, 3, 4, 5} {
		everyWay(t, func(t *testing.T, as func(Limiter) Limiter) {
			w, held := new(Waiter), slotOf(1)
			var n atomic.Int64 // callers of a remote limiter ask it side by side
			l := as(&hooked{d: 100 * time.Millisecond, hook: func(Claim) {
				if n.Add(1) == asked {
					panic("limiter")
				}
			}})
			var wg sync.WaitGroup
			panicked := make(chan any, 2)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			for range 2 {
				wg.Go(func() {
					defer func() {
						if v := recover(); v != nil {
							panicked <- v
						}
					}()
					assert.Error(t, w.Wait(ctx, ticket(held, l)))
				})
			}
			synctest.Wait()
			other := ticket(bucket(time.Second, 1))
			require.NoError(t, w.Wait(ctx, other))
			wg.Wait()
			require.Len(t, panicked, 1)
			require.Equal(t, "limiter", <-panicked, "the caller that the limiter was asked for panics")
			requireFree(t, held)
			require.NoError(t, w.Close())
			idle(t, w)
		})
	}
}

// A limiter that ends the goroutine which asks it, as t.FailNow does.
func TestWaiter_staysUsableWhenALimiterEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, n := new(Waiter), 0
		l := &hooked{d: 100 * time.Millisecond, hook: func(Claim) {
			if n++; n == 4 {
				runtime.Goexit()
			}
		}}
		start := time.Now()
		require.ErrorIs(t, w.Wait(t.Context(), ticket(l)), errExited)
		require.LessOrEqual(t, time.Since(start), time.Second)
		idle(t, w)
	})
}

// A stuck limiter is far away and does not answer before the context ends.
type stuck struct{ answers atomic.Bool }

func stuckAfter(answers bool) *stuck {
	l := new(stuck)
	l.answers.Store(answers)
	return l
}

func (l *stuck) Reserve(ctx context.Context, c Claim) (Decision, error) {
	if l.answers.Load() {
		return Decision{Policy: "stuck", Wait: time.Second, At: c.Now}, nil
	}
	<-ctx.Done()
	return Decision{}, context.Cause(ctx)
}
func (*stuck) Cancel(context.Context, Claim, Decision) {}

func TestWaiter_maxWaitHoldsWhileALimiterHangs(t *testing.T) {
	for _, answers := range []bool{false, true} { // to the first question
		synctest.Test(t, func(t *testing.T) {
			w, l := &Waiter{MaxWait: 5 * time.Second}, stuckAfter(answers)
			start := time.Now()
			time.AfterFunc(500*time.Millisecond, func() { l.answers.Store(false) })
			var refused *RefusedError
			require.ErrorAs(t, w.Wait(t.Context(), ticket(l)), &refused)
			require.NoError(t, refused.Reason)
			require.Equal(t, w.MaxWait, time.Since(start))
			idle(t, w)
		})
	}
}

func TestWaiter_latencyHoldsWhileALimiterHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l, start := new(Waiter), stuckAfter(true), time.Now()
		time.AfterFunc(500*time.Millisecond, func() { l.answers.Store(false) })
		ctx, tk := ticketWithin(t, l, 10*time.Second, 6*time.Second)
		require.ErrorIs(t, w.Wait(ctx, tk), ErrRefused)
		require.Equal(t, 4*time.Second, time.Since(start))
		idle(t, w)
	})
}

func TestWaiter_closeEndsQuestions(t *testing.T) {
	for _, answers := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w, l, start := new(Waiter), stuckAfter(answers), time.Now()
			time.AfterFunc(500*time.Millisecond, func() { l.answers.Store(false) })
			time.AfterFunc(90*time.Second, func() { _ = w.Close() })
			require.Equal(t, ErrClosed, w.Wait(t.Context(), ticket(l)))
			require.Equal(t, 90*time.Second, time.Since(start))
			idle(t, w)
		})
	}
}

// TestWaiter_allOfSharesTheQueueOfItsLimits has small claims for a limit and a large one
// for the same limit inside of an AllOf: the small ones do not overtake it.
func TestWaiter_allOfSharesTheQueueOfItsLimits(t *testing.T) {
	everyWay(t, func(t *testing.T, as func(Limiter) Limiter) {
		pool := slotOf(4)
		w, l := new(Waiter), as(pool)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for ctx.Err() == nil {
					if tk := ticket(l); w.Wait(ctx, tk) == nil {
						time.Sleep(10 * time.Millisecond)
						w.Cancel(ctx, tk)
					}
				}
			})
		}
		time.Sleep(time.Second)
		big, start := ticket(AllOf(Unlimited, AllOf(l))), time.Now()
		big.Demands[0].Cost = 4
		require.NoError(t, w.Wait(ctx, big))
		require.LessOrEqual(t, time.Since(start), 30*time.Millisecond)
		w.Cancel(ctx, big)
		cancel()
		wg.Wait()
		idle(t, w)
	})
}

func slotOf(n int64) *InFlight { return NewInFlight(Capacity{Count: n}, nil) }
