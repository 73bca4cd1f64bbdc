package queue

import (
	"context"
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
				var granted, rejected []time.Duration
				var wg sync.WaitGroup
				for range 8 {
					wg.Go(func() {
						tk := ticket(l)
						err := q.Wait(t.Context(), tk)
						took := time.Since(start)
						mu.Lock()
						defer mu.Unlock()
						if err != nil {
							assert.ErrorIs(t, err, throttle.ErrRejected)
							rejected = append(rejected, took)
							return
						}
						q.Report(t.Context(), tk, throttle.Feedback{})
						granted = append(granted, took)
					})
				}
				wg.Wait()
				slices.Sort(granted)
				require.Equal(t, tt.want, granted)
				require.Equal(t, make([]time.Duration, 8-len(granted)), rejected)
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
				q.Report(t.Context(), tk, throttle.Feedback{State: throttle.Unused})
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

// A caller with a higher priority that would wait beyond the bound is rejected, although it is asked for
// first.
func TestQueue_priorityDoesNotExceedAQueueBound(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, l := new(Queue), wrap(throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: throttle.Limit{Count: 10, Per: time.Second, Burst: 1}, Queue: 1}))
		start := time.Now()
		require.NoError(t, q.Wait(t.Context(), ticket(l)))
		waits := make(chan error, 1)
		go func() { waits <- q.Wait(t.Context(), ticket(l)) }()
		synctest.Wait()
		first := ticket(l)
		first.Priority = 1
		require.ErrorIs(t, q.Wait(t.Context(), first), throttle.ErrRejected)
		require.Zero(t, time.Since(start))
		require.NoError(t, <-waits)
		require.Equal(t, 100*time.Millisecond, time.Since(start))
	})
}

// A slowLimiter takes as long for each call as the context of the caller states; no time after that.
type slowLimiter struct{ remoteLimiter }

type delaysKey struct{}

func (l *slowLimiter) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	if delays := ctx.Value(delaysKey{}).(*[]time.Duration); len(*delays) > 0 {
		time.Sleep((*delays)[0])
		*delays = (*delays)[1:]
	}
	return l.Limiter.Reserve(ctx, c)
}

// A queue bound may become known while the limiters of another caller are asked. That caller is rejected
// when they have answered, if it exceeds the bound.
func TestQueue_boundThatBecomesKnownMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		l := &slowLimiter{remoteLimiter{Limiter: throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: throttle.Limit{Count: 10, Per: time.Second, Burst: 1}})}}
		q, start := new(Queue), time.Now()
		wait := func(tenant string, delays ...time.Duration) chan error {
			tk, done := ticket(l), make(chan error, 1)
			tk.Tenant = tenant
			go func() { done <- q.Wait(context.WithValue(t.Context(), delaysKey{}, &delays), tk) }()
			synctest.Wait()
			return done
		}
		require.NoError(t, <-wait("", 0))
		slow := wait("a", 0, 20*ms) // asked directly, and as the head of its class
		fast := wait("b", 0, ms)
		require.ErrorIs(t, <-fast, throttle.ErrRejected)
		require.Equal(t, ms, time.Since(start))
		require.ErrorIs(t, <-slow, throttle.ErrRejected)
		require.Equal(t, 20*ms, time.Since(start))
		requireEmpty(t, q)
	})
}
