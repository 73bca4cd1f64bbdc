package queue

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// Eight callers arrive at the same time at a limit of ten units per second. Those that can
// neither be granted nor wait are rejected immediately.
func TestQueue_obeysTheQueueBoundsOfLimits(t *testing.T) {
	const tick = 100 * time.Millisecond
	one := throttle.Limit{Count: 10, Per: time.Second, Burst: 1}
	for name, tt := range map[string]struct {
		limiter func() throttle.Limiter
		want    []time.Duration // of the grants
	}{
		"LeakyBucket": {func() throttle.Limiter {
			return throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: one, Queue: 3})
		}, []time.Duration{0, tick, 2 * tick, 3 * tick}},
		"LeakyBucket, none": {func() throttle.Limiter { return throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: one}) }, []time.Duration{0}},
		"LeakyBucket in AllOf": {func() throttle.Limiter {
			return throttle.AllOf(throttle.AllowAll, throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: one, Queue: 1}))
		}, []time.Duration{0, tick}},
		"LeakyBucket in keyed.Limiter": {func() throttle.Limiter {
			return &keyed.Limiter{New: func(string) throttle.Limiter {
				return throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: one, Queue: 1})
			}}
		}, []time.Duration{0, tick}},
		"Nginx": {func() throttle.Limiter {
			return throttle.NewNginx(throttle.NginxConfig{Rate: 10, Per: time.Second, Burst: 2})
		}, []time.Duration{0, tick, 2 * tick}},
		"Nginx, delay": {func() throttle.Limiter {
			return throttle.NewNginx(throttle.NginxConfig{Rate: 10, Per: time.Second, Burst: 2, Delay: 1})
		}, []time.Duration{0, 0, tick}},
		"Nginx, nodelay": {func() throttle.Limiter {
			return throttle.NewNginx(throttle.NginxConfig{Rate: 10, Per: time.Second, Burst: 2, NoDelay: true})
		}, []time.Duration{0, 0, 0}},
		"TickQueue": {func() throttle.Limiter {
			return throttle.NewTickQueue(throttle.TickQueueConfig{Limit: throttle.PerSecond(10), Queue: 3, Anchor: time.Unix(0, 50e6)})
		}, []time.Duration{tick / 2, 3 * tick / 2, 5 * tick / 2}},
	} {
		t.Run(name, func(t *testing.T) {
			localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
				q, l, start := new(Queue), wrap(tt.limiter()), time.Now()
				var mu sync.Mutex
				var granted, refused []time.Duration
				var wg sync.WaitGroup
				for range 8 {
					wg.Go(func() {
						tk := ticket(l)
						err := q.Wait(t.Context(), tk)
						took := time.Since(start)
						mu.Lock()
						defer mu.Unlock()
						if err != nil {
							assert.ErrorIs(t, err, throttle.ErrRefused)
							refused = append(refused, took)
							return
						}
						q.Observe(t.Context(), tk, throttle.Feedback{})
						granted = append(granted, took)
					})
				}
				wg.Wait()
				slices.Sort(granted)
				require.Equal(t, tt.want, granted)
				require.Equal(t, make([]time.Duration, 8-len(granted)), refused)
				requireEmpty(t, q)
			})
		})
	}
}

// Callers arrive at intervals. A tick without a waiter is lost, and the unit of a tick is not
// returned by Cancel.
func TestTickQueue_grantsCallersThatWaitAtItsTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, d := new(Queue), newEventLog()
		l := throttle.NewTickQueue(throttle.TickQueueConfig{Limit: throttle.PerSecond(10), Queue: 3})
		var wg sync.WaitGroup
		for _, after := range []time.Duration{0, 0, 350, 900} {
			wg.Go(func() {
				time.Sleep(after * time.Millisecond)
				tk := ticket(l)
				assert.NoError(t, q.Wait(t.Context(), tk))
				d.record("go")
				q.Cancel(t.Context(), tk)
			})
		}
		wg.Wait()
		require.Equal(t, []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, time.Second}, d.times["go"])
		two := ticket(l)
		two.Demands[0].Cost = 2
		require.NoError(t, q.Wait(t.Context(), two))
		require.Equal(t, 1200*time.Millisecond, time.Since(d.start))
		requireEmpty(t, q)
	})
}
