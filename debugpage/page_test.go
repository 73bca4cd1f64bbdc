package debugpage

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttle/queue"
)

// get returns the response of a page.
func get(p *Page, method, accept string) *http.Response {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, "/debug/heed", nil)
	r.Header.Set("Accept", accept)
	p.ServeHTTP(w, r)
	return w.Result()
}

// htmlOf returns the page.
func htmlOf(t testing.TB, p *Page) string {
	resp := get(p, http.MethodGet, "text/html")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(body)
}

// stateOf returns the data of the page.
func stateOf(t testing.TB, p *Page) (s state) {
	resp := get(p, http.MethodGet, "application/json")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&s))
	return s
}

// A script is an http.RoundTripper that responds with its elements in turn, and then with 200.
type script struct {
	mu        sync.Mutex
	responses []http.Response
}

func (s *script) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resp := http.Response{StatusCode: http.StatusOK}
	if len(s.responses) > 0 {
		resp, s.responses = s.responses[0], s.responses[1:]
	}
	if resp.Header == nil {
		resp.Header = http.Header{}
	}
	resp.Body, resp.Request = http.NoBody, req
	return &resp, nil
}

func throttled(retryAfter string) http.Response {
	return http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {retryAfter}}}
}

func TestPage_isReadOnly(t *testing.T) {
	p := new(Page)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions, "BREW"} {
		resp := get(p, method, "")
		require.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode, method)
		require.Equal(t, "GET, HEAD", resp.Header.Get("Allow"))
		require.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
	}
	full, head := get(p, http.MethodGet, ""), get(p, http.MethodHead, "")
	body, err := io.ReadAll(head.Body)
	require.NoError(t, err)
	require.Empty(t, body)
	require.Equal(t, full.Header, head.Header)
	require.Equal(t, "text/html; charset=utf-8", full.Header.Get("Content-Type"))
	require.Equal(t, "no-store", full.Header.Get("Cache-Control"))
	require.Equal(t, "nosniff", full.Header.Get("X-Content-Type-Options"))
	require.Equal(t, "no-referrer", full.Header.Get("Referrer-Policy"))
	require.Equal(t, "Accept", full.Header.Get("Vary"))
}

// TestPage_headers checks all headers of each kind of response: none is stored or executed as
// something else, and the page cannot be framed.
func TestPage_headers(t *testing.T) {
	for _, tt := range []struct {
		method, accept string
		want           map[string]string // beside those of all responses
	}{
		{http.MethodGet, "application/json", map[string]string{"Content-Type": "application/json", "Vary": "Accept"}},
		{http.MethodGet, "", map[string]string{
			"Content-Type": "text/html; charset=utf-8", "Vary": "Accept", "Content-Security-Policy": contentSecurityPolicy,
			"Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY",
		}},
		{http.MethodPost, "", map[string]string{"Content-Type": "text/plain; charset=utf-8", "Allow": "GET, HEAD"}},
	} {
		resp := get(new(Page), tt.method, tt.accept)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		want := http.Header{"Cache-Control": {"no-store"}, "X-Content-Type-Options": {"nosniff"}}
		if tt.method == http.MethodGet {
			want.Set("Content-Length", strconv.Itoa(len(body)))
		}
		for name, value := range tt.want {
			want.Set(name, value)
		}
		require.Equal(t, want, resp.Header, "%s %s", tt.method, tt.accept)
	}
}

func TestPage_respondsWithJSONIfPreferred(t *testing.T) {
	for accept, want := range map[string]bool{
		"":                 false,
		"*/*":              false,
		"application/json": true,
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": false,
		"application/json, text/html":                                     false,
		"application/json, text/html;q=0.9":                               true,
		"text/html; q=0.2, Application/JSON ; Q=0.3":                      true,
		"application/json;q=0":                                            false,
		"application/json;q=x":                                            false,
		"application/json;q=2":                                            false,
		"text/plain":                                                      false,
	} {
		require.Equal(t, want, strings.HasPrefix(get(new(Page), http.MethodGet, accept).Header.Get("Content-Type"), "application/json"), accept)
	}
}

func TestPage_policyPermitsOnlyItsStyleAndScript(t *testing.T) {
	p := &Page{Title: "</style><script>"}
	policy, page := get(p, http.MethodGet, "").Header.Get("Content-Security-Policy"), htmlOf(t, p)
	require.Contains(t, policy, "default-src 'none'")
	require.NotContains(t, policy, "unsafe")
	for _, tag := range []string{"style", "script"} {
		_, rest, found := strings.Cut(page, "<"+tag+">")
		require.True(t, found)
		text, _, found := strings.Cut(rest, "</"+tag+">")
		require.True(t, found)
		sum := sha256.Sum256([]byte(text))
		require.Contains(t, policy, tag+"-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	}
	require.NotContains(t, page, " style=", "the policy forbids style attributes")
	require.NotRegexp(t, `<[^>]* on[a-z]+=`, page)
	require.NotRegexp(t, `(?:src|href)="(?:https?:)?//`, page, "no external assets")
}

func TestPage_showsWhatHeedKnowsAndDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Page{Title: "reports"}
		base := &script{responses: []http.Response{
			{StatusCode: http.StatusOK, Header: http.Header{"Ratelimit-Policy": {`"default";q=5000;w=3600`}, "Ratelimit": {`"default";r=1200;t=600`}}},
			throttled("30"), throttled("30"), throttled("30"), throttled("30"), throttled("30"),
		}}
		var sentence string
		trace := heed.JoinTraces(p.Trace(), &heed.Trace{WaitDone: func(_ *http.Request, i heed.WaitInfo) {
			if i.Waited > 0 {
				sentence = i.String()
			}
		}})
		noJitter := &quota.Tracker{NeverTest: true, Rand: func() float64 { return 0 }}
		transport := &heed.Transport{Base: base, Trace: trace, Quota: noJitter}
		p.Add("", transport)
		require.True(t, stateOf(t, p).NoEvents)
		require.Contains(t, htmlOf(t, p), "No events yet")

		client := heed.NewClient(transport)
		_, err := client.Get("https://api.test/items")
		require.NoError(t, err)
		s := stateOf(t, p)
		require.False(t, s.NoEvents)
		require.Len(t, s.Quotas[0].Rows, 1)
		row := s.Quotas[0].Rows[0]
		require.Equal(t, "api.test", row.Host)
		require.Nil(t, row.Hold)
		left, reset := int64(1200), 600.0
		require.Equal(t, []limitRow{{Name: "default", Unit: "requests", Size: 5000, Remaining: &left, Per: 3600, ResetIn: &reset, Known: stated}}, row.Limits)
		page := htmlOf(t, p)
		require.Contains(t, page, "<b>1,200</b> left of 5,000 requests per 1 h, resets in 10 min")
		require.Contains(t, page, `<rect class="left" width="24" height="8"/>`)

		once, err := http.NewRequestWithContext(heed.WithOptions(t.Context(), heed.RequestOptions{NoRetry: true}), http.MethodGet, "https://api.test/items", http.NoBody)
		require.NoError(t, err)
		for range 5 { // the last one shows that others would be rejected, too
			_, err = client.Do(once)
			require.NoError(t, err)
		}
		var running sync.WaitGroup
		running.Go(func() { _, err = client.Get("https://api.test/items") })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		s = stateOf(t, p)
		hold := s.Quotas[0].Rows[0].Hold
		require.NotNil(t, hold)
		require.Equal(t, "retry-after", hold.Reason)
		require.Equal(t, stated, hold.Known)
		require.InDelta(t, 20, hold.EndsIn, 0.001)
		require.Equal(t, 1, s.Queues[0].Waiting)
		require.InDelta(t, 10, s.Queues[0].LongestWait, 0.001)
		require.Equal(t, "api.test: retry-after", s.Queues[0].Limits[0].Name)
		require.Equal(t, 1, s.Summary.Waiting)
		require.Equal(t, 1, s.Summary.Holds)
		require.Equal(t, 6, s.Summary.SentLastMinute)
		require.Equal(t, 5, s.Summary.ThrottledLastMin)
		page = htmlOf(t, p)
		require.Contains(t, page, "held for 20 s")
		require.Contains(t, page, "quota api.test (retry-after)")

		running.Wait()
		require.NoError(t, err)
		time.Sleep(binWidth)
		s = stateOf(t, p)
		require.Equal(t, 1, s.Summary.WaitedLastMinute)
		require.NotEmpty(t, sentence)
		var kinds []kind
		for _, d := range s.Decisions {
			kinds = append(kinds, d.Kind)
			if d.Kind == kindWait {
				require.Equal(t, sentence, d.Text)
			}
		}
		require.Equal(t, []kind{kindRelease, kindWait, kindHold, kindLimit}, kinds)
		page = htmlOf(t, p)
		for _, d := range s.Decisions {
			require.Contains(t, page, html.EscapeString(d.Text))
		}
		require.Nil(t, s.Quotas[0].Rows[0].Hold)
	})
}

// TestPage_showsThatALimitWasDeclared declares a limit. The second response states another one,
// which replaces it.
func TestPage_showsThatALimitWasDeclared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, tracker := new(Page), new(quota.Tracker)
		require.NoError(t, tracker.Declare("api.test", throttle.PerHour(10)))
		transport := &heed.Transport{Quota: tracker, Base: &script{responses: []http.Response{
			{StatusCode: http.StatusOK},
			{StatusCode: http.StatusOK, Header: http.Header{"Ratelimit-Policy": {`"default";q=50;w=60`}, "Ratelimit": {`"default";r=20;t=60`}}},
		}}}
		p.Add("", transport)
		hour, minute, nine, twenty := 3600.0, 60.0, int64(9), int64(20)
		for _, want := range []limitRow{
			{Unit: "requests", Size: 10, Remaining: &nine, Per: 3600, ResetIn: &hour, Known: declared},
			{Name: "default", Unit: "requests", Size: 50, Remaining: &twenty, Per: 60, ResetIn: &minute, Known: stated},
		} {
			_, err := heed.NewClient(transport).Get("https://api.test/")
			require.NoError(t, err)
			rows := stateOf(t, p).Quotas[0].Rows // the last is that of the path
			require.Equal(t, []limitRow{want}, rows[len(rows)-1].Limits)
			require.Contains(t, htmlOf(t, p), `<span class="known `+want.Known+`">`+want.Known+`</span>`)
		}
	})
}

func TestPage_showsProbesEstimatesAndFullQuotas(t *testing.T) {
	now := time.Unix(1000, 0)
	for want, q := range map[string]quota.QuotaSnapshot{
		"probe in flight": {Hold: &quota.HoldSnapshot{Reason: "retry-after", Until: now, Probe: true}},
		"probe due":       {Hold: &quota.HoldSnapshot{Reason: "retry-after", Until: now.Add(-time.Second)}},
		"held for 2 s":    {Hold: &quota.HoldSnapshot{Reason: "learned rate", Until: now.Add(2 * time.Second), Estimated: true}},
		">used up<":       {Limits: []quota.LimitSnapshot{{Unit: "tokens", Size: 100, RemainingKnown: true}}}, // callers wait for it
		">full<":          {InFlight: 4, Concurrency: 4, ConcurrencyReason: "slow start"},
		"at most <b>4</b> in flight (slow start)":  {InFlight: 3, Concurrency: 4, ConcurrencyReason: "slow start"},
		"<b>8.33</b> requests per second":          {Rate: 25.0 / 3},
		"no limit seen":                            {},
		"<b>0</b> left of tokens per 1 min":        {Limits: []quota.LimitSnapshot{{Unit: "tokens", RemainingKnown: true, Per: time.Minute}}},
		`class="bar low"`:                          {Limits: []quota.LimitSnapshot{{Size: 100, Remaining: 19, RemainingKnown: true}}},
		`class="bar empty"`:                        {Limits: []quota.LimitSnapshot{{Size: 100, RemainingKnown: true}}},
		`class="bar fine"`:                         {Limits: []quota.LimitSnapshot{{Size: 100, Remaining: 200, RemainingKnown: true}}},
		`<span class="known learned">learned`:      {Limits: []quota.LimitSnapshot{{Size: 100, Learned: true}}},
		`<span class="known declared">declared`:    {Limits: []quota.LimitSnapshot{{Size: 100, Declared: true}}},
		"<span class=\"route\">/search</span>":     {Name: "api.test/search"},
		"100 requests, resets in 0 s":              {Limits: []quota.LimitSnapshot{{Unit: "requests", Size: 100, Reset: now.Add(-time.Hour)}}},
		"9,223,372,036,854,775,807</b> left of -1": {Limits: []quota.LimitSnapshot{{Unit: "-1", Remaining: math.MaxInt64, RemainingKnown: true}}},
	} {
		s := state{Charts: charts([]bin{{}}), Quotas: []quotaTable{{Rows: []quotaRow{newQuotaRow(quota.AccountSnapshot{Host: "api.test"}, q, now)}}}}
		page, err := s.html()
		require.NoError(t, err)
		require.Contains(t, string(page), want)
	}
}

// TestPage_listsAreNeverNull checks that programs can rely on the lists of the JSON.
func TestPage_listsAreNeverNull(t *testing.T) {
	p := new(Page)
	lists := func() string {
		body, err := io.ReadAll(get(p, http.MethodGet, "application/json").Body)
		require.NoError(t, err)
		return string(body)
	}
	for _, name := range []string{"quotas", "queues", "budgets", "decisions"} {
		require.Contains(t, lists(), `"`+name+`":[]`)
	}
	tracker := new(quota.Tracker)
	p.Add("", &heed.Transport{Quota: tracker})
	require.Contains(t, lists(), `"rows":[]`)
	observe(t, tracker, httptest.NewRequest(http.MethodGet, "https://api.test/", nil), throttle.Feedback{})
	require.Equal(t, 2, strings.Count(lists(), `"limits":[]`))
}

func TestPage_showsSharedPartsOnce(t *testing.T) {
	tracker, budget := new(quota.Tracker), &backoff.Budget{MinPerSecond: math.Inf(1)}
	p := new(Page)
	p.Add("a", &heed.Transport{Quota: tracker})
	p.Add("b", &heed.Transport{Quota: tracker, Retry: &heed.RetryPolicy{Budget: budget}})
	p.Add("c", &heed.Transport{Quota: &quota.Tracker{Mode: quota.Disabled}, Retry: &heed.RetryPolicy{Budget: budget}})
	s := stateOf(t, p)
	require.Equal(t, []string{"a, b", "c"}, []string{s.Quotas[0].Transports, s.Quotas[1].Transports})
	require.Equal(t, []string{"stated limits only", "disabled"}, []string{s.Quotas[0].Mode, s.Quotas[1].Mode})
	require.Len(t, s.Queues, 3)
	require.Len(t, s.Budgets, 2)
	require.Equal(t, int64(1000), *s.Budgets[0].Allowed)
	require.Nil(t, s.Budgets[1].Allowed)
	require.Equal(t, int64(1000), *s.Summary.RetriesLeft)
	page := htmlOf(t, p)
	require.Contains(t, page, "Retry budget: a <small>1,000 of 1,000 retries left")
	require.Contains(t, page, "Retry budget: b, c <small>not limited")
}

// TestPage_joinsKeysOfALimit checks that limits with many keys are one row, without the keys.
func TestPage_joinsKeysOfALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := new(queue.Queue)
		limit := keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.Limit{Name: "per user", Count: 1, Per: time.Minute}})
		p := new(Page)
		p.Add("", &heed.Transport{Queue: q})
		var waiting sync.WaitGroup
		for i := range 6 {
			waiting.Go(func() {
				ticket := queue.Ticket{Tenant: "tenant-secret"}
				ticket.Add(throttle.Demand{Limiter: limit, Key: "key-secret-" + strconv.Itoa(i%3)})
				_ = q.Wait(t.Context(), &ticket)
			})
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		s := stateOf(t, p)
		require.Len(t, s.Queues[0].Limits, 1)
		row := s.Queues[0].Limits[0]
		require.Equal(t, 3, row.Keys)
		require.Equal(t, 3, row.Waiting)
		require.Equal(t, own, row.Known)
		require.InDelta(t, 10, row.LongestWait, 0.001)
		require.InDelta(t, 50, *row.NextIn, 0.001)
		require.NotContains(t, htmlOf(t, p), "secret")
		q.Close()
		waiting.Wait()
	})
}

func TestPage_hidesSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(Page)
		base := &script{responses: []http.Response{throttled("1"), {StatusCode: http.StatusServiceUnavailable}, {StatusCode: http.StatusInternalServerError}}}
		transport := &heed.Transport{Base: base, Trace: p.Trace(), Key: func(*http.Request) string { return "key-secret" }}
		p.Add("", transport)
		req, err := http.NewRequest(http.MethodGet, "https://user:pass-secret@api.test/path-secret?api_key=query-secret#fragment-secret", nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer header-secret")
		_, err = heed.NewClient(transport).Do(req.WithContext(heed.WithOptions(t.Context(), heed.RequestOptions{Tenant: "tenant-secret"})))
		require.NoError(t, err)
		p.Trace().Done(req, heed.DoneInfo{Err: &url.Error{Op: "Get", URL: req.URL.String(), Err: errors.New("rejected")}})
		require.Contains(t, htmlOf(t, p), "api.test")
		for _, where := range []string{"pass", "query", "fragment", "header", "key", "tenant"} {
			require.NotContains(t, htmlOf(t, p), where+"-secret")
			state, err := json.Marshal(stateOf(t, p))
			require.NoError(t, err)
			require.NotContains(t, string(state), where+"-secret")
		}
	})
}

func TestPage_escapesNames(t *testing.T) {
	const attack = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>&{{.Title}}\x00\u202e"
	p := &Page{Title: attack}
	tracker := new(quota.Tracker)
	p.Add(attack, &heed.Transport{Quota: tracker})
	req := &http.Request{Method: attack, URL: &url.URL{Scheme: "https", Host: attack, Path: "/"}, Header: http.Header{}}
	observe(t, tracker, req, throttle.Feedback{
		Outcome: throttle.Throttled, RetryAfter: time.Hour,
		RemoteLimits: []throttle.RemoteLimit{{Name: attack, Limit: 10, Remaining: 1, ResetAfter: time.Hour, Per: time.Hour}},
	})
	trace := p.Trace()
	trace.WaitDone(req, heed.WaitInfo{Limit: attack, Waited: time.Second})
	trace.Done(req, heed.DoneInfo{Info: heed.Info{StopReason: errors.New(attack)}})
	trace.Retry(req, heed.RetryInfo{AttemptInfo: heed.AttemptInfo{Err: errors.New(attack)}})
	trace.Hold(quota.HoldInfo{Host: attack, Limit: attack, Held: true})
	trace.LimitLearned(quota.LimitLearnedInfo{Host: attack, Limit: attack, Name: attack})
	page := htmlOf(t, p)
	require.GreaterOrEqual(t, strings.Count(page, "&lt;script&gt;alert(1)&lt;/script&gt;"), 10, "names are shown")
	require.Equal(t, 1, strings.Count(page, "<script"))
	require.NotContains(t, page, "<img")
	require.NotContains(t, page, "\x00")
	require.NotContains(t, page, "\u202e")
	require.Contains(t, page, "{{.Title}}")
}

// observe reports the response to a request to a Tracker.
func observe(t testing.TB, tracker *quota.Tracker, req *http.Request, f throttle.Feedback) {
	l, c := tracker.Demand(req).Limiter, throttle.Claim{Now: time.Now()}
	d, err := l.Reserve(t.Context(), c)
	require.NoError(t, err)
	require.True(t, d.OK)
	f.Now = c.Now
	l.Report(t.Context(), c, d, f)
}

func TestPage_memoryIsBounded(t *testing.T) {
	p := new(Page)
	trace := p.Trace()
	before := heap()
	requests := 2_000
	if testing.Short() {
		requests = 500 // if it kept only half a KiB of each, that would be too much
	}
	long := strings.Repeat("x", 10_000)
	for i := range requests {
		host := strconv.Itoa(i) + ".test"
		req := &http.Request{Method: (long + host)[i%10:], URL: &url.URL{Host: (host + long)[:len(host)]}}
		trace.AttemptStart(req, heed.AttemptInfo{})
		trace.AttemptDone(req, heed.AttemptInfo{Outcome: throttle.Throttled})
		trace.WaitDone(req, heed.WaitInfo{Limit: host + long, Waited: time.Second})
		trace.Done(req, heed.DoneInfo{Info: heed.Info{StopReason: errors.New(host + long)}})
		trace.Hold(quota.HoldInfo{Host: host + long, Limit: long})
	}
	require.Len(t, p.recorder.decisions, maxDecisions)
	require.Less(t, heap()-before, int64(256<<10))
	require.Less(t, len(htmlOf(t, p)), 256<<10)
	runtime.KeepAlive(p)
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // frees objects in pools
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// manyHosts returns a page of 10,000 hosts, of which 60 are held and 40 have little left.
func manyHosts(t testing.TB) *Page {
	tracker := &quota.Tracker{MaxAccounts: 20_000}
	p := new(Page)
	p.Add("", &heed.Transport{Quota: tracker})
	for i := range 10_000 {
		name, f := fmt.Sprintf("other-%d", i), throttle.Feedback{RemoteLimits: []throttle.RemoteLimit{{Name: "default", Limit: 1000, Remaining: 500, ResetAfter: time.Hour, Per: time.Hour}}}
		switch {
		case i < 60:
			name = fmt.Sprintf("held-%d", i)
			f.Outcome, f.RetryAfter = throttle.Throttled, time.Hour
			f.RemoteLimits = nil
		case i < 100:
			name = fmt.Sprintf("low-%d", i)
			f.RemoteLimits[0].Remaining = 5
		}
		req := &http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "https", Host: name + ".test", Path: "/"}, Header: http.Header{}}
		for range 5 { // so many rejections begin a hold
			if observe(t, tracker, req, f); f.Outcome != throttle.Throttled {
				break
			}
		}
	}
	return p
}

func TestPage_showsTheHostsThatMatter(t *testing.T) {
	p := manyHosts(t)
	s := stateOf(t, p)
	require.Equal(t, 10_000, s.Quotas[0].Accounts)
	require.Equal(t, 100, s.Quotas[0].Shown)
	count := map[string]int{}
	for i, row := range s.Quotas[0].Rows {
		kind, _, _ := strings.Cut(row.Host, "-")
		count[kind]++
		require.Equal(t, i < 60, row.Hold != nil)
	}
	require.Equal(t, map[string]int{"held": 60, "low": 40}, count)
	page := htmlOf(t, p)
	require.Contains(t, page, "100 of 10,000 accounts")
	require.Equal(t, 100, strings.Count(page, `class="host"`))
	require.Equal(t, 60, s.Summary.Holds)
}

func TestPage_maxAccounts(t *testing.T) {
	p := manyHosts(t)
	p.MaxAccounts = 7
	s := stateOf(t, p)
	require.Len(t, s.Quotas[0].Rows, 7)
	require.Equal(t, []int{60, 60}, []int{s.Summary.Holds, s.Quotas[0].Holds}, "those of all hosts, not only of the ones shown")
}

// BenchmarkPage_tenThousandHosts is to take at most 50 ms.
func BenchmarkPage_tenThousandHosts(b *testing.B) {
	p := manyHosts(b)
	for b.Loop() {
		htmlOf(b, p)
	}
}
