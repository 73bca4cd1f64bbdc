package heed

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// TestTransport_obeysQueueBoundsOfLimiters sends batches of eight concurrent requests
// through limits of ten per second with short queues.
func TestTransport_obeysQueueBoundsOfLimiters(t *testing.T) {
	for name, tt := range map[string]struct {
		limiter func() throttle.Limiter
		sent    []time.Duration
	}{
		"TickQueue": {func() throttle.Limiter {
			return throttle.NewTickQueue(throttle.TickQueueConfig{Limit: throttle.PerSecond(10), Queue: 3})
		}, []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond}},
		"LeakyBucket": {func() throttle.Limiter {
			return throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: throttle.Limit{Count: 10, Per: time.Second, Burst: 1}, Queue: 1})
		}, []time.Duration{0, 100 * time.Millisecond}},
		"Nginx": {func() throttle.Limiter {
			return throttle.NewNginx(throttle.NginxConfig{Rate: 10, Per: time.Second, Burst: 1})
		}, []time.Duration{0, 100 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScript(200)
				tr := &Transport{Base: s, Limiter: tt.limiter()}
				var wg sync.WaitGroup
				for range 8 {
					wg.Go(func() {
						if _, err := get(t, tr); err != nil {
							assert.ErrorIs(t, err, throttle.ErrRejected)
						}
					})
				}
				wg.Wait()
				var sent []time.Duration
				for _, g := range s.got {
					sent = append(sent, g.at)
				}
				require.Equal(t, tt.sent, sent)
			})
		})
	}
}
