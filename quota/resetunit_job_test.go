package quota_test

import (
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/heedtest"
)

// Jobs of one worker and of five take as long as the windows, whose resets count milliseconds. Fails on 9d1ebde0: calls
// failed because they could not wait for 14 minutes, or waited for them.
func TestTracker_usesResetsInMilliseconds(t *testing.T) {
	for _, workers := range []int{1, 5} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var began time.Time
			used, rejected := 0, 0
			s := &heedtest.Server{Respond: func(heedtest.Request) heedtest.Response {
				mu.Lock()
				defer mu.Unlock()
				now, status := time.Now(), http.StatusOK
				if now.Sub(began) >= 10*time.Second {
					began, used = now, 0
				}
				if used++; used > 20 {
					status, rejected = http.StatusTooManyRequests, rejected+1
				}
				return heedtest.Response{Status: status, Delay: time.Duration(10+used%7) * time.Millisecond, Header: http.Header{
					"X-Ratelimit-Limit": {"20"}, "X-Ratelimit-Remaining": {strconv.Itoa(max(20-used, 0))},
					"X-Ratelimit-Reset": {strconv.FormatInt((10*time.Second - now.Sub(began)).Milliseconds(), 10)},
				}}
			}}
			s.StartInMemory()
			defer s.Close()
			tr := &heed.Transport{Base: s.Transport()}
			defer tr.CloseIdleConnections()
			start, calls := time.Now(), make(chan int)
			var wg sync.WaitGroup
			for range workers {
				wg.Go(func() {
					for range calls {
						if resp, err := heed.NewClient(tr).Get(s.URL); assert.NoError(t, err) {
							assert.Equal(t, http.StatusOK, resp.StatusCode)
							_ = resp.Body.Close()
						}
					}
				})
			}
			for i := range 100 {
				calls <- i
			}
			close(calls)
			wg.Wait()
			require.Less(t, time.Since(start), 45*time.Second)
			require.LessOrEqual(t, rejected, 5*workers)
		})
	}
}
