package routes

import (
	"hash/maphash"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The latency of a route is the lowest of its ten latest ones, in microseconds, and is forgotten after
// a minute.
func TestLatencies_ofARoute(t *testing.T) {
	start, seed := time.Unix(1_700_000_000, 0), maphash.MakeSeed()
	const ms = time.Millisecond
	for name, tt := range map[string]struct {
		latencies []time.Duration // observed at intervals of a second
		after     time.Duration   // the latest
		want      time.Duration
	}{
		"none":                 {nil, 0, 0},
		"one":                  {[]time.Duration{5 * ms}, 0, 5 * ms},
		"the lowest":           {[]time.Duration{5 * ms, 3 * ms, 4 * ms}, 0, 3 * ms},
		"of the ten latest":    {[]time.Duration{1 * ms, 5 * ms, 5 * ms, 5 * ms, 5 * ms, 5 * ms, 5 * ms, 5 * ms, 5 * ms, 4 * ms}, 0, 1 * ms},
		"not of eleven":        {[]time.Duration{1 * ms, 5 * ms, 5 * ms, 5 * ms, 5 * ms, 5 * ms, 5 * ms, 5 * ms, 5 * ms, 4 * ms, 6 * ms}, 0, 4 * ms},
		"for a minute":         {[]time.Duration{5 * ms}, time.Minute, 5 * ms},
		"for longer":           {[]time.Duration{5 * ms}, time.Minute + 1, 0},
		"at least a microsec.": {[]time.Duration{0}, 0, time.Microsecond},
		"microseconds":         {[]time.Duration{2999}, 0, 2 * time.Microsecond},
		"at most so many":      {[]time.Duration{math.MaxInt64}, 0, 1 << 31 * time.Microsecond},
	} {
		var l Latencies
		req, now := request(t, "https://api.test/users/17"), start
		for _, d := range tt.latencies {
			now = now.Add(time.Second)
			l.Observe(HashOfHost(seed, req), d, now)
		}
		require.Equal(t, tt.want, l.Latency(HashOfHost(seed, req), now.Add(tt.after)), name)
		require.Equal(t, tt.want, l.Latency(HashOfHost(seed, request(t, "https://api.test/users/18")), now.Add(tt.after)), "%s: the same route", name)
		require.Zero(t, l.Latency(HashOfHost(seed, request(t, "https://other.test/users/17")), now.Add(tt.after)), "%s: another host", name)
		require.Zero(t, l.Latency(HashOfHost(seed, request(t, "https://api.test/search")), now.Add(tt.after)), "%s: another route", name)
	}
	var l Latencies
	req := request(t, "https://api.test/users/17")
	l.Observe(HashOfHost(seed, req), ms, start.Add(30*time.Second))
	l.Observe(HashOfHost(seed, req), 2*ms, start)
	require.Equal(t, ms, l.Latency(HashOfHost(seed, req), start.Add(90*time.Second)), "an earlier response")
	l.Observe(HashOfHost(seed, req), 7*ms, start.Add(2*time.Minute))
	require.Equal(t, 7*ms, l.Latency(HashOfHost(seed, req), start.Add(2*time.Minute)), "those before were forgotten")
	require.Len(t, l.entries, latencyEntries)
	for i := range 10 * latencyEntries { // other routes use the same memory
		l.Observe(HashOfHost(seed, request(t, "https://"+slug(i)+".test/")), ms, start.Add(2*time.Minute))
	}
	require.Zero(t, l.Latency(HashOfHost(seed, req), start.Add(2*time.Minute)))
}
