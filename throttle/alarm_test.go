package throttle

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A leaper is a clock that stands still until it leaps.
type leaper struct {
	mu     sync.Mutex
	now    time.Time
	alarms []leap
}

type leap struct {
	at time.Time
	c  chan time.Time
}

func (l *leaper) Now() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

func (l *leaper) After(d time.Duration) <-chan time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := make(chan time.Time, 1)
	l.alarms = append(l.alarms, leap{l.now.Add(d), c})
	return c
}

func (l *leaper) leap(d time.Duration) {
	l.mu.Lock()
	l.now = l.now.Add(d)
	var later []leap
	for _, a := range l.alarms {
		if a.at.After(l.now) {
			later = append(later, a)
		} else {
			a.c <- l.now
		}
	}
	l.alarms = later
	l.mu.Unlock()
	synctest.Wait()
}

func TestWaiter_catchesUpNoMoreThanMaxLate(t *testing.T) {
	for _, late := range []time.Duration{0, 20 * time.Millisecond} {
		everyWay(t, func(t *testing.T, as func(Limiter) Limiter) {
			clk := &leaper{now: time.Unix(0, 0)}
			w, d := &Waiter{Clock: clk, MaxLate: late}, newDiary()
			l := as(NewTokenBucket(Limit{Count: 2000, Per: time.Second, Burst: 1}, clk))
			ctx, stop := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for range 1000 {
				wg.Go(func() {
					if w.Wait(ctx, ticket(l)) == nil {
						d.note("go")
					}
				})
			}
			synctest.Wait()
			require.Len(t, d.order, 1)
			require.Less(t, len(clk.alarms), 5, "one timer for all, and what the first callers gave up while they came")
			clk.leap(500 * time.Microsecond)
			require.Len(t, d.order, 2)
			clk.leap(2 * time.Millisecond) // a timer that fires late
			require.Len(t, d.order, 6)
			clk.leap(3 * time.Second) // a process that was suspended
			most := int(max(late, 5*time.Millisecond) / (500 * time.Microsecond))
			require.LessOrEqual(t, len(d.order)-6, most+1)
			require.GreaterOrEqual(t, len(d.order)-6, most)
			stop()
			wg.Wait()
			idle(t, w)
		})
	}
}

func TestWaiter_otherClocks(t *testing.T) {
	everyWay(t, func(t *testing.T, as func(Limiter) Limiter) {
		clk := clock.NewMock()
		w, d := &Waiter{Clock: clk}, newDiary()
		l := as(NewTokenBucket(Limit{Count: 1, Per: time.Second, Burst: 1}, clk))
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				assert.NoError(t, w.Wait(t.Context(), ticket(l)))
				d.note("go")
			})
		}
		for i := range 4 {
			synctest.Wait()
			require.Len(t, d.order, i+1)
			clk.Add(time.Second)
		}
		wg.Wait()
		idle(t, w)
	})
}

func TestWaiter_contextsEndOnTheRealClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clk := clock.NewMock()
		w, l := &Waiter{Clock: clk}, NewTokenBucket(Limit{Count: 1, Per: time.Minute}, clk)
		require.NoError(t, w.Wait(t.Context(), ticket(l)))
		clk.Add(30 * time.Second)
		time.Sleep(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), 29*time.Second)
		defer cancel()
		start := time.Now()
		require.ErrorIs(t, w.Wait(ctx, ticket(l)), context.DeadlineExceeded)
		require.Zero(t, time.Since(start))
		ctx, cancel = context.WithTimeout(t.Context(), 31*time.Second)
		defer cancel()
		require.Equal(t, context.DeadlineExceeded, w.Wait(ctx, ticket(l)), "it could have ended in time, had the mock moved")
		require.Equal(t, 31*time.Second, time.Since(start))
		idle(t, w)
	})
}
