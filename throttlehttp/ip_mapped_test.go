package throttlehttp_test

import (
	"net/netip"
	"testing"

	"github.com/heed-go/heed/throttlehttp"
	"github.com/stretchr/testify/require"
)

// TestIP_trustsIPv4InIPv6 checks that a trusted IPv4 network that is written as an
// IPv4-mapped IPv6 network covers exactly that network.
func TestIP_trustsIPv4InIPv6(t *testing.T) {
	for _, tt := range []struct{ trusted, peer, want string }{
		{"::ffff:10.0.0.0/104", "10.0.0.1:1", "ip:192.0.2.7"},
		{"::ffff:10.0.0.0/104", "[::ffff:10.255.255.255]:1", "ip:192.0.2.7"},
		{"::ffff:10.0.0.0/104", "11.0.0.1:1", "ip:11.0.0.1"},
		{"::ffff:10.0.0.2/128", "10.0.0.2:1", "ip:192.0.2.7"},
		{"::ffff:10.0.0.2/128", "10.0.0.3:1", "ip:10.0.0.3"},
		{"::ffff:0.0.0.0/96", "203.0.113.9:1", "ip:192.0.2.7"},
		{"::ffff:0.0.0.0/95", "203.0.113.9:1", "ip:203.0.113.9"},
		{"::ffff:10.0.0.0/104", "[2001:db8::1]:1", "ip:2001:db8::/64"},
		{"::/0", "203.0.113.9:1", "ip:203.0.113.9"},
	} {
		ip := throttlehttp.IP{Trusted: []netip.Prefix{netip.MustParsePrefix(tt.trusted)}}
		require.Equal(t, tt.want, key(ip.Key, via(tt.peer, "X-Forwarded-For", "192.0.2.7")), "%v", tt)
	}
}
