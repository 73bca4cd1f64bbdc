package rules

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/throttletest"
)

// activeLimitFunc returns a function that creates the activeLimit of the only limit of a file.
func activeLimitFunc(t *testing.T, rateLimit string) func(throttle.Clock) throttle.Limiter {
	return func(clk throttle.Clock) throttle.Limiter {
		return oneRule(t, "value: b, "+rateLimit, Config{Clock: clk}).limiter
	}
}

// oneRule returns the rule of a file with one descriptor, with key a.
func oneRule(t *testing.T, words string, s Config) *rule {
	set, err := Parse([]byte("domain: d\ndescriptors: [{key: a, "+words+"}]"), s)
	require.NoError(t, err)
	return set.rules[0]
}

// TestConformance runs the conformance tests of throttletest against activeLimits.
func TestConformance(t *testing.T) {
	ten := throttle.Limit{Count: 10, Per: time.Second, Burst: 10}
	windows := func(n int64) func(time.Duration) int64 {
		return func(w time.Duration) int64 { return n * (int64(w/time.Second) + 2) }
	}
	bucket := "rate_limit: {requests_per_unit: 10, unit: second, burst: 10}"
	for name, tt := range map[string]struct {
		new  func(throttle.Clock) throttle.Limiter
		spec throttletest.Spec
	}{
		"token bucket": {activeLimitFunc(t, bucket), throttletest.Spec{Limit: ten}},
		"window":       {activeLimitFunc(t, "rate_limit: {requests_per_unit: 10, unit: second}"), throttletest.Spec{Bound: windows(10)}},
		"soft": {activeLimitFunc(t, "rate_limit: {requests_per_unit: 10, unit: second, burst: 10, soft: 10%}"),
			throttletest.Spec{Limit: throttle.Limit{Count: 11, Per: time.Second}, EndsOnce: true}},
		"in flight": {activeLimitFunc(t, "rate_limit: {concurrency: 10}"), throttletest.Spec{Concurrency: 10, WaitUnknown: true}},
		"keyed": {func(clk throttle.Clock) throttle.Limiter { return oneRule(t, bucket, Config{Clock: clk}).limiter },
			throttletest.Spec{Limit: ten}},
		"compact": {func(clk throttle.Clock) throttle.Limiter {
			return oneRule(t, "rate_limit: {requests_per_unit: 10, unit: second, compact: true}", Config{Clock: clk}).limiter
		}, throttletest.Spec{Limit: ten, AcceptsOlderReadings: true}},
		// A claim that is rejected until the limit changes may be rejected by the new limit too.
		"active": {activeLimitFunc(t, "rate_limit: {requests_per_unit: 10, unit: second, burst: 10, active: {from: 09:00, to: 17:00, burst: 8}}"),
			throttletest.Spec{Limit: ten, Approximate: true}},
		"ended": {func(clk throttle.Clock) throttle.Limiter {
			g := activeLimitFunc(t, "rate_limit: {requests_per_unit: 1, unit: day}")(clk).(*activeLimit)
			g.retire(activeLimitFunc(t, bucket)(clk).(*activeLimit))
			return g
		}, throttletest.Spec{Limit: ten, EndsOnce: true}},
	} {
		tt.spec.Histories = 200
		if testing.Short() {
			tt.spec.Histories = 70
		}
		t.Run(name, func(t *testing.T) { throttletest.TestLimiter(t, tt.new, tt.spec) })
	}
}
