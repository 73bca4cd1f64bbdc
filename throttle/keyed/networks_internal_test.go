package keyed

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A key takes no place if it would be rejected because of what was taken from its network, so that
// rejected claims do not fill a table.
func TestInsert_keysOfAnExhaustedNetworkTakeNoPlace(t *testing.T) {
	k := throttle.WithClock(NewBuckets(BucketsConfig{Limit: throttle.PerMinute(6), Addr: oneNetwork}), fixedClock(time.Unix(0, 0))).(*bucketTable)
	l := &Limiter{Clock: fixedClock(time.Unix(0, 0)), Addr: oneNetwork, New: func(string) throttle.Limiter {
		return throttle.WithClock(throttle.NewTokenBucket(throttle.PerMinute(6)), fixedClock(time.Unix(0, 0)))
	}}
	claim := func(l throttle.Limiter, key string, cost int64) throttle.Decision {
		d, err := l.Reserve(t.Context(), throttle.Claim{Key: key, Cost: cost})
		require.NoError(t, err)
		return d
	}
	claim(l, "first", 1)
	claim(l.share(l.networks.IDOf("lost"), "lost").limiter, "lost", 5)
	sharedSlot(&k.networks, k.networks.IDOf("lost")).tat.Store(5 * k.params.Interval)

	for _, l := range []throttle.Limiter{k, l} {
		d := claim(l, "a", 2)
		require.False(t, d.OK)
		require.True(t, d.Degraded)
		d = claim(l, "a", 1)
		require.True(t, d.OK, "one of six is left to the network")
		require.False(t, d.Degraded)
		require.Zero(t, d.Remaining)
		require.True(t, claim(l, "b", 1).OK, "and to each of its new keys")
	}
	require.Equal(t, 3, l.Len())
	h := k.hash("c")
	claim(k, "c", 2)
	require.Equal(t, -1, k.tableOf(h).find(h, "c"))
}
