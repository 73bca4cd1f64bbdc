package throttlehttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/heed-go/heed/throttlehttp"
)

// With two proxies, everything to the left of the client's address is forged by the client.
func ExampleIP() {
	ip := throttlehttp.IP{Trusted: []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/28"),    // addresses of the balancer
		netip.MustParsePrefix("203.0.113.0/24"), // addresses of the edge
	}}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "10.0.0.2:4711"
	for _, forwardedFor := range []string{
		"192.0.2.7, 203.0.113.9",
		"6.6.6.6, 192.0.2.7, 203.0.113.9",
		"2001:db8:1:2:3:4:5:6, 203.0.113.9",
		"192.0.2.7, unknown",
	} {
		r.Header.Set("X-Forwarded-For", forwardedFor)
		name, _ := ip.Key(r)
		fmt.Println(name)
	}
	// Output:
	// ip:192.0.2.7
	// ip:192.0.2.7
	// ip:2001:db8:1:2::/64
	// ip:10.0.0.2
}
