package heed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
)

// Callers ask for twice of what a limit with a stated rate admits. At least 95 % of the calls that fail
// do so within a tenth of their time, whether a deadline or RequestOptions.MaxWait bounds it, and as
// many calls succeed as the limit admits.
func TestTransport_overloadFailsEarly(t *testing.T) {
	for name, tt := range map[string]struct {
		shortest time.Duration
		latency  func() time.Duration
		maxWait  bool
	}{
		"deadline":         {shortest: 10 * time.Second},
		"random deadlines": {shortest: time.Second},
		"fast server":      {shortest: 10 * time.Second, latency: lognormal(50*time.Millisecond, .5)},
		"fast, random":     {shortest: 3 * time.Second, latency: lognormal(50*time.Millisecond, .5)},
		"MaxWait":          {shortest: 10 * time.Second, maxWait: true},
		"MaxWait, random":  {shortest: time.Second, maxWait: true},
	} {
		t.Run(name, func(t *testing.T) {
			var early, failed, granted int
			synctest.Test(t, func(t *testing.T) {
				tr := &Transport{
					Limiter: throttle.NewTokenBucket(throttle.PerSecond(10).WithBurst(1)),
					Base:    baseFunc(respondAfter(0, 200)),
				}
				if tt.latency != nil {
					tr.Base = slowServer(tt.latency)
				}
				r := rand.New(rand.NewPCG(1, 2))
				var mu sync.Mutex
				var wg sync.WaitGroup
				for range 20 * 120 {
					time.Sleep(50 * time.Millisecond)
					most := tt.shortest + time.Duration(r.Int64N(int64(10*time.Second-tt.shortest)+1))
					wg.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), most)
						if tt.maxWait {
							ctx, cancel = context.WithCancel(WithOptions(t.Context(), RequestOptions{MaxWait: most}))
						}
						defer cancel()
						start := time.Now()
						resp, err := tr.RoundTrip(request(t, "GET", "").WithContext(ctx))
						mu.Lock()
						defer mu.Unlock()
						if err == nil {
							granted++
							resp.Body.Close()
							return
						}
						assert.True(t, errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrMaxWait), err)
						if failed++; time.Since(start) <= most/10 {
							early++
						}
					})
				}
				wg.Wait()
			})
			t.Logf("%d succeeded, %d failed, %d of them early", granted, failed, early)
			require.GreaterOrEqual(t, float64(early), .95*float64(failed))
			require.Greater(t, granted, 1190)
			require.Greater(t, failed, 500)
		})
	}
}

// A call behind 100 others, which need more time than it has, fails immediately.
func TestTransport_waitBehindOthersFailsImmediately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &Transport{Limiter: throttle.NewTokenBucket(throttle.PerSecond(1)), Base: baseFunc(respondAfter(0, 200))}
		get := func(ctx context.Context) error {
			resp, err := tr.RoundTrip(request(t, "GET", "").WithContext(ctx))
			if err == nil {
				resp.Body.Close()
			}
			return err
		}
		others, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { _ = get(others) })
		}
		synctest.Wait()
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.ErrorIs(t, get(ctx), context.DeadlineExceeded)
		require.ErrorIs(t, get(WithOptions(t.Context(), RequestOptions{MaxWait: 10 * time.Second})), ErrMaxWait)
		require.Zero(t, time.Since(start))
		stop()
		wg.Wait()
	})
}

// A tenant with one caller gets its share beside three callers whose tenants come once, as a gateway
// may set them.
func TestTransport_newTenantsDoNotStarveOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &Transport{
			Quota:   &quota.Tracker{Mode: quota.Disabled},
			Limiter: throttle.NewTokenBucket(throttle.PerSecond(50).WithBurst(1)),
			Base:    baseFunc(respondAfter(0, 200)),
		}
		running, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var grants [4]int
		for i := range grants {
			wg.Go(func() {
				for n := 0; running.Err() == nil; n++ {
					tenant := "acme"
					if i > 0 {
						tenant = fmt.Sprint("visitor ", i, n)
					}
					ctx, cancel := context.WithTimeout(WithOptions(running, RequestOptions{Tenant: tenant}), 30*time.Second)
					resp, err := tr.RoundTrip(request(t, http.MethodGet, "").WithContext(ctx))
					cancel()
					if err == nil {
						resp.Body.Close()
						grants[i]++
					} else if running.Err() == nil {
						assert.NoError(t, err)
					}
				}
			})
		}
		minutes := 10
		if testing.Short() {
			minutes = 1
		}
		time.Sleep(time.Duration(minutes) * time.Minute)
		stop()
		wg.Wait()
		require.InEpsilon(t, minutes*60*50/4, grants[0], .01, "%v", grants)
	})
}
