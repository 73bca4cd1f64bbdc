package throttlehttp_test

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
	"github.com/heed-go/heed/throttlehttp"
)

const (
	problem = "application/problem+json"
	page    = "text/html; charset=utf-8"
	text    = "text/plain; charset=utf-8"
)

// rejection returns the response to a rejected request with these values of Accept.
func rejection(m *throttlehttp.Middleware, method string, accept ...string) *http.Response {
	w, r := httptest.NewRecorder(), httptest.NewRequest(method, "/", nil)
	r.Header["Accept"] = accept
	m.Handler(ok).ServeHTTP(w, r)
	return w.Result()
}

func TestRejection_negotiatesTheFormat(t *testing.T) {
	m := &throttlehttp.Middleware{Limiter: fixedDecision{d: throttle.Decision{Policy: "inner", Wait: 5 * time.Second, Limit: 9}}}
	for name, tt := range map[string]struct {
		accept []string
		want   string
	}{
		"curl":              {[]string{"*/*"}, problem},
		"Go":                {nil, problem},
		"fetch":             {[]string{"*/*"}, problem},
		"axios":             {[]string{"application/json, text/plain, */*"}, problem},
		"jQuery":            {[]string{"application/json, text/javascript, */*; q=0.01"}, problem},
		"httpie":            {[]string{"application/json, */*;q=0.5"}, problem},
		"Chrome":            {[]string{"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7"}, page},
		"Firefox":           {[]string{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}, page},
		"Safari":            {[]string{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}, page},
		"an old browser":    {[]string{"text/html, application/xhtml+xml, */*"}, page},
		"w3m":               {[]string{"text/html, text/*;q=0.5, image/*, application/*"}, page},
		"an image":          {[]string{"image/avif,image/webp,*/*;q=0.8"}, problem},
		"only images":       {[]string{"image/png"}, problem},
		"nothing":           {[]string{"*/*;q=0"}, problem},
		"text":              {[]string{"text/plain"}, text},
		"text of any kind":  {[]string{"text/*"}, page},
		"anything but HTML": {[]string{"text/html;q=0, text/*"}, text},
		"rather text":       {[]string{"text/html;q=0.5, text/plain;q=0.501"}, text},
		"other types":       {[]string{"image/png, text/html;q=0.5"}, page},
		"a wildcard":        {[]string{"text/plain;q=0.5, */*"}, problem},
		"a type, and all":   {[]string{"application/*;q=0.1, text/*;q=0.5, */*"}, page},
		"a name twice":      {[]string{"text/html;q=0.3, text/html;q=0.8, text/plain;q=0.5"}, page},
		"a name twice, too": {[]string{"text/html;q=0.8, text/html;q=0.3, text/plain;q=0.5"}, page},
		"a name before all": {[]string{"text/html;q=0.2, text/*;q=0.9"}, text},
		"no HTML":           {[]string{"text/html;q=0"}, problem},
		"a thousandth":      {[]string{"text/html;q=0.001, */*;q=0.001"}, page},
		"one and none":      {[]string{"text/html;q=1, text/plain"}, page},
		"above one":         {[]string{"text/html;q=1.000, text/plain;q=1.999"}, page},
		"decimals":          {[]string{"text/html;q=0.45, text/plain;q=0.5"}, text},
		"nine and eight":    {[]string{"text/html;q=0.9, text/plain;q=0.8"}, page},
		"a zero":            {[]string{"text/html;q=0.805, text/plain;q=0.8"}, page},
		"after the digits":  {[]string{"text/html;q=0.:, text/plain;q=0.001"}, text},
		"before the digits": {[]string{"text/html;q=0./, text/plain;q=0.001"}, text},
		"no number":         {[]string{"text/html;q=0.x"}, problem},
		"four decimals":     {[]string{"text/html;q=0.1234, text/plain;q=0.1"}, text},
		"4 KiB":             {[]string{strings.Repeat(",", 4<<10-9), "text/html"}, page},
		"more than 4 KiB":   {[]string{strings.Repeat(",", 4<<10-8), "text/html"}, problem},
		"more in one line":  {[]string{strings.Repeat(",", 4<<10-8) + "text/html"}, problem},
		"several lines":     {[]string{"application/json;q=0.1", "Text/Plain;Q=0.2"}, text},
		"odd case":          {[]string{"TEXT/HTML"}, page},
		"a broken weight":   {[]string{"text/html;q=high, text/plain;q=0.1"}, text},
		"too many decimals": {[]string{"text/html;q=0.9999, text/plain;q=0.1"}, text},
		"more than all":     {[]string{"text/html;q=2, text/plain;q=0.1"}, text},
		"named beats any":   {[]string{"*/*, application/json;q=0.1, text/html;q=0.2, text/plain;q=0.3"}, text},
		"a capital weight":  {[]string{"text/html;q=0.5, text/plain;Q=0.1"}, page},
		"over the top":      {[]string{"text/html, text/plain;q=1.5"}, page},
		"more than one":     {[]string{"text/html;q=2"}, problem},
		"a fourth decimal":  {[]string{"text/html;q=0.1234"}, problem},
		"almost one":        {[]string{"text/html;q=0.99, text/plain"}, text},
		"empty":             {[]string{""}, problem},
		"commas":            {[]string{",,;,/,;q=;q,text/html"}, page},
		"a MiB":             {[]string{strings.Repeat("a/b,", 1<<18) + "text/html"}, problem},
	} {
		r := rejection(m, http.MethodGet, tt.accept...)
		require.Equal(t, tt.want, r.Header.Get("Content-Type"), name)
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusTooManyRequests, r.StatusCode, name)
		require.Contains(t, string(body), "Too many requests", name)
		require.Contains(t, string(body), "Try again in 5 seconds.", name)
		require.True(t, strings.HasSuffix(string(body), "\n"), "%s: a prompt follows on a line of its own", name)
		require.Equal(t, "no-store", r.Header.Get("Cache-Control"), name)
		require.Empty(t, r.Header.Values("Vary"), "%s: of what must not be stored", name)
	}
}

func TestRejection_isAProblem(t *testing.T) {
	for name, tt := range map[string]struct {
		d    throttle.Decision
		want map[string]any
	}{
		"with a time": {throttle.Decision{Wait: 1500 * time.Millisecond}, map[string]any{
			"type": throttlehttp.QuotaExceeded, "title": "Too many requests", "status": 429.0,
			"detail": "Try again in 2 seconds.", "retry_after": 2.0,
		}},
		"without": {throttle.Decision{}, map[string]any{
			"type": throttlehttp.QuotaExceeded, "title": "Too many requests", "status": 429.0, "detail": "Try again later.",
		}},
		"for ever": {throttle.Decision{Wait: throttle.Forever}, map[string]any{
			"type": throttlehttp.QuotaExceeded, "title": "Too many requests", "status": 429.0,
			"detail": "This request cannot be taken at any time.",
		}},
	} {
		r := rejection(&throttlehttp.Middleware{Limiter: fixedDecision{d: tt.d}}, http.MethodGet)
		var got map[string]any
		require.NoError(t, json.NewDecoder(r.Body).Decode(&got), name)
		require.Equal(t, tt.want, got, name)
	}
}

// TestRejection_roundsTheTimeUp checks from which time on a larger unit is used.
func TestRejection_roundsTheTimeUp(t *testing.T) {
	for seconds, want := range map[time.Duration]string{
		1: "1 second", 2: "2 seconds", 120: "120 seconds", 121: "3 minutes", 180: "3 minutes", 181: "4 minutes", 7200: "120 minutes",
		7201: "3 hours", 172800: "48 hours", 172801: "3 days",
	} {
		m := &throttlehttp.Middleware{Limiter: fixedDecision{d: throttle.Decision{Wait: seconds * time.Second}}}
		var got struct {
			Detail     string
			RetryAfter time.Duration `json:"retry_after"`
		}
		require.NoError(t, json.NewDecoder(rejection(m, http.MethodGet).Body).Decode(&got))
		require.Equal(t, "Try again in "+want+".", got.Detail)
		require.Equal(t, seconds, got.RetryAfter)
	}
}

func TestRejection_headHasNoBody(t *testing.T) {
	s := httptest.NewServer((&throttlehttp.Middleware{Limiter: fixedDecision{d: throttle.Decision{Wait: time.Second}}}).Handler(ok))
	defer s.Close()
	head, err := s.Client().Head(s.URL)
	require.NoError(t, err)
	defer head.Body.Close()
	get, err := s.Client().Get(s.URL)
	require.NoError(t, err)
	defer get.Body.Close()
	body, err := io.ReadAll(head.Body)
	require.NoError(t, err)
	require.Empty(t, body)
	head.Header.Del("Date")
	get.Header.Del("Date")
	require.Equal(t, get.Header, head.Header, "they say the same")
	require.NotEmpty(t, get.Header.Get("Content-Length"))
}

// TestRejection_replacesHeadersOfTheResponse checks that headers that describe the
// response that is not sent are replaced or deleted.
func TestRejection_replacesHeadersOfTheResponse(t *testing.T) {
	h := (&throttlehttp.Middleware{Limiter: fixedDecision{}}).Handler(ok)
	w := httptest.NewRecorder()
	for _, key := range []string{"Content-Encoding", "Etag", "Last-Modified", "Cache-Control", "Content-Length", "Content-Type", "Vary"} {
		w.Header().Set(key, "7")
	}
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, http.Header{
		"Content-Type": {problem}, "Cache-Control": {"no-store"}, "X-Content-Type-Options": {"nosniff"}, "Vary": {"7"},
	}, w.Header())
}

func TestRejection_canBeChangedByOnReject(t *testing.T) {
	m := &throttlehttp.Middleware{
		Limiter: fixedDecision{d: throttle.Decision{Policy: "penalty", Wait: time.Second}},
		OnReject: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			f, found := throttlehttp.RejectionFrom(r.Context())
			require.True(t, found)
			require.Equal(t, "penalty", f.Decision.Policy)
			require.Equal(t, http.StatusTooManyRequests, f.Status)
			f.Type, f.Status = `https://example.com/"busy"`, http.StatusServiceUnavailable
			w.Header().Set("Retry-After", "7")
			f.ServeHTTP(w, r)
		}),
	}
	r := rejection(m, http.MethodGet)
	var got map[string]any
	require.NoError(t, json.NewDecoder(r.Body).Decode(&got))
	require.Equal(t, map[string]any{
		"type": `https://example.com/"busy"`, "title": "Service Unavailable", "status": 503.0,
		"detail": "Try again in 7 seconds.", "retry_after": 7.0,
	}, got)

	for kind, title := range map[string]string{
		throttlehttp.AbnormalUsage: "Unusual use", throttlehttp.ReducedCapacity: "Too busy at the moment", "": "Rejected",
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		throttlehttp.Rejection{Type: kind, Status: 599}.ServeHTTP(w, r)
		require.Contains(t, w.Body.String(), strconv.Quote(title))
	}
	w := httptest.NewRecorder()
	throttlehttp.Rejection{}.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	_, found := throttlehttp.RejectionFrom(t.Context())
	require.False(t, found)
}

// TestRejection_keepsSecrets checks that no format of a rejection reveals keys, addresses
// or names of limits, whatever has failed.
func TestRejection_keepsSecrets(t *testing.T) {
	secrets := []string{"key-of-ann", "10.0.0.7", "inner-name"}
	key := func(*http.Request) (string, bool) { return "key-of-ann", true }
	for name, l := range map[string]throttle.Limiter{
		"rejected": fixedDecision{d: throttle.Decision{Policy: "inner-name", Wait: time.Second, Limit: 5}},
		"failed":   fixedDecision{err: &throttle.RejectedError{Key: "10.0.0.7", Decision: throttle.Decision{Policy: "inner-name"}}},
	} {
		for _, w := range []*queue.Queue{nil, {MaxWait: time.Millisecond}} {
			for _, accept := range []string{"*/*", "text/html", "text/plain"} {
				m := &throttlehttp.Middleware{
					Rules: []throttlehttp.Rule{{Limiter: l, Key: key}}, Queue: w, FailClosed: true,
					Dialect: headers.XRateLimit | headers.Draft03 | headers.XRetryAfter | headers.XResetAfter,
				}
				r := rejection(m, http.MethodGet, accept)
				body, _ := io.ReadAll(r.Body)
				require.GreaterOrEqual(t, r.StatusCode, 400, name)
				for _, s := range secrets {
					require.NotContains(t, string(body), s, name)
					for _, v := range r.Header {
						require.NotContains(t, strings.Join(v, ""), s, name)
					}
				}
			}
		}
	}
}

// TestRejection_retryAfterIsANumber checks that Retry-After is a number of seconds and
// never a date.
func TestRejection_retryAfterIsANumber(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for i := range 2000 {
		wait := time.Duration(rnd.Int64N(1 << uint(1+i%62)))
		m := &throttlehttp.Middleware{
			Limiter: fixedDecision{d: throttle.Decision{Wait: wait, Limit: 5}},
			Dialect: headers.Dialect(1 + rnd.IntN(31)), RetryAfterJitter: time.Duration(rnd.Int64N(int64(time.Hour))) * time.Duration(i%2),
		}
		for key, values := range rejection(m, http.MethodGet).Header {
			if !strings.HasSuffix(key, "Retry-After") {
				continue
			}
			n, err := strconv.ParseUint(values[0], 10, 64)
			require.NoError(t, err)
			least := min(uint64(wait.Seconds()), 999999999)
			require.GreaterOrEqual(t, n, least)
			require.LessOrEqual(t, n, least+1+uint64(m.RetryAfterJitter.Seconds())+1)
		}
	}
}

func TestMiddleware_retryAfterJitterOnlyAdds(t *testing.T) {
	m := &throttlehttp.Middleware{Limiter: fixedDecision{d: throttle.Decision{Wait: 10 * time.Second}}, RetryAfterJitter: 20 * time.Second}
	seen := map[int]int{}
	for range 1000 {
		r := rejection(m, http.MethodGet)
		s, err := strconv.Atoi(r.Header.Get("Retry-After"))
		require.NoError(t, err)
		seen[s]++
		var got struct {
			RetryAfter int `json:"retry_after"`
		}
		require.NoError(t, json.NewDecoder(r.Body).Decode(&got))
		require.Equal(t, s, got.RetryAfter, "header and body say the same")
	}
	for s := range seen {
		require.True(t, 10 <= s && s <= 30, "%d", s)
	}
	require.Greater(t, len(seen), 15, "they come back all over the time: %v", seen)
}

func TestMiddleware_retryAfterJitterNeverOverflows(t *testing.T) {
	m := &throttlehttp.Middleware{Limiter: fixedDecision{d: throttle.Decision{Wait: throttle.Forever - 1}}, RetryAfterJitter: throttle.Forever}
	for range 100 {
		require.Equal(t, "999999999", rejection(m, http.MethodGet).Header.Get("Retry-After"))
	}
}

func FuzzRejection_accept(f *testing.F) {
	for _, s := range []string{"*/*", "text/html;q=0.5", "a/b;q=1.000,text/plain;q=0.001", ";;q==,", "application/*;q=.5"} {
		f.Add(s)
	}
	m := &throttlehttp.Middleware{Limiter: fixedDecision{}}
	f.Fuzz(func(t *testing.T, accept string) {
		r := rejection(m, http.MethodGet, accept)
		require.Contains(t, []string{problem, page, text}, r.Header.Get("Content-Type"))
	})
}
