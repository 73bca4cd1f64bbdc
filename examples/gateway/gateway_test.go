package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
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

	"github.com/heed-go/heed/throttlehttp"
)

// newTestGateway returns a gateway that counts in this process, and the path of its file.
// Its clients are ann, bob and mailer, whose tokens are their names.
func newTestGateway(t *testing.T, text string) (g *gateway, file string, reloaded chan error) {
	known := new(clients)
	known.set("ann", "bob", "mailer")
	return newTestGatewayWith(t, text, gatewayConfig{clients: known})
}

func newTestGatewayWith(t *testing.T, text string, c gatewayConfig) (g *gateway, file string, reloaded chan error) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range limitHeaders {
			w.Header().Set(name, "of the API")
		}
		fmt.Fprintf(w, "%s for %s of %s with %q", r.URL.Path, r.Header.Get("X-Forwarded-For"), r.Header.Get(tenantHeader), r.Header.Get("Authorization"))
	}))
	t.Cleanup(api.Close)
	to, err := url.Parse(api.URL)
	require.NoError(t, err)
	file, reloaded = filepath.Join(t.TempDir(), "limits.yaml"), make(chan error, 16)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	c.file, c.users, c.orders, c.onReload = file, to, to, func(err error) { reloaded <- err }
	if c.operations == nil {
		c.operations = newOperations()
	}
	g, err = newGateway(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.close()) })
	return g, file, reloaded
}

func serveRequest(g http.Handler, method, path string, header ...string) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest(method, path, nil), httptest.NewRecorder()
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	g.ServeHTTP(w, r)
	return w
}

func TestGateway_forwardsWhatIsAllowed(t *testing.T) {
	g, _, _ := newTestGateway(t, limits)
	w := serveRequest(g, http.MethodGet, "/users/7", "Authorization", "Bearer ann", tenantHeader, "bob")
	require.Equal(t, 200, w.Code)
	require.Equal(t, `/users/7 for 192.0.2.1 of ann with ""`, w.Body.String(), "the API learns who it is, and not the token")
	require.Equal(t, []string{"19"}, w.Header()["X-Ratelimit-Remaining"], "and no second set of headers")
	require.NotContains(t, w.Header(), "Ratelimit")
	require.Equal(t, 404, serveRequest(g, http.MethodGet, "/elsewhere", "Authorization", "Bearer ann").Code)

	open, _, _ := newTestGatewayWith(t, limits, gatewayConfig{})
	w = serveRequest(open, http.MethodGet, "/users/7", "Authorization", "Bearer x", tenantHeader, "bob")
	require.Equal(t, `/users/7 for 192.0.2.1 of bob with "Bearer x"`, w.Body.String(), "without clients, tokens are for the API")
	require.Equal(t, 404, serveRequest(open, http.MethodGet, "/allow?key=a").Code)
}

// An invented token is never a key: each request with another one is rejected, and their number
// is limited by address, also for the APIs.
func TestGateway_inventedTokensGetNothing(t *testing.T) {
	g, _, _ := newTestGateway(t, strings.Replace(limits, "unit: second, requests_per_unit: 100", "unit: day, requests_per_unit: 3", 1))
	for i, value := range []string{"", "Bearer", "Bearer nobody", "Basic ann", "ann", "Bearer ann bob"} {
		w := serveRequest(g, http.MethodGet, "/users/", "Authorization", value)
		require.Equal(t, 401, w.Code, value)
		require.NotEmpty(t, w.Header().Get("WWW-Authenticate"), i)
	}
	statuses := map[int]int{}
	for i := range 2 * failedLogins {
		statuses[serveRequest(g, http.MethodGet, "/users/", "Authorization", fmt.Sprint("Bearer ", i)).Code]++
	}
	require.InDelta(t, failedLogins, statuses[401], 50, "1,000 per minute, and what is restored meanwhile")
	require.Equal(t, 429, serveRequest(g, http.MethodGet, "/users/", "Authorization", "Bearer ann").Code, "the address is limited")

	g, _, _ = newTestGateway(t, strings.Replace(limits, "unit: second, requests_per_unit: 100", "unit: day, requests_per_unit: 3", 1))
	for i, name := range []string{"ann", "bob", "mailer", "ann"} {
		require.Equal(t, i < 3, serveRequest(g, http.MethodGet, "/users/", "Authorization", "Bearer "+name).Code == 200, "all clients of an address together")
	}
}

// Behind a balancer the address is the one that it reports.
func TestGateway_trustsItsBalancer(t *testing.T) {
	for trusted, want := range map[string]int{"": 429, "192.0.2.0/24": 200} {
		networks, err := parseNetworks(trusted)
		require.NoError(t, err)
		g, _, _ := newTestGatewayWith(t, slow, gatewayConfig{address: throttlehttp.IP{Trusted: networks}})
		for range 5 {
			serveRequest(g, http.MethodPost, "/orders/", "X-Forwarded-For", "198.51.100.1")
		}
		require.Equal(t, want, serveRequest(g, http.MethodPost, "/orders/", "X-Forwarded-For", "198.51.100.2").Code, trusted)
	}
	_, err := parseNetworks("10.0.0.0/8, x")
	require.ErrorContains(t, err, "-trusted")
}

func TestClients_reload(t *testing.T) {
	hash := func(token string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(token))) }
	path := filepath.Join(t.TempDir(), "clients.txt")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	write("# clients\n\nann " + hash("one") + "\nann " + hash("two") + "\nmailer  " + hash("three") + " allow\n")
	c, err := loadClients(path)
	require.NoError(t, err)
	find := func(token string) client {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", "bearer "+token)
		found, _ := c.find(r)
		return found
	}
	require.Equal(t, []client{{name: "ann"}, {name: "ann"}, {name: "mailer", mayAllow: true}, {}}, []client{find("one"), find("two"), find("three"), find(hash("one"))})
	for text, want := range map[string]string{
		"ann":                            "needs the SHA-256",
		"ann one":                        "needs the SHA-256",
		"ann " + strings.Repeat("x", 64): "clients.txt:1: the SHA-256",
		"a/b " + hash("one"):             "the name",
		"ann " + hash("one") + " admin":  "only the word allow",
		"\nann " + hash("x") + "\nbob " + hash("x"): "clients.txt:3: ann and bob have the same token",
	} {
		write(text)
		require.ErrorContains(t, c.reload(), want, text)
		require.Equal(t, "ann", find("one").name, "as before")
	}
	write("ann " + hash("two"))
	require.NoError(t, c.reload())
	require.Empty(t, find("one").name, "revoked")
	_, err = loadClients(path + "x")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Operators see health, metrics and a log without secrets; /readyz fails before requests do.
func TestGateway_isOperated(t *testing.T) {
	o := newOperations()
	known := new(clients)
	known.set("ann")
	g, _, _ := newTestGatewayWith(t, slow, gatewayConfig{clients: known, operations: o})
	var out bytes.Buffer
	h := accessLog(slog.New(slog.NewJSONHandler(&out, nil)), throttlehttp.IP{}, g)
	for range 6 {
		serveRequest(h, http.MethodPost, "/orders/7?secret=x", "Authorization", "Bearer ann")
	}
	serveRequest(h, http.MethodGet, "/users/", "Authorization", "Bearer wrong")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 7)
	for i, want := range map[int][]string{
		0: {`"method":"POST"`, `"path":"/orders/7"`, `"status":200`, `"client":"ann"`, `"limit":""`, `"from":"192.0.2.1"`},
		5: {`"status":429`, `"client":"ann"`, `"limit":"orders"`},
		6: {`"status":401`, `"client":""`},
	} {
		for _, part := range want {
			require.Contains(t, lines[i], part)
		}
	}
	require.NotContains(t, out.String(), "secret")
	require.NotContains(t, out.String(), "wrong")

	ops := o.handler(nil)
	require.Equal(t, 200, serveRequest(ops, http.MethodGet, "/healthz").Code)
	require.Equal(t, 200, serveRequest(ops, http.MethodGet, "/readyz").Code)
	require.Equal(t, 404, serveRequest(ops, http.MethodGet, "/tenants").Code)
	metrics := serveRequest(ops, http.MethodGet, "/metrics").Body.String()
	require.Contains(t, metrics, "go_goroutines")
	require.Contains(t, metrics, `heed_server_requests_total{heed_limit_name="orders",heed_result="rejected"} 1`)
	o.stopping.Store(true)
	require.Equal(t, 503, serveRequest(ops, http.MethodGet, "/readyz").Code)
	require.Equal(t, 200, serveRequest(ops, http.MethodGet, "/healthz").Code)
}

// A gateway that is stopped ends running requests, and serves TLS with a certificate that is replaced.
func TestConfig_servesAndStops(t *testing.T) {
	started, finish := make(chan bool), make(chan bool)
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { started <- true; <-finish }))
	defer api.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "limits.yaml")
	require.NoError(t, os.WriteFile(file, []byte(limits), 0o600))
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writeCertificate(t, cert, key, 1)
	c := config{listen: "127.0.0.1:0", admin: "127.0.0.1:0", file: file, users: api.URL, orders: api.URL, cert: cert, key: key, timeout: time.Minute, tenantTTL: 1}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	type addresses struct{ public, admin net.Addr }
	ready, ended := make(chan addresses, 1), make(chan error, 1)
	go func() { ended <- c.serve(ctx, func(public, admin net.Addr) { ready <- addresses{public, admin} }) }()
	at := <-ready
	browser := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	get := func(url string) (*http.Response, error) {
		resp, err := browser.Get(url)
		if err == nil {
			resp.Body.Close()
		}
		return resp, err
	}
	resp, err := get("https://" + at.public.String() + "/none")
	require.NoError(t, err)
	require.EqualValues(t, 1, resp.TLS.PeerCertificates[0].SerialNumber.Int64())
	writeCertificate(t, cert, key, 2)
	resp, err = get("https://" + at.public.String() + "/none")
	require.NoError(t, err)
	require.EqualValues(t, 2, resp.TLS.PeerCertificates[0].SerialNumber.Int64())
	resp, err = get("http://" + at.admin.String() + "/readyz")
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode)

	statuses := make(chan int, 1)
	go func() {
		resp, err := get("https://" + at.public.String() + "/users/")
		require.NoError(t, err)
		statuses <- resp.StatusCode
	}()
	<-started
	stop()
	close(finish)
	require.Equal(t, 200, <-statuses)
	require.NoError(t, <-ended)
	_, err = get("https://" + at.public.String() + "/none")
	require.Error(t, err)
	c.cert = file
	require.Error(t, c.serve(t.Context(), nil), "that is no certificate")
}

// writeCertificate writes a certificate with a serial number, and its key.
func writeCertificate(t *testing.T, certFile, keyFile string, serial int64) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	require.NoError(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	changed := time.Unix(1_700_000_000+serial, 0)
	require.NoError(t, os.Chtimes(certFile, changed, changed))
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
		require.NotContains(t, w.Body.String(), "orders", "%s: not for clients", name)
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
		w := serveRequest(g, http.MethodGet, "/allow"+step.query, "Authorization", "Bearer mailer")
		require.Equal(t, step.status, w.Code, step.query)
		var v allowResponse
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &v), step.query)
		require.Equal(t, !v.Allowed, v.RetryAfter > 0, step.query)
		v.RetryAfter = 0
		require.Equal(t, step.want, v, step.query)
	}
	for _, query := range []string{"", "?key=", "?key=a&cost=0", "?key=a&cost=-1", "?key=a&cost=many", "?key=a&cost=9223372036854775807"} {
		require.Equal(t, 400, serveRequest(g, http.MethodGet, "/allow"+query, "Authorization", "Bearer mailer").Code, query)
	}
	require.Equal(t, 403, serveRequest(g, http.MethodGet, "/allow?key=mail", "Authorization", "Bearer ann").Code)
	require.Equal(t, 401, serveRequest(g, http.MethodGet, "/allow?key=mail").Code)
}

func TestGateway_followsItsFile(t *testing.T) {
	g, file, reloaded := newTestGatewayWith(t, slow, gatewayConfig{})
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
			if status, _ := demo.request(copy, http.MethodGet, path, "mailer"); status == 200 {
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

func TestConfig_lint(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, config{file: "limits.yaml"}.lint(&out))
	require.Equal(t, 1, strings.Count(out.String(), "\n"), "clients ask for allow: %s", &out)
	require.Contains(t, out.String(), `limits.yaml:20:17: gateway/allow: requests have no "allow"`)
	file := filepath.Join(t.TempDir(), "limits.yaml")
	require.NoError(t, os.WriteFile(file, []byte("domain: a\nlimits: 1\n"), 0o600))
	require.ErrorContains(t, config{file: file}.lint(&out), "limits")
	require.Error(t, config{file: file + "x"}.lint(&out))
}

func TestGateway_reportsAMissingFile(t *testing.T) {
	_, err := newGateway(gatewayConfig{file: filepath.Join(t.TempDir(), "none.yaml"), operations: newOperations()})
	require.ErrorContains(t, err, "none.yaml")
}
