package heed

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rejectAfter rejects req after a time with a Retry-After of so many seconds.
func rejectAfter(req *http.Request, took time.Duration, status, seconds int) (*http.Response, error) {
	resp, err := respondAfter(took, status)(req)
	if err == nil {
		resp.Header.Set("Retry-After", strconv.Itoa(seconds))
	}
	return resp, err
}

// Where a server rejects some requests, and faster than it accepts others, the others hardly wait longer than with a client that obeys
// only what the response to each request says. Which requests are rejected is random in half of the worlds, and in the others always
// those for some of the resources, which are often most of what is sent, because each is sent again.
func TestTransport_rejectionsOfSomeDelayNoOthers(t *testing.T) {
	worlds, sum := uint64(24), 0.
	if testing.Short() {
		worlds = 8
	}
	for seed := range worlds {
		r := rand.New(rand.NewPCG(seed, 8))
		latency := time.Duration(math.Exp(r.Float64()*math.Log(400)) * float64(50*time.Millisecond)) // up to 20 s
		fast := latency / time.Duration(1+r.IntN(15))
		share, rate, after := .1+.3*r.Float64(), .5+10*r.Float64(), 1+r.IntN(5)
		byResource := seed%2 == 1
		world := fmt.Sprintf("seed %d: %v away, %.0f %% rejected after %v with Retry-After %d, by resource: %v", seed, latency, 100*share, fast, after, byResource)
		mean := func(mode quota.Mode) (seconds float64) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 9)) // of the server, in the order in which requests arrive
				var mu sync.Mutex
				base := baseFunc(func(req *http.Request) (*http.Response, error) {
					mu.Lock()
					rejected, took := random.Float64() < share, time.Duration(float64(latency)*(.7+.3*random.ExpFloat64()))
					mu.Unlock()
					if byResource {
						h := fnv.New32a()
						h.Write([]byte(req.URL.Path))
						rejected = float64(h.Sum32()%1000)/1000 < share
					}
					if rejected {
						return rejectAfter(req, fast, http.StatusTooManyRequests, after)
					}
					return respondAfter(took, http.StatusOK)(req)
				})
				client := &http.Client{Transport: &Transport{Base: base, Quota: &quota.Tracker{Mode: mode}}}
				arrivals, accepted := rand.New(rand.NewPCG(seed, 10)), 0
				var wg sync.WaitGroup
				for range 600 {
					time.Sleep(time.Duration(arrivals.ExpFloat64() / rate * float64(time.Second)))
					resource := arrivals.IntN(1000)
					wg.Go(func() {
						start := time.Now()
						resp, err := client.Get(fmt.Sprintf("http://api.example/items/%d", resource))
						if !assert.NoError(t, err) {
							return
						}
						resp.Body.Close()
						if resp.StatusCode == http.StatusOK {
							mu.Lock()
							defer mu.Unlock()
							seconds += time.Since(start).Seconds()
							accepted++
						}
					})
				}
				wg.Wait()
				seconds /= float64(accepted)
			})
			return seconds
		}
		alone, obeyed := mean(quota.Disabled), mean(quota.StatedOnly)
		t.Logf("%s: %.3g s instead of %.3g s", world, obeyed, alone)
		sum += min(obeyed/alone, 10) // it varies with the order of goroutines
	}
	require.LessOrEqual(t, sum/float64(worlds), 1.8, "mean time of the accepted calls, by that of the same calls alone")
}
