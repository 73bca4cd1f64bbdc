package throttle_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// TestValidate_boundaries checks the extreme values of each field that are accepted, and the
// first ones that are not.
func TestValidate_boundaries(t *testing.T) {
	const longest = math.MaxInt64 / 8 // nanoseconds that a burst may take to come back
	second := throttle.PerSecond(10)
	nginx := func(c throttle.NginxConfig) throttle.NginxConfig {
		if c.Rate == 0 {
			c.Rate = 1
		}
		if c.Per == 0 {
			c.Per = time.Second
		}
		return c
	}
	for _, tt := range []struct {
		config interface{ Validate() error }
		want   string // part of the error; "": valid
	}{
		{throttle.Limit{Count: 1, Per: 1, Burst: 1}, ""},
		{throttle.Limit{Per: 1}, "Count is 0"},
		{throttle.Limit{Count: -1, Per: 1}, "Count is -1"},
		{throttle.Limit{Count: 1}, "Per is 0s"},
		{throttle.Limit{Count: 1, Per: -1}, "Per is -1ns"},
		{throttle.Limit{Count: 1, Per: 1, Burst: -1}, "Burst is -1"},
		{throttle.Limit{Count: 1, Per: longest}, ""},
		{throttle.Limit{Count: 1, Per: 2 * longest}, "a burst of 1 takes longer than 36 years"},
		{throttle.Limit{Count: 1, Per: longest / 2, Burst: 2}, ""},
		{throttle.Limit{Count: 1, Per: longest / 2, Burst: 3}, "a burst of 3 takes longer than 36 years"},
		{throttle.Limit{Count: 4, Per: longest, Burst: 4}, ""},
		{throttle.Limit{Count: 4, Per: longest, Burst: 8}, "a burst of 8 takes longer than 36 years"},

		{throttle.ConcurrencyConfig{Count: 1}, ""},
		{throttle.ConcurrencyConfig{Count: 1, MaxAge: 1}, ""},
		{throttle.ConcurrencyConfig{}, "Count is 0"},
		{throttle.ConcurrencyConfig{Count: 1, MaxAge: -1}, "MaxAge is -1ns"},

		{throttle.FixedWindowConfig{Count: 1, Per: 1}, ""},
		{throttle.FixedWindowConfig{Per: 1}, "Count is 0"},
		{throttle.FixedWindowConfig{Count: 1}, "Per is 0s"},
		{throttle.FixedWindowConfig{Count: 1, Per: -1}, "Per is -1ns"},
		{throttle.FixedWindowConfig{Count: 1, Align: throttle.EachMonth}, ""},
		{throttle.FixedWindowConfig{Count: 1, Align: throttle.EachMonth + 1}, "Align is"},
		{throttle.FixedWindowConfig{Count: 1, Align: throttle.EachMonth, Per: 1}, "leave Per 0"},

		{throttle.NginxConfig{Rate: 1, Per: 1000 * time.Second}, ""},
		{throttle.NginxConfig{Rate: 1, Per: 1001 * time.Second}, "Rate is 1 per 16m41s"},
		{throttle.NginxConfig{Per: time.Second}, "Rate is 0 per 1s"},
		{throttle.NginxConfig{Rate: -1, Per: time.Second}, "Rate is -1 per 1s"},
		{throttle.NginxConfig{Rate: 1}, "Rate is 1 per 0s"},
		{throttle.NginxConfig{Rate: 1, Per: -time.Second}, "Rate is 1 per -1s"},
		{throttle.NginxConfig{Rate: -1, Per: -time.Second}, "Rate is -1 per -1s"},

		{throttle.LeakyBucketConfig{Limit: second}, ""},
		{throttle.LeakyBucketConfig{Limit: second, Queue: math.MaxInt64}, ""},
		{throttle.LeakyBucketConfig{Limit: second, Queue: -1}, "Queue is -1"},
		{throttle.LeakyBucketConfig{}, "Count is 0"},

		{throttle.NginxConfig{Rate: 1, Per: time.Second}, ""},
		{throttle.NginxConfig{Rate: 1, Per: 1000 * time.Second}, ""},
		{throttle.NginxConfig{Rate: 1, Per: 1000*time.Second + 1}, "Rate is 1 per 16m40.000000001s"},
		{throttle.NginxConfig{Rate: 0, Per: time.Second}, "Rate is 0 per 1s"},
		{throttle.NginxConfig{Rate: -1, Per: -time.Second}, "Rate is -1 per -1s"},
		{throttle.NginxConfig{Rate: 1, Per: 0}, "Rate is 1 per 0s"},
		{throttle.NginxConfig{Rate: 1, Per: -time.Second}, "Rate is 1 per -1s"},
		{throttle.NginxConfig{Rate: 1e9, Per: time.Second}, ""},
		{throttle.NginxConfig{Rate: 1e9 + 1, Per: time.Second}, "a billion a second or less"},
		{throttle.NginxConfig{Rate: 1, Per: 1}, ""},
		{throttle.NginxConfig{Rate: 2, Per: 1}, "a billion a second or less"},
		{nginx(throttle.NginxConfig{Burst: 1e12, Delay: 1e12}), ""},
		{nginx(throttle.NginxConfig{Burst: 1e12 + 1}), "Burst is 1000000000001"},
		{nginx(throttle.NginxConfig{Burst: -1}), "Burst is -1"},
		{nginx(throttle.NginxConfig{Burst: 2, Delay: 3}), "Delay is 3"},
		{nginx(throttle.NginxConfig{Burst: 2, Delay: -1}), "Delay is -1"},

		{throttle.RefillBucketConfig{Limit: second}, ""},
		{throttle.RefillBucketConfig{Limit: second, InitialDeficit: 10}, ""},
		{throttle.RefillBucketConfig{Limit: second, InitialDeficit: 11}, "InitialDeficit is 11"},
		{throttle.RefillBucketConfig{Limit: second, InitialDeficit: -1}, "InitialDeficit is -1"},
		{throttle.RefillBucketConfig{}, "Count is 0"},

		{throttle.SlidingCounterConfig{Limit: second}, ""},
		{throttle.SlidingCounterConfig{Limit: second, RoundDown: true}, ""},
		{throttle.SlidingCounterConfig{Limit: second, Parts: 1}, ""},
		{throttle.SlidingCounterConfig{Limit: second, Parts: 1, RoundDown: true}, "RoundDown is set"},
		{throttle.SlidingCounterConfig{Limit: second, Parts: -1}, "Parts is -1"},
		{throttle.SlidingCounterConfig{Limit: throttle.Limit{Count: 1, Per: 10}, Parts: 10}, ""},
		{throttle.SlidingCounterConfig{Limit: throttle.Limit{Count: 1, Per: 10}, Parts: 11}, "Parts is 11"},
		{throttle.SlidingCounterConfig{Limit: second.WithBurst(10)}, ""},
		{throttle.SlidingCounterConfig{Limit: second.WithBurst(11)}, "Burst is 11"},

		{throttle.SlidingLogConfig{Limit: second}, ""},
		{throttle.SlidingLogConfig{Limit: second, MinGap: time.Second}, ""},
		{throttle.SlidingLogConfig{Limit: second, MinGap: time.Second + 1}, "MinGap is 1.000000001s"},
		{throttle.SlidingLogConfig{Limit: second, MinGap: -1}, "MinGap is -1ns"},
		{throttle.SlidingLogConfig{Limit: second.WithBurst(9)}, "Burst is 9"},
		{throttle.SlidingLogConfig{}, "Count is 0"},

		{throttle.TickQueueConfig{Limit: second, Queue: 1}, ""},
		{throttle.TickQueueConfig{Limit: second}, "Queue is 0"},
		{throttle.TickQueueConfig{Limit: second.WithBurst(9), Queue: 1}, "Burst is 9"},
		{throttle.TickQueueConfig{Queue: 1}, "Count is 0"},
		{throttle.TickQueueConfig{Limit: throttle.Limit{Count: 1000, Per: time.Microsecond}, Queue: 1}, ""},
		{throttle.TickQueueConfig{Limit: throttle.Limit{Count: 1001, Per: time.Microsecond}, Queue: 1}, "at most one tick per nanosecond"},
	} {
		if err := tt.config.Validate(); tt.want == "" {
			require.NoError(t, err, "%+v", tt.config)
		} else {
			require.ErrorContains(t, err, tt.want, "%+v", tt.config)
		}
	}
}
