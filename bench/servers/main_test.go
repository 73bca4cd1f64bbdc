package main

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/bench/clients"
	"github.com/heed-go/heed/internal/serverrules"
)

// greedy returns the time that a client needs which tries every 5 ms on every path
// that has calls left. If at is positive, it begins that long after the start of the server
// and makes a first call at the start.
func greedy(r row, at time.Duration) time.Duration {
	left := map[string]int{}
	for i := range calls {
		path := "/"
		if r.path != nil {
			path = r.path(i)
		}
		left[path]++
	}
	s := r.new()
	if at > 0 {
		s(serverrules.Request{At: time.Now(), Path: "/"})
		time.Sleep(at)
	}
	start, last := time.Now(), time.Time{}
	for ; len(left) > 0; time.Sleep(5 * time.Millisecond) {
		for path := range left {
			for left[path] > 0 {
				reply := s(serverrules.Request{At: time.Now(), Path: path})
				if !reply.OK() {
					break
				}
				left[path]--
				last = time.Now().Add(reply.Delay)
			}
			if left[path] == 0 {
				delete(left, path)
			}
		}
	}
	return last.Sub(start)
}

// Servers that punish a client for trying, or count rejected requests, are left out: HAProxy
// has the same rate without that, and the windows of envoyproxy/ratelimit are in
// TestIdeal_isThatOfTheRule. So are 300 pages, which would be 8 million requests.
func TestRows_idealIsTheTimeOfAGreedyClient(t *testing.T) {
	punishing := regexp.MustCompile(`block|Allow2Ban|envoyproxy|pages|^HAProxy.*(50 per 2 s)$`)
	for _, r := range rows() {
		if punishing.MatchString(r.server) {
			continue
		}
		for _, at := range []time.Duration{0, time.Minute + phase} {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)))
				ideal := r.ideal(calls, at)
				require.InEpsilon(t, ideal.Seconds(), greedy(r, at).Seconds(), .025, "%s, at %v: ideal %v", r.server, at, ideal)
			})
		}
	}
}

func TestIdeal_isThatOfTheRule(t *testing.T) {
	const phase = 1700 * time.Millisecond
	for name, tt := range map[string]struct {
		ideal ideal
		n     int
		at    time.Duration
		want  time.Duration
	}{
		"bucket":                    {bucket(20, 21), 300, 0, 13950 * time.Millisecond},
		"bucket, fewer":             {bucket(20, 21), 20, 0, 0},
		"window":                    {fromFirst(span{100, window5}), 300, phase, 10 * time.Second},
		"window, one more":          {fromFirst(span{100, window5}), 301, 0, 15 * time.Second},
		"clock":                     {aligned(span{100, window5}), 300, phase, 8300 * time.Millisecond},
		"two windows":               {fromFirst(span{20, time.Second}, span{100, window10}), 300, 0, 24 * time.Second},
		"two windows of the clock":  {aligned(span{20, time.Second}, span{100, time.Minute}), 300, phase, 122300 * time.Millisecond},
		"two windows, long first":   {aligned(span{100, time.Minute}, span{20, time.Second}), 300, phase, 122300 * time.Millisecond},
		"sliding":                   {slidingFromFirst(span{50, 2 * time.Second}), 300, phase, 12 * time.Second},
		"sliding, within a window":  {slidingAligned(span{100, window5}), 300, phase, 13300 * time.Millisecond},
		"sliding, fewer":            {slidingAligned(span{100, window5}), 100, 0, 0},
		"40 paths, 8 calls on some": {perPath(40, fromFirst(span{5, window5})), 300, 0, window5},
	} {
		require.Equal(t, tt.want, tt.ideal(tt.n, tt.at), name)
	}
}

// The real one bypasses virtual time, so that only requests within a window are compared.
func TestGoLimiter_repliesAsTheRealOne(t *testing.T) {
	store, err := memorystore.New(&memorystore.Config{Tokens: 3, Interval: time.Hour})
	require.NoError(t, err)
	defer store.Close(t.Context())
	m, err := httplimit.NewMiddleware(store, func(*http.Request) (string, error) { return "", nil })
	require.NoError(t, err)
	theirs := middleware(m.Handle)
	var replies []serverrules.Reply
	before := time.Now()
	for range 4 {
		replies = append(replies, theirs(serverrules.Request{Path: "/"}))
	}
	reset, err := time.Parse(time.RFC1123, replies[0].Header.Get("X-RateLimit-Reset"))
	require.NoError(t, err)
	require.False(t, reset.Before(before.Add(time.Hour).Truncate(time.Second)))
	ours := serverrules.GoLimiter(3, time.Hour)
	for i, want := range replies {
		want.Header.Del("Content-Type")
		want.Header.Del("X-Content-Type-Options")
		got := ours(serverrules.Request{At: reset.Add(-time.Hour + time.Second - 1)})
		if got.Status == 0 {
			got.Status = 200
		}
		require.Equal(t, want, got, "request %d", i)
	}
}

// The middlewares read virtual time.
func TestMiddlewares_readVirtualTime(t *testing.T) {
	for name, tt := range map[string]struct {
		new     func() serverrules.Server
		n       int // requests that are accepted at the same time
		headers string
		until   time.Duration
	}{
		"httprate": {func() serverrules.Server { return httpRate(2, window5) }, 2,
			"Retry-After:5 X-Ratelimit-Limit:2 X-Ratelimit-Remaining:0 X-Ratelimit-Reset:946684805", 2 * window5},
		"ulule": {func() serverrules.Server { return ulule(2, window5) }, 2,
			"X-Ratelimit-Limit:2 X-Ratelimit-Remaining:0 X-Ratelimit-Reset:946684805", window5 + 1},
		"tollbooth": {func() serverrules.Server { return tollbooth(2) }, 2,
			"Ratelimit-Limit:2 Ratelimit-Remaining:0 Ratelimit-Reset:1 X-Rate-Limit-Duration:1 X-Rate-Limit-Limit:2.00", 500 * time.Millisecond},
		"throttled": {func() serverrules.Server { return gcra(2, 2) }, 2,
			"Retry-After:1 X-Ratelimit-Limit:2 X-Ratelimit-Remaining:0 X-Ratelimit-Reset:1", 500 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := tt.new()
			ask := func() serverrules.Reply { return s(serverrules.Request{At: time.Now(), Path: "/"}) }
			for range tt.n {
				require.True(t, ask().OK(), name)
			}
			reply := ask()
			require.Equal(t, 429, reply.Status, name)
			require.Equal(t, tt.headers, limitHeaders(reply.Header), name)
			time.Sleep(tt.until)
			require.True(t, ask().OK(), name)
		})
	}
}

// limitHeaders returns the headers of h that describe limits, in the order of their names.
func limitHeaders(h http.Header) string {
	var lines []string
	for name, values := range h {
		if strings.Contains(name, "imit-") && !strings.HasSuffix(name, "Addr") || name == "Retry-After" {
			lines = append(lines, name+":"+strings.Join(values, ","))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, " ")
}

// A part of what the command measures: servers that state their limits, and some whose limits are
// inferred with some margin.
func TestRows_meetTheirGoals(t *testing.T) {
	chosen := matching(rows(), regexp.MustCompile(`^(express|hono|fastify|koa|tollbooth|throttled, [^,]*$|Rack::Attack, RateLimit|Varnish vsthrottle, remaining)`))
	require.Len(t, chosen, 14)
	missed := map[string]bool{}
	measure(t, chosen, []string{"heed"}, 1, 1, func(r result) {
		if len(goals[r.Job-1].missedBy([]result{r})) > 0 {
			missed[r.Server] = true
		}
	})
	// One run in twenty of two limits of express-rate-limit has a burst of 25 rejected: two others must meet the goals.
	again := slices.DeleteFunc(chosen, func(r row) bool { return !missed[r.server] })
	measure(t, again, []string{"heed"}, 2, 2, func(r result) {
		assert.Empty(t, goals[r.Job-1].missedBy([]result{r}), "%s, job %d", r.Server, r.Job)
	})
}

// Neither a client that does not retry meets the goals, nor one that retries and does not
// learn.
func TestRows_goalsCanBeMissed(t *testing.T) {
	chosen := matching(rows(), regexp.MustCompile(`^(nginx, 429, 20/s burst 20|koa-ratelimit, 100 per 5 s)$`))
	require.Len(t, chosen, 2)
	measure(t, chosen, []string{"plain", "retryablehttp"}, 1, 1, func(r result) {
		require.NotEmpty(t, goals[r.Job-1].missedBy([]result{r}), "%s, job %d, %s", r.Server, r.Job, r.Client)
	})
}

// Jobs begin at a random fraction of a second, and requests are served in random order.
func TestRow_varies(t *testing.T) {
	r := matching(rows(), regexp.MustCompile(`^Rack::Attack, bare 429`))[0]
	ideals := map[float64]bool{}
	for seed := range 5 {
		synctest.Test(t, func(t *testing.T) {
			for _, job := range r.run("plain", seed) {
				ideals[job.Ideal] = true
			}
		})
	}
	require.Len(t, ideals, 10, "that of windows of the clock depends on the beginning")
}

func TestRow_countsWhatTheServerRejects(t *testing.T) {
	for name, tt := range map[string]struct {
		server string
		want   result
	}{
		"429":    {"nginx, 429, 20/s burst 20", result{Calls: 300, Sent: 300, Wasted: 279, Failed: 279}},
		"closed": {"nginx, 444, 20/s burst 20", result{Calls: 300, Sent: 300, Wasted: 279, Failed: 279}},
		"silent": {"HAProxy, silent-drop, 50 per 2 s", result{Calls: 300, Sent: 300}},
	} {
		synctest.Test(t, func(t *testing.T) {
			some := matching(rows(), regexp.MustCompile("^"+regexp.QuoteMeta(tt.server)+"$"))
			require.Len(t, some, 1, name)
			jobs := some[0].run("plain", 1)
			require.Len(t, jobs, 2)
			first := jobs[0]
			require.Equal(t, tt.want.Sent, first.Sent, name)
			require.Equal(t, first.Wasted, first.Failed, name)
			if tt.want.Wasted > 0 {
				require.Equal(t, tt.want.Wasted, first.Wasted, name)
			} else {
				require.GreaterOrEqual(t, first.Elapsed, headerTimeout.Seconds(), name)
			}
		})
	}
}

func TestRows_areComplete(t *testing.T) {
	names := map[string]bool{}
	for _, r := range rows() {
		require.False(t, names[r.server], r.server)
		names[r.server] = true
		require.NotNil(t, r.new, r.server)
		require.Positive(t, r.ideal(calls, 0), r.server)
	}
	pages := map[string]bool{}
	for i := range calls {
		require.NotRegexp(t, "[^a-z/]", userPage(i))
		pages[userPage(i)] = true
	}
	require.Len(t, pages, calls)
	require.Equal(t, []string{"heed", "plain", "retryablehttp"}, matchingClients(regexp.MustCompile("^(heed|retryablehttp|plain)$")))
	require.Subset(t, clients.Names(), matchingClients(regexp.MustCompile("")))
}

func TestGoal_listsMisses(t *testing.T) {
	g := goal{20, 1.25, 0}
	for name, tt := range map[string]struct {
		runs []result
		want []string
	}{
		"met":    {[]result{{Wasted: 20, Elapsed: 12.5, Ideal: 10}}, nil},
		"wasted": {[]result{{Elapsed: 10, Ideal: 10}, {Wasted: 21, Elapsed: 10, Ideal: 10}}, []string{"21 wasted of at most 20"}},
		"slow":   {[]result{{Elapsed: 12.6, Ideal: 10}}, []string{"1.26 x of at most 1.25"}},
		"failed": {[]result{{Failed: 1, Elapsed: 10, Ideal: 10}}, []string{"1 failed of at most 0"}},
	} {
		require.Equal(t, tt.want, g.missedBy(tt.runs), name)
	}
}

func TestReport_summarizesRuns(t *testing.T) {
	server := row{server: "s"}
	r := &report{rows: []row{server}, clients: []string{"heed", "plain"}}
	for seed, wasted := range []int{5, 31, 7} {
		for job := 1; job <= 2; job++ {
			r.add(result{Client: "heed", Server: "s", Job: job, Seed: seed, Calls: 300, Wasted: wasted * (2 - job), Elapsed: 10, Ideal: 10})
			r.add(result{Client: "plain", Server: "s", Job: job, Seed: seed, Calls: 300, Wasted: 9, Failed: 9, Elapsed: 1, Ideal: 10})
		}
	}
	require.Equal(t, []string{"s, job 1: missed: 31 wasted of at most 30"}, r.misses()) // in the form that bench/constants reads
	require.Contains(t, string(r.markdown(1, 3)),
		"| s | 10.0 | 7 (31) | 1.00 | 0 | 0 | 1.00 | 0 | 9 | - | 9 | 9 | - | 9 | missed: job 1 31 wasted of at most 30 |")
	require.Contains(t, string(r.markdown(1, 3)), "heed meets the goals on 0 of 1 servers.")
}

func TestWorse_comparesWithGoRetryablehttp(t *testing.T) {
	run := func(wasted, failed int, elapsed float64) []result {
		return []result{{Calls: calls, Wasted: wasted, Failed: failed, Elapsed: elapsed, Ideal: 10}}
	}
	for name, tt := range map[string]struct {
		ours, theirs []result
		want         []string
	}{
		"better":                   {run(20, 0, 14), run(279, 0, 15), nil},
		"about as good":            {run(281, 2, 15.7), run(279, 0, 15), nil},
		"wasted":                   {run(310, 0, 15), run(279, 0, 15), []string{"310 wasted, go-retryablehttp 279"}},
		"failed":                   {run(20, 4, 15), run(279, 0, 15), []string{"4 failed, go-retryablehttp 0"}},
		"slow":                     {run(20, 0, 15.8), run(279, 0, 15), []string{"1.58 x, go-retryablehttp 1.50 x"}},
		"slow, but others fail":    {run(20, 0, 66), run(279, 279, .01), nil},
		"the worst of several run": {append(run(20, 0, 14), run(20, 9, 14)...), run(20, 0, 14), []string{"9 failed, go-retryablehttp 0"}},
	} {
		require.Equal(t, tt.want, worse(tt.ours, tt.theirs), name)
	}
}
