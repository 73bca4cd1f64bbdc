package throttleredis

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

// All Redis keys of a claim are in one slot for any key, so that one script can use them.
func TestLimiters_workInACluster(t *testing.T) {
	t.Parallel()
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: threeNodes.start(t)})
	defer c.Close()
	eachWorksOn(t, &Store{Client: c, Prefix: newTestStore(t).Prefix})
	allOfWorksOn(t, &Store{Client: c, Prefix: newTestStore(t).Prefix})
}

func TestLimiters_workOnARing(t *testing.T) {
	t.Parallel()
	addrs := map[string]string{}
	for i, s := range redistest.StartN(t, 3) {
		addrs["shard"+strconv.Itoa(i)] = s.Addr
	}
	c := redis.NewRing(&redis.RingOptions{Addrs: addrs})
	defer c.Close()
	eachWorksOn(t, &Store{Client: c})
	allOfWorksOn(t, &Store{Client: c})
}

// allOfWorksOn makes claims on an AllOf of all kinds of limits, for many keys.
func allOfWorksOn(t *testing.T, s *Store) {
	five := throttle.Limit{Count: 5, Per: year}
	all := s.Ban(keyed.BanConfig{Rejections: 100, Within: time.Hour, Duration: time.Hour},
		s.TokenBucket(five),
		s.RefillBucket(throttle.RefillBucketConfig{Limit: five}),
		s.LeakyBucket(throttle.LeakyBucketConfig{Limit: five}),
		s.FixedWindow(throttle.FixedWindowConfig{Count: 5, Align: throttle.AtFirst, Per: year}),
		s.SlidingLog(throttle.SlidingLogConfig{Limit: five}),
		s.SlidingCounter(throttle.SlidingCounterConfig{Limit: five}),
		s.SlidingCounter(throttle.SlidingCounterConfig{Limit: five, Parts: 3}),
		s.Concurrency(throttle.ConcurrencyConfig{Count: 5, MaxAge: year}))
	for i := range 40 {
		key := ""
		if i > 0 {
			key = "{" + strconv.Itoa(i) + "}"
		}
		var d throttle.Decision
		for range 5 {
			d = take(t, all, key)
			require.True(t, d.OK, "%+v", d)
		}
		require.False(t, take(t, all, key).OK)
		all.Report(t.Context(), throttle.Claim{Key: key}, d, throttle.Feedback{State: throttle.Unused})
		require.True(t, take(t, all, key).OK)
	}
}
