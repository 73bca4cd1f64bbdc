package queue

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// embedding is the wrapper that users write first. It forwards all of a Limiter.
type embedding struct{ throttle.Limiter }

// A Queue treats a limiter in a wrapper that embeds it as the limiter itself: units come back when claims end, waiters are
// woken, a failed wait counts as one rejection, and no more units wait than the limit allows.
func TestQueue_limitersInAWrapper(t *testing.T) {
	for name, tt := range map[string]struct {
		limiter func() throttle.Limiter
		callers int
		granted int
		took    time.Duration // of 1 s each
	}{
		"concurrency": {func() throttle.Limiter { return throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 2}) }, 6, 6, 3 * time.Second},
		"AllOf": {func() throttle.Limiter {
			return throttle.AllOf(throttle.NewTokenBucket(throttle.PerSecond(100)), throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1}))
		}, 4, 4, 4 * time.Second},
		"leaky bucket with a queue of 2": {func() throttle.Limiter {
			return throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: throttle.Limit{Count: 1, Per: time.Second, Burst: 1}, Queue: 2})
		}, 9, 3, 3 * time.Second},
	} {
		for wrapper, wrap := range map[string]func(throttle.Limiter) throttle.Limiter{
			"none": func(l throttle.Limiter) throttle.Limiter { return l },
			"one":  func(l throttle.Limiter) throttle.Limiter { return embedding{l} },
			"two":  func(l throttle.Limiter) throttle.Limiter { return &embedding{embedding{l}} },
		} {
			synctest.Test(t, func(t *testing.T) {
				q, l, start := new(Queue), wrap(tt.limiter()), time.Now()
				var granted int
				var mu sync.Mutex
				var wg sync.WaitGroup
				for range tt.callers {
					wg.Go(func() {
						tk := ticket(l)
						if q.Wait(t.Context(), tk) != nil {
							return
						}
						time.Sleep(time.Second)
						q.Report(t.Context(), tk, throttle.Feedback{})
						mu.Lock()
						granted++
						mu.Unlock()
					})
				}
				wg.Wait()
				require.Equal(t, tt.granted, granted, "%s, wrappers: %s", name, wrapper)
				require.Equal(t, tt.took, time.Since(start), "%s, wrappers: %s", name, wrapper)
			})
		}
	}
}

// A wait that failed counts as one rejection of a Ban in a wrapper.
func TestQueue_countsAFailedWaitOfAWrapperOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ban := keyed.NewBan(throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: time.Minute, Burst: 1}), keyed.BanConfig{Rejections: 2, Within: time.Hour, Duration: time.Hour})
		q, l := &Queue{MaxWait: time.Second}, embedding{ban}
		for i, policy := range []string{"", "1 per 1m0s", "ban"} {
			tk := ticket(l)
			err := q.Wait(t.Context(), tk)
			if i == 0 {
				require.NoError(t, err)
				continue
			}
			require.Error(t, err)
			d, err := ban.Reserve(t.Context(), throttle.Claim{DryRun: true})
			require.NoError(t, err)
			assert.Equal(t, policy, d.Policy, i)
		}
	})
}
