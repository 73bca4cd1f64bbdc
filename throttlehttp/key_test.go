package throttlehttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/heed-go/heed/throttlehttp"
	"github.com/stretchr/testify/require"
)

// requestFrom returns a request from 192.0.2.7 with headers, given as names and values.
func requestFrom(headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "192.0.2.7:4711"
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// key returns the key that f returns for r, or "?" if there is none.
func key(f throttlehttp.KeyFunc, r *http.Request) string {
	if k, ok := f(r); ok {
		return k
	}
	return "?"
}

type userKey struct{}

var user = throttlehttp.FromContext("user", func(ctx context.Context) (string, bool) {
	u, ok := ctx.Value(userKey{}).(string)
	return u, ok
})

func requestAs(name string) *http.Request {
	r := requestFrom()
	return r.WithContext(context.WithValue(r.Context(), userKey{}, name))
}

func requestTo(method, target string) *http.Request {
	r := requestFrom()
	r.Method, r.Host = method, "api.example.com"
	r.URL, _ = url.Parse(target)
	return r
}

func TestKeyFunc_identifiesClients(t *testing.T) {
	const authorization, ann = "Authorization", "QW5uOmNhdA==" // Ann:cat
	tenant := throttlehttp.Header("x-tenant")
	for _, tt := range []struct {
		name string
		of   throttlehttp.KeyFunc
		r    *http.Request
		want string
	}{
		{"header", tenant, requestFrom("X-Tenant", " acme "), "header.X-Tenant:acme"},
		{"no header", tenant, requestFrom(), "?"},
		{"empty header", tenant, requestFrom("X-Tenant", ""), "?"},
		{"header twice", tenant, requestFrom("X-Tenant", "acme", "X-Tenant", "acme"), "?"},
		{"any bytes", tenant, requestFrom("X-Tenant", "a\x00b\nc\xff"), "header.X-Tenant:a\x00b\nc\xff"},
		{"128 bytes", tenant, requestFrom("X-Tenant", strings.Repeat("a", 128)), "header.X-Tenant:" + strings.Repeat("a", 128)},
		{"129 bytes", tenant, requestFrom("X-Tenant", strings.Repeat("a", 129)), "header.X-Tenant=c12cb024a2e5551cca0e08fce8f1c5e3"},
		{"user", user, requestAs("ann"), "context.user:ann"},
		{"no user", user, requestFrom(), "?"},
		{"empty user", user, requestAs(""), "?"},
		{"basic", throttlehttp.BasicUser, requestFrom(authorization, "basic "+ann), "basic:Ann"},
		{"basic twice", throttlehttp.BasicUser, requestFrom(authorization, "Basic "+ann, authorization, "Basic "+ann), "?"},
		{"basic without a user", throttlehttp.BasicUser, requestFrom(authorization, "Basic OmNhdA=="), "?"},
		{"basic, broken", throttlehttp.BasicUser, requestFrom(authorization, "Basic QW5"), "?"},
		{"bearer is not basic", throttlehttp.BasicUser, requestFrom(authorization, "Bearer "+ann), "?"},
		{"constant", throttlehttp.Constant, requestFrom(), "constant:"},
	} {
		require.Equal(t, tt.want, key(tt.of, tt.r), tt.name)
	}
}

func TestKeyFunc_identifiesRequests(t *testing.T) {
	for _, tt := range []struct {
		of   throttlehttp.KeyFunc
		r    *http.Request
		want string
	}{
		{throttlehttp.Method, requestTo("POST", "/"), "method:POST"},
		{throttlehttp.Method, requestTo("HEAD", "/"), "method:GET"},
		{throttlehttp.Method, requestTo("", "/"), "method:GET"},
		{throttlehttp.Method, requestTo("AAAA", "/"), "method:"},
		{throttlehttp.Method, requestTo("get", "/"), "method:"},
		{throttlehttp.Path, requestTo("GET", "/a/b?c=d"), "path:/a/b"},
		{throttlehttp.Path, requestTo("GET", "/a/b/"), "path:/a/b"},
		{throttlehttp.Path, requestTo("GET", "/a//./x/..//%62"), "path:/a/b"},
		{throttlehttp.Path, requestTo("GET", "/../../a/b"), "path:/a/b"},
		{throttlehttp.Path, requestTo("GET", ""), "path:/"},
		{throttlehttp.Path, requestTo("OPTIONS", "*"), "path:/*"},
		{throttlehttp.Path, requestTo("GET", "/%00%0a"), "path:/\x00\n"},
		{throttlehttp.Path, requestTo("GET", "/"+strings.Repeat("a", 1<<20)), "path=55931a698fc4dd9c15f91b82e60a7a28"},
		{throttlehttp.RoutePattern, requestTo("GET", "/a"), "?"},
		{throttlehttp.Host, requestTo("GET", "/a"), "host:api.example.com"},
	} {
		require.Equal(t, tt.want, key(tt.of, tt.r), "%s %s", tt.r.Method, tt.r.URL.Path[:min(len(tt.r.URL.Path), 20)])
	}
	for host, want := range map[string]string{
		"API.example.com.:8080": "host:api.example.com",
		"[2001:DB8::1]:443":     "host:[2001:db8::1]",
		"[2001:db8::1]":         "host:[2001:db8::1]",
		"":                      "?",
		":80":                   "?",
	} {
		r := requestFrom()
		r.Host = host
		require.Equal(t, want, key(throttlehttp.Host, r), host)
	}
}

func TestRoutePattern_isKnownInsideOfAMux(t *testing.T) {
	mux, got := http.NewServeMux(), []string(nil)
	mux.HandleFunc("GET /items/{id}", func(_ http.ResponseWriter, r *http.Request) {
		got = append(got, key(throttlehttp.RoutePattern, r))
	})
	mux.ServeHTTP(httptest.NewRecorder(), requestTo("GET", "/items/1"))
	mux.ServeHTTP(httptest.NewRecorder(), requestTo("GET", "/items/2"))
	require.Equal(t, []string{"route:GET /items/{id}", "route:GET /items/{id}"}, got)
}

func TestFirstOf_usesTheFirstKey(t *testing.T) {
	none := func(*http.Request) (string, bool) { return "nobody", false }
	f := throttlehttp.FirstOf(none, user, throttlehttp.Header("X-Tenant"))
	require.Equal(t, "context.user:ann", key(f, requestAs("ann")))
	require.Equal(t, "header.X-Tenant:acme", key(f, requestFrom("X-Tenant", "acme")))
	require.Equal(t, "?", key(f, requestFrom()), "nobody made up a name")
	require.Equal(t, "constant:", key(throttlehttp.FirstOf(f, throttlehttp.Constant), requestFrom()))
}

// TestKeyFunc_kindsAreNeverEqual checks that a client that chooses its header, cookie and
// name cannot obtain a key of another kind.
func TestKeyFunc_kindsAreNeverEqual(t *testing.T) {
	ip := throttlehttp.IP{}
	kinds := []throttlehttp.KeyFunc{
		throttlehttp.APIKey, throttlehttp.Bearer, throttlehttp.BasicUser, throttlehttp.Cookie("c"), throttlehttp.APIKeyQuery("c"),
		throttlehttp.Header("C"), throttlehttp.Constant, throttlehttp.Method, throttlehttp.Path,
		throttlehttp.Host, user, throttlehttp.KeyFrom("user", func(*http.Request) (string, bool) { return "x", true }), ip.Key,
		ip.Region(func(netip.Addr) string { return "x" }), throttlehttp.Composite(ip.Key, throttlehttp.Path),
	}
	seen := map[string]int{}
	for i, f := range kinds {
		forged := []string{"x", "192.0.2.7", "ip:192.0.2.7", "constant:", "join:12:ip:192.0.2.76:path:/", "/", "", strings.Repeat("x", 600)}
		for j := range kinds {
			if k := key(kinds[j], requestAs("x")); k != "?" {
				forged = append(forged, k, strings.TrimPrefix(k, "ip:"), "/"+k)
			}
		}
		for _, v := range forged {
			r := requestAs(v)
			r.Header = http.Header{"C": {v}, "X-Api-Key": {v}, "Cookie": {"c=" + v}, "Authorization": {"Bearer " + v}}
			r.URL.RawQuery, r.Host, r.Method, r.URL.Path = "c="+url.QueryEscape(v), v, v, v
			k, ok := f(r)
			if !ok {
				continue
			}
			if of, found := seen[k]; found {
				require.Equal(t, of, i, "%q", k)
			}
			seen[k] = i
		}
	}
	require.Greater(t, len(seen), 40)
}

func TestKeyFunc_keysAreShort(t *testing.T) {
	long := strings.Repeat("n\x00\n", 1<<20/3)
	r := requestAs(long)
	r.Header = http.Header{"X-Tenant": {long}, "X-Api-Key": {long}, "Cookie": {"c=" + strings.Repeat("c", 1<<20)}, "Authorization": {"Bearer " + long}}
	r.URL.Path, r.Host, r.Pattern, r.URL.RawQuery = long, long, long, "c="+url.QueryEscape(long)
	raw := func(*http.Request) (string, bool) { return long, true }
	parts := []throttlehttp.KeyFunc{
		throttlehttp.APIKey, throttlehttp.Bearer, throttlehttp.Cookie("c"), throttlehttp.APIKeyQuery("c"), throttlehttp.Header("X-Tenant"),
		throttlehttp.Path, throttlehttp.Host, throttlehttp.RoutePattern, user, throttlehttp.KeyFrom("raw", raw), throttlehttp.Composite(raw),
	}
	for i, f := range parts {
		k, ok := f(r)
		require.True(t, ok, i)
		require.LessOrEqual(t, len(k), 60, "%d: %.80s", i, k)
	}
	k, ok := throttlehttp.Composite(parts...)(r)
	require.True(t, ok)
	require.LessOrEqual(t, len(k), 512)
}

func TestKeyFunc_panicsOnWhatCannotWork(t *testing.T) {
	for name, build := range map[string]func(){
		"FirstOf of none":      func() { throttlehttp.FirstOf() },
		"FirstOf of nil":       func() { throttlehttp.FirstOf(throttlehttp.Bearer, nil) },
		"Composite of none":    func() { throttlehttp.Composite() },
		"Header without name":  func() { throttlehttp.Header("") },
		"Header with a blank":  func() { throttlehttp.Header("X Tenant") },
		"Header with a colon":  func() { throttlehttp.Header("X-Tenant:") },
		"Cookie with equals":   func() { throttlehttp.Cookie("a=b") },
		"Query without name":   func() { throttlehttp.APIKeyQuery("") },
		"FromContext unnamed":  func() { throttlehttp.FromContext("", func(context.Context) (string, bool) { return "", false }) },
		"FromContext of nil":   func() { throttlehttp.FromContext("user", nil) },
		"Named of nil":         func() { throttlehttp.KeyFrom("user", nil) },
		"Place without places": func() { throttlehttp.IP{}.Region(nil) },
	} {
		func() {
			defer func() { require.Contains(t, fmt.Sprint(recover()), "throttlehttp: ", name) }()
			build()
		}()
	}
}
