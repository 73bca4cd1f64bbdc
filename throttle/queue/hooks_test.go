package queue

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

	"github.com/heed-go/heed/throttle"
)

// A hookLimiter calls hook for each claim, and rejects it with a wait of d.
type hookLimiter struct {
	d    time.Duration
	hook func(c throttle.Claim)
}

func (h *hookLimiter) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	h.hook(c)
	return throttle.Decision{Policy: "hooked", At: c.Now, Wait: h.d}, nil
}
func (*hookLimiter) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {}

// Traits implements throttle.Limiter.
func (*hookLimiter) Traits() throttle.Traits {
	return throttle.Traits{NonBlocking: true, EndsAtResponse: true}
}

// The limiters call the Queue that asks them: the Queue holds no lock while a limiter or a
// hook runs.
func TestQueue_hooksMayCallTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, other := new(Queue), bucket(time.Millisecond, 100)
		l := &hookLimiter{d: time.Second}
		l.hook = func(throttle.Claim) {
			q.Snapshot()
			tk := ticket(other)
			assert.NoError(t, q.Wait(t.Context(), tk))
			q.Report(t.Context(), tk, throttle.Feedback{State: throttle.Unused})
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { assert.ErrorIs(t, q.Wait(ctx, ticket(l)), context.DeadlineExceeded) })
		}
		wg.Wait()
		requireEmpty(t, q)
	})
}

func TestQueue_staysUsableWhenALimiterPanics(t *testing.T) {
	for _, asked := range []int64{1, 2, 3, 4, 5} {
		localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
			q, held := new(Queue), concurrencyOf(1)
			var n atomic.Int64 // callers ask a remote limiter concurrently
			l := wrap(&hookLimiter{d: 100 * time.Millisecond, hook: func(throttle.Claim) {
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
					assert.Error(t, q.Wait(ctx, ticket(held, l)))
				})
			}
			synctest.Wait()
			other := ticket(bucket(time.Second, 1))
			require.NoError(t, q.Wait(ctx, other))
			wg.Wait()
			require.Len(t, panicked, 1)
			require.Equal(t, "limiter", <-panicked, "the caller that the limiter was asked for panics")
			requireFree(t, held)
			require.NoError(t, q.Close())
			requireEmpty(t, q)
		})
	}
}

// The limiter ends the goroutine that asks it, as t.FailNow does.
func TestQueue_staysUsableWhenALimiterEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, n := new(Queue), 0
		l := &hookLimiter{d: 100 * time.Millisecond, hook: func(throttle.Claim) {
			if n++; n == 4 {
				runtime.Goexit()
			}
		}}
		start := time.Now()
		require.ErrorIs(t, q.Wait(t.Context(), ticket(l)), errGoexit)
		require.LessOrEqual(t, time.Since(start), time.Second)
		requireEmpty(t, q)
	})
}

// A hangingLimiter may block. While responds is false it returns only when ctx ends.
type hangingLimiter struct{ responds atomic.Bool }

func newHangingLimiter(responds bool) *hangingLimiter {
	l := new(hangingLimiter)
	l.responds.Store(responds)
	return l
}

func (l *hangingLimiter) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	if l.responds.Load() {
		return throttle.Decision{Policy: "stuck", Wait: time.Second, At: c.Now}, nil
	}
	<-ctx.Done()
	return throttle.Decision{}, context.Cause(ctx)
}
func (*hangingLimiter) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {
}

// Traits implements throttle.Limiter.
func (*hangingLimiter) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }

func TestQueue_maxWaitHoldsWhileALimiterHangs(t *testing.T) {
	for _, responds := range []bool{false, true} { // to the first claim
		synctest.Test(t, func(t *testing.T) {
			q, l := &Queue{MaxWait: 5 * time.Second}, newHangingLimiter(responds)
			start := time.Now()
			time.AfterFunc(500*time.Millisecond, func() { l.responds.Store(false) })
			var rejected *throttle.RejectedError
			require.ErrorAs(t, q.Wait(t.Context(), ticket(l)), &rejected)
			require.NoError(t, rejected.Reason)
			require.Equal(t, q.MaxWait, time.Since(start))
			requireEmpty(t, q)
		})
	}
}

func TestQueue_latencyHoldsWhileALimiterHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l, start := new(Queue), newHangingLimiter(true), time.Now()
		time.AfterFunc(500*time.Millisecond, func() { l.responds.Store(false) })
		ctx, tk := ticketWithin(t, l, 10*time.Second, 4*time.Second)
		require.ErrorIs(t, q.Wait(ctx, tk), throttle.ErrRejected)
		require.Equal(t, 6*time.Second, time.Since(start))
		requireEmpty(t, q)
	})
}

func TestQueue_closeCancelsRemoteCalls(t *testing.T) {
	for _, responds := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			q, l, start := new(Queue), newHangingLimiter(responds), time.Now()
			time.AfterFunc(500*time.Millisecond, func() { l.responds.Store(false) })
			time.AfterFunc(90*time.Second, func() { _ = q.Close() })
			require.Equal(t, ErrClosed, q.Wait(t.Context(), ticket(l)))
			require.Equal(t, 90*time.Second, time.Since(start))
			requireEmpty(t, q)
		})
	}
}

// Small claims for a limit do not overtake a large claim for a throttle.AllOf that contains the
// same limit.
func TestQueue_allOfSharesTheQueueOfItsLimits(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		pool := concurrencyOf(4)
		q, l := new(Queue), wrap(pool)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for ctx.Err() == nil {
					if tk := ticket(l); q.Wait(ctx, tk) == nil {
						time.Sleep(10 * time.Millisecond)
						q.Report(ctx, tk, throttle.Feedback{State: throttle.Unused})
					}
				}
			})
		}
		time.Sleep(time.Second)
		big, start := ticket(throttle.AllOf(throttle.AllowAll, throttle.AllOf(l))), time.Now()
		big.Demands[0].Cost = 4
		require.NoError(t, q.Wait(ctx, big))
		require.LessOrEqual(t, time.Since(start), 30*time.Millisecond)
		q.Report(ctx, big, throttle.Feedback{State: throttle.Unused})
		cancel()
		wg.Wait()
		requireEmpty(t, q)
	})
}

func concurrencyOf(n int64) throttle.Limiter {
	return throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: n})
}

// TestQueue_panicOfTraceTakesNoUnits checks that a ticket whose grant cannot be traced is canceled, and
// that a caller that waits for its unit gets it.
func TestQueue_panicOfTraceTakesNoUnits(t *testing.T) {
	for name, claim := range map[string]func(*Queue, context.Context, *Ticket) error{"Wait": (*Queue).Wait, "Try": (*Queue).Try} {
		synctest.Test(t, func(t *testing.T) {
			l := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1})
			panics := true
			q, waiting := new(Queue), ticket(l)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var granted sync.WaitGroup
			q.Trace = &Trace{Granted: func(*Ticket) {
				if !panics {
					return
				}
				panics = false
				granted.Go(func() { assert.NoError(t, q.Wait(ctx, waiting)) })
				synctest.Wait() // it waits
				panic("trace")
			}}
			require.PanicsWithValue(t, "trace", func() { _ = claim(q, t.Context(), ticket(l)) }, name)
			granted.Wait()
			q.Report(t.Context(), waiting, throttle.Feedback{State: throttle.Unused})
			requireEmpty(t, q)
		})
	}
}
