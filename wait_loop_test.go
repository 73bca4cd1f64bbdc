package heed

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Where a server rejects everything for some seconds and states a time until then that is far too long, workers that make one call after
// the other lose no more of them than with a plain client that is rejected for half as long again: calls that fail because of the statement do not fail so much faster
// than the server rejects that they use up the loop before the server has come back.
func TestTransport_aWrongStatementDoesNotUseUpALoop(t *testing.T) {
	worlds := uint64(60)
	if testing.Short() {
		worlds = 4
	}
	most := 0.
	for seed := range worlds {
		r := rand.New(rand.NewPCG(seed, 12))
		workers := 1 + int(math.Exp(r.Float64()*math.Log(20)))
		latency := time.Duration(math.Exp(r.Float64()*math.Log(40)) * float64(50*time.Millisecond)) // up to 2 s
		fast := latency / time.Duration(1+r.IntN(5))
		calls := int(90*time.Second/latency) * workers
		from := time.Duration(10+r.IntN(20)) * time.Second
		until := from + time.Duration(3+r.IntN(37))*time.Second
		status := []int{http.StatusTooManyRequests, http.StatusServiceUnavailable}[r.IntN(2)]
		after := []int{60, 300, 3600, 86400}[r.IntN(4)]
		deadline := time.Duration(0)
		if r.IntN(2) == 0 {
			deadline = latency * time.Duration(3+r.IntN(30))
		}
		world := fmt.Sprintf("seed %d: %d calls by %d workers, %v away, %d after %v with Retry-After %d from %v to %v, deadline %v",
			seed, calls, workers, latency, status, fast, after, from, until, deadline)
		failures := func(client func(base http.RoundTripper) http.RoundTripper) (failed int) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 13))
				var mu sync.Mutex
				start := time.Now()
				base := baseFunc(func(req *http.Request) (*http.Response, error) {
					mu.Lock()
					took := time.Duration(float64(latency) * (.7 + .3*random.ExpFloat64()))
					mu.Unlock()
					if now := time.Since(start); now >= from && now < until {
						return rejectAfter(req, fast, status, after)
					}
					return respondAfter(took, http.StatusOK)(req)
				})
				c := &http.Client{Transport: client(base)}
				left := calls
				var wg sync.WaitGroup
				for range workers {
					wg.Go(func() {
						for {
							mu.Lock()
							left--
							done := left < 0
							mu.Unlock()
							if done {
								return
							}
							ctx, cancel := t.Context(), context.CancelFunc(func() {})
							if deadline > 0 {
								ctx, cancel = context.WithTimeout(ctx, deadline)
							}
							req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.example/items", nil)
							if err != nil {
								panic(err)
							}
							resp, err := c.Do(req)
							ok := err == nil && resp.StatusCode == http.StatusOK
							if err == nil {
								resp.Body.Close()
							}
							cancel()
							if !ok {
								mu.Lock()
								failed++
								mu.Unlock()
							}
						}
					})
				}
				wg.Wait()
			})
			return failed
		}
		plain := failures(func(base http.RoundTripper) http.RoundTripper { return base })
		heed := failures(func(base http.RoundTripper) http.RoundTripper { return &Transport{Base: base} })
		ratio := float64(heed-workers) / float64(plain)
		t.Logf("%s: %d failed instead of %d", world, heed, plain)
		most = max(most, ratio)
	}
	require.LessOrEqual(t, most, 1.5, "failed calls by those of a plain client: after a 429 the first test of a server that is back may take half as long as it was away")
}
