package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// newTestGateway returns a gateway that counts in this process, and the path of its file.
func newTestGateway(t *testing.T, text string) (g *gateway, file string, reloaded chan error) {
	return newTestGatewayWith(t, text, nil)
}

func newTestGatewayWith(t *testing.T, text string, tenants *tenantLimits) (g *gateway, file string, reloaded chan error) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.URL.Path+" for "+r.Header.Get("X-Forwarded-For"))
	}))
	t.Cleanup(api.Close)
	to, err := url.Parse(api.URL)
	require.NoError(t, err)
	file, reloaded = filepath.Join(t.TempDir(), "limits.yaml"), make(chan error, 16)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	g, err = newGateway(file, to, to, nil, nil, func(err error) { reloaded <- err }, tenants)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.close()) })
	return g, file, reloaded
}

func serveRequest(g *gateway, method, path string, header ...string) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest(method, path, nil), httptest.NewRecorder()
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	g.ServeHTTP(w, r)
	return w
}

func TestGateway_forwardsWhatIsAllowed(t *testing.T) {
	g, _, _ := newTestGateway(t, limits)
	w := serveRequest(g, http.MethodGet, "/users/7")
	require.Equal(t, 200, w.Code)
	require.Equal(t, "/users/7 for 192.0.2.1", w.Body.String())
	require.Equal(t, "19", w.Header().Get("X-RateLimit-Remaining"))
	require.Equal(t, 404, serveRequest(g, http.MethodGet, "/elsewhere").Code)
}

// slow are the limits of the example, of which no units are restored during a test.
var slow = strings.Replace(limits, "unit: minute", "unit: day", 1)

func TestGateway_limitsEachClient(t *testing.T) {
	g, _, _ := newTestGateway(t, slow)
	for range 5 {
		require.Equal(t, 200, serveRequest(g, http.MethodPost, "/orders/", "Authorization", "Bearer ann").Code)
	}
	for name, accept := range map[string]string{"curl": "*/*", "browser": "text/html,application/xhtml+xml,*/*;q=0.8"} {
		w := serveRequest(g, http.MethodPost, "/orders/", "Authorization", "Bearer ann", "Accept", accept)
		require.Equal(t, 429, w.Code, name)
		require.NotEmpty(t, w.Header().Get("Retry-After"), name)
		require.Contains(t, w.Body.String(), "Try again in", name)
		require.NotContains(t, w.Body.String(), "ann", name)
		require.NotContains(t, w.Body.String(), "orders", "%s: nobody's business", name)
	}
	require.Equal(t, 200, serveRequest(g, http.MethodPost, "/orders/", "Authorization", "Bearer bob").Code)
	require.Equal(t, 200, serveRequest(g, http.MethodGet, "/users/", "Authorization", "Bearer ann").Code)
}

func TestGateway_allowDecidesForOthers(t *testing.T) {
	g, _, _ := newTestGateway(t, limits)
	for _, step := range []struct {
		query  string
		status int
		want   allowResponse
	}{
		{"?key=mail&cost=4", 200, allowResponse{Allowed: true, Remaining: 6}},
		{"?key=mail&cost=6", 200, allowResponse{Allowed: true}},
		{"?key=mail", 429, allowResponse{}},
		{"?key=other", 200, allowResponse{Allowed: true, Remaining: 9}},
	} {
		w := serveRequest(g, http.MethodGet, "/allow"+step.query)
		require.Equal(t, step.status, w.Code, step.query)
		var v allowResponse
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &v), step.query)
		require.Equal(t, !v.Allowed, v.RetryAfter > 0, step.query)
		v.RetryAfter = 0
		require.Equal(t, step.want, v, step.query)
	}
	for _, query := range []string{"", "?key=", "?key=a&cost=0", "?key=a&cost=-1", "?key=a&cost=many", "?key=a&cost=9223372036854775807"} {
		require.Equal(t, 400, serveRequest(g, http.MethodGet, "/allow"+query).Code, query)
	}
}

func TestGateway_followsItsFile(t *testing.T) {
	g, file, reloaded := newTestGateway(t, slow)
	for range 5 {
		serveRequest(g, http.MethodPost, "/orders/")
	}
	require.Equal(t, 429, serveRequest(g, http.MethodPost, "/orders/").Code)
	replace := func(text string) error {
		require.NoError(t, os.WriteFile(file+".new", []byte(text), 0o600))
		require.NoError(t, os.Rename(file+".new", file))
		return <-reloaded
	}
	require.ErrorContains(t, replace("limits: [{name: orders, rate_limit: {unit: fortnight}}]"), "fortnight")
	require.Equal(t, 429, serveRequest(g, http.MethodPost, "/orders/").Code, "the old limits stay")
	require.NoError(t, replace(strings.Replace(slow, "requests_per_unit: 5,", "requests_per_unit: 6,", 1)))
	require.Equal(t, 200, serveRequest(g, http.MethodPost, "/orders/").Code, "one more")
	require.Equal(t, 429, serveRequest(g, http.MethodPost, "/orders/").Code, "the five still count")
}

// Two copies share one Redis, and continue without it. If one copy grants all ten requests,
// Redis decides: without Redis it would grant five.
func TestGateway_copiesShare(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil && os.Getenv("CI") != "true" {
		t.Skip("redis-server is not installed: one in memory cannot run the scripts")
	}
	demo, err := build(time.Minute) // a slow machine must not count as an outage
	require.NoError(t, err)
	defer demo.close()
	granted := func(copy, n int, path string) (served int) {
		for range n {
			if status, _ := demo.request(copy, http.MethodGet, path, ""); status == 200 {
				served++
			}
		}
		return served
	}
	require.Equal(t, 10, granted(0, 12, "/allow?key=mail"))
	require.Zero(t, granted(1, 3, "/allow?key=mail"), "the other copy knows")
	demo.stopRedis()
	require.Equal(t, 5, granted(0, 12, "/allow?key=fax"), "its share")
	require.Equal(t, 5, granted(1, 12, "/allow?key=fax"), "its share")
}

func TestGateway_reportsAMissingFile(t *testing.T) {
	_, err := newGateway(filepath.Join(t.TempDir(), "none.yaml"), nil, nil, nil, nil, nil, nil)
	require.ErrorContains(t, err, "none.yaml")
}
