package networks

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Networks are a /24 of IPv4 addresses and a /48 of IPv6 addresses. Keys that throttlehttp.IP has
// not made are of an unknown network.
func TestTable_IDOf(t *testing.T) {
	var n Table[int]
	n.Init(100, nil)
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
		a, b := n.IDOf(row.a), n.IDOf(row.b)
		require.NotEqual(t, Unknown, a, row.a)
		require.NotEqual(t, Unknown, b, row.b)
		require.Equal(t, row.same, a == b, "%s and %s", row.a, row.b)
	}
	for _, key := range []string{
		"", "192.0.2.7", "header.X:ip:192.0.2.7", "ip:", "ip:x", "join:", "join:x", "join:-1:", "join:99:ip:192.0.2.7",
		"join:26:header.X:12:ip:192.0.2.7..", // a value that imitates a part
	} {
		require.Equal(t, Unknown, n.IDOf(key), "%q", key)
	}
}

// A network with few new keys takes places of networks with more, and not the reverse. The number
// of new keys is halved after some time.
func TestTable_yield(t *testing.T) {
	var n Table[int]
	n.Init(1, nil)
	require.EqualValues(t, 16, n.period)
	require.Zero(t, n.Yield(1, 2), "none has brought keys")
	for range 5 {
		n.Arrive(1)
	}
	n.Arrive(2)
	require.Equal(t, 3, n.Yield(1, 2), "5 has 3 binary digits")
	require.Zero(t, n.Yield(2, 1))
	require.Zero(t, n.Yield(1, 1))
	require.Equal(t, 3, n.Yield(1, 3), "3 has brought none yet")
	require.Equal(t, 3, n.Yield(1, Unknown))
	require.Zero(t, n.Yield(2, Unknown))
	n.Arrive(Unknown)
	n.Arrive(Unknown)
	require.Equal(t, 2, n.Yield(Unknown, Unknown))
	require.Equal(t, 2, n.Yield(Unknown, 2))
	require.Zero(t, n.Yield(Unknown, 1))
	for range 16 {
		n.Arrive(Unknown)
	}
	require.Equal(t, 2, n.Yield(1, 3), "5 is 2 after a period")
	n.arrived += 100 * n.period
	require.Zero(t, n.Yield(1, 3))
}

// The record of a network that has brought many keys is not replaced by those of networks with few.
func TestTable_replacesTheFewestKeys(t *testing.T) {
	var n Table[int]
	n.Init(1<<10, nil) // all of the following networks are of the first set
	many := ID(1000)
	n.Arrive(many)
	n.Arrive(many)
	state := n.Share(many, new(int))
	for id := ID(1); id < 1000; id++ {
		n.Arrive(id)
		require.Nil(t, n.Start(id), "a new network has no state")
		require.Same(t, state, n.Share(many, nil))
		n.Leave(id, new(int))
		require.NotNil(t, n.Start(id))
		n.find(id).newKeys = 1
	}
	require.Nil(t, n.find(1))
	n.Leave(1, state)
	require.Nil(t, n.Share(1, nil), "a network without a record has no state")
	require.Same(t, state, n.Share(1, state))
}
