package throttle

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWaiter_keepsToTheQueueBoundsOfLimits has eight callers at a time ask for a limit of
// ten units a second. Those that may neither go nor wait are refused immediately.
func TestWaiter_keepsToTheQueueBoundsOfLimits(t *testing.T) {
	const tick = 100 * time.Millisecond
	one := Limit{Count: 10, Per: time.Second, Burst: 1}
	for name, tt := range map[string]struct {
		limiter func() Limiter
		want    []time.Duration // of the grants
	}{
		"LeakyBucket":          {func() Limiter { return NewLeakyBucket(Leak{Limit: one, Queue: 3}, nil) }, []time.Duration{0, tick, 2 * tick, 3 * tick}},
		"LeakyBucket, none":    {func() Limiter { return NewLeakyBucket(Leak{Limit: one}, nil) }, []time.Duration{0}},
		"LeakyBucket in AllOf": {func() Limiter { return AllOf(Unlimited, NewLeakyBucket(Leak{Limit: one, Queue: 1}, nil)) }, []time.Duration{0, tick}},
		"LeakyBucket in Keyed": {func() Limiter {
			return &Keyed{New: func(string) Limiter { return NewLeakyBucket(Leak{Limit: one, Queue: 1}, nil) }}
		}, []time.Duration{0, tick}},
		"Nginx":          {func() Limiter { return NewNginx(LimitReq{Rate: 10, Per: time.Second, Burst: 2}, nil) }, []time.Duration{0, tick, 2 * tick}},
		"Nginx, delay":   {func() Limiter { return NewNginx(LimitReq{Rate: 10, Per: time.Second, Burst: 2, Delay: 1}, nil) }, []time.Duration{0, 0, tick}},
		"Nginx, nodelay": {func() Limiter { return NewNginx(LimitReq{Rate: 10, Per: time.Second, Burst: 2, NoDelay: true}, nil) }, []time.Duration{0, 0, 0}},
		"TickQueue": {func() Limiter {
			return NewTickQueue(Ticks{Limit: PerSecond(10), Queue: 3, Anchor: time.Unix(0, 50e6)}, nil)
		}, []time.Duration{tick / 2, 3 * tick / 2, 5 * tick / 2}},
	} {
		t.Run(name, func(t *testing.T) {
			everyWay(t, func(t *testing.T, as func(Limiter) Limiter) {
				w, l, start := new(Waiter), as(tt.limiter()), time.Now()
				var mu sync.Mutex
				var granted, refused []time.Duration
				var wg sync.WaitGroup
				for range 8 {
					wg.Go(func() {
						tk := ticket(l)
						err := w.Wait(t.Context(), tk)
						took := time.Since(start)
						mu.Lock()
						defer mu.Unlock()
						if err != nil {
							assert.ErrorIs(t, err, ErrRefused)
							refused = append(refused, took)
							return
						}
						w.Observe(t.Context(), tk, Feedback{})
						granted = append(granted, took)
					})
				}
				wg.Wait()
				slices.Sort(granted)
				require.Equal(t, tt.want, granted)
				require.Equal(t, make([]time.Duration, 8-len(granted)), refused)
				idle(t, w)
			})
		})
	}
}

// TestTickQueue_grantsCallersThatWaitAtItsTicks has callers come at intervals: a tick that
// nobody waits for is lost, and one that has come is not given back.
func TestTickQueue_grantsCallersThatWaitAtItsTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, d := new(Waiter), newDiary()
		l := NewTickQueue(Ticks{Limit: PerSecond(10), Queue: 3}, nil)
		var wg sync.WaitGroup
		for _, after := range []time.Duration{0, 0, 350, 900} {
			wg.Go(func() {
				time.Sleep(after * time.Millisecond)
				tk := ticket(l)
				assert.NoError(t, w.Wait(t.Context(), tk))
				d.note("go")
				w.Cancel(t.Context(), tk)
			})
		}
		wg.Wait()
		require.Equal(t, []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, time.Second}, d.notes["go"])
		two := ticket(l)
		two.Demands[0].Cost = 2
		require.NoError(t, w.Wait(t.Context(), two))
		require.Equal(t, 1200*time.Millisecond, time.Since(d.start))
		idle(t, w)
	})
}
