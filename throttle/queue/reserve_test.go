package queue

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A store is a limiter that blocks for delay. It records the maximum number of concurrent calls.
type store struct {
	throttle.Limiter
	delay                 time.Duration
	inFlight, maxInFlight atomic.Int64
	calls                 atomic.Int64
}

// Traits implements throttle.Limiter: it may block.
func (*store) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }

type callerKey struct{}

func (s *store) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	if ctx.Value(callerKey{}) == nil {
		panic("not the caller's context")
	}
	s.calls.Add(1)
	n := s.inFlight.Add(1)
	defer s.inFlight.Add(-1)
	for m := s.maxInFlight.Load(); n > m && !s.maxInFlight.CompareAndSwap(m, n); m = s.maxInFlight.Load() {
	}
	select {
	case <-time.After(s.delay):
		return s.Limiter.Reserve(ctx, c)
	case <-ctx.Done():
		return throttle.Decision{}, ctx.Err()
	}
}

func callerContext(t *testing.T) context.Context {
	return context.WithValue(t.Context(), callerKey{}, true)
}

func TestQueue_oneRemoteCallPerClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, local := new(Queue), bucket(100*time.Millisecond, 1)
		remote := &store{Limiter: bucket(time.Second, 1), delay: 200 * time.Millisecond}
		ctx := callerContext(t)
		var wg sync.WaitGroup
		for range 2 { // the second waits, and so do all later ones
			require.NoError(t, q.Wait(ctx, ticket(local)))
			wg.Go(func() { assert.NoError(t, q.Wait(ctx, ticket(remote))) })
		}
		time.Sleep(700 * time.Millisecond)
		d := newEventLog()
		remote.maxInFlight.Store(0)
		for range 20 {
			for name, l := range map[string]throttle.Limiter{"far": remote, "near": local} {
				wg.Go(func() {
					assert.NoError(t, q.Wait(ctx, ticket(l)))
					d.record(name)
				})
			}
		}
		wg.Wait()
		require.Equal(t, 1900*time.Millisecond, d.last("near"), "nobody waits for the I/O of another line")
		require.EqualValues(t, 1, remote.maxInFlight.Load())
		requireEmpty(t, q)
	})
}

func TestTicket_givesBackNoMoreThanIsDueAfterASlowRejection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := bucket(100*time.Millisecond, 10)
		remote := &store{Limiter: &holdLimiter{until: time.Now().Add(time.Hour)}, delay: 300 * time.Millisecond}
		ctx := callerContext(t)
		_, err := local.Reserve(ctx, throttle.Claim{Cost: 5})
		require.NoError(t, err)
		tk := ticket(remote, local) // the non-blocking limiter is asked first nevertheless
		tk.Demands[1].Cost = 5
		d, err := tk.Reserve(ctx, time.Time{})
		require.NoError(t, err)
		require.False(t, d.OK)
		left, _ := local.Reserve(ctx, throttle.Claim{DryRun: true})
		require.EqualValues(t, 5, left.Remaining, "3 came back by themselves, 2 were given back")
	})
}

// A delayedSlots limiter returns its decision 200 ms after making it.
type delayedSlots struct {
	*slotLimiter
	fail atomic.Bool
}

// Traits implements throttle.Limiter.
func (l *delayedSlots) Traits() throttle.Traits {
	t := l.slotLimiter.Traits()
	t.NonBlocking = false
	return t
}
func (l *delayedSlots) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	d, err := l.slotLimiter.Reserve(ctx, c)
	time.Sleep(200 * time.Millisecond)
	if l.fail.Load() {
		return throttle.Decision{}, errGone
	}
	return d, err
}

func TestQueue_wakesDuringARemoteCallAreNotLost(t *testing.T) {
	for name, tt := range map[string]struct{ early, fail bool }{
		"granted":       {early: true},
		"rejected":      {},
		"limiter fails": {fail: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			q, l, d := new(Queue), &delayedSlots{slotLimiter: new(slotLimiter)}, newEventLog()
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					if q.Wait(t.Context(), ticket(l)) == nil {
						d.record("granted")
					} else {
						d.record("failed")
					}
				})
				time.Sleep(50 * time.Millisecond)
			}
			if tt.early {
				l.end()
				l.end()
			}
			time.Sleep(160 * time.Millisecond) // both wait, and the limiter is being asked for the first
			if !tt.early {
				l.end()
				l.end()
				q.Wake()
			}
			l.fail.Store(tt.fail)
			time.Sleep(200 * time.Millisecond)
			l.fail.Store(false)
			wg.Wait()
			require.LessOrEqual(t, d.last("granted"), 900*time.Millisecond, "%s: news is heard while a question is out", name)
			require.Equal(t, tt.fail, len(d.times["failed"]) == 1, name)
			requireEmpty(t, q)
		})
	}
}

func TestQueue_cancelledAtTheInstantOfItsGrant(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		for range 50 {
			q, l := new(Queue), wrap(bucket(time.Second, 1))
			require.NoError(t, q.Wait(t.Context(), ticket(l)))
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			var wg sync.WaitGroup
			wg.Go(func() { q.Wait(ctx, ticket(l)) })
			synctest.Wait()
			wg.Go(func() { assert.NoError(t, q.Wait(t.Context(), ticket(l))) })
			wg.Wait()
			requireEmpty(t, q)
		}
	})
}

func TestQueue_endsDuringARemoteCall(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(*Queue, context.CancelCauseFunc)
		want error
	}{
		"cancel": {func(_ *Queue, cancel context.CancelCauseFunc) { cancel(errGone) }, errGone},
		"close":  {func(q *Queue, _ context.CancelCauseFunc) { q.Close() }, ErrClosed},
	} {
		synctest.Test(t, func(t *testing.T) {
			hold := &holdLimiter{until: time.Now().Add(1500 * time.Millisecond)}
			q, remote := new(Queue), &store{Limiter: hold, delay: time.Second}
			ctx, cancel := context.WithCancelCause(callerContext(t))
			var wg sync.WaitGroup
			for range 5 {
				wg.Go(func() { assert.ErrorIs(t, q.Wait(ctx, ticket(remote)), tt.want, name) })
			}
			time.Sleep(2500 * time.Millisecond) // the limiter is being asked for the first again
			hold.set(time.Now().Add(time.Hour))
			tt.end(q, cancel)
			wg.Wait()
			cancel(nil)
			requireEmpty(t, q)
		})
	}
}

var errGone = errors.New("gone")

func TestQueue_limiterErrorsReachOnlyTheirCaller(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, l := new(Queue), &failingLimiter{Limiter: bucket(time.Second, 1), local: wrap(throttle.AllowAll) == throttle.AllowAll}
		require.NoError(t, q.Wait(t.Context(), ticket(l)))
		var wg sync.WaitGroup
		var failed atomic.Int64
		for range 5 {
			wg.Go(func() {
				if err := q.Wait(t.Context(), ticket(l)); err != nil {
					assert.Equal(t, errGone, err)
					failed.Add(1)
				}
			})
		}
		synctest.Wait()
		l.fail.Store(2)
		wg.Wait()
		require.EqualValues(t, 2, failed.Load())
		requireEmpty(t, q)
	})
}

// A failingLimiter returns an error for the next fail claims.
type failingLimiter struct {
	throttle.Limiter
	local bool
	fail  atomic.Int64
}

// Traits implements throttle.Limiter.
func (l *failingLimiter) Traits() throttle.Traits {
	t := l.Limiter.Traits()
	t.NonBlocking = l.local
	return t
}
func (l *failingLimiter) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	if l.fail.Add(-1) >= 0 {
		return throttle.Decision{}, errGone
	}
	return l.Limiter.Reserve(ctx, c)
}

// A panicOnce is a blocking limiter that panics at the next claim if panics is set.
type panicOnce struct {
	throttle.Limiter
	panics atomic.Bool
}

func (l *panicOnce) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	if l.panics.Swap(false) {
		panic("the limiter is broken")
	}
	return l.Limiter.Reserve(ctx, c)
}

// recordWait waits for l in q, and records that it was granted or that it panicked.
func recordWait(t *testing.T, q *Queue, l throttle.Limiter, d *eventLog) {
	defer func() {
		if recover() != nil {
			d.record("panic")
		}
	}()
	assert.NoError(t, q.Wait(t.Context(), ticket(l)))
	d.record("granted")
}

func TestQueue_waiterLeavesWhenItsLimiterPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l, d := new(Queue), &panicOnce{Limiter: bucket(time.Second, 1)}, newEventLog()
		require.NoError(t, q.Wait(t.Context(), ticket(l)))
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { recordWait(t, q, l, d) })
			synctest.Wait()
		}
		l.panics.Store(true)
		wg.Wait()
		require.Equal(t, map[string][]time.Duration{
			"panic":   {time.Second},
			"granted": {time.Second, 2 * time.Second}, // those behind it do not wait longer
		}, d.times)
		requireEmpty(t, q)
	})
}

// lateOnce grants the next claim after late is set when its context has ended, and panics when that grant is returned.
type lateOnce struct {
	throttle.Limiter
	late, panics atomic.Bool
}

func (l *lateOnce) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	if l.late.Swap(false) {
		<-ctx.Done()
		l.panics.Store(true)
		return throttle.Decision{OK: true}, nil
	}
	return l.Limiter.Reserve(ctx, c)
}

func (l *lateOnce) Report(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if l.panics.Swap(false) {
		panic("the limiter is broken")
	}
	l.Limiter.Report(ctx, c, d, f)
}

func (l *lateOnce) Traits() throttle.Traits { return throttle.Traits{} } // it blocks

// A limiter that panics when a grant is returned that came too late does not hold up the waiters behind.
func TestQueue_waiterLeavesWhenReturningAGrantPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l, d := &Queue{MaxWait: 3 * time.Second}, &lateOnce{Limiter: bucket(time.Second, 1)}, newEventLog()
		require.NoError(t, q.Wait(t.Context(), ticket(l)))
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { recordWait(t, q, l, d) })
			time.Sleep(200 * time.Millisecond)
		}
		l.late.Store(true)
		wg.Wait()
		require.Equal(t, map[string][]time.Duration{"panic": {3 * time.Second}, "granted": {3 * time.Second}}, d.times)
		requireEmpty(t, q)
	})
}
