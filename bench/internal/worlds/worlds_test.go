package worlds

import (
	"net/http"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// run makes the calls of a world with a client in virtual time of its own.
func run(t *testing.T, w *World, client string) (r *Run) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		time.Sleep(time.Until(time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)))
		r = w.Run(client)
	})
	return r
}

func TestNew_isDetermined(t *testing.T) {
	for seed := range uint64(200) {
		require.True(t, reflect.DeepEqual(New(seed), New(seed)), "seed %d", seed)
	}
}

func TestNew_drawsAllKinds(t *testing.T) {
	n := 2000
	if testing.Short() {
		n = 600
	}
	seen, calls := map[any]int{}, 0
	for seed := range n {
		w := New(uint64(seed))
		calls += w.Calls()
		seen[w.Latency.Kind]++
		seen[w.Load.Kind]++
		seen[w.Load.Carrier]++
		seen[w.Load.Deadline > 0]++
		for _, trouble := range w.Troubles {
			seen[trouble.By]++
			seen[trouble.Status]++
			seen[trouble.Retry]++
		}
		if w.Stated != nil {
			seen[w.Stated.Kind]++
		}
		if l := w.Limit; l != nil {
			seen[l.Kind]++
			seen[l.Scope]++
			seen[l.Dialect.Headers]++
			seen[l.Dialect.Reset]++
			seen[l.Dialect.Rounding]++
			seen["limit"]++
		}
		require.LessOrEqual(t, w.Calls(), MaxCalls)
		require.GreaterOrEqual(t, w.Calls(), 50, "%d: %v", seed, w)
		require.True(t, slices.IsSortedFunc(w.calls, func(a, b call) int { return int(a.at - b.at) }))
		for _, c := range w.calls {
			if int(c.route) >= w.Load.Routes || int(c.tenant) >= w.Load.Tenants || int(c.resource) > w.Load.Resources {
				require.Fail(t, "a call outside the load", "%d: %v: %+v", seed, w, c)
			}
		}
		require.Less(t, w.Planned(), 24*time.Hour, "%d: %v", seed, w)
	}
	require.InDelta(t, n/3, seen["limit"], float64(n)/20)
	require.InDelta(t, 1700, calls/n, 700)
	if testing.Short() {
		return // too few worlds for the rare kinds
	}
	for _, kind := range []any{
		Constant, Lognormal, Bimodal, HeavyTail, Open, Closed, Bursts, Cron, Cold,
		Authorization, APIKeyHeader, APIKeyQuery, TenantQuery, Cookie, Path, true, false,
		ByRequest, ByBackend, ByResource, ByTenant, ByRoute, 403, 404, 429, 500, 502, 503, 504, Reset, GoAway, Refused,
		AfterSeconds, AfterDate, AfterEnd, AfterPast, AfterText,
		Distant, ConstantValue, Cached, OtherClients, SomeOthers, WrongScope, Vanishing, Daily, CountedDown,
		FixedWindow, SlidingLog, SlidingCounter, Bucket, InFlight, PerHost, PerTenant, PerRoute,
		NoHeaders, XRateLimit, Draft6, Draft7, Draft8, XRateLimitLow, Seconds, UnixSeconds, UnixMillis, DateOfReset, ResetMissing, Up, Down, Nearest,
	} {
		assert.NotZero(t, seen[kind], "%v", kind)
	}
}

func TestLatency_hasItsMedian(t *testing.T) {
	for _, l := range []Latency{
		{Kind: Constant, Median: time.Second},
		{Kind: Lognormal, Median: time.Second, Sigma: 1.2},
		{Kind: Bimodal, Median: time.Second, Slow: .1, Times: 10},
		{Kind: HeavyTail, Median: time.Second, Alpha: 1.5},
	} {
		w := &World{Seed: 3, Latency: l}
		var below, typical float64
		const n = 20_000
		for i := range n {
			d := w.latency(i, 1, 0)
			if d <= time.Second {
				below++
			}
			if d <= l.typical() {
				typical++
			}
		}
		if l.Kind != Constant {
			require.InDelta(t, .5, below/n, .07, l.String())
		}
		require.GreaterOrEqual(t, typical/n, .78, l.String())
	}
}

// Without this two clients could not be compared call by call.
func TestRun_pairsFaultsAndLatencies(t *testing.T) {
	pairs := 0
	for seed := range uint64(12) {
		w := New(seed)
		if w.Limit != nil || w.Latency.Capacity > 0 || w.Latency.StallTimes > 0 || slices.ContainsFunc(w.Troubles, func(t Trouble) bool { return t.To > 0 }) {
			continue
		}
		status := map[[2]int32]int16{}
		a, b := run(t, w, RetryableHTTP), run(t, w, Heed)
		for _, attempt := range a.Attempts {
			status[[2]int32{attempt.Call, attempt.Number}] = attempt.Status
		}
		for _, attempt := range b.Attempts {
			if s, ok := status[[2]int32{attempt.Call, attempt.Number}]; ok && s != 0 && attempt.Status != 0 {
				require.Equal(t, s, attempt.Status)
				pairs++
			}
		}
	}
	require.Greater(t, pairs, 1000)
}

// The oracle counts requests when it sends them. This proves that the server would have
// accepted them.
func TestOracle_isNotRejected(t *testing.T) {
	checked, seeds := 0, uint64(90)
	if testing.Short() {
		seeds = 60
	}
	for seed := range seeds {
		w := New(seed)
		if w.Limit == nil || w.Limit.Kind == InFlight {
			continue
		}
		checked++
		r := run(t, w, Oracle)
		limiters := map[int]*limiter{}
		start := time.Duration(time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC).UnixNano()) + w.Start
		for _, a := range r.Attempts {
			n, now := w.limiterNumber(int(a.Call), int(a.Number)), start+a.Sent
			if limiters[n] == nil {
				limiters[n] = w.newLimiter(n, now)
			}
			if limiters[n].limit.Others > 0 {
				continue // their times depend on the first request that waits
			}
			if !limiters[n].admit(now) {
				require.Fail(t, "rejected", "seed %d: call %d at %v: %v", seed, a.Call, a.Sent, w)
			}
		}
	}
	require.Greater(t, checked, 15)
}

func TestServer_countsCancelledRequests(t *testing.T) {
	w := &World{
		Latency: Latency{Kind: Constant, Median: time.Second},
		Load:    Load{Kind: Open, Calls: 3, Duration: 3 * time.Second, Routes: 1, Tenants: 1, Deadline: 100 * time.Millisecond},
		Limit:   &Limit{Kind: FixedWindow, Count: 2, Window: time.Hour, Scope: PerHost, Backends: 1, Status: 429, Quick: .01, Dialect: Dialect{Headers: NoHeaders}},
		calls:   []call{{}, {at: time.Second}, {at: 2 * time.Second}},
	}
	r := run(t, w, Plain)
	require.Len(t, r.Attempts, 3)
	var causes []Cause
	for _, a := range r.Attempts {
		causes = append(causes, a.Cause)
	}
	require.Equal(t, []Cause{Cancelled, Cancelled, ByLimit}, causes)
	require.Equal(t, []Reason{Deadline, Deadline, BadStatus}, []Reason{r.Results[0].Reason, r.Results[1].Reason, r.Results[2].Reason})
}

func TestServer_statesItsLimit(t *testing.T) {
	at := begin + 2*time.Second + 300*time.Millisecond
	reset := at + 7500*time.Millisecond
	for _, tt := range []struct {
		dialect Dialect
		want    http.Header
		stated  time.Duration
	}{
		{Dialect{NoHeaders, Seconds, Up, false}, http.Header{}, 0},
		{
			Dialect{XRateLimit, Seconds, Up, false},
			http.Header{"X-Ratelimit-Limit": {"10"}, "X-Ratelimit-Remaining": {"3"}, "X-Ratelimit-Reset": {"8"}}, at + 8*time.Second,
		},
		{
			Dialect{XRateLimit, UnixSeconds, Down, false},
			http.Header{"X-Ratelimit-Limit": {"10"}, "X-Ratelimit-Remaining": {"3"}, "X-Ratelimit-Reset": {"43200011"}}, 43200011 * time.Second,
		},
		{
			Dialect{Draft6, Seconds, Nearest, false},
			http.Header{"Ratelimit-Limit": {"10"}, "Ratelimit-Remaining": {"3"}, "Ratelimit-Reset": {"8"}}, at + 8*time.Second,
		},
		{
			Dialect{Draft7, Seconds, Down, false},
			http.Header{"Ratelimit": {"limit=10, remaining=3, reset=7"}, "Ratelimit-Policy": {"10;w=60"}}, at + 7*time.Second,
		},
		{
			Dialect{Draft8, Seconds, Down, false},
			http.Header{"Ratelimit": {`"default";r=3;t=7`}, "Ratelimit-Policy": {`"default";q=10;w=60`}}, at + 7*time.Second,
		},
	} {
		h := http.Header{}
		require.Equal(t, tt.stated, tt.dialect.write(h, 10, 3, time.Minute, at, reset), tt.dialect.String())
		require.Equal(t, tt.want, h)
	}
}

// What is left, and the Date, are those of the arrival of a request or those of its response.
func TestServer_statesItsLimitEarlyOrLate(t *testing.T) {
	for _, late := range []bool{false, true} {
		w := &World{
			LateDate: late, LateState: !late,
			Latency: Latency{Kind: Constant, Median: 10 * time.Second},
			Load:    Load{Routes: 1, Tenants: 1},
			Limit:   &Limit{Kind: FixedWindow, Count: 9, Window: time.Hour, Scope: PerHost, Backends: 1, Status: 429, Dialect: Dialect{Headers: XRateLimit, Reset: Seconds, Rounding: Up}},
			calls:   []call{{}, {}},
		}
		synctest.Test(t, func(t *testing.T) {
			arrival := time.Now()
			s := newServer(w)
			first := make(chan http.Header, 1)
			send := func(call int) http.Header {
				req, err := http.NewRequestWithContext(withCall(t.Context(), call), http.MethodGet, "http://api.test/", nil)
				assert.NoError(t, err)
				resp, err := s.RoundTrip(req)
				assert.NoError(t, err)
				defer resp.Body.Close()
				return resp.Header
			}
			go func() { first <- send(0) }()
			synctest.Wait()
			send(1) // arrives before the response to the first one
			h := <-first
			left, date := "8", arrival.Add(10*time.Second)
			if !late {
				left, date = "7", arrival
			}
			require.Equal(t, left, h.Get("X-RateLimit-Remaining"))
			require.Equal(t, date.UTC().Format(http.TimeFormat), h.Get("Date"))
		})
	}
}

func TestTrouble_isActiveInItsIntervals(t *testing.T) {
	trouble := Trouble{From: 10 * time.Second, To: 12 * time.Second, Period: 10 * time.Second}
	for at, want := range map[time.Duration]time.Duration{
		9 * time.Second: -1, 10 * time.Second: 12 * time.Second, 11 * time.Second: 12 * time.Second, 12 * time.Second: -1,
		21 * time.Second: 22 * time.Second, 25 * time.Second: -1,
	} {
		end, ok := trouble.active(at)
		require.Equal(t, want >= 0, ok, at.String())
		if ok {
			require.Equal(t, want, end, at.String())
		}
	}
}

func TestOf_runsADescribedWorld(t *testing.T) {
	w := Of(World{
		Latency:  Latency{Median: 10 * time.Millisecond},
		Load:     Load{Kind: Open, Calls: 100, Duration: 10 * time.Second, Regular: true, Tenants: 10, Carrier: Authorization, Deadline: 5 * time.Second},
		Troubles: []Trouble{{By: ByTenant, Share: .1, Status: 429, Retry: AfterSeconds, Seconds: 1}},
		Limit:    &Limit{Kind: Bucket, Count: 20, Window: time.Second},
	})
	r := run(t, w, Plain)
	failed := w.affectedCalls()
	require.InDelta(t, 10, failed, 8)
	require.Equal(t, failed, r.Summarize().Failed)
	for _, a := range r.Attempts {
		require.Equal(t, 10*time.Millisecond, a.Done-a.Sent)
	}
	again := false
	custom := func(base http.RoundTripper) *http.Client {
		again = true
		return &http.Client{Transport: base}
	}
	synctest.Test(t, func(*testing.T) { require.Len(t, w.RunClient("custom", custom).Results, 100) })
	require.True(t, again)
}
