package throttlehttp_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"strings"
	"testing"

	"github.com/heed-go/heed/throttlehttp"
	"github.com/stretchr/testify/require"
)

func prefixes(list ...string) (all []netip.Prefix) {
	for _, p := range list {
		all = append(all, netip.MustParsePrefix(p))
	}
	return all
}

// proxied lists the proxies of most tests: a balancer and an edge.
var proxied = prefixes("10.0.0.0/24", "203.0.113.1/32", "2001:db8:ed6e::/48")

// via returns a request from peer with lines of a header.
func via(peer, header string, lines ...string) *http.Request {
	r := requestFrom()
	r.RemoteAddr = peer
	for _, line := range lines {
		r.Header.Add(header, line)
	}
	return r
}

func TestIP_usesTheConnectionAddress(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.7:4711":                  "ip:192.0.2.7",
		"192.0.2.7":                       "ip:192.0.2.7", // an outer middleware may have removed the port
		"[2001:db8::1]:4711":              "ip:2001:db8::/64",
		"2001:db8:0:1:ffff::1":            "ip:2001:db8:0:1::/64",
		"[2001:db8::1]":                   "ip:2001:db8::/64",
		"[::ffff:192.0.2.7]:4711":         "ip:192.0.2.7",
		"[::ffff:c000:207]:4711":          "ip:192.0.2.7",
		"[::ffff:192.0.2.7%eth0]:4711":    "ip:192.0.2.7",
		"[64:ff9b::192.0.2.7]:4711":       "ip:192.0.2.7",
		"[64:ff9b:0:1::192.0.2.7]:4711":   "ip:64:ff9b:0:1::/64",
		"[fe80::1%eth0]:4711":             "ip:fe80::/64",
		"fe80::1%a:b]:c":                  "ip:fe80::/64",
		"[::1]:4711":                      "ip:::/64",
		"@":                               "?",
		"":                                "?",
		"/run/app.sock":                   "?",
		"pipe":                            "?",
		"example.com:80":                  "?",
		"192.0.2.07:80":                   "?",
		"192.0.2.7:":                      "?",
		"192.0.2.7:http":                  "?",
		"192.0.2.7%eth0":                  "?",
		"192.0.2":                         "?",
		"3221225991":                      "?",
		"0xc0.0.2.7":                      "?",
		"[192.0.2.7]:80":                  "?",
		"[2001:db8::1":                    "?",
		"[]:80":                           "?",
		"2001:db8::1]:80":                 "?",
		"[2001:db8::1]80":                 "?",
		strings.Repeat("1", 1<<20) + ":1": "?",
	} {
		require.Equal(t, want, key(throttlehttp.IP{}.Key, via(remote, "")), "%.80s", remote)
	}
}

func TestIP_readsForwardedForFromTheRight(t *testing.T) {
	const edge, balancer, client = "203.0.113.1", "10.0.0.2:99", "192.0.2.7"
	for _, tt := range []struct {
		name, peer string
		lines      []string
		want       string
	}{
		{"one proxy", balancer, []string{client}, client},
		{"two proxies", balancer, []string{client + ", " + edge}, client},
		{"three, as narrow as can be", balancer, []string{client + "," + edge + ",10.0.0.9"}, client},
		{"forged in front", balancer, []string{"6.6.6.6, 127.0.0.1, " + client + ", " + edge}, client},
		{"forged as a proxy", balancer, []string{edge + ", 10.0.0.9, " + client + ", " + edge}, client},
		{"nobody believes a stranger", client + ":99", []string{"6.6.6.6"}, client},
		{"nor one who names a proxy", client + ":99", []string{"6.6.6.6, 10.0.0.2"}, client},
		{"each proxy adds a line", balancer, []string{client, edge}, client},
		{"forged in a line of its own", balancer, []string{"6.6.6.6", client + ", " + edge}, client},
		{"and behind it", balancer, []string{"6.6.6.6, 10.0.0.9", "6.6.6.6", client}, client},
		{"ports", balancer, []string{client + ":1234, " + edge + ":80"}, client},
		{"IPv6 with brackets and port", balancer, []string{"[2001:db8:7:7::7]:1234, [2001:db8:ed6e::1]"}, "2001:db8:7:7::/64"},
		{"IPv6 through a mapped proxy", "[::ffff:10.0.0.2]:99", []string{"2001:db8:7:7::7"}, "2001:db8:7:7::/64"},
		{"a proxy written in another way", balancer, []string{client + ", 2001:0DB8:ED6E:0::1"}, client},
		{"a proxy of another zone", balancer, []string{client + ", 2001:db8:ed6e::1%eth1"}, client},
		{"tabs", balancer, []string{"\t" + client + "\t ,\t" + edge}, client},
		{"only proxies", balancer, []string{"10.0.0.9, " + edge}, "10.0.0.9"},
		{"nothing", balancer, nil, "10.0.0.2"},
		{"an empty line", balancer, []string{client, ""}, "10.0.0.2"},
		{"a comma too many", balancer, []string{client + ","}, "10.0.0.2"},
		{"a comma in front", balancer, []string{"," + client + ", " + edge}, client},
		{"no address", balancer, []string{client + ", unknown, " + edge}, edge},
		{"no address at all", balancer, []string{client + ", localhost"}, "10.0.0.2"},
		{"leading zeros", balancer, []string{"6.6.6.6, 192.0.2.007"}, "10.0.0.2"},
		{"a number", balancer, []string{"6.6.6.6, 3221225991"}, "10.0.0.2"},
		{"a line end in it", balancer, []string{"6.6.6.6\r\n, " + client}, client},
		{"a NUL in it", balancer, []string{client + ", \x00" + edge}, "10.0.0.2"},
		{"quotes mean nothing here", balancer, []string{`"6.6.6.6, ` + client}, client},
		{"a syntax of another header", balancer, []string{"for=6.6.6.6"}, "10.0.0.2"},
	} {
		ip := throttlehttp.IP{Trusted: proxied}
		require.Equal(t, "ip:"+tt.want, key(ip.Key, via(tt.peer, "X-Forwarded-For", tt.lines...)), tt.name)
		ip.Header = "x-forwarded-for"
		require.Equal(t, "ip:"+tt.want, key(ip.Key, via(tt.peer, "X-Forwarded-For", tt.lines...)), tt.name)
	}
}

// TestIP_trustsOneHeaderOnly checks that headers other than IP.Header have no effect:
// proxies pass on headers that they do not set.
func TestIP_trustsOneHeaderOnly(t *testing.T) {
	all := []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "X-Client-Ip", "Client-Ip",
		"X-Cluster-Client-Ip", "X-Originating-Ip", "X-Remote-Ip", "X-Remote-Addr", "Forwarded-For", "X-Original-Forwarded-For", "Via"}
	for _, believed := range []string{"", "X-Forwarded-For", "forwarded", "X-Real-IP", "CF-Connecting-IP"} {
		ip := throttlehttp.IP{Trusted: proxied, Header: believed}
		r := via("10.0.0.2:99", "")
		for _, h := range all {
			r.Header.Set(h, "6.6.6.6")
		}
		r.Header.Set("Forwarded", "for=6.6.6.6")
		name, value := believed, "192.0.2.7"
		switch believed {
		case "":
			name = "X-Forwarded-For"
		case "forwarded":
			value = "for=192.0.2.7"
		}
		r.Header.Set(name, value)
		require.Equal(t, "ip:192.0.2.7", key(ip.Key, r), believed)
		r.Header.Del(name)
		require.Equal(t, "ip:10.0.0.2", key(ip.Key, r), "without %q", believed)
		r.Header.Set(name, value)
		r.RemoteAddr = "192.0.2.99:99"
		require.Equal(t, "ip:192.0.2.99", key(ip.Key, r), "from a stranger, %q", believed)
	}
}

func TestIP_readsHeadersOfOneAddress(t *testing.T) {
	ip := throttlehttp.IP{Trusted: proxied, Header: "x-real-ip"}
	for _, tt := range []struct {
		want  string
		lines []string
	}{
		{"ip:192.0.2.7", []string{" 192.0.2.7 "}},
		{"ip:192.0.2.7", []string{"192.0.2.7:80"}},
		{"ip:10.0.0.9", []string{"10.0.0.9"}},
		{"ip:10.0.0.2", []string{"192.0.2.7", "192.0.2.7"}},
		{"ip:10.0.0.2", []string{"192.0.2.7, 192.0.2.7"}},
		{"ip:10.0.0.2", []string{""}},
		{"ip:10.0.0.2", nil},
	} {
		require.Equal(t, tt.want, key(ip.Key, via("10.0.0.2:99", "X-Real-Ip", tt.lines...)), "%q", tt.lines)
	}
}

func TestIP_unixSocketsNeedTrust(t *testing.T) {
	for _, remote := range []string{"@", "", "/run/app.sock"} {
		ip := throttlehttp.IP{Trusted: proxied}
		require.Equal(t, "?", key(ip.Key, via(remote, "X-Forwarded-For", "192.0.2.7")))
		ip.TrustUnix = true
		require.Equal(t, "ip:192.0.2.7", key(ip.Key, via(remote, "X-Forwarded-For", "6.6.6.6, 192.0.2.7")))
		require.Equal(t, "?", key(ip.Key, via(remote, "X-Forwarded-For", "6.6.6.6, unix:")))
		require.Equal(t, "?", key(ip.Key, via(remote, "X-Real-IP", "192.0.2.7")))
		require.Equal(t, "ip:192.0.2.9", key(ip.Key, via("192.0.2.9:1", "X-Forwarded-For", "6.6.6.6")), "an address is no socket")
	}
}

func TestIP_groupsByNetwork(t *testing.T) {
	for _, tt := range []struct {
		four, six  int
		addr, want string
	}{
		{0, 0, "192.0.2.7", "ip:192.0.2.7"},
		{24, 0, "192.0.2.7", "ip:192.0.2.0/24"},
		{33, 0, "192.0.2.7", "ip:192.0.2.7"},
		{-1, -1, "192.0.2.7", "ip:192.0.2.7"},
		{24, 0, "::ffff:192.0.2.7", "ip:192.0.2.0/24"},
		{0, 48, "2001:db8:1:2::3", "ip:2001:db8:1::/48"},
		{0, 56, "2001:db8:1:2fff::3", "ip:2001:db8:1:2f00::/56"},
		{0, 128, "2001:db8:1:2::3", "ip:2001:db8:1:2::3"},
		{0, 200, "2001:db8:1:2::3", "ip:2001:db8:1:2::3"},
		{0, -1, "2001:db8:1:2::3", "ip:2001:db8:1:2::/64"},
	} {
		ip := throttlehttp.IP{IPv4Bits: tt.four, IPv6Bits: tt.six}
		require.Equal(t, tt.want, key(ip.Key, via(tt.addr, "")), "%+v", tt)
	}
}

func TestIP_region(t *testing.T) {
	of := throttlehttp.IP{Trusted: proxied}.Region(func(a netip.Addr) string {
		switch {
		case a.Is6():
			return "sea"
		case a == netip.MustParseAddr("192.0.2.7"):
			return "land"
		}
		return ""
	})
	require.Equal(t, "region:land", key(of, via("10.0.0.2:1", "X-Forwarded-For", "192.0.2.7")))
	require.Equal(t, "region:land", key(of, via("[64:ff9b::192.0.2.7]:1", "")))
	require.Equal(t, "region:sea", key(of, via("[2001:db8::1]:1", "")))
	require.Equal(t, "?", key(of, via("192.0.2.8:1", "")))
	require.Equal(t, "?", key(of, via("@", "")))
}

// TestIP_endsAtThe32ndProxy checks that at most 32 hops are read.
func TestIP_endsAtThe32ndProxy(t *testing.T) {
	ip := throttlehttp.IP{Trusted: proxied}
	hops := func(n int) string { return "192.0.2.7" + strings.Repeat(", 10.0.0.9", n) }
	require.Equal(t, "ip:192.0.2.7", key(ip.Key, via("10.0.0.2:1", "X-Forwarded-For", hops(31))))
	require.Equal(t, "ip:10.0.0.9", key(ip.Key, via("10.0.0.2:1", "X-Forwarded-For", hops(32))))
	require.Equal(t, "ip:10.0.0.9", key(ip.Key, via("10.0.0.2:1", "X-Forwarded-For", hops(100_000))))
	require.Equal(t, "ip:10.0.0.9", key(ip.Key, via("10.0.0.2:1", "X-Forwarded-For", "6.6.6.6", hops(15), hops(15)[11:], "10.0.0.9, 10.0.0.9")))
	require.Equal(t, "ip:192.0.2.7", key(ip.Key, via("10.0.0.2:1", "X-Forwarded-For", hops(15), strings.Repeat("10.0.0.9,", 15)+"10.0.0.9")))
	ip.Header = "Forwarded"
	hops = func(n int) string { return "for=192.0.2.7" + strings.Repeat(", for=10.0.0.9", n) }
	require.Equal(t, "ip:192.0.2.7", key(ip.Key, via("10.0.0.2:1", "Forwarded", hops(31))))
	require.Equal(t, "ip:10.0.0.9", key(ip.Key, via("10.0.0.2:1", "Forwarded", hops(32))))
	require.Equal(t, "ip:10.0.0.2", key(ip.Key, via("10.0.0.2:1", "Forwarded", hops(100_000))), "a line so long is not read")
	for n := range 100 {
		forged := strings.Repeat("for=6.6.6.6,", n)
		require.Equal(t, "ip:192.0.2.7", key(ip.Key, via("10.0.0.2:1", "Forwarded", forged+"for=192.0.2.7,for=10.0.0.9,for=10.0.0.8")), n)
	}
}

// A roundTrip is a RoundTripper that consists of one function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestIP_behindReverseProxies checks two reverse proxies of the standard library, the edge
// in front of the balancer.
func TestIP_behindReverseProxies(t *testing.T) {
	var got string
	server := http.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = key(throttlehttp.IP{Trusted: proxied}.Key, r)
	}))
	for _, address := range []string{"10.0.0.2:99", "203.0.113.1:99"} {
		next := server
		server = &httputil.ReverseProxy{
			Director: func(*http.Request) {}, // ReverseProxy appends to X-Forwarded-For, forged or not
			Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				w := httptest.NewRecorder()
				r.RemoteAddr = address
				next.ServeHTTP(w, r)
				return w.Result(), nil
			}),
		}
	}
	for remote, want := range map[string]string{"192.0.2.7:4711": "ip:192.0.2.7", "[2001:db8:7::7%eth0]:4711": "ip:2001:db8:7::/64"} {
		for _, forged := range [][]string{nil, {""}, {"6.6.6.6"}, {"6.6.6.6, 10.0.0.2"}, {"6.6.6.6", "203.0.113.1"}, {"6.6.6.6,"}} {
			got = ""
			server.ServeHTTP(httptest.NewRecorder(), via(remote, "X-Forwarded-For", forged...))
			require.Equal(t, want, got, "%q", forged)
		}
	}
}
