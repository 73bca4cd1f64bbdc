package sketch_test

import (
	"testing"

	"github.com/heed-go/heed/internal/limitertest"
	"github.com/heed-go/heed/sketch"
	"github.com/heed-go/heed/throttle"
)

// TestLimiter_decisionsStayAsTheyAre compares all numbers of decisions for three clients, in
// enough memory for many more, in very little memory, and with counters of 32 bits, with those in
// testdata/decisions.txt. go test -run decisionsStayAsTheyAre -update writes the file.
func TestLimiter_decisionsStayAsTheyAre(t *testing.T) {
	var trace limitertest.Trace
	for i, tt := range []struct {
		name   string
		config sketch.LimiterConfig
	}{
		{"10 a minute", sketch.LimiterConfig{Limit: throttle.PerMinute(10), Clients: 1000, Seed: 1}},
		{"one line of counters", sketch.LimiterConfig{Limit: throttle.PerMinute(10), Clients: 1000, Bytes: 1, Seed: 2}},
		{"40,000 a minute", sketch.LimiterConfig{Limit: throttle.PerMinute(40_000), Clients: 1000, Seed: 3}},
	} {
		trace.Add(t, tt.name, func(throttle.Clock) throttle.Limiter { return sketch.NewLimiter(tt.config) }, uint64(i), "a", "b", "c")
	}
	trace.Compare(t, "testdata/decisions.txt")
}
