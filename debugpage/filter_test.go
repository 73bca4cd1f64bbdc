package debugpage

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// serve returns the response of p to r.
func serve(p *Page, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

// filtered returns the data and the page for a query.
func filtered(t *testing.T, p *Page, query string) (s state, page string) {
	r := httptest.NewRequest(http.MethodGet, "/debug/heed?"+query, nil)
	page = serve(p, r).Body.String()
	r.Header.Set("Accept", "application/json")
	require.NoError(t, json.Unmarshal(serve(p, r).Body.Bytes(), &s))
	require.Equal(t, 1, s.Version, "a name that goes, or changes its meaning, needs another version")
	return s, page
}

// threeHosts returns a page of the hosts a.test, b.test and ab.test, each with a stated limit, a
// retry and a failure, and the Tracker.
func threeHosts(t *testing.T) (*Page, *quota.Tracker) {
	p, tracker := new(Page), new(quota.Tracker)
	trace := p.Trace()
	transport := &heed.Transport{Quota: tracker, Trace: trace}
	defer runtime.KeepAlive(transport) // its limits are recorded only while the program keeps it
	p.Add("", transport)
	for _, host := range []string{"a.test", "b.test", "ab.test"} {
		req := httptest.NewRequest(http.MethodGet, "https://"+host+"/", nil)
		observe(t, tracker, req, throttle.Feedback{RemoteLimits: []throttle.RemoteLimit{{Limit: 10, Remaining: 5, ResetAfter: time.Hour, Per: time.Hour}}})
		trace.Retry(req, heed.RetryInfo{AttemptInfo: heed.AttemptInfo{Status: 503}})
		trace.Done(req, heed.DoneInfo{Info: heed.Info{StopReason: heed.ErrMaxWait}})
	}
	return p, tracker
}

func TestPage_filtersByHostAndKind(t *testing.T) {
	p, _ := threeHosts(t)
	for query, want := range map[string]struct {
		hosts     []string // of quotas
		decisions []string
	}{
		"": {[]string{"a.test", "ab.test", "b.test"}, []string{
			"give up ab.test", "retry ab.test", "limit ab.test", "give up b.test", "retry b.test", "limit b.test", "give up a.test", "retry a.test", "limit a.test",
		}},
		"host=B.TEST":       {[]string{"ab.test", "b.test"}, []string{"give up ab.test", "retry ab.test", "limit ab.test", "give up b.test", "retry b.test", "limit b.test"}},
		"host=a.&kind=wait": {[]string{"a.test"}, nil},
		"kind=give+up":      {[]string{"a.test", "ab.test", "b.test"}, []string{"give up ab.test", "give up b.test", "give up a.test"}},
		"host=c":            {nil, nil},
	} {
		s, page := filtered(t, p, query)
		var hosts, decisions []string
		for _, row := range s.Quotas[0].Rows {
			hosts = append(hosts, row.Host)
		}
		for _, d := range s.Decisions {
			decisions = append(decisions, string(d.Kind)+" "+d.Host)
		}
		require.ElementsMatch(t, want.hosts, hosts, query)
		require.Equal(t, want.decisions, decisions, query)
		require.Equal(t, len(want.hosts), strings.Count(page, `class="host"`), query)
		require.Equal(t, 3, s.Quotas[0].Accounts, "of all hosts")
	}
	_, page := filtered(t, p, "host=b.test&kind=retry")
	for _, part := range []string{
		`name="host" value="b.test"`, "only hosts with b.test", `<input type="hidden" name="kind" value="retry">`,
		`href="?host=b.test&amp;kind=give&#43;up#decisions"`, `href="?host=b.test&amp;kind=retry#decisions" aria-current="true"`, `href="?host=b.test#decisions"`,
	} {
		require.Contains(t, page, part)
	}
	_, page = filtered(t, p, `host="><script>alerted=1</script>`)
	require.NotContains(t, page, "<script>alerted")
}

// Each section has a link at the top of the page.
func TestPage_linksToSections(t *testing.T) {
	page := htmlOf(t, new(Page))
	for _, id := range []string{"quotas", "queues", "budgets", "decisions"} {
		require.Contains(t, page, `<a href="#`+id+`">`)
		require.Contains(t, page, `id="`+id+`"`)
	}
}

func TestNewQueueTable_filtersByHost(t *testing.T) {
	limits := []queue.LimitSnapshot{{Name: "a.test: quota", Waiting: 1}, {Name: "b.test: quota", Waiting: 2}}
	table := newQueueTable("", queue.Snapshot{Waiting: 3, Limits: limits}, filter{host: "b.test"})
	require.Len(t, table.Limits, 1)
	require.Equal(t, "b.test: quota", table.Limits[0].Name)
	require.Equal(t, 3, table.Waiting)
}

// post returns the status of a request to forget a host.
func post(p *Page, host string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "http://admin.test/debug/heed?host=a", strings.NewReader(url.Values{"forget": {host}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return serve(p, r)
}

func TestPage_forgetsOnlyIfTheProgramPermitsIt(t *testing.T) {
	p, tracker := threeHosts(t)
	require.Equal(t, http.StatusMethodNotAllowed, post(p, "a.test").Code)
	require.NotContains(t, htmlOf(t, p), `method="post"`)
	require.Equal(t, 3, stateOf(t, p).Quotas[0].Accounts)

	var forgotten []string
	p.Forget = func(host string) {
		forgotten = append(forgotten, host)
		tracker.Forget(httptest.NewRequest(http.MethodGet, "https://"+host+"/", nil))
	}
	require.Equal(t, 3, strings.Count(htmlOf(t, p), `<form method="post"><button name="forget"`))
	require.Equal(t, "same-origin", get(p, http.MethodGet, "").Header.Get("Referrer-Policy"), "a form states its origin")
	require.Equal(t, "GET, HEAD, POST", get(p, http.MethodPut, "").Header.Get("Allow"))
	for name, w := range map[string]*httptest.ResponseRecorder{
		"another site":   post(p, "a.test", "Sec-Fetch-Site", "cross-site"),
		"another origin": post(p, "a.test", "Origin", "https://evil.test"),
	} {
		require.Equal(t, http.StatusForbidden, w.Code, name)
	}
	require.Equal(t, http.StatusNotFound, post(p, "c.test").Code)
	require.Equal(t, http.StatusNotFound, post(p, "").Code)
	require.Equal(t, http.StatusNotFound, post(p, strings.Repeat("a.test", 20_000)).Code)
	require.Empty(t, forgotten)

	w := post(p, "a.test", "Origin", "http://admin.test")
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.Equal(t, "?host=a", w.Header().Get("Location"))
	require.Equal(t, []string{"a.test"}, forgotten)
	require.Equal(t, 2, stateOf(t, p).Quotas[0].Accounts)
}

// TestRecorder_joinsFailuresThatDifferInNumbers joins those whose reasons have other durations,
// and ports of connections.
func TestRecorder_joinsFailuresThatDifferInNumbers(t *testing.T) {
	now, req := time.Unix(1000, 0), &http.Request{URL: &url.URL{Host: "api.test"}}
	gaveUp := func(attempts, status int, reason string) heed.DoneInfo {
		return heed.DoneInfo{Info: heed.Info{Attempts: attempts, StopReason: errors.New(reason)}, Status: status}
	}
	for name, tt := range map[string]struct {
		events []heed.DoneInfo
		want   int // lines
	}{
		"durations": {[]heed.DoneInfo{gaveUp(1, 503, "ask again in 499.396837ms"), gaveUp(2, 503, "ask again in 1.5s"), gaveUp(3, 503, "ask again in 2m1.5s")}, 1},
		"ports":     {[]heed.DoneInfo{gaveUp(1, 0, "read 10.0.0.1:5000: reset"), gaveUp(1, 0, "read 10.0.0.12:51234: reset")}, 1},
		"statuses":  {[]heed.DoneInfo{gaveUp(1, 503, "a"), gaveUp(1, 500, "a")}, 2},
		"reasons":   {[]heed.DoneInfo{gaveUp(1, 503, "a"), gaveUp(1, 503, "b")}, 2},
		"not sent":  {[]heed.DoneInfo{gaveUp(1, 0, "a"), gaveUp(0, 0, "a")}, 2},
	} {
		r := new(recorder)
		for _, i := range tt.events {
			r.done(now, req, i)
		}
		require.Len(t, r.decisions, tt.want, name)
	}
}

// TestRecorder_aFloodOfOneKindKeepsTheOthers has more failures of different hosts than the list
// has entries, and a hold before.
func TestRecorder_aFloodOfOneKindKeepsTheOthers(t *testing.T) {
	r, now := new(recorder), time.Unix(1000, 0)
	r.hold(now, quota.HoldInfo{Host: "first.test", Limit: "first.test: retry-after", Held: true, For: time.Hour})
	for i := range 3 * maxDecisions {
		host := strings.Repeat("a", i+1)
		r.done(now, &http.Request{URL: &url.URL{Host: host}}, heed.DoneInfo{Info: heed.Info{StopReason: heed.ErrMaxWait}})
	}
	all := r.copy(now).decisions
	require.Len(t, all, maxDecisions)
	require.Equal(t, kindHold, all[maxDecisions-1].Kind)
	require.Len(t, all[0].Host, 3*maxDecisions)
}
