package heed

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

// slowServer responds to each request after the time that latency returns, unless its context ends
// before.
func slowServer(latency func() time.Duration) baseFunc {
	var mu sync.Mutex
	return func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		d := latency()
		mu.Unlock()
		return respondAfter(d, 200)(r)
	}
}

// lognormal returns random latencies with the given median.
func lognormal(median time.Duration, sigma float64) func() time.Duration {
	r := rand.New(rand.NewPCG(1, uint64(median)))
	return func() time.Duration { return time.Duration(float64(median) * math.Exp(sigma*r.NormFloat64())) }
}

// A timedCall is when a call was made and ended, since the start.
type timedCall struct {
	made, ended time.Duration
	err         error
}

// load makes a call per interval, each with the deadline.
func load(t *testing.T, tr *Transport, n int, interval, deadline time.Duration) []timedCall {
	calls := make([]timedCall, n)
	start := time.Now()
	var wg sync.WaitGroup
	for i := range calls {
		time.Sleep(interval)
		calls[i].made = time.Since(start)
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			resp, err := tr.RoundTrip(request(t, "GET", "").WithContext(ctx))
			if err == nil {
				resp.Body.Close()
			}
			calls[i].ended, calls[i].err = time.Since(start), err
		})
	}
	wg.Wait()
	return calls
}

// Calls ask for twice and five times of what a limit of ten a second admits. Of the requests that are
// answered within the time that callers give, at least 95 % are sent in time, and hardly a unit is not
// used. Where responses take a small part of that time, 90 % of the calls that fail do so within a
// tenth of it, and 95 % if they always take the same.
func TestTransport_unitsEndAsResponsesInTime(t *testing.T) {
	const rate, length, deadline = 10, time.Minute, time.Second
	for _, demand := range []int{2 * rate, 5 * rate} {
		for _, median := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, 600 * time.Millisecond} {
			for _, sigma := range []float64{0, .5} {
				if testing.Short() && (median == 100*time.Millisecond || sigma == 0 && demand > 2*rate) {
					continue
				}
				synctest.Test(t, func(t *testing.T) {
					sent, possible := 0, 0
					latency := lognormal(median, sigma)
					tr := &Transport{Limiter: throttle.NewTokenBucket(throttle.PerSecond(rate)), Base: slowServer(func() time.Duration {
						d := latency()
						if sent++; d < deadline {
							possible++
						}
						return d
					})}
					ok, early := 0, 0
					calls := load(t, tr, int(length.Seconds())*demand, time.Second/time.Duration(demand), deadline)
					for _, c := range calls {
						switch {
						case c.err == nil:
							ok++
						case c.ended-c.made <= deadline/10:
							early++
						}
					}
					failed := len(calls) - ok
					t.Logf("%d a second, median %v, sigma %v: %d sent, %.3f in time, %.3f of %d failed early", demand, median, sigma, sent, float64(ok)/float64(possible), float64(early)/float64(failed), failed)
					require.GreaterOrEqual(t, sent, int(length.Seconds())*rate*99/100)
					require.GreaterOrEqual(t, ok, possible*95/100)
					if sigma == 0 {
						require.GreaterOrEqual(t, early, failed*95/100)
					} else if median <= deadline/10 {
						require.GreaterOrEqual(t, early, failed*90/100)
					}
				})
			}
		}
	}
}

// The server becomes so slow that the calls that wait have too little time left. After some of these
// have failed, the others get so much time that responses arrive.
func TestTransport_recoversWhenTheServerBecomesSlow(t *testing.T) {
	const deadline = time.Second
	latencies := []time.Duration{600 * time.Millisecond, 300 * time.Millisecond, 950 * time.Millisecond}
	if testing.Short() {
		latencies = latencies[:1]
	}
	for _, slow := range latencies {
		for name, demand := range map[string]int{"overload": 50, "a little": 12} {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				tr := &Transport{
					Limiter: throttle.NewTokenBucket(throttle.Limit{Count: 10, Per: time.Second, Burst: 1}),
					Base: slowServer(func() time.Duration {
						if time.Since(start) < 20*time.Second {
							return 10 * time.Millisecond
						}
						return slow
					}),
				}
				ok := 0
				for _, c := range load(t, tr, 60*demand, time.Second/time.Duration(demand), deadline) {
					if c.made > 30*time.Second && c.err == nil {
						ok++
					}
				}
				t.Logf("%v, %s: %d in time of 300", slow, name, ok)
				require.Greater(t, ok, 200)
			})
		}
	}
}

// A single caller makes one call after another, so each has to wait for the limit. It waits only as
// long as leaves time for the response, otherwise the call fails immediately.
func TestTransport_singleCallerDoesNotAlwaysWaitTooLong(t *testing.T) {
	for _, latency := range []time.Duration{10 * time.Millisecond, 600 * time.Millisecond, 950 * time.Millisecond} {
		for _, before := range []time.Duration{0, 10 * time.Millisecond} { // the latency at first
			if testing.Short() && before > 0 && latency < 900*time.Millisecond {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				tr := &Transport{
					Limiter: throttle.NewTokenBucket(throttle.Limit{Count: 2, Per: 3 * time.Second, Burst: 1}),
					Base: slowServer(func() time.Duration {
						if before > 0 && time.Since(start) < time.Minute {
							return before
						}
						return latency
					}),
				}
				ok := 0
				for time.Since(start) < 4*time.Minute {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					resp, err := tr.RoundTrip(request(t, "GET", "").WithContext(ctx))
					cancel()
					if err == nil {
						resp.Body.Close()
						if time.Since(start) > 2*time.Minute {
							ok++
						}
					}
					time.Sleep(50 * time.Millisecond)
				}
				t.Logf("%v, before %v: %d of 80", latency, before, ok)
				require.Greater(t, ok, 60)
			})
		}
	}
}

// Calls with random deadlines that fail as soon as they are made are made again, with patience, in a
// replay of the same calls. They would not have ended in time.
func TestTransport_failsEarlyOnlyIfTheCallWouldEndTooLate(t *testing.T) {
	const latency = 50 * time.Millisecond
	replay := func(t *testing.T, deadlines, gaps []time.Duration, patient int) (calls []timedCall) {
		synctest.Test(t, func(t *testing.T) {
			tr := &Transport{
				Limiter: throttle.NewTokenBucket(throttle.Limit{Count: 10, Per: time.Second, Burst: 3}),
				Base:    slowServer(func() time.Duration { return latency }),
			}
			calls = make([]timedCall, len(deadlines))
			start := time.Now()
			var wg sync.WaitGroup
			for i, deadline := range deadlines {
				time.Sleep(gaps[i])
				calls[i].made = time.Since(start)
				wg.Go(func() {
					if i == patient {
						deadline = time.Hour
					}
					ctx, cancel := context.WithTimeout(t.Context(), deadline)
					defer cancel()
					resp, err := tr.RoundTrip(request(t, "GET", "").WithContext(ctx))
					if err == nil {
						resp.Body.Close()
					}
					calls[i].ended, calls[i].err = time.Since(start), err
				})
			}
			wg.Wait()
		})
		return calls
	}
	early, wrong := 0, 0
	seeds := uint64(4)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 5))
		deadlines, gaps := make([]time.Duration, 80), make([]time.Duration, 80)
		for i := range deadlines {
			deadlines[i], gaps[i] = time.Duration(r.Int64N(int64(2*time.Second))), time.Duration(r.Int64N(int64(100*time.Millisecond)))
		}
		for i, c := range replay(t, deadlines, gaps, -1) {
			if c.err == nil || c.ended != c.made {
				continue
			}
			require.True(t, errors.Is(c.err, context.DeadlineExceeded), c.err)
			early++
			if p := replay(t, deadlines, gaps, i)[i]; p.err == nil && p.ended < c.made+deadlines[i] {
				t.Logf("seed %d, call %d: made at %v with %v, would end at %v: %v", seed, i, c.made, deadlines[i], p.ended, c.err)
				wrong++
			}
		}
	}
	t.Logf("%d failed early, %d of them would have ended in time", early, wrong)
	require.Greater(t, early, 50)
	require.LessOrEqual(t, wrong, early/100)
}
