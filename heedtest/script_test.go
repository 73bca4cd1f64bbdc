package heedtest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/heedtest"
	"github.com/heed-go/heed/throttle"
)

// A recordingT is a test that records its failures. It ends with end.
type recordingT struct {
	testing.TB
	cleanups []func()
	failures []string
}

func (t *recordingT) Helper() {}

func (t *recordingT) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

func (t *recordingT) Errorf(format string, args ...any) {
	t.failures = append(t.failures, fmt.Sprintf(format, args...))
}

func (t *recordingT) end() {
	for _, f := range t.cleanups {
		f()
	}
}

// TestExactScript_countsRequests checks scripts that are not used up, used up, and continued.
func TestExactScript_countsRequests(t *testing.T) {
	responses := []heedtest.Response{{Status: 500}, {Status: 503}, {Body: "done"}}
	for n, want := range map[int][]string{
		0: {"heedtest: ExactScript: 0 requests arrived for 3 responses"},
		2: {"heedtest: ExactScript: 2 requests arrived for 3 responses"},
		3: nil,
		5: {"heedtest: ExactScript: 5 requests arrived for 3 responses"},
	} {
		recorder := &recordingT{TB: t}
		s := &heedtest.Server{Respond: heedtest.ExactScript(recorder, responses...)}
		statuses := []int{}
		inMemory(t, s, func(t *testing.T) { statuses = append(statuses, at(t, s, make([]time.Duration, n)...)...) })
		require.Equal(t, []int{500, 503, 200, 200, 200}[:n], statuses)
		require.Empty(t, recorder.failures, "the test has not ended")
		recorder.end()
		require.Equal(t, want, recorder.failures)
	}
	empty := &recordingT{TB: t}
	heedtest.ExactScript(empty)
	empty.end()
	require.Empty(t, empty.failures)
}

// TestExactScript_inATest checks a script in a bubble that heed uses up by its retries.
func TestExactScript_inATest(t *testing.T) {
	s := &heedtest.Server{Respond: heedtest.ExactScript(t, heedtest.Response{Status: 503}, heedtest.Response{Fault: heedtest.Reset}, heedtest.Response{})}
	inMemory(t, s, func(t *testing.T) {
		status, _, err := fetch(heed.NewClient(&heed.Transport{Base: s.Transport()}), "GET", s.URL, "")
		require.NoError(t, err)
		require.Equal(t, 200, status)
	})
}

// TestRoutes_match checks methods, wildcards, hosts and what no pattern matches, over HTTP/1.1
// and HTTP/2.
func TestRoutes_match(t *testing.T) {
	always := func(body string) func(heedtest.Request) heedtest.Response {
		return respondAlways(heedtest.Response{Body: body})
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/files/", http.NotFound)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/files", http.NoBody))
	redirect := w.Code // 301 in Go 1.25, 307 in later versions
	for _, p := range protocols {
		s := &heedtest.Server{HTTP2: p.http2, TLS: p.tls, Respond: heedtest.Routes(map[string]func(heedtest.Request) heedtest.Response{
			"GET /items/{id}":       func(r heedtest.Request) heedtest.Response { return heedtest.Response{Body: r.Method + " " + r.URL} },
			"POST /items":           heedtest.Script(heedtest.Response{Status: 429}, heedtest.Response{Status: 201, Body: "created"}),
			"/files/":               always("file"),
			"other.example/":        always("other host"),
			"GET /healthz":          nil,
			"GET /a%2Fb/{rest...}":  always("escaped"),
			"DELETE /items/special": always("deleted"),
		})}
		inMemory(t, s, func(t *testing.T) {
			c := s.Client()
			c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			for _, tt := range []struct {
				method, url string
				status      int
				body        string // empty: any
			}{
				{"GET", s.URL + "/items/7?full=1", 200, "GET /items/7?full=1"},
				{"GET", s.URL + "/items/special", 200, "GET /items/special"},
				{"HEAD", s.URL + "/items/7", 200, ""},
				{"DELETE", s.URL + "/items/special", 200, "deleted"},
				{"DELETE", s.URL + "/items/7", 405, "Method Not Allowed\n"},
				{"POST", s.URL + "/items", 429, ""},
				{"POST", s.URL + "/items", 201, "created"},
				{"POST", s.URL + "/items", 200, "ok\n"},
				{"GET", s.URL + "/files/a/b", 200, "file"},
				{"GET", s.URL + "/files", redirect, ""},
				{"GET", s.URL + "/files//a", redirect, ""},
				{"GET", s.URL + "/healthz", 200, "ok\n"},
				{"GET", s.URL + "/a%2Fb/c", 200, "escaped"},
				{"GET", s.URL + "/unknown", 404, "404 page not found\n"},
				{"OPTIONS", s.URL + "/files/*", 200, "file"},
				{"GET", scheme(p.tls) + "other.example/unknown", 200, "other host"},
				{"CONNECT", s.URL, 404, ""},
			} {
				name := fmt.Sprint(tt.method, " ", tt.url)
				if tt.method == "CONNECT" && p.http2 {
					continue // the client of net/http sends no CONNECT for an URL
				}
				status, body, err := fetch(c, tt.method, tt.url, "")
				require.NoError(t, err, name)
				require.Equal(t, tt.status, status, name)
				if tt.body != "" {
					require.Equal(t, tt.body, body, name)
				}
			}
		})
	}
}

func scheme(tls bool) string {
	if tls {
		return "https://"
	}
	return "http://"
}

// TestRoutes_statesAllowedMethods checks the header of a response that ServeMux makes.
func TestRoutes_statesAllowedMethods(t *testing.T) {
	r := heedtest.Routes(map[string]func(heedtest.Request) heedtest.Response{"PUT /x": nil})(heedtest.Request{Method: "GET", URL: "/x"})
	require.Equal(t, http.StatusMethodNotAllowed, r.Status)
	require.Equal(t, "PUT", r.Header.Get("Allow"))
}

// TestRoutes_hostileTargets checks that no target of a request panics.
func TestRoutes_hostileTargets(t *testing.T) {
	respond := heedtest.Routes(map[string]func(heedtest.Request) heedtest.Response{"/x": nil})
	for _, target := range []string{"", "*", "host:443", "%zz", "http://", "//", "/x/../y", ":", "\x00", "x"} {
		for _, method := range []string{"", "GET", "CONNECT", "OPTIONS"} {
			r := respond(heedtest.Request{Method: method, URL: target})
			require.Contains(t, []int{301, 307, 404}, r.Status, "%s %q", method, target)
		}
	}
}

func TestRoutes_invalidPatternsPanic(t *testing.T) {
	for _, patterns := range [][]string{{""}, {"GET"}, {"/{"}, {"/{a}/x", "/x/{b}"}} {
		routes := map[string]func(heedtest.Request) heedtest.Response{}
		for _, p := range patterns {
			routes[p] = nil
		}
		require.Panics(t, func() { heedtest.Routes(routes) }, patterns)
	}
}

// TestBusiest_findsTheFullestInterval checks the ends of intervals.
func TestBusiest_findsTheFullestInterval(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		per  time.Duration
		at   []time.Duration
		want []int // N of the requests
	}{
		{20 * ms, nil, []int{}},
		{20 * ms, []time.Duration{5}, []int{1}},
		{20 * ms, []time.Duration{0, 20 * ms, 40 * ms}, []int{1}},
		{20 * ms, []time.Duration{0, 20 * ms, 40*ms - 1}, []int{2, 3}},
		{20 * ms, []time.Duration{100 * ms, 0, 19 * ms, 5 * ms, 20 * ms}, []int{2, 4, 3}},
		{time.Second, []time.Duration{0, 3000 * ms, 3500 * ms, 4000*ms - 1, 9000 * ms}, []int{2, 3, 4}},
		{0, []time.Duration{1, 2, 2, 3}, []int{2, 3}},
		{-time.Hour, []time.Duration{1, 2, 2, 3}, []int{2, 3}},
		{time.Duration(1<<63 - 1), []time.Duration{1, 2, 3}, []int{1, 2, 3}},
	} {
		requests := make([]heedtest.Request, 0, len(tt.at))
		for i, at := range tt.at {
			requests = append(requests, heedtest.Request{N: i + 1, At: time.Unix(0, 0).Add(at)})
		}
		got := []int{}
		for _, r := range heedtest.Busiest(requests, tt.per) {
			got = append(got, r.N)
		}
		require.Equal(t, tt.want, got, "%v %v", tt.per, tt.at)
		for i, r := range requests {
			require.Equal(t, i+1, r.N, "the slice of the caller keeps its order")
		}
	}
}

// TestBusiest_measuresAClient checks the figures of a plain client and of heed with a limit.
func TestBusiest_measuresAClient(t *testing.T) {
	for want, transport := range map[int]func(http.RoundTripper) http.RoundTripper{
		30: func(base http.RoundTripper) http.RoundTripper { return base },
		5: func(base http.RoundTripper) http.RoundTripper {
			return &heed.Transport{Base: base, Limiter: throttle.NewTokenBucket(throttle.PerSecond(5).WithBurst(1))}
		},
	} {
		s := &heedtest.Server{}
		inMemory(t, s, func(t *testing.T) {
			c := &http.Client{Transport: transport(s.Transport())}
			var all sync.WaitGroup
			for range 30 {
				all.Go(func() { _, _, _ = fetch(c, "GET", s.URL, "") })
			}
			all.Wait()
			require.Len(t, s.Requests(), 30)
			require.Len(t, heedtest.Busiest(s.Requests(), time.Second), want)
		})
	}
}
