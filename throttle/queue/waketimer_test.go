package queue

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A jumpClock is a clock whose time changes only by jump.
type jumpClock struct {
	mu     sync.Mutex
	now    time.Time
	timers []jumpTimer
}

type jumpTimer struct {
	at time.Time
	c  chan time.Time
}

func (l *jumpClock) Now() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

func (l *jumpClock) After(d time.Duration) <-chan time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := make(chan time.Time, 1)
	l.timers = append(l.timers, jumpTimer{l.now.Add(d), c})
	return c
}

func (l *jumpClock) jump(d time.Duration) {
	l.mu.Lock()
	l.now = l.now.Add(d)
	var later []jumpTimer
	for _, t := range l.timers {
		if t.at.After(l.now) {
			later = append(later, t)
		} else {
			t.c <- l.now
		}
	}
	l.timers = later
	l.mu.Unlock()
	synctest.Wait()
}

func TestQueue_catchesUpAFewMilliseconds(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		clk := &jumpClock{now: time.Unix(0, 0)}
		q, d := &Queue{Clock: clk}, newEventLog()
		l := wrap(throttle.WithClock(throttle.NewTokenBucket(throttle.Limit{Count: 2000, Per: time.Second, Burst: 1}), clk))
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				if q.Wait(ctx, ticket(l)) == nil {
					d.record("go")
				}
			})
		}
		synctest.Wait()
		require.Len(t, d.order, 1)
		require.Less(t, len(clk.timers), 5, "one timer for all, and what the first callers gave up while they came")
		clk.jump(500 * time.Microsecond)
		require.Len(t, d.order, 2)
		clk.jump(2 * time.Millisecond) // a timer that fires late
		require.Len(t, d.order, 6)
		clk.jump(3 * time.Second) // a suspended process
		most := int(maxCatchUp / int64(500*time.Microsecond))
		require.LessOrEqual(t, len(d.order)-6, most+1)
		require.GreaterOrEqual(t, len(d.order)-6, most)
		stop()
		wg.Wait()
		requireEmpty(t, q)
	})
}

func TestQueue_customClock(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		clk := clock.NewMock()
		q, d := &Queue{Clock: clk}, newEventLog()
		l := wrap(throttle.WithClock(throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: time.Second, Burst: 1}), clk))
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				assert.NoError(t, q.Wait(t.Context(), ticket(l)))
				d.record("go")
			})
		}
		for i := range 4 {
			synctest.Wait()
			require.Len(t, d.order, i+1)
			clk.Add(time.Second)
		}
		wg.Wait()
		requireEmpty(t, q)
	})
}

func TestQueue_contextDeadlinesUseTheRealClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clk := clock.NewMock()
		q, l := &Queue{Clock: clk}, throttle.WithClock(throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: time.Minute}), clk)
		require.NoError(t, q.Wait(t.Context(), ticket(l)))
		clk.Add(30 * time.Second)
		time.Sleep(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), 29*time.Second)
		defer cancel()
		start := time.Now()
		require.ErrorIs(t, q.Wait(ctx, ticket(l)), context.DeadlineExceeded)
		require.Zero(t, time.Since(start))
		ctx, cancel = context.WithTimeout(t.Context(), 31*time.Second)
		defer cancel()
		require.Equal(t, context.DeadlineExceeded, q.Wait(ctx, ticket(l)), "it could have ended in time, had the mock moved")
		require.Equal(t, 31*time.Second, time.Since(start))
		requireEmpty(t, q)
	})
}

// TestQueue_waitsAgainAfterACallerHasLeft checks that the timer of a caller that has left does not
// replace that of the next one, which waits until the same instant or another one.
func TestQueue_waitsAgainAfterACallerHasLeft(t *testing.T) {
	for _, until := range []time.Duration{time.Minute, 30 * time.Second, 90 * time.Second} {
		for _, mock := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				q, advance := new(Queue), time.Sleep
				start := time.Now()
				if mock {
					clk := clock.NewMock()
					start, q.Clock, advance = clk.Now(), clk, func(d time.Duration) { clk.Add(d) }
				}
				l := &holdLimiter{until: start.Add(time.Minute)}
				for range 3 {
					ctx, cancel := context.WithCancel(t.Context())
					var wg sync.WaitGroup
					wg.Go(func() { assert.ErrorIs(t, q.Wait(ctx, ticket(l)), context.Canceled) })
					synctest.Wait()
					cancel()
					wg.Wait()
					requireEmpty(t, q)
				}
				l.set(start.Add(until))
				var granted atomic.Bool
				var wg sync.WaitGroup
				wg.Go(func() { granted.Store(assert.NoError(t, q.Wait(t.Context(), ticket(l)))) })
				synctest.Wait()
				advance(until - 1)
				synctest.Wait()
				require.False(t, granted.Load(), until)
				advance(1)
				synctest.Wait()
				require.True(t, granted.Load(), until)
				wg.Wait()
				requireEmpty(t, q)
			})
		}
	}
}

// TestQueue_processesWhatIsDueNowOnAMockClock checks a caller that an estimate has held for
// MaxServerWait at the instant at which it is estimated: it leaves although the clock stands still.
func TestQueue_processesWhatIsDueNowOnAMockClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clk := clock.NewMock()
		q := &Queue{Clock: clk}
		estimated := func(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
			return throttle.Decision{At: c.Now, Estimated: true, ServerImposed: true}, nil
		}
		tk := ticket(&scriptedLimiter{script: []step{rejects(0, 0), rejects(0, 0), estimated, rejects(0, 0)}})
		tk.MaxServerWait = time.Second
		var err error
		var wg sync.WaitGroup
		q.Snapshot()
		clk.Add(time.Hour)
		wg.Go(func() { err = q.Wait(t.Context(), tk) })
		synctest.Wait()
		clk.Add(time.Second) // the limit is asked again
		synctest.Wait()
		require.ErrorIs(t, err, throttle.ErrRejected)
		wg.Wait()
		requireEmpty(t, q)
	})
}
