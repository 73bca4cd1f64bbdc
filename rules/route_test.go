package rules

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// matchedLimits returns the policies and keys of the limits that apply to r.
func matchedLimits(set *Set, r *http.Request) (names []string) {
	q := set.newSearch()
	defer q.release()
	q.req = r
	q.descend(set.root, 0)
	set.router.find(q)
	q.applyReplaces()
	for _, h := range q.hits {
		names = append(names, h.rule.limit.Policy()+optionally(h.key != "", "%s", h.key))
	}
	return names
}

// fileWithLimits returns the text of a file with one limit for each match.
func fileWithLimits(matches ...string) string {
	var b strings.Builder
	b.WriteString("domain: d\nvalues: {user: {header: X-User}, plan: {cookie: plan}, q: {query: q}}\nlimits:\n")
	for i, m := range matches {
		fmt.Fprintf(&b, "- name: n%d\n  match: %s\n  rate_limit: {unit: hour, requests_per_unit: 1}\n", i, m)
	}
	return b.String()
}

// readRequest returns a request as a server reads it.
func readRequest(t testing.TB, text string) *http.Request {
	head, rest, _ := strings.Cut(text, "\n")
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head + " HTTP/1.1\r\nHost: API.example.com:8080\r\n" + strings.ReplaceAll(rest, "\n", "\r\n") + "\r\n\r\n")))
	require.NoError(t, err)
	r.RemoteAddr = "192.0.2.1:1234"
	return r
}

func TestRouter_match(t *testing.T) {
	for _, tt := range []struct {
		match, request string
		want           bool
	}{
		{"/a", "GET /a", true},
		{"/a", "POST /a", true},
		{"/a", "GET /a?x=y", true},
		{"/a", "GET /ab", false},
		{"/a", "GET /a/b", false},
		{"/a", "GET /", false},
		{"GET /a", "GET /a", true},
		{"GET /a", "HEAD /a", true},
		{"GET /a", "POST /a", false},
		{"HEAD /a", "GET /a", false},
		{"{method: [PUT, POST], path: /a}", "POST /a", true},
		{"{method: [PUT, POST], path: /a}", "GET /a", false},
		{"POST /a", "post /a", true}, // a handler that ignores the case serves it
		{"{method: [PUT, POST], path: /a}", "Put /a", true},
		{"GET /a", "head /a", true},
		{"POST /a", "get /a", false},
		{"/login", "GET /LOGIN", false}, // as http.ServeMux, and as the documentation says
		{"/files/{id}", "GET /files/7", true},
		{"/files/{id}", "GET /files/", false},
		{"/files/{id}", "GET /files/7/x", false},
		{"/files/{id}/x", "GET /files/7/x", true},
		{"/files/{rest...}", "GET /files/7/x", true},
		{"/files/{rest...}", "GET /files", true},
		{"/files/", "GET /files/7/x", true},
		{"/files/{$}", "GET /files/", true},
		{"/files/{$}", "GET /files/7", false},
		{"/", "GET /whatever/there/is", true},
		{"/{$}", "GET /", true},
		{"/{$}", "GET /a", false},
		{"api.example.com/a", "GET /a", true},
		{"www.example.com/a", "GET /a", false},
		{"'*.example.com/a'", "GET /a", true},
		{"{host: [www.example.com, API.Example.com.]}", "GET /a", true},
		{"'*.other.com/a'", "GET /a", false},
		{"{header: {X-Plan: free}}", "GET /a\nx-plan: free", true},
		{"{header: {X-Plan: free}}", "GET /a\nx-plan: paid\nX-Plan: free", true},
		{"{header: {X-Plan: free}}", "GET /a\nX-Plan: freedom", false},
		{"{header: {X-Plan: f*e*o*}}", "GET /a\nX-Plan: freedom", true},
		{"{header: {X-Plan: '*'}}", "GET /a", false},
		{"{header: {X-Plan: '*', X-User: ann}}", "GET /a\nX-Plan: x\nX-User: ann", true},
		{"{header: {X-Plan: '*', X-User: ann}}", "GET /a\nX-Plan: x\nX-User: bob", false},
		{"{header: {X-Plan: x, X-User: ann}, path: /b}", "GET /a\nX-Plan: x\nX-User: ann", false},

		// Paths that servers may treat as equal must match too.
		{"/login", "GET //login", true},
		{"/login", "GET /./login", true},
		{"/login", "GET /x/../login", true},
		{"/login", "GET /login/", true},
		{"/login", "GET /lo%67in", true},
		{"/files/{id}", "GET /files/a%2Fb", true},
		{"/files/a/b", "GET /files/a%2Fb", true},
		{"/files/{id}", "GET /files/%2e%2e%2Fb", true},
	} {
		set, err := Parse([]byte(fileWithLimits(tt.match)), Config{})
		require.NoError(t, err, tt.match)
		require.Equal(t, tt.want, matchedLimits(set, readRequest(t, tt.request)) != nil, "%s: %s", tt.match, tt.request)
	}
}

// TestRouter_agreesWithLinearSearch compares the router with a loop over all rules, each of which
// is the only one of a Set.
func TestRouter_agreesWithLinearSearch(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 2))
	one := func(of ...string) string { return of[rng.IntN(len(of))] }
	segment := func() string { return one("a", "b", "c", "{x}", "{y}") }
	var matches []string
	var alone []*Set
	for range 400 {
		path := "/" + segment()
		for range rng.IntN(3) {
			path += "/" + one("a", "b", "c")
		}
		path += one("", "/", "/{rest...}", "/{z}", "/{$}")
		m := fmt.Sprintf("{path: '%s', method: [%s], host: [%s], header: {%s}}", path,
			one("", "GET", "POST", "GET, POST"), one("", "api.example.com", "'*.example.com'", "x.y", "'*.com', api.example.com"),
			one("", "", "X-User: ann", "X-User: a*", "X-Plan: free, X-User: '*'"))
		set, err := Parse([]byte(fileWithLimits(m)), Config{})
		require.NoError(t, err, m)
		matches, alone = append(matches, m), append(alone, set)
	}
	all, err := Parse([]byte(fileWithLimits(matches...)), Config{})
	require.NoError(t, err)
	requests := 500
	if testing.Short() {
		requests = 150
	}
	for range requests {
		text := one("GET", "POST", "HEAD", "PUT", "post", "Head") + " /"
		for range rng.IntN(5) {
			text += one("a", "b", "c", "d") + one("/", "/", "//", "%2F")
		}
		r := readRequest(t, text+one("", "\nX-User: ann", "\nX-User: bob\nX-User: ann", "\nX-Plan: free\nX-User: bob"))
		var want []string
		for i, set := range alone {
			if matchedLimits(set, r) != nil {
				want = append(want, fmt.Sprintf("n%d", i))
			}
		}
		require.Equal(t, want, matchedLimits(all, r), text)
	}
}

// TestKeys_asConfigured checks the keys of one request.
func TestKeys_asConfigured(t *testing.T) {
	const text = "GET /files/7/parts/9?q=a%20b&q=c\nX-User: ann\nCookie: plan=free"
	for key, want := range map[string][]string{
		"user":                       {"n, ann"},
		"plan":                       {"n, free"},
		"q":                          {"n, a b"},
		"path":                       {"n, /files/7/parts/9"},
		"method":                     {"n, GET"},
		"host":                       {"n, api.example.com"},
		"remote_address":             {"n, 192.0.2.1"},
		"'{id}'":                     {"n, 7"},
		"'{rest}'":                   {"n, parts/9"},
		"[user, '{id}']":             {"n, 3:ann1:7"},
		"[user, q, plan]":            {"n, 3:ann3:a b4:free"},
		"nobody":                     {"n"},
		"[nobody, user]":             {"n, 0:3:ann"},
		"nobody, unidentified: skip": nil,
	} {
		set, err := Parse([]byte("domain: d\nvalues: {user: {header: x-user}, plan: {cookie: plan}, q: {query: q}, nobody: {header: X-No}}\n"+
			"limits: [{name: n, match: '/files/{id}/{rest...}', key: "+key+", rate_limit: {unit: hour, requests_per_unit: 1}}]"), Config{})
		require.NoError(t, err, key)
		require.Equal(t, want, matchedLimits(set, readRequest(t, text)), key)
	}
}

// TestKeys_cannotBeForged sends values whose plain concatenations are equal.
func TestKeys_cannotBeForged(t *testing.T) {
	set, err := Parse([]byte("domain: d\nvalues: {a: {header: A}, b: {header: B}}\ndescriptors: [{key: a, descriptors: [{key: b, rate_limit: {unit: hour, requests_per_unit: 1}}]}]"), Config{})
	require.NoError(t, err)
	seen := map[string]string{}
	for _, pair := range [][2]string{{"x", "1:y"}, {"x1:", "y"}, {"x\x00", "y"}, {"x", "\x00y"}, {"1:x", "y"}, {strings.Repeat("x", 300), "y"}, {hashIfLong(strings.Repeat("x", 300)), "y"}} {
		r := readRequest(t, "GET /")
		r.Header["A"], r.Header["B"] = pair[:1], pair[1:]
		key := strings.Join(matchedLimits(set, r), " ")
		require.NotContains(t, seen, key, "%q and %q", seen[key], pair)
		require.Less(t, len(key), 2*maxValueLen)
		seen[key] = fmt.Sprint(pair)
	}
}

// TestValues_longValuesMakeShortKeys sends a header of 1 MiB.
func TestValues_longValuesMakeShortKeys(t *testing.T) {
	set, err := Parse([]byte("domain: d\nlimits: [{name: n, key: user, rate_limit: {unit: hour, requests_per_unit: 1}}]\nvalues: {user: {header: X-User}}"), Config{})
	require.NoError(t, err)
	r := readRequest(t, "GET /")
	r.Header.Set("X-User", strings.Repeat("x", 1<<20))
	require.Less(t, len(matchedLimits(set, r)[0]), 100)
}

// TestKeys_ofInventedMethods checks that a client that invents methods gets one further limit, and
// that the file may name any method.
func TestKeys_ofInventedMethods(t *testing.T) {
	for _, key := range []string{"method", "':method'", "m"} {
		set, err := Parse([]byte("domain: d\nvalues: {m: {request: method}}\ndescriptors:\n"+
			"- {key: "+key+", rate_limit: {unit: hour, requests_per_unit: 1}}\n- {key: "+key+", value: NOTIFY, rate_limit: {name: own, unit: hour, requests_per_unit: 1}}"), Config{})
		require.NoError(t, err)
		id := set.All()[0].ID
		for method, want := range map[string]string{"GET": id + ", GET", "HEAD": id + ", HEAD", "PROPFIND": id + ", PROPFIND", "M1": id + ", other methods", "get": id + ", other methods", "NOTIFY": "own"} {
			r := readRequest(t, "GET /")
			r.Method = method
			require.Equal(t, []string{want}, matchedLimits(set, r), "%s %s", key, method)
		}
	}
	set, err := Parse([]byte("domain: d\ndescriptors: [{key: method, rate_limit: {unit: hour, requests_per_unit: 1}}]"),
		Config{Values: map[string]func(*http.Request) (string, bool){"method": method}})
	require.NoError(t, err)
	r := readRequest(t, "GET /")
	r.Method = "M1"
	require.Equal(t, []string{"d/method, M1"}, matchedLimits(set, r), "what the program supplies stays")
}

func TestRemoteAddress_ignoresPortAndInterfaceID(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1:80":                   "192.0.2.1",
		"[2001:db8:1:2:3:4:5:6]:80":      "2001:db8:1:2::/64",
		"[2001:db8:1:2:ffff::1%eth0]:80": "2001:db8:1:2::/64",
		"[::ffff:192.0.2.1]:80":          "192.0.2.1",
		"192.0.2.1":                      "192.0.2.1", // middleware that reads a header may set no port
		"2001:db8:1:2:3:4:5:6":           "2001:db8:1:2::/64",
		"[2001:db8:1:2:3:4:5:6]":         "2001:db8:1:2::/64",
		"::ffff:192.0.2.1":               "192.0.2.1",
		"fe80::1%eth0":                   "fe80::/64",
		"client.example:80":              "client.example",
		"@":                              "@",
		"":                               "",
	} {
		got, ok := remoteAddress(&http.Request{RemoteAddr: addr})
		require.Equal(t, want, got, addr)
		require.Equal(t, want != "", ok, addr)
	}
}

// TestPatterns_firstInFileWins checks patterns that overlap.
func TestPatterns_firstInFileWins(t *testing.T) {
	set, err := Parse([]byte("domain: d\nvalues: {v: {header: V}}\ndescriptors:\n"+
		"- {key: v, value: 'ab*', rate_limit: {name: one, unit: hour, requests_per_unit: 1}}\n"+
		"- {key: v, value: 'a*', rate_limit: {name: two, unit: hour, requests_per_unit: 1}}\n"+
		"- {key: v, value: 'abc*', rate_limit: {name: never, unit: hour, requests_per_unit: 1}}\n"+
		"- {key: v, value: '*z*', rate_limit: {name: three, unit: hour, requests_per_unit: 1}}\n"+
		"- {key: v, value: 'abcd', rate_limit: {name: exact, unit: hour, requests_per_unit: 1}}\n"+
		"- {key: v, rate_limit: {name: any, unit: hour, requests_per_unit: 1}}\n"), Config{})
	require.NoError(t, err)
	for value, want := range map[string]string{
		"abcx": "one, abcx", "ax": "two, ax", "xzx": "three, xzx", "abcd": "exact", "x": "any, x", "az": "two, az", "z": "three, z",
	} {
		r := readRequest(t, "GET /")
		r.Header.Set("V", value)
		require.Equal(t, []string{want}, matchedLimits(set, r), value)
	}
}
