package keyed

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// Networks are a /24 of IPv4 addresses and a /48 of IPv6 addresses. Keys that throttlehttp.IP has
// not made are of an unknown network.
func TestNetworkTable_idOf(t *testing.T) {
	var n networkTable[int]
	n.init(100, nil)
	for _, row := range []struct {
		a, b string
		same bool
	}{
		{"ip:192.0.2.7", "ip:192.0.2.255", true},
		{"ip:192.0.2.7", "ip:192.0.3.7", false},
		{"ip:192.0.2.7", "ip:192.0.2.0/24", true},
		{"ip:192.0.2.7", "ip:::ffff:192.0.2.9", true},
		{"ip:2001:db8:1:2::/64", "ip:2001:db8:1:ffff::/64", true},
		{"ip:2001:db8:1:2::/64", "ip:2001:db8:2:2::/64", false},
		{"ip:fe80::1%eth0", "ip:fe80::2%eth1", true},
		{"ip:192.0.2.7", "join:16:context.user:ann12:ip:192.0.2.9", true},
	} {
		a, b := n.idOf(row.a), n.idOf(row.b)
		require.NotEqual(t, unknownNetwork, a, row.a)
		require.NotEqual(t, unknownNetwork, b, row.b)
		require.Equal(t, row.same, a == b, "%s and %s", row.a, row.b)
	}
	for _, key := range []string{
		"", "192.0.2.7", "header.X:ip:192.0.2.7", "ip:", "ip:x", "join:", "join:x", "join:-1:", "join:99:ip:192.0.2.7",
		"join:26:header.X:12:ip:192.0.2.7..", // a value that imitates a part
	} {
		require.Equal(t, unknownNetwork, n.idOf(key), "%q", key)
	}
}

// A network with few new keys takes places of networks with more, and not the reverse. The number
// of new keys is halved after some time.
func TestNetworkTable_yield(t *testing.T) {
	var n networkTable[int]
	n.init(1, nil)
	require.EqualValues(t, 16, n.period)
	require.Zero(t, n.yield(1, 2), "none has brought keys")
	for range 5 {
		n.arrive(1)
	}
	n.arrive(2)
	require.Equal(t, 3, n.yield(1, 2), "5 has 3 binary digits")
	require.Zero(t, n.yield(2, 1))
	require.Zero(t, n.yield(1, 1))
	require.Equal(t, 3, n.yield(1, 3), "3 has brought none yet")
	require.Equal(t, 3, n.yield(1, unknownNetwork))
	require.Zero(t, n.yield(2, unknownNetwork))
	n.arrive(unknownNetwork)
	n.arrive(unknownNetwork)
	require.Equal(t, 2, n.yield(unknownNetwork, unknownNetwork))
	require.Equal(t, 2, n.yield(unknownNetwork, 2))
	require.Zero(t, n.yield(unknownNetwork, 1))
	for range 16 {
		n.arrive(unknownNetwork)
	}
	require.Equal(t, 2, n.yield(1, 3), "5 is 2 after a period")
	n.arrived += 100 * n.period
	require.Zero(t, n.yield(1, 3))
}

// The record of a network that has brought many keys is not replaced by those of networks with few.
func TestNetworkTable_replacesTheFewestKeys(t *testing.T) {
	var n networkTable[int]
	n.init(1<<10, nil) // all of the following networks are of the first set
	many := networkID(1000)
	n.arrive(many)
	n.arrive(many)
	state := n.share(many, new(int))
	for id := networkID(1); id < 1000; id++ {
		n.arrive(id)
		require.Nil(t, n.start(id), "a new network has no state")
		require.Same(t, state, n.share(many, nil))
		n.leave(id, new(int))
		require.NotNil(t, n.start(id))
		n.find(id).newKeys = 1
	}
	require.Nil(t, n.find(1))
	n.leave(1, state)
	require.Nil(t, n.share(1, nil), "a network without a record has no state")
	require.Same(t, state, n.share(1, state))
}

// A key takes no place if it would be rejected because of what was taken from its network, so that
// rejected claims do not fill a table.
func TestInsert_keysOfAnExhaustedNetworkTakeNoPlace(t *testing.T) {
	k := throttle.WithClock(NewBuckets(BucketsConfig{Limit: throttle.PerMinute(6), Addr: oneNetwork}), fixedClock(time.Unix(0, 0)))
	l := &Limiter{Clock: fixedClock(time.Unix(0, 0)), Addr: oneNetwork, New: func(string) throttle.Limiter {
		return throttle.WithClock(throttle.NewTokenBucket(throttle.PerMinute(6)), fixedClock(time.Unix(0, 0)))
	}}
	claim := func(l throttle.Limiter, key string, cost int64) throttle.Decision {
		d, err := l.Reserve(t.Context(), throttle.Claim{Key: key, Cost: cost})
		require.NoError(t, err)
		return d
	}
	claim(l, "first", 1)
	claim(l.share(l.networks.idOf("lost"), "lost").limiter, "lost", 5)
	sharedSlot(&k.networks, k.networks.idOf("lost")).tat.Store(5 * k.params.Interval)

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
