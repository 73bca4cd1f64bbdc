package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/rules/source"
	"github.com/heed-go/heed/throttle"
)

const testToken = "a token for tests only"

// noLimits is a file without limits of its own.
const noLimits = "domain: test\nlimits: [{name: all, rate_limit: {unit: second, requests_per_unit: 1000000, algorithm: token_bucket}}]"

// newTestStore returns a store in a new file.
func newTestStore(t *testing.T) *tenantStore {
	s, err := openTenantStore(filepath.Join(t.TempDir(), "tenants.db"))
	require.NoError(t, err)
	t.Cleanup(func() { s.close() })
	return s
}

// newTestAdmin returns the admin API of a new store, and the limits that follow it.
func newTestAdmin(t *testing.T) (http.Handler, *tenantLimits) {
	store := newTestStore(t)
	limits := newTenantLimits(store.lookup, time.Hour)
	admin, err := newAdmin(store, testToken, limits.refresh)
	require.NoError(t, err)
	return admin, limits
}

// adminCall sends a request with the token. header holds names and values by turns.
func adminCall(h http.Handler, method, path, body string, header ...string) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest(method, path, strings.NewReader(body)), httptest.NewRecorder()
	r.Header.Set("Authorization", "Bearer "+testToken)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	h.ServeHTTP(w, r)
	return w
}

func TestAdmin_createsChangesAndRemoves(t *testing.T) {
	admin, _ := newTestAdmin(t)
	const acme = `{"name":"acme","requests":5,"per":"1h0m0s"}`
	var first, second string
	for _, step := range []struct {
		method, path, body string
		header             []string
		status             int
		want               string // part of the body
		tag                *string
	}{
		{method: "GET", path: "/tenants/acme", status: 404, want: "there is no such tenant"},
		{method: "GET", path: "/tenants", status: 200, want: `{"tenants":[]}`},
		{method: "PUT", path: "/tenants/acme", body: acme, header: []string{"If-Match", "*"}, status: 404, want: "there is no such tenant"},
		{method: "DELETE", path: "/tenants/acme", header: []string{"If-Match", "*"}, status: 404, want: "there is no such tenant"},
		{method: "POST", path: "/tenants", body: acme, status: 201, want: acme, tag: &first},
		{method: "POST", path: "/tenants", body: acme, status: 409, want: "exists already"},
		{method: "GET", path: "/tenants/acme", status: 200, want: acme},
		{method: "PUT", path: "/tenants/acme", body: acme, status: 428, want: "If-Match"},
		{method: "PUT", path: "/tenants/acme", body: acme, header: []string{"If-Match", `"0"`}, status: 412, want: "changed meanwhile"},
		{method: "PUT", path: "/tenants/acme", body: `{"requests":6,"per":"1h"}`, header: []string{"If-Match", "$first"}, status: 200, want: `"requests":6`, tag: &second},
		{method: "PUT", path: "/tenants/acme", body: acme, header: []string{"If-Match", "$first"}, status: 412, want: "changed meanwhile"},
		{method: "GET", path: "/tenants/acme", header: []string{"If-None-Match", "$second"}, status: 304},
		{method: "GET", path: "/tenants/acme", header: []string{"If-None-Match", "$first"}, status: 200, want: `"requests":6`},
		{method: "DELETE", path: "/tenants/acme", status: 428, want: "If-Match"},
		{method: "DELETE", path: "/tenants/acme", header: []string{"If-Match", "$first"}, status: 412, want: "changed meanwhile"},
		{method: "DELETE", path: "/tenants/acme", header: []string{"If-Match", `"7", ` + "$second"}, status: 204},
		{method: "GET", path: "/tenants/acme", status: 404},
		{method: "POST", path: "/tenants", body: acme, status: 201},
		{method: "PUT", path: "/tenants/acme", body: acme, header: []string{"If-Match", "$second"}, status: 412, want: "changed meanwhile"},
		{method: "PATCH", path: "/tenants/acme", status: 405},
	} {
		header := append([]string(nil), step.header...)
		for i := range header {
			header[i] = strings.NewReplacer("$first", first, "$second", second).Replace(header[i])
		}
		w := adminCall(admin, step.method, step.path, step.body, header...)
		require.Equal(t, step.status, w.Code, "%v: %s", step, w.Body)
		require.Contains(t, w.Body.String(), step.want, "%v", step)
		if step.tag != nil {
			*step.tag = w.Header().Get("ETag")
			require.NotEmpty(t, *step.tag)
		}
		if w.Code == http.StatusCreated {
			require.Equal(t, "/tenants/acme", w.Header().Get("Location"))
		}
	}
}

func TestAdmin_rejectsInvalidTenants(t *testing.T) {
	admin, _ := newTestAdmin(t)
	for _, tt := range []struct {
		body, kind string
		status     int
		want       string
	}{
		{`{"name":"a","requests":1,"per":"1s"}`, "text/plain", 415, "application/json"},
		{"", "application/json", 400, "EOF"},
		{`{"name":"a"`, "application/json", 400, "unexpected EOF"},
		{`{"name":"a","limit":1}`, "application/json", 400, `unknown field \"limit\"`},
		{`{"name":"a","requests":1,"per":"1s"} {}`, "application/json", 400, "something after"},
		{`{"name":"a","requests":1,"per":60}`, "application/json", 400, "per must be a string"},
		{`{"name":"a","requests":1,"per":"1 day"}`, "application/json", 400, `per is \"1 day\"`},
		{`{"name":"a","requests":1,"per":"0s"}`, "application/json", 422, "per is 0s: it must be from 1ms to 744h0m0s"},
		{`{"name":"a","requests":1,"per":"-1s"}`, "application/json", 422, "per is -1s"},
		{`{"name":"a","requests":1,"per":"745h"}`, "application/json", 422, "per is 745h0m0s"},
		{`{"name":"a","per":"1s"}`, "application/json", 422, "requests is 0: it must be from 1 to 1000000000"},
		{`{"name":"a","requests":-5,"per":"1s"}`, "application/json", 422, "requests is -5"},
		{`{"name":"a","requests":1,"per":"1s","burst":-1}`, "application/json", 422, "burst is -1"},
		{`{"name":"a","requests":1,"per":"744h","burst":1000000000}`, "application/json", 422, "longer than 36 years"},
		{`{"name":"a","requests":1,"per":"1s","unlimited":true}`, "application/json", 422, "unlimited is true"},
		{`{"requests":1,"per":"1s"}`, "application/json", 422, `name is \"\"`},
		{`{"name":"../x","requests":1,"per":"1s"}`, "application/json", 422, `name is \"../x\"`},
		{`{"name":"` + strings.Repeat("a", 65) + `","requests":1,"per":"1s"}`, "application/json", 422, "1 to 64 letters"},
		{`{"name":"` + strings.Repeat("a", 5000) + `"}`, "application/json", 413, "longer than 4096 bytes"},
	} {
		w := adminCall(admin, "POST", "/tenants", tt.body, "Content-Type", tt.kind)
		require.Equal(t, tt.status, w.Code, tt.body)
		require.Contains(t, w.Body.String(), tt.want, tt.body)
		require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"), tt.body)
	}
	require.Equal(t, 422, adminCall(admin, "PUT", "/tenants/b", `{"name":"a","requests":1,"per":"1s"}`, "If-Match", "*").Code)
	require.Equal(t, `{"tenants":[]}`+"\n", adminCall(admin, "GET", "/tenants", "").Body.String())
}

func TestAdmin_listsPageByPage(t *testing.T) {
	admin, _ := newTestAdmin(t)
	for i := range 250 {
		require.Equal(t, 201, adminCall(admin, "POST", "/tenants", fmt.Sprintf(`{"name":"t%03d","requests":1,"per":"1s"}`, i)).Code)
	}
	var names []string
	for after, pages := "", 0; ; pages++ {
		require.Less(t, pages, 3)
		var page listResponse
		w := adminCall(admin, "GET", "/tenants?after="+after, "")
		require.Equal(t, 200, w.Code)
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &page))
		require.LessOrEqual(t, len(page.Tenants), 100)
		for _, x := range page.Tenants {
			names = append(names, x.Name)
		}
		if after = page.Next; after == "" {
			break
		}
	}
	require.Len(t, names, 250)
	require.IsIncreasing(t, names)
	for _, limit := range []string{"0", "-1", "1001", "many"} {
		require.Equal(t, 400, adminCall(admin, "GET", "/tenants?limit="+limit, "").Code, limit)
	}
	require.Equal(t, 1, strings.Count(adminCall(admin, "GET", "/tenants?limit=1&after=t100x", "").Body.String(), "name"))
}

func TestAdmin_authenticates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := newAdmin(newTestStore(t), "short", nil)
		require.ErrorContains(t, err, "at least 16")
		admin, _ := newTestAdmin(t)
		for _, value := range []string{"", "Bearer", "Bearer ", "Bearer wrong", "Basic " + testToken, testToken, "Bearer " + testToken + "x"} {
			w := adminCall(admin, "GET", "/tenants", "", "Authorization", value)
			require.Equal(t, 401, w.Code, value)
			require.NotEmpty(t, w.Header().Get("WWW-Authenticate"))
		}
		require.Equal(t, 200, adminCall(admin, "GET", "/tenants", "").Code)
		for range failedLogins {
			adminCall(admin, "GET", "/tenants", "", "Authorization", "Bearer guess")
		}
		require.Equal(t, 429, adminCall(admin, "GET", "/tenants", "", "Authorization", "Bearer guess").Code, "guesses are limited")
	})
}

func TestAdmin_reportsAFailedDatabase(t *testing.T) {
	store := newTestStore(t)
	changes := 0
	admin, err := newAdmin(store, testToken, func() { changes++ })
	require.NoError(t, err)
	require.NoError(t, store.close())
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		w := adminCall(admin, method, "/tenants/a", `{"requests":1,"per":"1s"}`, "If-Match", "*")
		require.Equal(t, 500, w.Code)
		require.Contains(t, w.Body.String(), "nothing was changed")
	}
	require.Equal(t, 500, adminCall(admin, "POST", "/tenants", `{"name":"a","requests":1,"per":"1s"}`).Code)
	require.Equal(t, 500, adminCall(admin, "GET", "/tenants", "").Code)
	require.Zero(t, changes)
}

// TestAdmin_noUpdateIsLost lets ten clients increase a limit at the same time. Each repeats a
// change that was rejected with 412.
func TestAdmin_noUpdateIsLost(t *testing.T) {
	admin, _ := newTestAdmin(t)
	require.Equal(t, 201, adminCall(admin, "POST", "/tenants", `{"name":"a","requests":1,"per":"1s"}`).Code)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			for done := 0; done < 5; {
				w := adminCall(admin, "GET", "/tenants/a", "")
				var x tenant
				if !assert.NoError(t, json.Unmarshal(w.Body.Bytes(), &x)) {
					return
				}
				x.Requests++
				body, _ := json.Marshal(x)
				switch status := adminCall(admin, "PUT", "/tenants/a", string(body), "If-Match", w.Header().Get("ETag")).Code; status {
				case 200:
					done++
				case 412:
				default:
					assert.Fail(t, "status", "%d", status)
					return
				}
			}
		})
	}
	all.Wait()
	require.Contains(t, adminCall(admin, "GET", "/tenants/a", "").Body.String(), `"requests":51`)
}

// TestTenants_changesApplyImmediately checks that requests follow each change, and that used
// units stay used.
func TestTenants_changesApplyImmediately(t *testing.T) {
	admin, limits := newTestAdmin(t)
	g, _, _ := newTestGatewayWith(t, noLimits, gatewayConfig{tenants: limits})
	granted := func(n int) (ok int) {
		for range n {
			if w := serveRequest(g, "GET", "/users/", tenantHeader, "acme"); w.Code == 200 {
				ok++
			} else {
				require.Equal(t, 429, w.Code)
			}
		}
		return ok
	}
	change := func(method, path, body string) {
		w := adminCall(admin, method, path, body, "If-Match", "*")
		require.Less(t, w.Code, 300, w.Body)
	}
	require.Zero(t, granted(3), "unknown")
	change("POST", "/tenants", `{"name":"acme","requests":5,"per":"24h"}`)
	require.Equal(t, 3, granted(3))
	change("PUT", "/tenants/acme", `{"requests":50,"per":"24h"}`)
	require.Equal(t, 2, granted(5), "three of five were used: a higher limit restores sooner and adds none")
	change("PUT", "/tenants/acme", `{"unlimited":true}`)
	require.Equal(t, 100, granted(100))
	change("PUT", "/tenants/acme", `{"requests":5,"per":"24h"}`)
	require.Zero(t, granted(5), "used units stay used")
	change("DELETE", "/tenants/acme", "")
	require.Zero(t, granted(5))
	change("POST", "/tenants", `{"name":"acme","requests":5,"per":"24h"}`)
	require.Zero(t, granted(5), "also when the tenant is created again")
	require.Equal(t, 403, serveRequest(g, "GET", "/users/").Code, "no tenant")
	require.Equal(t, 403, serveRequest(g, "GET", "/users/", tenantHeader, "a/b").Code)
}

// TestTenants_otherCopiesFollowWithinTheTTL checks a copy that looks tenants up at another
// one, with a clock of a bubble.
func TestTenants_otherCopiesFollowWithinTheTTL(t *testing.T) {
	store := newTestStore(t) // bbolt waits outside of the bubble
	synctest.Test(t, func(t *testing.T) {
		admin, err := newAdmin(store, testToken, func() {})
		require.NoError(t, err)
		lookups := 0
		client := &http.Client{Transport: handlerTransport{admin, &lookups}}
		base, err := url.Parse("http://admin.test/")
		require.NoError(t, err)
		limits := newTenantLimits(remoteTenants(client, base, testToken), 30*time.Second)
		limit := func() int64 {
			d, err := limits.limiter.Reserve(t.Context(), throttle.Claim{Key: "acme", DryRun: true})
			require.NoError(t, err)
			return d.Limit
		}
		_, err = store.create(tenant{Name: "acme", Requests: 5, Per: duration(time.Hour)})
		require.NoError(t, err)
		require.EqualValues(t, 5, limit())
		_, err = store.replace(tenant{Name: "acme", Requests: 9, Per: duration(time.Hour)}, func(uint64) bool { return true })
		require.NoError(t, err)
		for range 20 {
			require.EqualValues(t, 5, limit())
			time.Sleep(time.Second)
		}
		require.Equal(t, 1, lookups)
		time.Sleep(10 * time.Second)
		require.EqualValues(t, 9, limit())
		require.Equal(t, 2, lookups)
		require.NoError(t, store.remove("acme", func(uint64) bool { return true }))
		time.Sleep(30 * time.Second)
		require.Zero(t, limit())
	})
}

// A handlerTransport calls a handler.
type handlerTransport struct {
	h     http.Handler
	calls *int
}

func (t handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	*t.calls++
	w := httptest.NewRecorder()
	r = r.Clone(r.Context())
	r.RemoteAddr = "192.0.2.1:1234"
	t.h.ServeHTTP(w, r)
	return w.Result(), nil
}

func TestTenants_lookupAtAnotherCopyFails(t *testing.T) {
	for name, tt := range map[string]struct {
		status int
		body   string
		want   error
	}{
		"missing":        {404, "", source.ErrNoLimit},
		"wrong token":    {401, "", nil},
		"no JSON":        {200, "<html>", nil},
		"another tenant": {200, `{"name":"b","requests":1,"per":"1s"}`, nil},
		"invalid":        {200, `{"name":"acme"}`, nil},
		"unlimited":      {200, `{"name":"acme","unlimited":true}`, source.ErrUnlimited},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tt.status)
			io.WriteString(w, tt.body)
		}))
		base, err := url.Parse(s.URL)
		require.NoError(t, err)
		_, err = remoteTenants(s.Client(), base, testToken)(t.Context(), "acme")
		require.Error(t, err, name)
		if tt.want != nil {
			require.ErrorIs(t, err, tt.want, name)
		} else {
			require.NotErrorIs(t, err, source.ErrNoLimit, name)
		}
		s.Close()
	}
}

// TestTenantStore_reportsBadFiles checks the errors of databases that cannot be used.
func TestTenantStore_reportsBadFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "good.db")
	s, err := openTenantStore(path)
	require.NoError(t, err)
	for i := range 500 {
		_, err := s.create(tenant{Name: "t" + strconv.Itoa(i), Requests: 1, Per: duration(time.Second)})
		require.NoError(t, err)
	}
	_, err = openTenantStore(path)
	require.ErrorContains(t, err, "good.db: it is in use by another process")
	require.NoError(t, s.close())
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	for name, bad := range map[string][]byte{
		"text":          []byte(strings.Repeat("limits: []\n", 1000)),
		"short":         []byte("x"),
		"truncated":     good[:len(good)/2],
		"three pages":   good[:3*4096],
		"zeroed pages":  append(bytes.Clone(good[:8192]), make([]byte, len(good)-8192)...),
		"random bytes":  append(bytes.Clone(good[:8192]), bytes.Repeat([]byte{0xa5, 3, 0xff}, (len(good)-8192)/3)...),
		"broken record": bytes.ReplaceAll(good, []byte(`"requests":1,`), []byte(`"requests":0,`)),
	} {
		path := filepath.Join(t.TempDir(), "bad.db")
		require.NoError(t, os.WriteFile(path, bad, 0o600))
		_, err := openTenantStore(path)
		require.ErrorContains(t, err, "gateway: the database "+path+": ", name)
		t.Log(name, ": ", err)
	}
	_, err = openTenantStore(filepath.Join(t.TempDir(), "none", "x.db"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = openTenantStore(t.TempDir())
	require.Error(t, err)
}

// TestMain runs a gateway instead of the tests in a child of TestTenants_surviveKill.
func TestMain(m *testing.M) {
	db := os.Getenv("GATEWAY_TEST_DATABASE")
	if db == "" {
		os.Exit(m.Run())
	}
	c := config{listen: "127.0.0.1:0", admin: "127.0.0.1:0", file: os.Getenv("GATEWAY_TEST_RULES"), users: os.Getenv("GATEWAY_TEST_API"),
		database: db, adminToken: testToken, tenantTTL: time.Hour}
	check(c.serve(context.Background(), func(public, admin net.Addr) { fmt.Println(public, admin) }))
}

// startChild starts a gateway in a process of its own, and returns the URLs of its servers.
func startChild(t *testing.T, db, rules, api string) (cmd *exec.Cmd, public, admin string) {
	cmd = exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "GATEWAY_TEST_DATABASE="+db, "GATEWAY_TEST_RULES="+rules, "GATEWAY_TEST_API="+api)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	_, err = fmt.Fscan(out, &public, &admin)
	require.NoError(t, err)
	return cmd, "http://" + public, "http://" + admin
}

// TestTenants_surviveKill kills a gateway while tenants are created: each one whose creation
// was confirmed is there after a restart, and its limit applies.
func TestTenants_surviveKill(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer api.Close()
	dir := t.TempDir()
	db, rules := filepath.Join(dir, "tenants.db"), filepath.Join(dir, "limits.yaml")
	require.NoError(t, os.WriteFile(rules, []byte(noLimits), 0o600))
	send := func(method, url, body, tenant string) (int, error) {
		req, err := http.NewRequest(method, url, strings.NewReader(body))
		if err != nil {
			return 0, err
		}
		req.Header.Set("Authorization", "Bearer "+testToken)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set(tenantHeader, tenant)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, err
	}
	created := 0
	for round := range 3 {
		child, _, admin := startChild(t, db, rules, api.URL)
		enough := make(chan struct{}, 1)
		go func() {
			<-enough
			child.Process.Kill()
		}()
		for last := created + 10 + 7*round; ; {
			if created >= last {
				select {
				case enough <- struct{}{}: // the kill and the next requests happen at the same time
				default:
				}
			}
			status, err := send("POST", admin+"/tenants", fmt.Sprintf(`{"name":"t%d","requests":2,"per":"24h"}`, created), "")
			if err != nil {
				break // killed
			}
			if status == http.StatusConflict { // stored by the killed process, which could not say so
				status = http.StatusCreated
			}
			require.Equal(t, http.StatusCreated, status)
			created++
		}
		child.Wait()
	}
	require.Positive(t, created)
	_, public, admin := startChild(t, db, rules, api.URL)
	for i := range created {
		status, err := send("GET", fmt.Sprintf("%s/tenants/t%d", admin, i), "", "")
		require.NoError(t, err)
		require.Equal(t, 200, status, "tenant %d of %d", i, created)
	}
	for i, want := range []int{200, 200, 429} {
		status, err := send("GET", public+"/users/", "", "t0")
		require.NoError(t, err)
		require.Equal(t, want, status, i)
	}
	status, err := send("GET", public+"/users/", "", "unknown")
	require.NoError(t, err)
	require.Equal(t, 429, status)
}

func TestConfig_reportsContradictions(t *testing.T) {
	for _, tt := range []struct {
		c    config
		want string
	}{
		{config{database: "x.db", remote: "http://x", tenantTTL: 1}, "exclude each other"},
		{config{database: "x.db"}, "-tenants-ttl"},
		{config{database: filepath.Join(t.TempDir(), "x.db"), adminToken: "short", tenantTTL: 1}, "at least 16"},
	} {
		_, _, _, err := tt.c.tenants()
		require.ErrorContains(t, err, tt.want)
	}
}
