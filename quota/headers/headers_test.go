package headers

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// formatReport returns a report in one line: name, unit, units left, limit, reset and
// window.
func formatReport(r Report) string {
	var out []string
	for _, l := range r.Limits {
		s := l.Name
		if l.Unit != "" {
			s += "[" + l.Unit + "]"
		}
		s += " " + formatCount(l.Remaining, l.HasRemaining) + "/" + formatCount(l.Limit, l.HasLimit)
		if l.HasReset {
			s += fmt.Sprint(" in ", l.ResetAfter)
		}
		if l.Window > 0 {
			s += fmt.Sprint(" per ", l.Window)
		}
		if l.Rate > 0 {
			s += fmt.Sprint(" rate ", l.Rate)
		}
		out = append(out, strings.TrimSpace(s))
	}
	if r.HasRetryAfter {
		out = append(out, fmt.Sprint("retry ", r.RetryAfter))
	}
	if r.Throttled {
		out = append(out, "rejected")
	}
	return strings.Join(out, ", ")
}

func formatCount(n int64, has bool) string {
	if !has {
		return "?"
	}
	return fmt.Sprint(n)
}

const dateLine = "Date: Tue, 14 Nov 2023 22:13:20 GMT\n" // 1700000000

// dialectCases are responses with their expected reports by the general rules. Recorded
// responses are in testdata; these are spellings that do not occur there.
var dialectCases = []struct{ name, header, want string }{
	{"one reset for two windows is the shorter one's", `X-Contentful-RateLimit-Hour-Limit: 36000
X-Contentful-RateLimit-Hour-Remaining: 35999
X-Contentful-RateLimit-Second-Limit: 10
X-Contentful-RateLimit-Second-Remaining: 9
X-Contentful-RateLimit-Reset: 1`, "hour 35999/36000 per 1h0m0s, second 9/10 in 1s per 1s"},
	{"a limit without a field word, beside its -Remaining", `X-HubSpot-RateLimit-Daily: 250000
X-HubSpot-RateLimit-Daily-Remaining: 249998
X-HubSpot-RateLimit-Max: 100
X-HubSpot-RateLimit-Remaining: 98
X-HubSpot-RateLimit-Interval-Milliseconds: 10000`, "daily 249998/250000 per 24h0m0s, hubspot 98/100 per 10s"},
	{"limit named by its window, the rest without", `RateLimit-DailyLimit: 5000
RateLimit-Remaining: 4997
RateLimit-ResetTime: 2023-11-15T00:00:00+00:00`, "daily 4997/5000 in 1h46m40s per 24h0m0s"},
	{"scope glued to the field", `X-RateLimit-UserLimit: 500
X-RateLimit-UserRemaining: 499
X-RateLimit-UserReset: 1700000100
X-RateLimit-ClientLimit: 12500
X-RateLimit-ClientRemaining: 12499`, "client 12499/12500, user 499/500 in 1m40s"},
	{"no word of rates at all", `X-Limit-Per-Second: 10
X-Remaining-This-Second: 8
X-Limit-Per-Day: 10000
X-Remaining-Today: 9523`, "day 9523/10000 per 24h0m0s, second 8/10 per 1s"},
	{"token bucket parameters", `X-RateLimit-Remaining: 0
X-RateLimit-Burst-Capacity: 20
X-RateLimit-Replenish-Rate: 10
X-RateLimit-Requested-Tokens: 1`, "0/20 rate 10"},
	{"negative says nothing", "X-RateLimit-Limit: 20\nX-RateLimit-Remaining: -1", "?/20"},
	{"negative all over is no limit", "X-RateLimit-Limit: -1\nX-RateLimit-Remaining: -1\nX-RateLimit-Reset: 0", ""},
	{"zeros on a success count nothing", "X-RateLimit-Limit: 0\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 0", ""},
	{"rate and quota side by side", `X-Rate-Limit-Limit: 10
X-Rate-Limit-Remaining: 9
X-Rate-Limit-Reset: 1700000060000
X-Quota-Limit: 1000
X-Quota-Remaining: 999
X-Quota-Reset: 1700086400000`, "quota 999/1000 in 24h0m0s, 9/10 in 1m0s"},
	{"JSON", `X-RateLimit: {"name":"API","period":10,"limit":50,"remaining":0,"until":"2023-11-14T22:13:30Z"}`, "API 0/50 in 10s per 10s"},
	{"lists with a policy per window", `RateLimit-Limit: 1, 3
RateLimit-Remaining: 0, 2
RateLimit-Reset: 5, 60
RateLimit-Policy: 1;w=5, 3;w=60`, "0/1 in 5s per 5s, 2/3 in 1m0s per 1m0s"},
	{"two instances are two limits", `X-RateLimit-Limit: 100
X-RateLimit-Limit: 5
X-RateLimit-Remaining: 99
X-RateLimit-Remaining: 4`, "99/100, 4/5"},
	{"policies of which one has no state", `RateLimit-Policy: "hour";q=1000;w=3600, "day";q=5000;w=86400
RateLimit: "day";r=100;t=36000`, "day 100/5000 in 10h0m0s per 24h0m0s, hour ?/1000 per 1h0m0s"},
	{"quota units", `RateLimit-Policy: "peruser";q=65535;qu="content-bytes";w=10;pk=:YWJj:`, "peruser[content_bytes] ?/65535 per 10s"},
	{"a mistake voids the structured field", `RateLimit: "day";r=100;t=36000,`, ""},
	{"relative beats absolute", `X-RateLimit-Limit: 10
X-RateLimit-Remaining: 1
X-RateLimit-Reset: 1700009999
X-RateLimit-Reset-After: 2.5`, "1/10 in 2.5s"},
	{"one limit in two spellings", `X-RateLimit-Limit: 10
X-RateLimit-Remaining: 9
X-RateLimit-Reset: 1700000060
RateLimit-Limit: 10
RateLimit-Remaining: 9
RateLimit-Reset: 58`, "9/10 in 58s"},
	{"the delay counts, whichever spelling has it", `RateLimit-Remaining: 9
RateLimit-Reset: 1700000099
X-RateLimit-Remaining: 9
X-RateLimit-Reset: 58`, "9/? in 58s"},
	{"two limits of one size have a policy each", `RateLimit-Limit: 3, 3
RateLimit-Remaining: 1, 2
RateLimit-Policy: 3;w=1, 3;w=60`, "1/3 per 1s, 2/3 per 1m0s"},
	{"two limits under two spellings", `X-RateLimit-Limit: 10
X-RateLimit-Remaining: 9
RateLimit-Limit: 500
RateLimit-Remaining: 2`, "2/500, 9/10"},
	{"name in quotes with odd characters", `X-RateLimit-Limit: 10, 10;w=1;name="per-ip^a|b,c", 1000;w=3600
X-RateLimit-Remaining: 9`, "per-ip^a|b,c 9/10 per 1s"},
	{"words for the window", "X-RateLimit-Limit: 100 requests per minute\nX-RateLimit-Remaining: 99", "99/100 per 1m0s"},
	{"slash for the window", "X-RateLimit-Limit: 100/hour\nX-RateLimit-Remaining: 99", "99/100 per 1h0m0s"},
	{"several numbers under names", "X-Ms-RateLimit-Remaining-Resource: A/Get3Min;237,A/Get30Min;1197", "A/Get3Min 237/? per 3m0s, A/Get30Min 1197/? per 30m0s"},
	{"JavaScript date", `X-RateLimit-Remaining: 19
X-RateLimit-Reset: Tue Nov 14 2023 23:13:22 GMT+0100 (Central European Standard Time)`, "19/? in 2s"},
	{"redacted values", "X-RATELIMIT-LIMIT-REQUESTS: X-RATELIMIT-LIMIT-REQUESTS-XXX\nX-RateLimit-Remaining: unlimited\nX-RateLimit-Reset: null", ""},
	{"headers about other things", `X-Page-Limit: 20
X-Total-Count: 400
X-Items-Remaining: 20
X-Limit: 10
X-Request-Count: 3
X-Bytes-Remaining: 12
Keep-Alive: timeout=5, max=100`, ""},
	{"input and output are two units", `X-RateLimit-Limit-Input-Tokens: 5
X-RateLimit-Remaining-Input-Tokens: 4`, "input-tokens[input_tokens] 4/5"},
	{"old answers say nothing", "Age: 7\nX-RateLimit-Limit: 10\nX-RateLimit-Remaining: 0", ""},
	{"fresh answers may say so", "Age: 0\nX-RateLimit-Limit: 10\nX-RateLimit-Remaining: 0", "0/10"},
	{"huge numbers", "X-RateLimit-Limit: 99999999999999999999\nX-RateLimit-Remaining: 9223372036854775807", "9223372036854775807/9223372036854775807"},
}

func TestParse_dialectsWithoutProviderTable(t *testing.T) {
	rules := Reader{NoProviderTable: true}
	for _, c := range dialectCases {
		r := rules.Parse("", 200, parseHeader(dateLine+c.header), time.Unix(1500000000, 0))
		require.Equal(t, c.want, formatReport(r), c.name)
	}
}

func TestParse_throttledByStatusAndLimits(t *testing.T) {
	const left, exhausted = "X-RateLimit-Limit: 10\nX-RateLimit-Remaining: 7", "X-RateLimit-Limit: 10\nX-RateLimit-Remaining: 0"
	for _, c := range []struct {
		status    int
		header    string
		throttled bool
	}{
		{429, "", true}, {429, left, true}, {420, "", true}, {529, "", true}, {418, "", false}, {418, "Retry-After: 120", true},
		{403, "", false}, {403, left, false}, {403, exhausted, true}, {403, "Retry-After: 60", true},
		{503, "", false}, {503, "Retry-After: 120", false}, {503, left, false}, {503, exhausted, true},
		{200, exhausted, false}, {304, exhausted, false}, {404, exhausted, false}, {401, "Retry-After: 1", false},
	} {
		r := Parse(c.status, parseHeader(c.header), time.Unix(1700000000, 0))
		require.Equal(t, c.throttled, r.Throttled, "%d %s", c.status, c.header)
	}
}

func TestParse_countsFromDateHeader(t *testing.T) {
	h := parseHeader(dateLine + "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1700000030")
	for _, off := range []time.Duration{-10 * time.Minute, 0, 10 * time.Minute} {
		r := Parse(200, h, time.Unix(1700000000, 0).Add(off))
		require.Equal(t, "0/? in 30s", formatReport(r))
	}
	delete(h, "Date")
	require.Equal(t, "0/? in 20s", formatReport(Parse(200, h, time.Unix(1700000010, 0))))
	require.Equal(t, "0/? in 0s", formatReport(Parse(200, h, time.Unix(1700000031, 0))))
}

func TestParse_boundsNumberOfLimits(t *testing.T) {
	h := make(http.Header)
	for i := range 5000 {
		h.Set(fmt.Sprintf("X-RateLimit-Remaining-Bucket%d", i), "1")
	}
	h.Set("RateLimit", strings.Repeat(`"a";r=1, `, 100000)+`"a";r=1`)
	r := Parse(429, h, time.Unix(1700000000, 0))
	require.LessOrEqual(t, len(r.Limits), maxGroups)
	require.True(t, r.Throttled)
}

func TestReader_hostsOverrideProviderTable(t *testing.T) {
	r := Reader{Hosts: map[string]Provider{"api.example.com": {
		Headers: map[string]Rule{
			"X-Acme-Budget":     {Kind: KindRemaining, Unit: "points", Name: "budget"},
			"X-Acme-Next":       {Kind: KindResetAfter, Scale: time.Millisecond, Name: "budget"},
			"X-Ratelimit-Limit": {},
		},
		LimitHints:        []LimitHint{{Name: "budget", Window: time.Minute, Max: 500}},
		ThrottledStatuses: []int{430},
	}}}
	h := parseHeader("X-Acme-Budget: 12\nX-Acme-Next: 1500\nX-RateLimit-Limit: 7")
	require.Equal(t, "budget[points] 12/500 in 1.5s per 1m0s, rejected", formatReport(r.Parse("api.example.com:443", 430, h, time.Time{})))
	require.Equal(t, "?/7", formatReport(r.Parse("api.example.org", 430, h, time.Time{})))
}

func TestReader_scaleIsTheUnitOfABareNumber(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for _, tt := range []struct {
		kind  Kind
		scale time.Duration
		value string
		want  string
	}{
		{KindResetAfter, time.Minute, "3", "duration 3m0s"},
		{KindResetAfter, time.Minute, "1.5", "duration 1m30s"},
		{KindResetAfter, time.Hour, "2", "duration 2h0m0s"},
		{KindResetAfter, time.Microsecond, "1500", "duration 1.5ms"},
		{KindResetAfter, time.Millisecond, "1500", "delta milliseconds 1.5s"},
		{KindResetAfter, time.Second, "90", "delta seconds 1m30s"},
		{KindResetAfter, 0, "90", "delta seconds 1m30s"},
		{KindResetAfter, -time.Minute, "90", "delta seconds 1m30s"},
		{KindResetAfter, time.Minute, "10s", "duration 10s"},
		{KindReset, time.Minute, "1700000090000", "epoch milliseconds 1m30s"},
		{KindRetryAfter, time.Minute, "3", "duration 3m0s"},
		{KindRetryAfter, time.Hour, "0.5", "duration 30m0s"},
		{KindRetryAfter, time.Millisecond, "1500", "delta milliseconds 1.5s"},
		{KindRetryAfter, 0, "90", "delta seconds 1m30s"},
		{KindRetryAfter, time.Minute, "1700000090", "epoch seconds 1m30s"},
	} {
		r := Reader{Hosts: map[string]Provider{"api.example.com": {Headers: map[string]Rule{"X-Acme-Next": {Kind: tt.kind, Scale: tt.scale, Name: "-"}}}}}
		report := r.Parse("api.example.com", 429, parseHeader("X-RateLimit-Limit: 7\nX-RateLimit-Remaining: 0\nX-Acme-Next: "+tt.value), now)
		got := fmt.Sprint(report.RetryFormat, " ", report.RetryAfter)
		if tt.kind != KindRetryAfter {
			require.NotEmpty(t, report.Limits)
			got = fmt.Sprint(report.Limits[0].ResetFormat, " ", report.Limits[0].ResetAfter)
		}
		require.Equal(t, tt.want, got, "kind %v, scale %v, %s", tt.kind, tt.scale, tt.value)
	}
}

func TestReader_appliesProviderTable(t *testing.T) {
	var r Reader
	h := parseHeader("X-RateLimit-Limit: 30\nX-RateLimit-Remaining: 14\nX-RateLimit-Resource: search")
	require.Equal(t, "search 14/30 per 1m0s", formatReport(r.Parse("api.github.com", 200, h, time.Time{})))
	require.Equal(t, "search 14/30", formatReport(r.Parse("", 200, h, time.Time{})))
	h = parseHeader("X-Rate-Limit: 700\nX-Rate-Limit-Remaining: 699")
	require.Equal(t, "account 699/700 per 1m0s", formatReport(r.Parse("acme.zendesk.com", 200, h, time.Time{})))
	h = parseHeader(`X-App-Usage: {"call_count":28,"total_time":115}`)
	require.Equal(t, "call_count[percent] 72/100, total_time[percent] 0/100", formatReport(r.Parse("", 200, h, time.Time{})))
	h = parseHeader("X-Sentry-Rate-Limits: 60:transaction:key, 2700:default;error:organization")
	require.Equal(t, "retry 45m0s, rejected", formatReport(r.Parse("", 429, h, time.Time{})))
}

func TestReader_marksStaleResponses(t *testing.T) {
	for age, stale := range map[string]bool{"": false, "0": false, "1": true, "3600": true} {
		h := http.Header{"X-Ratelimit-Limit": {"60"}, "X-Ratelimit-Remaining": {"59"}, "X-Ratelimit-Reset": {"60"}}
		if age != "" {
			h.Set("Age", age)
		}
		report := new(Reader).Parse("api.example.com", http.StatusOK, h, time.Unix(1_700_000_000, 0))
		require.Equal(t, stale, report.Stale, "Age: %q", age)
		require.Equal(t, stale, len(report.Limits) == 0, "Age: %q", age)
	}
}
