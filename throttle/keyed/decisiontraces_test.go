package keyed_test

import (
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/limitertest"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// TestLimiters_decisionsStayAsTheyAre compares all numbers of decisions for three keys, with
// space for all of them, with those in testdata/decisions.txt. go test -run decisionsStayAsTheyAre
// -update writes the file.
func TestLimiters_decisionsStayAsTheyAre(t *testing.T) {
	ten := throttle.Limit{Count: 10, Per: time.Minute}
	bucket := func(c throttle.Clock) *keyed.Limiter {
		return &keyed.Limiter{New: func(string) throttle.Limiter { return throttle.WithClock(throttle.NewTokenBucket(ten), c) }}
	}
	log := func(c throttle.Clock) throttle.Limiter {
		return throttle.WithClock(throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: ten}), c)
	}
	var trace limitertest.Trace
	for i, newLimiter := range []func(throttle.Clock) throttle.Limiter{
		func(c throttle.Clock) throttle.Limiter { return bucket(c) },
		func(c throttle.Clock) throttle.Limiter {
			return &keyed.Limiter{New: func(string) throttle.Limiter { return log(c) }}
		},
		func(throttle.Clock) throttle.Limiter { return keyed.NewBuckets(keyed.BucketsConfig{Limit: ten}) },
		func(c throttle.Clock) throttle.Limiter {
			return keyed.NewBan(bucket(c), keyed.BanConfig{Rejections: 2, Within: 30 * time.Second, Duration: 10 * time.Second, MaxDuration: 35 * time.Second, ForgetAfter: time.Minute})
		},
		func(throttle.Clock) throttle.Limiter {
			return keyed.NewBan(throttle.NewTokenBucket(ten), keyed.BanConfig{Rejections: 3, Within: time.Minute, Duration: time.Minute, MaxKeys: 2})
		},
	} {
		trace.Add(t, fmt.Sprint(i), newLimiter, uint64(i), "a", "b", "c")
	}
	trace.Compare(t, "testdata/decisions.txt")
}

// TestValidate_boundaries checks the extreme values of each field that are accepted, and the
// first ones that are not.
func TestValidate_boundaries(t *testing.T) {
	ban := func(change func(*keyed.BanConfig)) keyed.BanConfig {
		s := keyed.BanConfig{Rejections: 1, Within: 2, Duration: 3}
		change(&s)
		return s
	}
	for _, tt := range []struct {
		config interface{ Validate() error }
		want   string // part of the error; "": valid
	}{
		{keyed.BucketsConfig{Limit: throttle.PerSecond(1), Max: 1}, ""},
		{keyed.BucketsConfig{Limit: throttle.PerSecond(1), Max: -1}, "Max is -1"},
		{keyed.BucketsConfig{}, "Count is 0"},
		{ban(func(*keyed.BanConfig) {}), ""},
		{ban(func(s *keyed.BanConfig) { s.Rejections = 0 }), "Rejections is 0"},
		{ban(func(s *keyed.BanConfig) { s.Within = 1 }), ""},
		{ban(func(s *keyed.BanConfig) { s.Within = 0 }), "Within is 0s"},
		{ban(func(s *keyed.BanConfig) { s.Duration = 0 }), "Duration 0s"},
		{ban(func(s *keyed.BanConfig) { s.Duration = 1 }), ""},
		{ban(func(s *keyed.BanConfig) { s.MaxDuration = 3 }), ""},
		{ban(func(s *keyed.BanConfig) { s.MaxDuration = 2 }), "MaxDuration is 2ns"},
		{ban(func(s *keyed.BanConfig) { s.ForgetAfter = 2 }), ""},
		{ban(func(s *keyed.BanConfig) { s.ForgetAfter = 1 }), "ForgetAfter is 1ns"},
		{ban(func(s *keyed.BanConfig) { s.MaxKeys = 1 }), ""},
		{ban(func(s *keyed.BanConfig) { s.MaxKeys = -1 }), "MaxKeys is -1"},
	} {
		if err := tt.config.Validate(); tt.want == "" {
			require.NoError(t, err, "%+v", tt.config)
		} else {
			require.ErrorContains(t, err, tt.want, "%+v", tt.config)
		}
	}
	if strconv.IntSize == 64 {
		most := int64(1) << 32
		require.NoError(t, keyed.BucketsConfig{Limit: throttle.PerSecond(1), Max: int(most)}.Validate())
		for _, n := range []int64{most + 1, math.MaxInt64} {
			require.ErrorContains(t, keyed.BucketsConfig{Limit: throttle.PerSecond(1), Max: int(n)}.Validate(), "it must be at most 4294967296")
		}
	}
}
