package headers

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// Well-known headers are found among any number of other headers.
func TestParse_findsWellKnownNamesAmongMany(t *testing.T) {
	for _, n := range []int{100, maxCandidates, 1500} {
		h := parseHeader("Retry-After: 60\nRateLimit: \"a\";r=0;t=9\nX-RateLimit-Limit: 10\nX-RateLimit-Remaining: 3\nX-Sentry-Rate-Limits: 70:x\n" + dateLine)
		for i := range n {
			h[fmt.Sprintf("X-Junk-%d", i)] = []string{"1"}
			h[fmt.Sprintf("X-Junk-Count-%d", i)] = []string{"1"}
		}
		for range 20 {
			require.Equal(t, "a 0/? in 9s, 3/10, retry 1m10s, rejected", formatReport(Parse(429, h, time.Unix(1700000000, 0))), n)
		}
	}
}

// If there are more limits than are read, the selection is deterministic: those with
// well-known names, and then the first by name.
func TestParse_isDeterministic(t *testing.T) {
	h := parseHeader("X-RateLimit-Limit: 10\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 60")
	for i := range 60 {
		h[fmt.Sprintf("X-Ratelimit-Limit-B%c%c", 'a'+i/26, 'a'+i%26)] = []string{"5"}
	}
	first := Parse(200, h, time.Unix(1700000000, 0))
	require.Len(t, first.Limits, maxGroups)
	require.True(t, slices.ContainsFunc(first.Limits, func(l Limit) bool { return l.Name == "" && l.HasRemaining && l.Remaining == 0 }))
	for range 50 {
		require.Equal(t, first, Parse(200, h, time.Unix(1700000000, 0)))
	}
}

// Names of one bucket with different words for its window are named after the first of them.
func TestParse_namesABucketAfterItsFirstHeader(t *testing.T) {
	h := parseHeader("X-RateLimit-Limit-Minutely: 39\nX-RateLimit-Remaining-Minute: 7\nX-RateLimit-Reset-1m: 30")
	for range 50 {
		require.Equal(t, "minutely 7/39 in 30s per 1m0s", formatReport(Parse(200, h, time.Unix(1700000000, 0))))
	}
}

// A policy describes the limit of the same name. Other matches are possible only if one of
// the two has no name.
func TestParse_matchesPoliciesByName(t *testing.T) {
	for _, c := range []struct{ name, header, want string }{
		{"another name", `RateLimit: "default";r=0;t=60
RateLimit-Policy: "peruser";q=65535;qu="content-bytes";w=10`, "default 0/? in 1m0s, peruser[content_bytes] ?/65535 per 10s"},
		{"the same name", `RateLimit: "default";r=0;t=60
RateLimit-Policy: "default";q=100;w=60`, "default 0/100 in 1m0s per 1m0s"},
		{"a policy without name", `RateLimit: "default";r=0;t=60
RateLimit-Policy: 100;w=60`, "default 0/100 in 1m0s per 1m0s"},
		{"a state without name", `RateLimit-Limit: 100
RateLimit-Remaining: 0
RateLimit-Policy: "default";q=100;w=60`, "default 0/100 per 1m0s"},
		{"a state of another name and the same size", `X-RateLimit-Limit: 100
X-RateLimit-Remaining: 0
X-RateLimit-Resource: core
RateLimit-Policy: "daily";q=100;w=86400`, "core 0/100, daily ?/100 per 24h0m0s"},
		{"other partitions", `RateLimit: "a";r=1;pk=:YQ==:, "a";r=2;pk=:Yg==:
RateLimit-Policy: "a";q=10;w=5;pk=:Yg==:`, "a 1/?, a 2/10 per 5s"},
	} {
		require.Equal(t, c.want, formatReport(Parse(200, parseHeader(c.header), time.Unix(1700000000, 0))), c.name)
	}
}

func TestParse_ignoresMalformedStructuredFields(t *testing.T) {
	for _, v := range []string{`"a";r=5.5;t=60`, `"a";r=-1;t=60`, `"a";r=0;t=1.5`, `"a";r=0;t=-1`, `"a";r="0";t=60`, `"a";r=0, "b";r=1.0`, `"a";r=?0`} {
		require.Empty(t, Parse(200, http.Header{"Ratelimit": {v}}, time.Unix(1700000000, 0)).Limits, v)
	}
	for _, v := range []string{`"a";q=5.5;w=60`, `"a";q=-1;w=60`, `"a";q=5;w=1.5`, `"a";q="5"`, `10.5;w=60`, `"a";q=5, "b";q=1.5`} {
		require.Empty(t, Parse(200, http.Header{"Ratelimit-Policy": {v}}, time.Unix(1700000000, 0)).Limits, v)
	}
}

// A long name is truncated. Its limit still counts.
func TestParse_truncatesNames(t *testing.T) {
	long := strings.Repeat("n", 300)
	for _, h := range []http.Header{
		{"Ratelimit": {`"` + long + `";r=0;t=60`}, "Ratelimit-Policy": {`"` + long + `";q=5`}},
		{"X-Ratelimit-Limit": {"5"}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"60"}, "X-Ratelimit-Bucket": {long}},
		{"X-Ratelimit-Limit": {`5, 5;w=60;name="` + long + `"`}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"60"}},
		{"X-Ratelimit-" + long + "-Limit": {"5"}, "X-Ratelimit-" + long + "-Remaining": {"0"}, "X-Ratelimit-" + long + "-Reset": {"60"}},
	} {
		limits := Parse(200, h, time.Unix(1700000000, 0)).Limits
		require.Len(t, limits, 1, h)
		require.True(t, limits[0].HasRemaining && limits[0].Limit == 5 && limits[0].ResetAfter == time.Minute, "%+v", limits[0])
		require.NotEmpty(t, limits[0].Name)
		require.LessOrEqual(t, len(limits[0].Name), maxNameLen)
	}
}

func TestParse_readsAndWritesPartitionKeys(t *testing.T) {
	r := Parse(200, parseHeader(`RateLimit: "a";r=4;t=9;pk=:dHJpYWw=:, "b";r=3;pk=user
RateLimit-Policy: "a";q=5;w=60, "c";q=7;pk=:Yw==:`), time.Unix(1700000000, 0))
	require.Len(t, r.Limits, 3)
	require.Equal(t, []string{"trial", "user", "c"}, []string{r.Limits[0].PartitionKey, r.Limits[1].PartitionKey, r.Limits[2].PartitionKey})
	require.Equal(t, "a;pk=dHJpYWw=", r.Limits[0].RemoteLimit().Name, "a limit of its own")
	require.Equal(t, "c", r.Limits[2].RemoteLimit().Name, "not every response names the key of a policy")
	h := make(http.Header)
	Write(h, Draft10, r)
	require.Equal(t, `"a";r=4;t=9;pk=:dHJpYWw=:, "b";r=3;pk=:dXNlcg==:`, h.Get("RateLimit"))
	require.Equal(t, `"a";q=5;w=60;pk=:dHJpYWw=:, "c";q=7;pk=:Yw==:`, h.Get("RateLimit-Policy"))
	require.Equal(t, r, Parse(200, h, time.Unix(1700000000, 0)))
}

func TestParse_prefersMillisecondDelay(t *testing.T) {
	for _, c := range []struct {
		header string
		want   time.Duration
	}{
		{"Retry-After: 2\nRetry-After-Ms: 1500", 1500 * time.Millisecond},
		{"Retry-After: 1\nRetry-After-Ms: 1500", 1500 * time.Millisecond},
		{"Retry-After: 1\nRetry-After-Ms: 0", time.Second}, // Azure rounds down to 0, which does not mean now
		{"Retry-After: 1\nRetry-After-Ms: x", time.Second},
		{"Retry-After: 1\nRetry-After-Ms: 200\nX-RateLimit-Retry-After: 9", 9 * time.Second},
	} {
		require.Equal(t, c.want, Parse(429, parseHeader(c.header), time.Unix(1700000000, 0)).RetryAfter, c.header)
	}
}

// The used share of a limit is neither a count nor a rate.
func TestParse_ignoresUtilization(t *testing.T) {
	for _, h := range []string{
		"Anthropic-Ratelimit-Unified-5h-Utilization: 0.35", "X-RateLimit-Utilization: 0.5", "X-RateLimit-Limit-Utilization: 0.5",
		"X-RateLimit-Usage-Ratio: 0.9", "X-RateLimit-Limit-Percent: 0.5",
	} {
		for _, l := range Parse(200, parseHeader(h), time.Unix(1700000000, 0)).Limits {
			require.Zero(t, l.Rate, h)
			require.False(t, l.HasLimit || l.HasRemaining, h)
		}
	}
	require.InDelta(t, 0.5, Parse(200, parseHeader("X-RateLimit-Limit: 0.5"), time.Unix(1700000000, 0)).Limits[0].Rate, 1e-9)
}

// A reset of 0 with 0 units left is stated; a limit without a reset has ResetAfter 0.
func TestLimit_RemoteLimitDistinguishesNowFromUnknown(t *testing.T) {
	require.Equal(t, throttle.RemoteLimit{ResetAfter: 1}, Limit{HasRemaining: true, HasReset: true}.RemoteLimit())
	require.Equal(t, throttle.RemoteLimit{}, Limit{HasRemaining: true}.RemoteLimit())
	// Issue 14: the rate reaches the tracker, as the time in which it restores all units.
	require.Equal(t, throttle.RemoteLimit{Limit: 20, ResetAfter: 100 * time.Millisecond, Per: 2 * time.Second},
		Limit{Limit: 20, HasLimit: true, HasRemaining: true, Rate: 10}.RemoteLimit(), "nothing left, and one unit comes back each 100 ms")
}

func TestParse_obeysGlobalHeaderOfItsProviderOnly(t *testing.T) {
	var r Reader
	h := parseHeader("X-RateLimit-Global: true\nRetry-After: 1")
	require.True(t, r.Parse("discord.com", 429, h, time.Time{}).Global)
	require.False(t, r.Parse("api.test", 429, h, time.Time{}).Global)
}

// A rate, percent and tokens reach the tracker in the unit in which the server counts.
func TestReport_AppendRemoteLimitsKeepsUnits(t *testing.T) {
	for _, c := range []struct {
		name, header string
		want         throttle.RemoteLimit
	}{
		{"Spring Cloud Gateway", "X-RateLimit-Remaining: 7\nX-RateLimit-Burst-Capacity: 20\nX-RateLimit-Replenish-Rate: 10\nX-RateLimit-Requested-Tokens: 1",
			throttle.RemoteLimit{Limit: 20, Remaining: 7, Per: 2 * time.Second}},
		{"refilled per interval", "X-RateLimit-Limit: 10\nX-RateLimit-Remaining: 9\nX-RateLimit-Interval-Seconds: 60\nX-RateLimit-FillRate: 5",
			throttle.RemoteLimit{Limit: 10, Remaining: 9, Per: 2 * time.Minute}},
		{"no size", "X-RateLimit-Fill-Rate: 4", throttle.RemoteLimit{Limit: 1, RemainingUnknown: true, Per: 250 * time.Millisecond}},
		{"an endless rate", "X-RateLimit-Limit: 9000000000000000000\nX-RateLimit-Fill-Rate: 0.000000001",
			throttle.RemoteLimit{Limit: 9e18, RemainingUnknown: true, Per: MaxDelay}},
		{"used percent", "X-RateLimit-Used-Percent: 34.5\nX-RateLimit-Reset: 30",
			throttle.RemoteLimit{Unit: "percent", Limit: 100, Remaining: 65, ResetAfter: 30 * time.Second, Resolution: time.Second}},
		{"remaining percent", "X-RateLimit-Remaining-Percent: 12", throttle.RemoteLimit{Unit: "percent", Limit: 100, Remaining: 12}},
		{"more than all", "X-RateLimit-Used-Percent: 134", throttle.RemoteLimit{Unit: "percent", Limit: 100}},
		{"tokens", "X-RateLimit-Limit-Tokens: 1000\nX-RateLimit-Remaining-Tokens: 900", throttle.RemoteLimit{Unit: "tokens", Limit: 1000, Remaining: 900}},
	} {
		got := Parse(200, parseHeader(c.header), time.Unix(1700000000, 0)).AppendRemoteLimits(nil)
		require.Len(t, got, 1, c.name)
		got[0].Name = ""
		require.Equal(t, c.want, got[0], c.name)
	}
}

// A limit of zero in a rejection is not stated. Alone it is no limit.
func TestParse_rejectionWithALimitOfZero(t *testing.T) {
	for _, c := range []struct{ header, want string }{
		{"X-RateLimit-Limit: 0", "rejected"},
		{"X-RateLimit-Limit: 0\nX-RateLimit-Window: 60", "rejected"},
		{"X-RateLimit-Limit: 0\nX-RateLimit-Reset: 30", "?/? in 30s, rejected"},
		{"X-RateLimit-Limit: 0\nX-RateLimit-Used: 4\nX-RateLimit-Reset: 30", "0/? in 30s, rejected"},
		{"RateLimit-Policy: \"a\";q=0;w=60", "rejected"},
		{"RateLimit: \"a\";r=0;t=9\nRateLimit-Policy: \"a\";q=0;w=60", "a 0/? in 9s per 1m0s, rejected"},
	} {
		require.Equal(t, c.want, formatReport(Parse(429, parseHeader(c.header), time.Unix(1700000000, 0))), c.header)
	}
}

// A policy with a partition key describes the limit of that partition, and one without a key
// those of all partitions that have none of their own.
func TestParse_matchesPoliciesByPartition(t *testing.T) {
	for _, c := range []struct{ name, header, want string }{
		{"the equal key, not the first limit of the name", `RateLimit: "a";r=1, "a";r=2;pk=:Yg==:
RateLimit-Policy: "a";q=10;w=5;pk=:Yg==:`, "a 1/?, a 2/10 per 5s"},
		{"all partitions", `RateLimit: "a";r=1;pk=:YQ==:, "a";r=2;pk=:Yg==:
RateLimit-Policy: "a";q=10;w=5`, "a 1/10 per 5s, a 2/10 per 5s"},
		{"all others", `RateLimit: "a";r=1;pk=:YQ==:, "a";r=2;pk=:Yg==:
RateLimit-Policy: "a";q=10;w=5, "a";q=20;w=6;pk=:YQ==:`, "a 1/20 per 6s, a 2/10 per 5s"},
		{"only the policy names the partition of the request", `RateLimit: "a";r=1
RateLimit-Policy: "a";q=10;w=5;pk=:YQ==:`, "a 1/10 per 5s"},
		{"another partition", `RateLimit: "a";r=1;pk=:Yg==:
RateLimit-Policy: "a";q=10;w=5;pk=:YQ==:`, "a 1/?, a ?/10 per 5s"},
		{"two policies of one name", `RateLimit: "a";r=1, "a";r=2
RateLimit-Policy: "a";q=10;w=5, "a";q=20;w=6`, "a 1/10 per 5s, a 2/20 per 6s"},
		{"one state for two policies of one name", `RateLimit: "a";r=1
RateLimit-Policy: "a";q=10;w=5, "a";q=20;w=6`, "a 1/10 per 5s, a ?/20 per 6s"},
		{"no name, another partition", `RateLimit: "a";r=1;pk=:Yg==:
RateLimit-Policy: 10;w=5;pk=:YQ==:`, "a 1/?"},
	} {
		require.Equal(t, c.want, formatReport(Parse(200, parseHeader(c.header), time.Unix(1700000000, 0))), c.name)
	}
}

// Long partition keys are shortened, but those of different partitions stay different.
func TestParse_boundsPartitionKeys(t *testing.T) {
	key := func(s string) string {
		pk := base64.StdEncoding.EncodeToString([]byte(s))
		return Parse(200, http.Header{"Ratelimit": {`"a";r=1;pk=:` + pk + `:`}}, time.Unix(1700000000, 0)).Limits[0].PartitionKey
	}
	long := strings.Repeat("k", maxNameLen)
	require.Equal(t, long, key(long))
	require.Len(t, key(long+"1"), maxNameLen)
	require.NotEqual(t, key(long+"1"), key(long+"2"))
	require.Equal(t, key(long+"1"), boundKey(key(long+"1")), "shortened once")
	r := Report{Limits: []Limit{{PartitionKey: long + "1"}}}
	r.resolve(200)
	require.Equal(t, key(long+"1"), r.Limits[0].PartitionKey, "also that of a custom reader")
}

// A parser in the pool holds nothing of the response that it has parsed.
func TestParser_resetForgetsTheResponse(t *testing.T) {
	h := parseHeader("X-RateLimit-Limit: 5\nX-RateLimit-Remaining-Foo: 3\nRateLimit-Policy: 5;w=9\nRetry-After: 3\nX-App-Usage: {\"a\":1}\nAge: 3\n" + dateLine)
	p := new(Reader).collect(&Provider{}, h, false, time.Time{}, time.Time{})
	p.finish(429)
	groups, limits, policies, retries, custom := p.groups, p.limits, p.policies, p.retryHeaders, p.custom
	require.NotEmpty(t, groups)
	require.NotEmpty(t, policies)
	require.NotEmpty(t, retries)
	require.NotEmpty(t, custom)
	p.reset()
	for i := range groups {
		require.Equal(t, headerGroup{}, groups[i])
	}
	for i := range limits[:cap(limits)] {
		require.Equal(t, limitBuilder{}, limits[:cap(limits)][i])
	}
	require.Equal(t, make([]headerValue, len(policies)), policies)
	require.Equal(t, make([]retryHeader, len(retries)), retries)
	require.Equal(t, make([]customHeader, len(custom)), custom)
	p.groups, p.limits, p.policies, p.retryHeaders, p.custom = nil, nil, nil, nil, nil
	require.Equal(t, &parser{}, p)
}
