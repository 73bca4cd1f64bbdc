package throttlehttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttlehttp"
)

// TestIP_boundsTheHeader checks the longest inputs that are read, and that one byte more is
// not.
func TestIP_boundsTheHeader(t *testing.T) {
	pad := func(s string, n int) string { return s + strings.Repeat(" ", n-len(s)) }
	zone := func(n int) string { return "fe80::1%" + strings.Repeat("z", n-len("fe80::1%")) }
	forwarded := throttlehttp.IP{Trusted: proxied, Header: "Forwarded"}
	for name, c := range map[string]struct {
		ip   throttlehttp.IP
		r    *http.Request
		want string
	}{
		"Forwarded of 8 KiB":             {forwarded, via("10.0.0.1:1", "Forwarded", pad("for=192.0.2.7", 8<<10)), "ip:192.0.2.7"},
		"Forwarded of more":              {forwarded, via("10.0.0.1:1", "Forwarded", pad("for=192.0.2.7", 8<<10+1)), "ip:10.0.0.1"},
		"an address of 100 bytes":        {throttlehttp.IP{}, via(zone(100), "X"), "ip:fe80::/64"},
		"an address of 101 bytes":        {throttlehttp.IP{}, via(zone(101), "X"), ""},
		"a port that is not a number":    {throttlehttp.IP{}, via("192.0.2.7:x", "X"), ""},
		"a port that ends in a letter":   {throttlehttp.IP{}, via("192.0.2.7:1x", "X"), ""},
		"a port of one digit":            {throttlehttp.IP{}, via("192.0.2.7:1", "X"), "ip:192.0.2.7"},
		"a hidden port":                  {throttlehttp.IP{}, via("[2001:db8::1]:_x", "X"), "ip:2001:db8::/64"},
		"an IPv4 network of one bit":     {throttlehttp.IP{IPv4Bits: 1}, via("192.0.2.7:1", "X"), "ip:128.0.0.0/1"},
		"an IPv6 network of one bit":     {throttlehttp.IP{IPv6Bits: 1}, via("[8001::7]:1", "X"), "ip:8000::/1"},
		"a negative network":             {throttlehttp.IP{IPv4Bits: -1, IPv6Bits: -1}, via("[2001:db8::1]:1", "X"), "ip:2001:db8::/64"},
		"a small IPv6 network is itself": {throttlehttp.IP{Trusted: prefixes("2001:db8::/100")}, via("[2fff::1]:1", "X-Forwarded-For", "192.0.2.7"), "ip:2fff::/64"},
		"an empty hop before a proxy":    {throttlehttp.IP{Trusted: proxied}, via("10.0.0.1:1", "X-Forwarded-For", "192.0.2.7", ",10.0.0.9"), "ip:10.0.0.9"},
		"32 hops in a line":              {throttlehttp.IP{Trusted: proxied}, via("10.0.0.1:1", "X-Forwarded-For", "192.0.2.7"+strings.Repeat(",10.0.0.9", 31)), "ip:192.0.2.7"},
		"33 hops in a line":              {throttlehttp.IP{Trusted: proxied}, via("10.0.0.1:1", "X-Forwarded-For", "192.0.2.7"+strings.Repeat(",10.0.0.9", 32)), "ip:10.0.0.9"},
		"32 hops in two lines":           {throttlehttp.IP{Trusted: proxied}, via("10.0.0.1:1", "X-Forwarded-For", "192.0.2.7", "10.0.0.9"+strings.Repeat(",10.0.0.9", 30)), "ip:192.0.2.7"},
		"33 hops in two lines":           {throttlehttp.IP{Trusted: proxied}, via("10.0.0.1:1", "X-Forwarded-For", "192.0.2.7", "10.0.0.9"+strings.Repeat(",10.0.0.9", 31)), "ip:10.0.0.9"},
		"32 hops of Forwarded":           {forwarded, via("10.0.0.1:1", "Forwarded", "for=192.0.2.7", "for=10.0.0.9"+strings.Repeat(",for=10.0.0.9", 30)), "ip:192.0.2.7"},
		"33 hops of Forwarded":           {forwarded, via("10.0.0.1:1", "Forwarded", "for=192.0.2.7"+strings.Repeat(",for=10.0.0.9", 32)), "ip:10.0.0.9"},
	} {
		key, ok := c.ip.Key(c.r)
		require.Equal(t, c.want, key, name)
		require.Equal(t, c.want != "", ok, name)
	}
}

// TestRule_boundsKeys checks the longest key that is not hashed.
func TestRule_boundsKeys(t *testing.T) {
	for n, long := range map[int]bool{512: false, 513: true} {
		l := new(keyRecorder)
		m := &throttlehttp.Middleware{Rules: []throttlehttp.Rule{{Limiter: l, Key: func(*http.Request) (string, bool) { return strings.Repeat("k", n), true }}}}
		m.Handler(ok).ServeHTTP(httptest.NewRecorder(), requestFrom())
		require.Len(t, l.keys, 1)
		require.Equal(t, long, strings.HasPrefix(l.keys[0], "long="), n)
	}
	for n, long := range map[int]bool{128: false, 129: true} {
		f := throttlehttp.KeyFrom("plan", func(*http.Request) (string, bool) { return strings.Repeat("k", n), true })
		key, _ := f(requestFrom())
		require.Equal(t, long, strings.HasPrefix(key, "named.plan="), n)
	}
	require.Panics(t, func() { throttlehttp.KeyFrom("a b", func(*http.Request) (string, bool) { return "", true }) })
}

// A keyRecorder grants every claim and records its key.
type keyRecorder struct{ keys []string }

func (l *keyRecorder) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	l.keys = append(l.keys, c.Key)
	return throttle.Decision{OK: true}, nil
}

func (*keyRecorder) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {}

// Traits implements throttle.Limiter.
func (*keyRecorder) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }
