package simulation_test

import (
	"io"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/bench/internal/simulation"
)

func plain(base http.RoundTripper) *http.Client { return &http.Client{Transport: base} }

// run runs s with a plain client, in virtual time.
func run(t *testing.T, s simulation.Scenario, seed uint64, observe func(simulation.Request, simulation.Response)) (r simulation.Result) {
	synctest.Test(t, func(*testing.T) { r = s.Run(plain, seed, observe) })
	return r
}

// scenario is 1,000 calls, one each 10 ms, to a server with faults.
func scenario(faults ...simulation.Fault) simulation.Scenario {
	return simulation.Scenario{
		Loads: []simulation.Load{{Calls: 1000, Interval: 10 * time.Millisecond, Resources: 50, Tenants: 20, Routes: 10, Deadline: time.Minute}},
		Site:  simulation.Site{Latency: simulation.Latency{Mean: 10 * time.Millisecond}, Backends: 10, Faults: faults},
	}
}

func TestFault_failsItsShare(t *testing.T) {
	for name, tt := range map[string]struct {
		fault  simulation.Fault
		failed int
		delta  float64
	}{
		"all":            {simulation.Fault{Status: 503}, 1000, 0},
		"requests":       {simulation.Fault{Share: .2, Status: 503}, 200, 40},
		"closed":         {simulation.Fault{Share: .2, Drop: true}, 200, 40},
		"a backend":      {simulation.Fault{Of: simulation.Backends, Share: .1, Status: 503}, 100, 30},
		"resources":      {simulation.Fault{Of: simulation.Resources, Share: .2, Status: 503}, 200, 60},
		"a tenant":       {simulation.Fault{Of: simulation.Tenants, Share: .05, Status: 503}, 50, 25},
		"a route":        {simulation.Fault{Of: simulation.Routes, Share: .1, Status: 503}, 100, 0},
		"an interval":    {simulation.Fault{From: 2 * time.Second, To: 3 * time.Second, Status: 503}, 100, 2},
		"after requests": {simulation.Fault{After: 900, Status: 503}, 100, 0},
		"some requests":  {simulation.Fault{After: 500, Requests: 3, Status: 503}, 3, 0},
		"after and time": {simulation.Fault{After: 500, To: time.Second, Status: 503}, 100, 2},
		"above":          {simulation.Fault{Above: 5, Status: 503}, 0, 0},
	} {
		got := run(t, scenario(tt.fault), 7, nil)
		require.InDelta(t, tt.failed, got.Failed, tt.delta, name)
		require.Equal(t, got.Failed, got.Rejected, name)
		require.Equal(t, 1000, got.Sent, name)
	}
}

// Whatever is bad, is bad for all of its requests, and nothing else is.
func TestFault_concernsTheSameTenants(t *testing.T) {
	failed, accepted := map[string]bool{}, map[string]bool{}
	run(t, scenario(simulation.Fault{Of: simulation.Tenants, Share: .25, Status: 429}), 3, func(r simulation.Request, resp simulation.Response) {
		if tenant := r.HTTP.Header.Get("X-Tenant-Id"); resp.Status == 429 {
			failed[tenant] = true
		} else {
			accepted[tenant] = true
		}
	})
	require.Len(t, failed, 5)
	require.Len(t, accepted, 15)
}

func TestFault_meetsTheSameCallsOfAllClients(t *testing.T) {
	s := scenario(simulation.Fault{Share: .3, Status: 503})
	failedCalls := func(interval time.Duration, seed uint64) (calls []int) {
		s.Loads[0].Interval = interval
		run(t, s, seed, func(r simulation.Request, resp simulation.Response) {
			if resp.Status == 503 {
				calls = append(calls, r.Call)
			}
		})
		slices.Sort(calls)
		return calls
	}
	fast := failedCalls(time.Millisecond, 1)
	require.Equal(t, failedCalls(time.Second, 1), fast)
	require.NotEqual(t, failedCalls(time.Millisecond, 2), fast)
}

func TestFault_statesRetryAfter(t *testing.T) {
	seen := map[string]int{}
	observe := func(_ simulation.Request, resp simulation.Response) { seen[resp.Header.Get("Retry-After")]++ }
	run(t, scenario(simulation.Fault{Status: 503, RetryAfter: []int{1, 30}}), 1, observe)
	require.Len(t, seen, 2)
	require.InDelta(t, 500, seen["30"], 80)

	clear(seen)
	run(t, scenario(simulation.Fault{Status: 503, StateEnd: true, To: 5 * time.Second}), 1, observe)
	require.Len(t, seen, 6, "1 to 5, and none afterwards: %v", seen)
	require.InDelta(t, 100, seen["3"], 2)
}

// Permissions are the right responses.
func TestScenario_statusesMayBeRight(t *testing.T) {
	s := scenario(simulation.Fault{Share: .5, Status: 403})
	s.Loads[0].Right = []int{403}
	got := run(t, s, 1, nil)
	require.Zero(t, got.Failed)
	require.Zero(t, got.Rejected)
}

func TestScenario_countsEarlyRequests(t *testing.T) {
	s := simulation.Scenario{
		Loads: []simulation.Load{{Calls: 1}},
		Site:  simulation.Site{Faults: []simulation.Fault{{Requests: 2, Status: 429, RetryAfter: []int{2}}}},
	}
	for wait, early := range map[time.Duration]int{2 * time.Second: 0, 1990 * time.Millisecond: 2} {
		synctest.Test(t, func(t *testing.T) {
			got := s.Run(func(base http.RoundTripper) *http.Client { return plain(retry{base, wait}) }, 1, nil)
			require.Equal(t, early, got.Early, wait)
			require.Equal(t, 3, got.Sent)
			require.Zero(t, got.Failed)
		})
	}
}

// retry sends a request again after a constant time until it is accepted.
type retry struct {
	base http.RoundTripper
	wait time.Duration
}

func (r retry) RoundTrip(req *http.Request) (*http.Response, error) {
	for {
		resp, err := r.base.RoundTrip(req)
		if err != nil || resp.StatusCode == http.StatusOK {
			return resp, err
		}
		resp.Body.Close()
		time.Sleep(r.wait)
	}
}

func TestScenario_boundsRequestsInFlight(t *testing.T) {
	s := simulation.Scenario{
		Loads: []simulation.Load{{Calls: 30}},
		Site: simulation.Site{Latency: simulation.Latency{Mean: time.Second},
			Faults: []simulation.Fault{{Above: 10, Status: 429, Rejected: true, Delay: simulation.Latency{Mean: time.Millisecond}}}},
	}
	got := run(t, s, 1, nil)
	require.Equal(t, 20, got.Failed)
	require.Less(t, got.Mean, 1100*time.Millisecond)
}

func TestScenario_runsLoadsTogether(t *testing.T) {
	s := simulation.Scenario{Loads: []simulation.Load{
		{Calls: 10, After: time.Second, Latency: simulation.Latency{Mean: 30 * time.Second}},
		{Calls: 100, Interval: 100 * time.Millisecond},
	}, Site: simulation.Site{Latency: simulation.Latency{Mean: 10 * time.Millisecond}}}
	got := run(t, s, 1, nil)
	require.Equal(t, 110, got.Calls)
	require.InDelta(t, 31, got.Elapsed.Seconds(), .01)
	require.InDelta(t, 300./110, got.Mean.Seconds(), .02)
}

func TestOverload_failsAboveItsCapacity(t *testing.T) {
	got := run(t, simulation.Overload(8, simulation.Fault{Share: .6, Status: 503}, 0), 1, nil)
	require.Equal(t, 2100, got.Calls)
	require.Positive(t, got.Failed)
	require.Positive(t, got.Overloaded)
	calm := simulation.Overload(32, simulation.Fault{Share: .6, Status: 503}, 0)
	calm.Loads[0].Burst = 0
	got = run(t, calm, 1, nil)
	require.Zero(t, got.Failed, "100 calls a second are less than its capacity")
	require.Zero(t, got.Overloaded)
}

func TestScenario_variesTimes(t *testing.T) {
	s := scenario()
	for _, noise := range []float64{0, .5, 1} {
		s.Site.Latency.Noise = noise
		var starts, delays []time.Duration
		sum := time.Duration(0)
		for seed := range uint64(5) {
			run(t, s, seed, func(r simulation.Request, resp simulation.Response) {
				if r.Call == 0 {
					starts = append(starts, time.Duration(r.At.Nanosecond()))
				}
				delays = append(delays, resp.Delay)
				sum += resp.Delay
			})
		}
		slices.Sort(starts)
		require.Greater(t, starts[4]-starts[0], 200*time.Millisecond, "of a second")
		slices.Sort(delays)
		require.InDelta(t, .01, sum.Seconds()/float64(len(delays)), .0006, "the mean is that of the latency")
		ratio := float64(delays[len(delays)*9/10]) / float64(delays[len(delays)/2])
		switch noise {
		case 0:
			require.InDelta(t, 1, ratio, .001)
		case .5:
			require.InDelta(t, 1.9, ratio, .1)
		case 1:
			require.InDelta(t, 3.6, ratio, .3)
		}
	}
}

// The responses of a gateway are those of a run, and gateways differ between runs.
func TestServer_hasTheBodiesOfAGateway(t *testing.T) {
	bodies := map[string]bool{}
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			s := simulation.NewServer(func(simulation.Request) simulation.Response { return simulation.Response{Status: 429} })
			defer s.Close()
			s.Vary(simulation.Seed("bodies", int(seed)))
			client, last := plain(s.Transport(1)), ""
			for i := range 2 {
				resp, err := client.Get(s.URL)
				require.NoError(t, err)
				text, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				resp.Body.Close()
				require.True(t, i == 0 || string(text) == last)
				last = string(text)
			}
			bodies[last] = true
		})
	}
	require.Greater(t, len(bodies), 10)
}

func TestGateways_haveBodies(t *testing.T) {
	for _, g := range simulation.Gateways {
		for _, status := range []int{403, 429, 500, 502, 503, 529} {
			body, contentType := g.Body(status)
			require.NotContains(t, body, "%!", g.Name)
			require.Equal(t, body == "", contentType == "", g.Name)
		}
	}
	body, _ := simulation.Gateways[0].Body(429)
	require.Equal(t, `{"message":"Too Many Requests"}`, body)
}

func TestServer_servesInRandomOrderAndLate(t *testing.T) {
	s := scenario()
	s.Loads = []simulation.Load{{Calls: 50}}
	s.Site.Latency.Mean = 0
	var order []int
	got := run(t, s, 1, func(r simulation.Request, _ simulation.Response) { order = append(order, r.Call) })
	require.False(t, slices.IsSorted(order))
	slices.Sort(order)
	require.Equal(t, 49, order[49])
	require.InDelta(t, .0015, got.Mean.Seconds(), .0004, "half a millisecond and half of MaxLate")
	require.Greater(t, got.Elapsed, 3*time.Millisecond, "callers are late, too")
}
