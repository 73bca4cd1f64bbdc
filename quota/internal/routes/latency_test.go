package routes

import (
	"hash/maphash"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

// route returns the only route of a host.
func route(n uint64) HostRoute { return HostRoute{Host: n << 32, Route: n} }

// The typical latency of a route is the lower quartile of its latest ones, the high one the longest.
// They are forgotten after a minute.
func TestLatencies_ofARoute(t *testing.T) {
	start, seed := time.Unix(1_700_000_000, 0), maphash.MakeSeed()
	repeat := func(d time.Duration, n int) []time.Duration {
		all := make([]time.Duration, n)
		for i := range all {
			all[i] = d
		}
		return all
	}
	for name, tt := range map[string]struct {
		latencies     []time.Duration // observed at intervals of a second
		after         time.Duration   // the latest
		typical, high time.Duration
	}{
		"none":                {nil, 0, 0, 0},
		"one":                 {[]time.Duration{6 * ms}, 0, 6 * ms, 6 * ms},
		"the least of three":  {[]time.Duration{6 * ms, 3 * ms, 4 * ms}, 0, 3 * ms, 6 * ms},
		"the second of four":  {[]time.Duration{6 * ms, 3 * ms, 4 * ms, 8 * ms}, 0, 4 * ms, 8 * ms},
		"the seventh of 24":   {append(repeat(2*ms, 6), repeat(4*ms, 18)...), 0, 4 * ms, 4 * ms},
		"of the latest":       {append(repeat(8*ms, 7), repeat(4*ms, 24)...), 0, 4 * ms, 4 * ms},
		"one long one":        {append(repeat(4*ms, 7), append(repeat(64*ms, 1), repeat(4*ms, 23)...)...), 0, 4 * ms, 64 * ms},
		"an earlier long one": {append(repeat(64*ms, 1), repeat(4*ms, 24)...), 0, 4 * ms, 4 * ms},
		"for a minute":        {[]time.Duration{5 * ms}, time.Minute, 5 * ms, 5 * ms},
		"for longer":          {[]time.Duration{5 * ms}, time.Minute + 1, 0, 0},
	} {
		var l Latencies
		req, now := request(t, "https://api.test/users/17"), start
		for _, d := range tt.latencies {
			now = now.Add(time.Second)
			l.Observe(HostRouteOf(seed, req), d, now)
		}
		requireLatency(t, &l, HostRouteOf(seed, req), now.Add(tt.after), tt.typical, tt.high, name)
		requireLatency(t, &l, HostRouteOf(seed, request(t, "https://api.test/users/18")), now.Add(tt.after), tt.typical, tt.high, name+": the same route")
		requireLatency(t, &l, HostRouteOf(seed, request(t, "https://other.test/users/17")), now, 0, 0, name+": another host")
		requireLatency(t, &l, HostRouteOf(seed, request(t, "https://api.test/search")), now.Add(tt.after), tt.typical, tt.high, name+": another route, of which only the host is known")
	}
}

// What is known of a route goes before what is known of its host, which is that of all its routes.
func TestLatencies_ofAHost(t *testing.T) {
	now, seed := time.Unix(1_700_000_000, 0), maphash.MakeSeed()
	fast, slow, other := HostRouteOf(seed, request(t, "https://api.test/fast")), HostRouteOf(seed, request(t, "https://api.test/slow")), HostRouteOf(seed, request(t, "https://api.test/other"))
	require.Equal(t, fast.Host, slow.Host)
	require.NotEqual(t, fast.Route, slow.Route)
	var l Latencies
	l.Observe(fast, ms, now)
	l.Observe(slow, 64*ms, now)
	requireLatency(t, &l, fast, now, ms, ms, "its own")
	requireLatency(t, &l, slow, now, 64*ms, 64*ms, "its own")
	requireLatency(t, &l, other, now, ms, 64*ms, "of all")
	l.ObserveExpired(other, ms/2, 8*ms, now)
	requireLatency(t, &l, other, now, ms, 64*ms, "it had less time than responses of the host take")
	l.Observe(fast, 2*ms, now.Add(time.Minute))
	requireLatency(t, &l, slow, now.Add(time.Minute+1), ms, 64*ms, "its own are forgotten, the host is still used")
}

// requireLatency checks latencies that are rounded up by at most one of 128.
func requireLatency(t *testing.T, l *Latencies, route HostRoute, now time.Time, typical, high time.Duration, name string) {
	t.Helper()
	gotTypical, gotHigh := l.Latency(route, now)
	for got, want := range map[time.Duration]time.Duration{gotTypical: typical, gotHigh: high} {
		require.GreaterOrEqual(t, got, want, name)
		require.LessOrEqual(t, got, want+want/128, name)
	}
}

// A host and its route keep their latencies, also if their hashes select the same memory: with one entry for both, each would only know
// the latest latency, in one of 256 processes.
func TestLatencies_hostAndRouteWithOneHash(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	for route := range uint64(2 * latencySets) {
		var l Latencies
		r := HostRoute{Host: 7, Route: 7 + 1 + route}
		for i := range 10 {
			l.Observe(r, time.Duration(10-i)*ms, start.Add(time.Duration(i)*time.Second))
		}
		for _, of := range []HostRoute{r, {Host: 7, Route: 1000}} {
			typical, high := l.Latency(of, start.Add(10*time.Second))
			require.InEpsilon(t, 3*ms, typical, .01, "%+v", of)
			require.InEpsilon(t, 10*ms, high, .01, "%+v", of)
		}
	}
}

func TestLatencies_useFixedMemory(t *testing.T) {
	var l Latencies
	now := time.Unix(1_700_000_000, 0)
	l.Observe(route(17), ms, now.Add(30*time.Second))
	l.Observe(route(17), 2*ms, now)
	requireLatency(t, &l, route(17), now.Add(90*time.Second), ms, 2*ms, "an earlier response does not make them older")
	l.Observe(route(17), 8*ms, now.Add(2*time.Minute))
	requireLatency(t, &l, route(17), now.Add(2*time.Minute), 8*ms, 8*ms, "those before were forgotten")
	require.Len(t, l.sets, latencySets)
	for i := range uint64(10 * 2 * latencySets) { // other routes use the same memory
		l.Observe(route(1000+i), ms, now.Add(2*time.Minute+ms))
	}
	require.Len(t, l.sets, latencySets)
	requireLatency(t, &l, route(17), now.Add(2*time.Minute), 0, 0, "another route has its memory")
}

// A request that its deadline ended counts for the high latency as if it had waited a quarter less.
// It shows nothing if it had less time than responses take.
func TestLatencies_ofRequestsThatTheirDeadlinesEnded(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var l Latencies
	l.ObserveExpired(route(1), 8*ms, 16*ms, now)
	requireLatency(t, &l, route(1), now, 0, 12*ms, "there is no response")
	l.Observe(route(1), 2*ms, now)
	requireLatency(t, &l, route(1), now, 2*ms, 12*ms, "a response")
	l.ObserveExpired(route(1), 2*ms-1, 80*ms, now)
	requireLatency(t, &l, route(1), now, 2*ms, 12*ms, "it had less than 2 ms")
	l.ObserveExpired(route(1), 3*ms, 52*ms, now)
	requireLatency(t, &l, route(1), now, 2*ms, 16*ms, "it had more")
	for range 24 {
		l.ObserveExpired(route(1), 16*ms, 0, now)
	}
	requireLatency(t, &l, route(1), now, 0, 16*ms, "the response is forgotten")
}

// Of random latencies, one of 25 is longer than the longest of the 24 before it, whatever their
// distribution.
func TestLatencies_highIsRarelyExceeded(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	now := time.Unix(1_700_000_000, 0)
	for name, draw := range map[string]func() float64{
		"uniform":   r.Float64,
		"lognormal": func() float64 { return math.Exp(1.2 * r.NormFloat64()) },
		"pareto":    func() float64 { return math.Pow(r.Float64(), -1/1.1) },
	} {
		var l Latencies
		const n = 50_000
		exceeded := 0
		for range n {
			d := time.Duration(float64(10*ms) * draw())
			if _, high := l.Latency(route(1), now); d > high {
				exceeded++
			}
			l.Observe(route(1), d, now)
		}
		require.InDelta(t, 1./25, float64(exceeded)/n, .005, name)
	}
}

// Requests wait so long that they have no more time than the high latency, and the server becomes
// slower. Those that their deadlines end raise the high latency until responses arrive.
func TestLatencies_findALatencyThatNoRequestHasTimeFor(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for _, before := range []int{0, 1, 100} { // responses
		for _, took := range []time.Duration{300 * ms, 600 * ms, 950 * ms} {
			var l Latencies
			for range before {
				l.Observe(route(1), ms, now)
			}
			const deadline = 1000 * ms
			expired := 0
			for had := time.Duration(0); had < took && expired < 20; expired++ {
				l.ObserveExpired(route(1), had, deadline-had, now)
				_, high := l.Latency(route(1), now)
				had = min(high, deadline)
			}
			require.LessOrEqual(t, expired, 12, took)
		}
	}
}

func TestLatency_isRoundedUp(t *testing.T) {
	for _, expired := range []bool{false, true} {
		last := time.Duration(0)
		for _, d := range []time.Duration{0, 1, 2999, ms, 1001 * time.Microsecond, time.Second, time.Hour, 1 << 61, math.MaxInt64 / 2, math.MaxInt64} {
			l := newLatency(d, expired)
			require.Equal(t, expired, l.expired())
			got := l.duration()
			require.GreaterOrEqual(t, got, last)
			require.GreaterOrEqual(t, got, min(d, math.MaxInt64/2))
			require.LessOrEqual(t, float64(got), 1.008*float64(max(d, time.Microsecond)))
			last = got
		}
	}
}
