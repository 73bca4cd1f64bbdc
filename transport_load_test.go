package heed_test

import (
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/internal/memhttp"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttlehttp"
	"github.com/stretchr/testify/require"
)

// TestTransport_finishesWhereAPlainClientFails runs the main job in synctest bubbles: 300 calls from 30 goroutines, with a limit
// that the server states in whole seconds. How many are rejected depends on the order in which goroutines run, so the test asserts
// the median, 5 of the first 30, which are sent together (rule 8), and a few tests (rule 4), and for each run no more than goroutines.
func TestTransport_finishesWhereAPlainClientFails(t *testing.T) {
	var rejected []int64
	for range 5 {
		synctest.Test(t, func(t *testing.T) { rejected = append(rejected, mainJob(t)) })
	}
	slices.Sort(rejected)
	require.LessOrEqual(t, rejected[2], int64(8), rejected)
	require.LessOrEqual(t, rejected[4], int64(30), rejected)
}

// mainJob runs the main job and returns the number of rejected requests.
func mainJob(t *testing.T) (rejected int64) {
	var sent, throttled atomic.Int64
	limited := (&throttlehttp.Middleware{
		Limiter: throttle.NewTokenBucket(throttle.Limit{Count: 50, Per: time.Second, Burst: 25}),
	}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") }))
	s := memhttp.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent.Add(1)
		limited.ServeHTTP(w, r)
	}))
	defer s.Close()
	base := s.Transport()
	defer base.CloseIdleConnections()
	client := heed.NewClient(&heed.Transport{Base: base, Trace: &heed.Trace{
		AttemptDone: func(_ *http.Request, s heed.AttemptInfo) {
			if s.Response != nil && s.Response.StatusCode == http.StatusTooManyRequests {
				throttled.Add(1)
			}
		},
	}})
	start := time.Now()
	var failed atomic.Int64
	var wg sync.WaitGroup
	for range 30 {
		wg.Go(func() {
			for range 10 {
				resp, err := client.Get(s.URL)
				if err != nil || resp.StatusCode != http.StatusOK {
					failed.Add(1)
					t.Log(err, resp)
					continue
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
	wg.Wait()
	ideal := (300 - 25) * time.Second / 50
	t.Logf("sent %d, throttled %d, failed %d, elapsed %v, ideal %v", sent.Load(), throttled.Load(), failed.Load(), time.Since(start), ideal)
	require.Zero(t, failed.Load())
	require.LessOrEqual(t, time.Since(start), ideal*115/100)
	return throttled.Load()
}
