package headers

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestParse_boundsItsInput checks the longest inputs that are read, and that one byte more
// is not.
func TestParse_boundsItsInput(t *testing.T) {
	pad := func(s string, n int) string { return s + strings.Repeat(" ", n-len(s)) }
	acme := Reader{Hosts: map[string]Provider{"api.test": {Headers: map[string]Rule{
		"X-Acme": {Read: func(v string, r *Report) { r.Limits = append(r.Limits, Limit{Name: "acme"}) }},
	}}}}
	for _, c := range []struct {
		name, header, value, longer, want string
	}{
		{"a value", "X-Ratelimit-Remaining", pad("3", maxValueLen), pad("3", maxValueLen+1), "3/?"},
		{"a value with a slash", "X-Foo-Limit", pad("2/40", maxValueLen), pad("2/40", maxValueLen+1), "foo 38/40"},
		{"a value with its own syntax", "X-Acme", pad("3", maxValueLen), pad("3", maxValueLen+1), "acme ?/?"},
		{"zeros", "X-Ratelimit-Remaining", strings.Repeat("0", maxDigits-1) + "3", strings.Repeat("0", maxDigits) + "3", "3/?"},
		{"a fraction", "X-Ratelimit-Remaining", "3." + strings.Repeat("0", maxDigits+1), "3." + strings.Repeat("0", maxDigits+2), "3/?"},
		{"a date", "Retry-After", pad("Tue, 14 Nov 2023 22:13:20 UTC ", maxDateLen), pad("Tue, 14 Nov 2023 22:13:20 UTC ", maxDateLen+1), "retry 20s"},
		{"a duration", "X-Retry-In", pad("5 s", maxDateLen), pad("5 s", maxDateLen+1), "retry 5s"},
		{"a delay", "Retry-After-Ms", pad("5", maxDateLen), pad("5", maxDateLen+1), "retry 5ms"},
		{"entries", "X-Ratelimit-Remaining", "1" + strings.Repeat(",1", maxEntries-1), "", strings.TrimSuffix(strings.Repeat("1/?, ", maxEntries), ", ")},
	} {
		parse := func(v string) string {
			return formatReport(acme.Parse("api.test", 200, http.Header{c.header: {v}}, time.Unix(1700000000-20, 0).UTC()))
		}
		require.Equal(t, c.want, parse(c.value), c.name)
		if c.longer != "" {
			require.Empty(t, parse(c.longer), c.name)
		}
	}
	for _, n := range []int{maxEntries + 1, maxEntries + 5} {
		states := strings.TrimSuffix(strings.Repeat(`"a";r=1, `, n), ", ")
		require.Len(t, Parse(200, http.Header{"Ratelimit": {states}}, time.Time{}).Limits, maxEntries)
		policies := strings.TrimSuffix(strings.Repeat(`"a";q=1, `, n), ", ")
		require.Len(t, Parse(200, http.Header{"Ratelimit-Policy": {policies}}, time.Time{}).Limits, maxEntries)
		list := strings.TrimSuffix(strings.Repeat(`1,`, n), ",")
		require.Len(t, Parse(200, http.Header{"X-Ratelimit-Remaining": {list}}, time.Time{}).Limits, maxEntries)
	}
}

// TestParse_boundsTheNumberOfLimits checks that of each kind of header exactly 32 limits
// are read.
func TestParse_boundsTheNumberOfLimits(t *testing.T) {
	h := http.Header{}
	var meta, pairs []string
	for i := range 40 {
		h.Set(fmt.Sprintf("X-Ratelimit-B%c%c-Remaining", 'a'+i/26, 'a'+i%26), "1")
		meta = append(meta, fmt.Sprintf(`"c%d":1`, i))
		pairs = append(pairs, "limit=1")
	}
	require.Len(t, Parse(200, h, time.Time{}).Limits, maxGroups)
	require.Len(t, Parse(200, http.Header{"X-App-Usage": {"{" + strings.Join(meta, ",") + "}"}}, time.Time{}).Limits, maxGroups)
	require.Len(t, Parse(200, http.Header{"X-Ratelimit": {strings.Join(pairs, ",")}}, time.Time{}).Limits, maxGroups)
	pingdom := http.Header{"Req-Limit-Long": {"Remaining: 1"}}
	require.Len(t, Parse(200, pingdom, time.Time{}).Limits, 1)
	for k, v := range h {
		pingdom[k] = v
	}
	require.Len(t, Parse(200, pingdom, time.Time{}).Limits, maxGroups+1, "read first")
}

// TestReader_findsTheHeadersOfItsRulesAmongMany checks a response with more headers whose names
// may be about limits than are read: those that a Provider names are read, each once, and of the
// others the first by name. (Issue 14: headers about other things do not count, and hide none.)
func TestReader_findsTheHeadersOfItsRulesAmongMany(t *testing.T) {
	calls := 0
	p := Provider{Headers: map[string]Rule{
		"X-Acme-Left":          {Kind: KindRemaining, Name: "acme", Unit: "points"},
		"X-Acme-Size":          {Kind: KindLimit, Name: "acme"},
		"X-Acme-Own":           {Read: func(string, *Report) { calls++ }},
		"X-Ls-Api-Bucket":      {Kind: KindLimit, Name: "bucket"},
		"X-Sentry-Rate-Limits": {Read: func(string, *Report) { calls++ }},
		"X-Ratelimit-Reset":    {Kind: KindResetAfter, Name: "acme", Scale: time.Millisecond},
	}}
	for _, table := range []bool{false, true} {
		r := Reader{Hosts: map[string]Provider{"api.test": p}, NoProviderTable: !table}
		for _, others := range []string{"X-Zz-Id-%d", "X-Zz-Total-%d", "X-Aa-Total-%d"} {
			for _, n := range []int{0, maxCandidates - 2, maxCandidates - 1, 3 * maxCandidates} {
				h := parseHeader("X-Acme-Left: 3\nX-Acme-Size: 7\nX-Acme-Own: x\nX-Ls-Api-Bucket: 9\nX-Sentry-Rate-Limits: 7:x\nX-RateLimit-Reset: 1500\nX-Acme-Remaining-Calls: 8")
				for i := range n {
					h[fmt.Sprintf(others, i)] = []string{"1"}
				}
				want := "acme[points] 3/7 in 1.5s, acme-calls 8/?, bucket ?/9"
				if others == "X-Aa-Total-%d" && n >= maxCandidates {
					want = "acme[points] 3/7 in 1.5s, bucket ?/9"
				}
				for range 5 {
					calls = 0
					require.Equal(t, want, formatReport(r.Parse("api.test", 200, h, time.Time{})), "%v %s %d", table, others, n)
					require.Equal(t, 2, calls, "%v %s %d", table, others, n)
				}
			}
		}
	}
}

// TestReader_collectsTooManyBucketsInOrder checks that of more buckets than are read, those
// of well-known names and of rules are always among the ones that are read.
func TestReader_collectsTooManyBucketsInOrder(t *testing.T) {
	r := Reader{Hosts: map[string]Provider{"api.test": {Headers: map[string]Rule{"X-Zz-Left": {Kind: KindRemaining, Name: "zz"}}}}}
	h := parseHeader("X-RateLimit-Remaining: 0\nX-Zz-Left: 0\nX-Shopify-Shop-Api-Call-Limit: 40/40\nRetry-After: 9\n" + dateLine)
	for i := range 60 {
		h[fmt.Sprintf("X-Ratelimit-Limit-B%c%c", 'a'+i/26, 'a'+i%26)] = []string{"5"}
	}
	for range 20 {
		exhausted := 0
		rep := r.Parse("api.test", 429, h, time.Time{})
		for _, l := range rep.Limits {
			if l.HasRemaining && l.Remaining == 0 {
				exhausted++
			}
		}
		require.Equal(t, 3, exhausted)
		require.Equal(t, 9*time.Second, rep.RetryAfter)
	}
}

func TestReader_hostsPrecedeTheTable(t *testing.T) {
	own := map[string]Provider{"api.github.com": {Name: "own", AccountParams: []string{"id"}}}
	for _, c := range []struct {
		name   string
		reader Reader
		host   string
		want   string
		params []string
	}{
		{"the table", Reader{}, "api.github.com", "GitHub", nil},
		{"a parent domain", Reader{}, "storage.googleapis.com", "Google", []string{"key", "access_token"}},
		{"the nearest parent", Reader{}, "a.b.googleapis.com:443", "Google", []string{"key", "access_token"}},
		{"the domain itself", Reader{}, "googleapis.com", "", nil},
		{"a dot only", Reader{}, ".", "", nil},
		{"a single letter before the domain", Reader{}, "a.googleapis.com", "Google", []string{"key", "access_token"}},
		{"unknown", Reader{}, "api.test", "", nil},
		{"Hosts", Reader{Hosts: own}, "API.GitHub.com:443", "own", []string{"id"}},
		{"Hosts, another host", Reader{Hosts: own}, "storage.googleapis.com", "Google", []string{"key", "access_token"}},
		{"Hosts, no table", Reader{Hosts: own, NoProviderTable: true}, "api.github.com", "own", []string{"id"}},
		{"no table", Reader{NoProviderTable: true}, "storage.googleapis.com", "", nil},
	} {
		var got Provider
		if p := c.reader.Provider(c.host); p != nil {
			got = *p
		}
		require.Equal(t, c.want, got.Name, c.name)
		require.Equal(t, c.params, got.AccountParams, c.name)
	}
}

func TestInspectsBody_byStatusAndType(t *testing.T) {
	withCodes, ofSuccess := &Provider{ErrorCodes: []string{"X"}}, &Provider{InspectSuccessBody: true}
	ownBody := Reader{Body: func(int, http.Header, []byte, *Report) {}}
	for _, c := range []struct {
		status                             int
		none, codes, success, bodyFunction bool
	}{
		{200, false, false, true, false}, {201, false, false, false, false}, {399, false, false, false, false},
		{400, false, true, false, true}, {401, false, false, false, false}, {403, true, true, true, true},
		{404, false, false, false, false}, {405, false, true, false, true}, {429, true, true, true, true},
		{499, false, true, false, true}, {500, false, true, false, false}, {503, true, true, true, true},
		{528, false, true, false, false}, {529, true, true, true, true}, {530, false, true, false, false},
	} {
		json := http.Header{"Content-Type": {"application/json"}}
		require.Equal(t, c.none, InspectsBody(nil, c.status, json), c.status)
		require.Equal(t, c.none, InspectsBody(&Provider{}, c.status, json), c.status)
		require.Equal(t, c.codes, InspectsBody(withCodes, c.status, json), c.status)
		require.Equal(t, c.success, InspectsBody(ofSuccess, c.status, json), c.status)
		require.Equal(t, c.bodyFunction, ownBody.inspectsBody(nil, c.status, json), c.status)
	}
	for _, c := range []struct {
		contentType      string
		failure, success bool
	}{
		{"", true, false}, {"text/plain; charset=utf-8", true, false}, {"text/xml", true, false}, {"application/xml", true, false},
		{"application/atom+xml", true, false}, {"application/xhtml+xml", false, false}, {"text/html", false, false},
		{"APPLICATION/JSON ;charset=utf-8", true, true}, {"text/json", true, true}, {"application/problem+json", true, true},
		{"application/stream+json", false, false}, {"application/x-amz-json-1.0", true, false}, {"application/x-amz-json-1.1", true, false},
		{"application/x-amz-json-1.2", false, false}, {"text/event-stream", false, false}, {"image/png", false, false},
	} {
		h := http.Header{"Content-Type": {c.contentType}}
		require.Equal(t, c.failure, InspectsBody(nil, 429, h), c.contentType)
		require.Equal(t, c.success, InspectsBody(ofSuccess, 200, h), c.contentType)
	}
}

// A countingReader counts calls of Read.
type countingReader struct {
	io.Reader
	reads int
}

func (r *countingReader) Read(p []byte) (int, error) { r.reads++; return r.Reader.Read(p) }

func TestReader_readsTheBodyOnlyIfItMayStateMore(t *testing.T) {
	const limited = `{"errors":[{"type":"RATE_LIMITED"}],"retry_after":7}`
	own := func(_ int, _ http.Header, _ []byte, r *Report) { r.Permanent = true }
	for _, c := range []struct {
		name   string
		host   string
		status int
		header string
		body   string
		length int64
		own    func(int, http.Header, []byte, *Report)
		reads  bool
		want   string
	}{
		{"a rejection", "api.test", 429, "", limited, -1, nil, true, "retry 7s, rejected"},
		{"a rejection with a delay", "api.test", 429, "Retry-After: 3", limited, -1, nil, false, "retry 3s, rejected"},
		{"a rejection with a delay and an own reader", "api.test", 429, "Retry-After: 3", limited, -1, own, true, "retry 3s, rejected"},
		{"a rejection with a delay of a host with codes", "api.anthropic.com", 429, "Retry-After: 3", limited, -1, nil, true, "retry 7s, rejected"},
		{"the same, which waiting does not cure", "api.anthropic.com", 429, "Retry-After: 3",
			`{"error":{"type":"rate_limit_error","details":{"error_code":"enforced_spend_limit_reached"}}}`, -1, nil, true, "retry 3s"},
		{"a rejection with a delay until the end of the day", "generativelanguage.googleapis.com", 429, "Retry-After: 3\nDate: Mon, 02 Mar 2026 10:00:00 GMT",
			`{"error":{"details":[{"violations":[{"quotaId":"GenerateRequestsPerDay"}]}]}}`, -1, nil, true, "retry 22h0m0s, rejected"},
		{"a delay without a rejection", "api.test", 503, "Retry-After: 3", limited, -1, nil, true, "retry 7s"}, // the code is generic
		{"a success", "api.test", 200, "", limited, -1, nil, false, ""},
		{"a success of GraphQL", "api.github.com", 200, "", limited, -1, nil, true, "retry 7s, rejected"},
		{"a success of the longest length", "api.github.com", 200, "", limited, maxPeek, nil, true, "retry 7s, rejected"},
		{"a longer success", "api.github.com", 200, "", limited, maxPeek + 1, nil, false, ""},
		{"a longer failure", "api.test", 429, "", limited, maxPeek + 1, nil, true, "retry 7s, rejected"},
		{"the longest failure with codes", "iam.amazonaws.com", 400, "", "Throttling", maxPeek + 1, nil, true, "rejected"},
		{"no body", "api.test", 429, "", "", 0, own, true, "rejected"},
	} {
		r := Reader{Body: c.own}
		src := &countingReader{Reader: strings.NewReader(c.body)}
		h := parseHeader(c.header)
		h.Set("Content-Type", "application/json")
		resp := &http.Response{StatusCode: c.status, Header: h, Body: io.NopCloser(src), ContentLength: c.length}
		p := r.Provider(c.host)
		rep := r.Read(p, resp, time.Time{}, time.Time{})
		require.Equal(t, c.reads, src.reads > 0, c.name)
		require.Equal(t, c.want, formatReport(rep), c.name)
		require.Equal(t, c.own != nil && c.body != "" || strings.Contains(c.body, "spend"), rep.Permanent, c.name)
		all, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, c.body, string(all), c.name)
	}
}

// TestReader_readsOnePieceOfABodyWithoutLength checks that Read waits for the end of a body
// of known length, and only for the first piece of any other.
func TestReader_readsOnePieceOfABodyWithoutLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for length, want := range map[int64]string{-1: "rejected", 30: "retry 7s, rejected"} {
			r, w := io.Pipe()
			go func() {
				_, _ = io.WriteString(w, `{"code":"rate_limited",`)
				time.Sleep(time.Millisecond)
				_, _ = io.WriteString(w, `"retry_after":7}`)
				_ = w.Close()
			}()
			resp := &http.Response{StatusCode: 429, Body: r, ContentLength: length}
			require.Equal(t, want, formatReport(new(Reader).Read(nil, resp, time.Time{}, time.Time{})))
			_, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
		}
	})
}

// TestPeek_reportsAnErrorAfterTheBytes checks readers that return bytes and an error
// together, and none of both.
func TestPeek_reportsAnErrorAfterTheBytes(t *testing.T) {
	resp := &http.Response{Body: io.NopCloser(io.MultiReader(strings.NewReader("x")))}
	require.Equal(t, "x", string(peek(resp, true)))
	n, err := resp.Body.Read(nil)
	require.NoError(t, err)
	require.Zero(t, n)
	b := make([]byte, 4)
	n, err = resp.Body.Read(b)
	require.NoError(t, err)
	require.Equal(t, "x", string(b[:n]))
	_, err = resp.Body.Read(b)
	require.ErrorIs(t, err, io.EOF)
}

func TestWrite_millisecondsForXResetAfter(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0.000", 0: "0.000", 1: "0.001", time.Millisecond: "0.001", time.Millisecond + 1: "0.002", 1234 * time.Millisecond: "1.234",
		59999*time.Millisecond + 1: "60.000", 90 * time.Second: "90.000", 987 * time.Millisecond: "0.987", 1<<63 - 1: "999999999.000",
	} {
		h := http.Header{}
		Write(h, XResetAfter, Report{Limits: []Limit{{HasReset: true, ResetAfter: d}}})
		require.Equal(t, http.Header{"X-Ratelimit-Reset-After": {want}}, h, "%v", d)
	}
	h := http.Header{}
	Write(h, XResetAfter|XRateLimit, Report{Limits: []Limit{{HasRemaining: true, ResetAfter: time.Second}}})
	require.Equal(t, http.Header{"X-Ratelimit-Remaining": {"0"}}, h)
}

func TestWrite_statesTheTightestLimit(t *testing.T) {
	limit := func(name string, size, left int64) Limit {
		return Limit{Name: name, Limit: size, Remaining: left, HasLimit: true, HasRemaining: true}
	}
	unknown := Limit{Limit: 77, HasLimit: true}
	for _, c := range []struct {
		name   string
		limits []Limit
		want   string // of the limit
	}{
		{"the smallest share", []Limit{limit("a", 10, 5), limit("b", 100, 20), limit("c", 1000, 500)}, "100"},
		{"the first of equal shares", []Limit{limit("a", 10, 5), limit("b", 100, 50)}, "10"},
		{"unknown last", []Limit{unknown, limit("a", 10, 10)}, "10"},
		{"unknown only", []Limit{unknown, {Limit: 5, HasLimit: true}}, "77"},
		{"more left than the limit", []Limit{limit("a", 10, 30), limit("b", 20, 20)}, "10"},
		{"the last one", []Limit{limit("a", 10, 9), limit("b", 1, 0)}, "1"},
		{"the first one", []Limit{limit("a", 2, 1), limit("b", 10, 9)}, "2"},
		{"a limit of one", []Limit{limit("a", 10, 9), limit("b", 1, 1)}, "10"},
		{"a limit of zero", []Limit{limit("a", 10, 1), limit("b", 0, 0)}, "0"},
	} {
		h := http.Header{}
		Write(h, XRateLimit, Report{Limits: c.limits})
		require.Equal(t, c.want, h.Get("X-RateLimit-Limit"), c.name)
	}
}

func TestWrite_escapesNamesAndOmitsWindows(t *testing.T) {
	h := http.Header{}
	Write(h, Draft03|Draft10, Report{Limits: []Limit{
		{Remaining: 3, HasRemaining: true, Limit: 9, HasLimit: true, Unit: "a_b"},
		{Name: "\x1f ~\x7f_\x00", Remaining: 9, HasRemaining: true, Limit: 9, HasLimit: true, Window: 1},
	}})
	require.Equal(t, http.Header{
		"Ratelimit-Limit": {"9"}, "Ratelimit-Remaining": {"3"},
		"Ratelimit":        {`"default";r=3, "? ~?_?";r=9`},
		"Ratelimit-Policy": {`"default";q=9;qu="a-b", "? ~?_?";q=9;w=1`},
	}, h)
}
