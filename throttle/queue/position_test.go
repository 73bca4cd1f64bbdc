package queue

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

// positions collects the Positions of tickets that begin to wait.
type positions struct {
	mu  sync.Mutex
	all []Position
}

func (p *positions) add(x Position) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, x)
	return nil
}

func TestQueue_waitQueuedTellsThePosition(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, l, start := new(Queue), wrap(bucket(2*time.Second, 1)), time.Now()
		var got positions
		require.NoError(t, q.WaitHooks(t.Context(), ticket(l), Hooks{Queued: got.add}))
		require.Empty(t, got.all, "granted immediately")
		var wg sync.WaitGroup
		for _, priority := range []int32{0, 0, 5} {
			tk := ticket(l)
			tk.Priority = priority
			wg.Go(func() { q.WaitHooks(t.Context(), tk, Hooks{Queued: got.add}) })
			synctest.Wait()
		}
		require.Equal(t, []Position{
			{At: start, Limit: "2s", ExpectedEnd: start.Add(2 * time.Second)},
			{At: start, Limit: "2s", Ahead: 1, ExpectedEnd: start.Add(4 * time.Second)},
			{At: start, Limit: "2s", ExpectedEnd: start.Add(2 * time.Second)},
		}, got.all)
		wg.Wait()
		require.Len(t, got.all, 3, "once per wait")
	})
}

func TestQueue_waitQueuedDescribesALimitOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, start := new(Queue), time.Now()
		var got positions
		l := &holdLimiter{until: start.Add(time.Minute), serverImposed: true}
		require.NoError(t, q.WaitHooks(t.Context(), ticket(l), Hooks{Queued: got.add}))
		require.Equal(t, []Position{{At: start, Limit: "hold", ServerImposed: true, ExpectedEnd: start.Add(time.Minute)}}, got.all)
		require.NoError(t, q.Wait(t.Context(), ticket(l)))

		l.until = time.Now().Add(time.Minute)
		q.MaxWait = time.Second
		require.ErrorIs(t, q.WaitHooks(t.Context(), ticket(l), Hooks{Queued: got.add}), throttle.ErrRejected)
		require.Len(t, got.all, 1, "rejected immediately")
	})
}

func TestQueue_waitQueuedCountsManyCallersApproximately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, s := new(Queue), &slotLimiter{}
		var wg sync.WaitGroup
		for range 10 * maxCompared {
			wg.Go(func() { q.Wait(t.Context(), ticket(s)) })
		}
		synctest.Wait()
		var got positions
		for _, priority := range []int32{0, 1} {
			tk := ticket(s)
			tk.Priority = priority
			wg.Go(func() { q.WaitHooks(t.Context(), tk, Hooks{Queued: got.add}) })
			synctest.Wait()
		}
		require.Equal(t, []int{10 * maxCompared, 0}, []int{got.all[0].Ahead, got.all[1].Ahead})
		q.Close()
		wg.Wait()
	})
}

func TestQueue_waiterLeavesWhenQueuedPanics(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, s := new(Queue), &slotLimiter{}
		l := wrap(s)
		require.PanicsWithValue(t, "queued", func() { q.WaitHooks(t.Context(), ticket(l), Hooks{Queued: func(Position) error { panic("queued") }}) })
		s.end()
		q.Wake()
		requireEmpty(t, q)
		require.NoError(t, q.Wait(t.Context(), ticket(l)), "the unit was not lost")
	})
}

func TestQueue_waiterLeavesWhenQueuedFails(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, s, failed := new(Queue), &slotLimiter{}, errors.New("queued")
		l := wrap(s)
		require.ErrorIs(t, q.WaitHooks(t.Context(), ticket(l), Hooks{Queued: func(Position) error { return failed }}), failed)
		err := q.WaitHooks(t.Context(), ticket(l), Hooks{Queued: func(Position) error { s.end(); q.Wake(); return failed }})
		require.ErrorIs(t, err, failed, "the limit granted it meanwhile")
		requireEmpty(t, q)
		rejection := &throttle.RejectedError{Decision: throttle.Decision{Wait: time.Minute, ServerImposed: true}}
		require.NoError(t, q.Wait(t.Context(), ticket(l)), "the unit was not lost")
		err = q.WaitHooks(t.Context(), ticket(l), Hooks{Queued: func(Position) error { s.end(); q.Wake(); return rejection }})
		require.Equal(t, rejection, err, "a rejection that is not of a limit ends the wait, too")
		require.NoError(t, q.Wait(t.Context(), ticket(l)), "the unit was not lost")
	})
}

// TestQueue_waitQueuedBeforeTheFirstAnswer checks the Position of callers that join while a
// limiter is being asked for the first time, for the caller ahead of them.
func TestQueue_waitQueuedBeforeTheFirstAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := new(Queue)
		q.Snapshot()
		time.Sleep(time.Hour)
		start := time.Now()
		l := &remoteLimiter{Limiter: &holdLimiter{until: start.Add(10 * time.Second)}, delay: time.Second}
		var got positions
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { q.WaitHooks(t.Context(), ticket(l), Hooks{Queued: got.add}) })
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.Len(t, got.all, 3)
		require.Equal(t, Position{At: start.Add(100 * time.Millisecond), Ahead: 1}, got.all[0])
		require.Equal(t, Position{At: start.Add(200 * time.Millisecond), Ahead: 2}, got.all[1])
		require.Zero(t, got.all[2].Ahead, "the first one, after the answer")
		wg.Wait()
	})
}

func TestPerUnit_isZeroIfItIsNotKnown(t *testing.T) {
	for _, c := range []struct {
		limit int64
		per   time.Duration
		want  time.Duration
	}{
		{0, 0, 0}, {0, time.Minute, 0}, {-1, time.Minute, 0}, {10, 0, 0}, {10, -time.Minute, 0},
		{1, time.Minute, time.Minute}, {60, time.Minute, time.Second}, {60, 1, 0}, {1, 1, 1},
	} {
		require.Equal(t, c.want, perUnit(throttle.Decision{Limit: c.limit, Per: c.per}), "%+v", c)
	}
}

// TestQueue_waitQueuedKnowsNoEndOfAnUnknownWait checks a limit that does not state when it grants.
func TestQueue_waitQueuedKnowsNoEndOfAnUnknownWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, start := new(Queue), time.Now()
		var got positions
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { q.WaitHooks(t.Context(), ticket(new(slotLimiter)), Hooks{Queued: got.add}) })
			synctest.Wait()
		}
		require.Equal(t, []Position{{At: start, Limit: "slots"}, {At: start, Limit: "slots"}}, got.all)
		q.Close()
		wg.Wait()
	})
}
