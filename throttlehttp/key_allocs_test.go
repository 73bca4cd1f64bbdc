package throttlehttp_test

import (
	"testing"

	"github.com/heed-go/heed/throttlehttp"
	"github.com/stretchr/testify/require"
)

// TestKeyFunc_allocatesTheKeyOnly checks that functions allocate only the key that they
// return.
func TestKeyFunc_allocatesTheKeyOnly(t *testing.T) {
	behind := throttlehttp.IP{Trusted: proxied}
	r := via("10.0.0.2:99", "X-Forwarded-For", "6.6.6.6, 2001:db8::7, 203.0.113.1:80")
	r.Header["Forwarded"] = []string{`for=6.6.6.6;by="a,b", for="[2001:db8::7]:80";proto=https`}
	r.Header["X-Tenant"], r.Header["Authorization"] = []string{"acme"}, []string{"Bearer s3cr3t"}
	r.Pattern = "GET /items/{id}"
	pooled := 1.0
	if racing {
		pooled = 10
	}
	for name, tt := range map[string]struct {
		of   throttlehttp.KeyFunc
		want float64
	}{
		"ip":        {throttlehttp.IP{}.Key, 1},
		"proxied":   {behind.Key, 1},
		"forwarded": {forwardedIP.Key, 1},
		"header":    {throttlehttp.Header("X-Tenant"), 1},
		"bearer":    {throttlehttp.Bearer, pooled},
		"path":      {throttlehttp.Path, 1},
		"route":     {throttlehttp.RoutePattern, 1},
		"method":    {throttlehttp.Method, 0},
		"constant":  {throttlehttp.Constant, 0},
		"first":     {throttlehttp.FirstOf(throttlehttp.APIKey, behind.Key), 1},
		"join":      {throttlehttp.Composite(behind.Key, throttlehttp.RoutePattern), 3},
	} {
		got := testing.AllocsPerRun(1000, func() { tt.of(r) })
		require.LessOrEqual(t, got, tt.want, name)
	}
}

func BenchmarkKeyFunc(b *testing.B) {
	r := via("10.0.0.2:99", "X-Forwarded-For", "6.6.6.6, 192.0.2.7, 203.0.113.1")
	r.Header["Forwarded"] = []string{`for=6.6.6.6, for="192.0.2.7:80";proto=https`}
	r.Header["Authorization"] = []string{"Bearer s3cr3t"}
	behind := throttlehttp.IP{Trusted: proxied}
	for name, of := range map[string]throttlehttp.KeyFunc{
		"IP": throttlehttp.IP{}.Key, "XForwardedFor": behind.Key, "Forwarded": forwardedIP.Key, "Bearer": throttlehttp.Bearer,
		"Join": throttlehttp.Composite(behind.Key, throttlehttp.Path),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				of(r)
			}
		})
	}
}
