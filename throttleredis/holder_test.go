package throttleredis

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// Only concurrency limits, and limiters that contain one, hold units until the end. No
// server is needed.
func TestLimiter_holdsUntilTheEnd(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	s := &Store{Client: client}
	places := s.Concurrency(throttle.ConcurrencyConfig{Count: 3, MaxAge: time.Hour})
	bucket := s.TokenBucket(throttle.PerSecond(10))
	ban := keyed.BanConfig{Rejections: 1, Within: time.Second, Duration: time.Second}
	for holds, limiters := range map[bool][]throttle.Limiter{
		true: {places, AllOf(bucket, places), s.Ban(ban, places), &Fallback{Limiter: places}, &Fallback{Limiter: places, Processes: 2},
			&Fallback{Limiter: bucket, Secondary: throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1})}},
		false: {bucket, AllOf(bucket), s.Ban(ban, bucket), &Fallback{Limiter: bucket, Processes: 2}},
	} {
		for _, l := range limiters {
			require.Equal(t, holds, !l.Traits().EndsAtResponse, "%T", l)
		}
	}
}
