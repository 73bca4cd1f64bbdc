package throttle

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWaiter_snapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, g, l := new(Waiter), &gateLimiter{until: time.Now().Add(time.Minute)}, bucket(time.Hour, 1)
		require.Nil(t, w.Snapshot())
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { w.Wait(t.Context(), &Ticket{Tenant: "x", Demands: ticket(l, g).Demands}) })
		}
		synctest.Wait()
		time.Sleep(10 * time.Second)
		require.Equal(t, []Line{{
			Demands: ticket(l, g).Demands, Tenant: "x", Waiting: 3,
			First: 10 * time.Second, Limit: "gate", OpensAfter: 50 * time.Second,
		}}, w.Snapshot())
		w.Close()
		wg.Wait()
		require.Empty(t, w.Snapshot())
	})
}

func TestWaiter_trace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []string
		var mu sync.Mutex
		add := func(format string, a ...any) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, fmt.Sprintf(format, a...))
		}
		w := &Waiter{MaxLine: 2, Trace: &WaitTrace{
			Asked:   func(*Ticket) { add("asked") },
			Parked:  func(_ *Ticket, l Line) { add("parked at %s, place %d", l.Limit, l.Waiting) },
			Granted: func(t *Ticket) { add("granted after %v for %q", t.Waited(), t.WaitedFor()) },
			Refused: func(_ *Ticket, err error) { add("refused: %v", err) },
		}}
		g, l := &gateLimiter{until: time.Now().Add(time.Minute)}, bucket(time.Second, 1)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { w.Wait(t.Context(), ticket(l, g)) })
			synctest.Wait()
		}
		wg.Wait()
		require.Equal(t, []string{
			"asked", "parked at gate, place 1",
			"asked", "parked at gate, place 2",
			"asked", "refused: throttle: line is full: 2 callers wait already and MaxLine is 2: ask again later",
			`granted after 1m0s for "gate"`,
			`granted after 1m1s for "gate"`,
		}, events)
		w.Trace = &WaitTrace{} // nil funcs are left out
		require.NoError(t, w.Wait(t.Context(), ticket(Unlimited)))
	})
}

func TestWaiter_whoseTracePanicsLeavesTheLine(t *testing.T) {
	everyWay(t, func(t *testing.T, as func(Limiter) Limiter) {
		w, s := &Waiter{Trace: &WaitTrace{Parked: func(*Ticket, Line) { panic("trace") }}}, &slots{}
		l := as(s)
		require.PanicsWithValue(t, "trace", func() { w.Wait(t.Context(), ticket(l)) })
		s.end()
		w.Wake()
		idle(t, w)
		require.NoError(t, w.Wait(t.Context(), ticket(l)), "the unit was not lost")
	})
}

func TestWaiter_waitedForForgetsWhatIsLongAgo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, g, l := new(Waiter), &gateLimiter{until: time.Now().Add(time.Hour)}, bucket(time.Second, 1)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		flood(ctx, &wg, w, 3, func() *Ticket { return ticket(g, l) }, func() {})
		time.Sleep(time.Hour + time.Minute)
		last := ticket(g, l)
		require.NoError(t, w.Wait(ctx, last))
		require.Equal(t, "1s", last.WaitedFor())
		require.LessOrEqual(t, last.Waited(), 4*time.Second)
		stop()
		wg.Wait()
	})
}

func TestWaiter_drain(t *testing.T) {
	everyWay(t, func(t *testing.T, as func(Limiter) Limiter) {
		w, l, d := new(Waiter), as(bucket(time.Second, 1)), newDiary()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				assert.NoError(t, w.Wait(t.Context(), ticket(l)))
				d.note("go")
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		require.Equal(t, context.DeadlineExceeded, w.Drain(ctx))
		require.ErrorIs(t, w.Wait(t.Context(), ticket(Unlimited)), ErrClosed)
		require.NoError(t, w.Drain(t.Context()))
		require.Equal(t, 4*time.Second, time.Since(d.start))
		wg.Wait()
		require.Len(t, d.order, 5)
		require.NoError(t, w.Close())
		require.NoError(t, new(Waiter).Drain(t.Context()))
		idle(t, w)
	})
}
