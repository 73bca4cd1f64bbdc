package metrics

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// A recording is a Sink that keeps the sums of all series.
type recording map[string]float64

func (r recording) Record(_ context.Context, i *Instrument, v float64, l Labels) {
	r[i.Name+" "+strings.TrimRight(strings.Join(l[:], ","), ",")] += v
}

func (r recording) Forget(keys, values []string) {
	r["forget "+strings.Join(keys, ",")+" "+strings.Join(values, ",")]++
}

func request(t *testing.T, method, url string) *http.Request {
	req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	require.NoError(t, err)
	return req
}

func TestInstruments_fitTheirLabels(t *testing.T) {
	names := map[string]bool{}
	for _, i := range Instruments() {
		require.LessOrEqual(t, len(i.Attributes), maxLabels, i.Name)
		require.NotEmpty(t, i.Unit, i.Name)
		require.True(t, strings.HasSuffix(i.Description, "."), i.Name)
		require.Equal(t, i.Kind == Histogram, len(i.Buckets) > 0, i.Name)
		require.False(t, names[i.Name])
		names[i.Name] = true
	}
}

func TestRecorder_boundsTheValuesOfAttributes(t *testing.T) {
	got := recording{}
	r := NewRecorder(got, 0)
	for i := range 10_000 {
		host, method := fmt.Sprintf("https://host%d.test/secret%d?key=secret", i, i), fmt.Sprintf("M%d", i)
		r.done(request(t, method, host), heed.DoneInfo{Info: heed.Info{Attempts: 2}, Status: 200})
		r.attemptDone(request(t, method, host), heed.AttemptInfo{Status: 429, Outcome: throttle.Throttled})
		r.done(request(t, method, host), heed.DoneInfo{Info: heed.Info{Attempts: 2, StopReason: errors.New(host)}, Status: 200})
		r.waitDone(request(t, method, host), heed.WaitInfo{Waited: 1, Limit: fmt.Sprint("limit", i)})
		r.ServerDecision(fmt.Sprint("limit", i), throttle.Decision{})
	}
	require.Len(t, got, 8*defaultServers+8)
	for series := range got {
		require.NotContains(t, series, "secret")
		require.NotContains(t, series, " M", "a method that net/http does not know")
	}
	require.InDelta(t, 9900, got["heed.client.throttled _OTHER,,429,false"], 0)
}

func TestRecorder_namesServersByTheConventions(t *testing.T) {
	s := servers{recentSet: recentSet[server]{max: 10}}
	for text, want := range map[string]server{
		"https://API.test":           {"api.test", ""},
		"https://api.test:443":       {"api.test", ""},
		"http://api.test:443":        {"api.test", "443"},
		"https://api.test.:8443":     {"api.test", "8443"},
		"https://[2001:db8::1]:8443": {"2001:db8::1", "8443"},
		"https://[2001:db8::1]":      {"2001:db8::1", ""},
	} {
		u, err := url.Parse(text)
		require.NoError(t, err)
		for range 2 { // also from the table
			require.Equal(t, want, s.of(u), text)
		}
	}
	require.Equal(t, server{}, s.of(nil))
}

func TestRecorder_removesPathsFromNamesOfQuotas(t *testing.T) {
	for name, want := range map[string]queueKey{
		"api.test/users/secret: retry-after": {"api.test", "retry-after"},
		"api.test: quota of tokens":          {"api.test", "quota"},
		"own":                                {"own", ""},
		"":                                   {},
	} {
		require.Equal(t, want, queueKeyOf(name))
	}
}

func TestRecorder_classifiesTheEndOfAWait(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	r := NewRecorder(recording{}, 0)
	for _, tt := range []struct {
		ctx          context.Context
		err          error
		result, kind string
	}{
		{t.Context(), nil, "acquired", ""},
		{canceled, errors.New("the cause"), "canceled", ""},
		{t.Context(), context.Canceled, "canceled", ""},
		{t.Context(), fmt.Errorf("%w: RequestOptions.MaxWait is 1s", heed.ErrMaxWait), "too_long", "rejected"},
		{t.Context(), context.DeadlineExceeded, "too_long", "timeout"},
		{t.Context(), fmt.Errorf("%w: RetryPolicy.MaxElapsed is 1s", heed.ErrMaxElapsed), "too_long", "errors.errorString"},
		{t.Context(), &throttle.RejectedError{Decision: throttle.Decision{Wait: 1}}, "too_long", "rejected"},
		{t.Context(), &throttle.RejectedError{}, "rejected", "rejected"},
		{t.Context(), &throttle.RejectedError{Decision: throttle.Decision{Wait: throttle.Forever}}, "rejected", "rejected"},
		{t.Context(), &queue.FullError{}, "rejected", "rejected"},
		{t.Context(), queue.ErrClosed, "rejected", "errors.errorString"},
		{t.Context(), &net.OpError{Op: "dial", Err: errors.New("refused")}, "failed", "net.OpError"},
		{t.Context(), &heed.GiveUpError{Err: &url.Error{Op: "Get", URL: "secret", Err: &net.OpError{Err: errors.New("refused")}}}, "failed", "net.OpError"},
	} {
		result, kind := r.WaitResult(tt.ctx, tt.err)
		require.Equal(t, []string{tt.result, tt.kind}, []string{result, kind}, "%v", tt.err)
	}
}

func TestRecorder_namesTheReasonForNoRetry(t *testing.T) {
	for err, want := range map[error]string{
		heed.ErrRetryBudget: "budget", heed.ErrMaxAttempts: "attempts", heed.ErrNotIdempotent: "unsafe", heed.ErrBodyNotReplayable: "body",
		heed.ErrRetryForbidden: "server", heed.ErrMaxElapsed: "deadline", heed.ErrMaxWait: "deadline", context.DeadlineExceeded: "deadline", errors.ErrUnsupported: "other",
	} {
		require.Equal(t, want, stopReason(fmt.Errorf("wrapped: %w", err)))
	}
	got := recording{}
	r := NewRecorder(got, 0)
	r.done(request(t, "GET", "https://api.test"), heed.DoneInfo{Info: heed.Info{Attempts: 1, StopReason: context.Canceled}})
	r.done(request(t, "GET", "https://api.test"), heed.DoneInfo{Info: heed.Info{StopReason: heed.ErrMaxWait}})
	require.Equal(t, 1, len(got), "canceled, and never sent: only the durations of the calls")
}

func TestRecorder_nearLimitIsBelowAFifth(t *testing.T) {
	got := recording{}
	r := NewRecorder(got, 0)
	for _, d := range []throttle.Decision{
		{OK: true, Limit: 100, Remaining: 20},
		{OK: true, Limit: 4, Remaining: 0},                    // too small to be near
		{OK: true, Limit: 9, Remaining: 1},                    // a fifth, rounded down
		{OK: true, Limit: 100, Remaining: 0, OverLimit: true}, // a shadow limit
		{Limit: 100},
	} {
		r.ServerDecision("a", d)
	}
	require.NotContains(t, got, "heed.server.near_limit a")
	r.ServerDecision("a", throttle.Decision{OK: true, Limit: 100, Remaining: 19})
	require.InDelta(t, 1, got["heed.server.near_limit a"], 0)
	require.InDelta(t, 4, got["heed.server.requests a,acquired"], 0)
	require.InDelta(t, 1, got["heed.server.requests a,over_limit"], 0)
	require.InDelta(t, 1, got["heed.server.requests a,rejected"], 0)
	r.ServerDecision("b", throttle.Decision{OK: true, Limit: 5})
	require.InDelta(t, 1, got["heed.server.near_limit b"], 0)
}

// TestRecorder_records checks what each event records, and which events record nothing.
func TestRecorder_records(t *testing.T) {
	get := request(t, "GET", "https://api.test")
	fault := errors.New("fault")
	for name, tt := range map[string]struct {
		event func(r *Recorder)
		want  recording
	}{
		"does not wait":      {func(r *Recorder) { r.waitDone(get, heed.WaitInfo{Limit: "a"}) }, recording{}},
		"waits for 1 ns":     {func(r *Recorder) { r.waitDone(get, heed.WaitInfo{Limit: "a", Waited: 1}) }, recording{"heed.client.request.time_in_queue a,,acquired": 1e-9}},
		"fails without wait": {func(r *Recorder) { r.waitDone(get, heed.WaitInfo{Limit: "a", Err: fault}) }, recording{"heed.client.request.time_in_queue a,,failed": 0}},
		"throttled": {func(r *Recorder) {
			r.attemptDone(get, heed.AttemptInfo{Outcome: throttle.Throttled, Status: 503, RetryAfter: 1})
		}, recording{"heed.client.throttled api.test,,503,true": 1, "heed.client.attempts api.test,,503": 1}},
		"throttled, no status": {func(r *Recorder) { r.attemptDone(get, heed.AttemptInfo{Outcome: throttle.Throttled}) }, recording{"heed.client.attempts api.test": 1}},
		"accepted":             {func(r *Recorder) { r.attemptDone(get, heed.AttemptInfo{Outcome: throttle.Accepted, Status: 200}) }, recording{"heed.client.attempts api.test,,200": 1}},
		"one attempt": {func(r *Recorder) {
			r.done(get, heed.DoneInfo{Info: heed.Info{Attempts: 1}, Status: 399, Duration: time.Second})
		}, recording{"heed.client.call.duration GET,api.test,,399": 1}},
		"status 400": {func(r *Recorder) {
			r.done(get, heed.DoneInfo{Info: heed.Info{Attempts: 1}, Status: 400, Duration: time.Second})
		}, recording{"heed.client.call.duration GET,api.test,,400,400": 1}},
		"three attempts": {func(r *Recorder) {
			r.done(get, heed.DoneInfo{Info: heed.Info{Attempts: 3}, RetryDelay: time.Minute, Err: fault, Duration: time.Hour})
		}, recording{
			"heed.client.call.duration GET,api.test,,,errors.errorString": 3600, "heed.client.call.retries GET,api.test": 2, "heed.client.call.retry_delay GET,api.test": 60,
		}},
		"fails open":      {func(r *Recorder) { r.MiddlewareTrace().Failed(get, fault, true) }, recording{"heed.server.requests ,failed_open": 1}},
		"fails closed":    {func(r *Recorder) { r.MiddlewareTrace().Failed(get, fault, false) }, recording{"heed.server.requests ,failed_closed": 1}},
		"store":           {func(r *Recorder) { r.StoreOperation("get", time.Minute, fault) }, recording{"heed.store.operation.duration get,errors.errorString": 60}},
		"store, degraded": {func(r *Recorder) { r.StoreDegraded("open", nil) }, recording{"heed.store.degraded open": 1}},
		"queue, no wait":  {func(r *Recorder) { r.ServerQueueTrace().Granted(new(queue.Ticket)) }, recording{}},
	} {
		got := recording{}
		tt.event(NewRecorder(got, 0))
		require.Equal(t, tt.want, got, name)
	}
}

// TestRecorder_describesTheLimitsWithMostWaitingRequests has more limits than names.
func TestRecorder_describesTheLimitsWithMostWaitingRequests(t *testing.T) {
	r := NewRecorder(recording{}, 2)
	queued := func() map[string]float64 {
		all := map[string]float64{}
		for _, p := range r.Gauges(nil, nil, nil) {
			require.Equal(t, "heed.client.queued_requests", p.Instrument.Name)
			all[p.Labels[0]+" "+p.Labels[1]] = p.Value
		}
		return all
	}
	for name, n := range map[string]int{"one": 1, "two": 2, "b.test/secret: quota": 1, "b.test/x: quota": 3, "three": 3} {
		for range n {
			r.waitStart(nil, heed.WaitInfo{Limit: name, At: time.Unix(1, 0)})
		}
		r.waitStart(nil, heed.WaitInfo{Limit: name}) // does not wait
	}
	require.Equal(t, map[string]float64{"b.test quota": 4, "three ": 3, "_OTHER ": 3}, queued())
	for name, n := range map[string]int{"b.test/x: quota": 4, "three": 3, "one": 1} { // the route is not that of the beginning
		for range n {
			r.waitDone(request(t, "GET", "https://api.test"), heed.WaitInfo{StartLimit: name, At: time.Unix(1, 0), Waited: 1})
		}
	}
	require.Equal(t, map[string]float64{"two ": 2}, queued())
	require.Len(t, r.queued, 1)
}

// TestRecorder_aServerThatIsNotUsedGivesItsNameToAnother sends requests to three servers, of which
// two have names.
func TestRecorder_aServerThatIsNotUsedGivesItsNameToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := recording{}
		r := NewRecorder(got, 2)
		send := func(host string) string {
			clear(got)
			r.done(request(t, "GET", "https://"+host), heed.DoneInfo{Info: heed.Info{Attempts: 1, StopReason: heed.ErrMaxAttempts}})
			maps.DeleteFunc(got, func(series string, _ float64) bool { return strings.HasPrefix(series, "heed.client.call.duration") })
			return strings.Join(slices.Sorted(maps.Keys(got)), "; ")
		}
		const rejected = "heed.client.retries.rejected "
		require.Equal(t, rejected+"a.test,,attempts", send("a.test"))
		require.Equal(t, rejected+"b.test,8443,attempts", send("b.test:8443"))
		for range 20 { // c.test is used as often as the other ones
			time.Sleep(time.Minute)
			require.Equal(t, rejected+"_OTHER,,attempts", send("c.test"))
			require.Equal(t, rejected+"a.test,,attempts", send("a.test"))
			require.Equal(t, rejected+"b.test,8443,attempts", send("b.test:8443"))
		}
		for range 9 {
			time.Sleep(time.Minute)
			require.Equal(t, rejected+"a.test,,attempts", send("a.test"))
			require.Equal(t, rejected+"_OTHER,,attempts", send("c.test"))
		}
		time.Sleep(time.Minute)
		require.Equal(t, "forget server.address,server.port b.test,8443; "+rejected+"c.test,,attempts", send("c.test"))
		require.Equal(t, rejected+"_OTHER,,attempts", send("b.test:8443"))
		require.Equal(t, rejected+"a.test,,attempts", send("a.test"))
	})
}

// TestRecorder_holdsNameTheirServers has more servers than names in counters, as with 10,000 hosts
// of which the last one is held.
func TestRecorder_holdsNameTheirServers(t *testing.T) {
	r := NewRecorder(recording{}, 0)
	for i := range 10_000 {
		r.done(request(t, "GET", fmt.Sprintf("https://h%d.test", i)), heed.DoneInfo{Info: heed.Info{Attempts: 1}, Status: 200})
	}
	now := time.Unix(1000, 0)
	points := r.Quotas(quota.Snapshot{At: now, Shown: []quota.AccountSnapshot{{Host: "h9999.test:8443", Quotas: []quota.QuotaSnapshot{{
		Hold: &quota.HoldSnapshot{Reason: "retry-after", Until: now.Add(time.Minute)},
	}}}}})
	require.Equal(t, []Point{{&quotaHold, 60, Labels{"h9999.test", "8443", "retry-after"}}}, points)
}

// TestRecorder_describesWhatIsLearned has two accounts of a server: the lower values are described.
func TestRecorder_describesWhatIsLearned(t *testing.T) {
	account := func(rate float64, concurrency int) quota.AccountSnapshot {
		return quota.AccountSnapshot{Host: "api.test", Quotas: []quota.QuotaSnapshot{{Rate: rate, Concurrency: concurrency, ConcurrencyReason: "overload"}}}
	}
	points := NewRecorder(recording{}, 0).Quotas(quota.Snapshot{Shown: []quota.AccountSnapshot{account(20, 8), account(5.5, 4), account(7, 9), account(0, 0)}})
	require.Equal(t, []Point{{&quotaRate, 5.5, Labels{"api.test"}}, {&quotaConcurrency, 4, Labels{"api.test", "", "overload"}}}, points)
}

func TestRecorder_describesTheRetryBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder(recording{}, 0)
		b := &backoff.Budget{Ratio: -1, MinPerSecond: 1}
		require.Equal(t, []Point{{&budgetRemaining, 10, Labels{}}}, r.Gauges(nil, b, nil))
		for range 3 {
			require.True(t, b.Withdraw(time.Now()))
		}
		require.Equal(t, []Point{{&budgetRemaining, 7, Labels{}}}, r.Gauges(nil, b, nil))
		require.Empty(t, r.Gauges(nil, &backoff.Budget{MinPerSecond: math.Inf(1)}, nil), "not limited")
		for range 20 {
			b.Withdraw(time.Now())
		}
		require.Equal(t, []Point{{&budgetRemaining, 0, Labels{}}}, r.Gauges(nil, b, nil))
	})
}

// TestRecorder_describesTheAccountThatMattersMost has two accounts with a limit of one name.
func TestRecorder_describesTheAccountThatMattersMost(t *testing.T) {
	now := time.Unix(1000, 0)
	account := func(remaining int64) quota.AccountSnapshot {
		return quota.AccountSnapshot{Host: "api.test:8443", Quotas: []quota.QuotaSnapshot{{
			Hold:   &quota.HoldSnapshot{Reason: "quota", Until: now.Add(time.Duration(remaining) * time.Second)},
			Limits: []quota.LimitSnapshot{{Name: "n", Unit: "tokens", Size: 100, Remaining: remaining, RemainingKnown: true, Reset: now.Add(time.Minute)}},
		}}}
	}
	got := map[string]float64{}
	for _, p := range NewRecorder(recording{}, 0).Quotas(quota.Snapshot{At: now, Shown: []quota.AccountSnapshot{account(50), account(20), account(70), {Host: "b.test", Quotas: []quota.QuotaSnapshot{
		{Limits: []quota.LimitSnapshot{{Unit: "requests", Size: 5}}},
	}}}}) {
		got[p.Instrument.Name+" "+strings.TrimRight(strings.Join(p.Labels[:], ","), ",")] = p.Value
	}
	require.Equal(t, map[string]float64{
		"heed.client.quota.limit api.test,8443,n,tokens,stated":       100,
		"heed.client.quota.remaining api.test,8443,n,tokens,stated":   20,
		"heed.client.quota.utilization api.test,8443,n,tokens,stated": .8,
		"heed.client.quota.reset api.test,8443,n,tokens,stated":       60,
		"heed.client.quota.hold api.test,8443,quota":                  70,
		"heed.client.quota.limit b.test,,,requests,stated":            5,
	}, got)
}

// TestRecorder_describesWhatIsKnown checks limits of which only a part is known, and holds that
// are over.
func TestRecorder_describesWhatIsKnown(t *testing.T) {
	now := time.Unix(1000, 0)
	known := quota.LimitSnapshot{Size: 10, Remaining: 5, RemainingKnown: true}
	for name, tt := range map[string]struct {
		limits []quota.LimitSnapshot
		want   recording
	}{
		"size of 1":           {[]quota.LimitSnapshot{{Size: 1}}, recording{"limit": 1}},
		"remaining":           {[]quota.LimitSnapshot{{RemainingKnown: true, Remaining: 3}}, recording{"remaining": 3}},
		"1 of 1":              {[]quota.LimitSnapshot{{Size: 1, RemainingKnown: true, Remaining: 1}}, recording{"limit": 1, "remaining": 1, "utilization": 0}},
		"more than the limit": {[]quota.LimitSnapshot{{Size: 1, RemainingKnown: true, Remaining: 3}}, recording{"limit": 1, "remaining": 3, "utilization": 0}},
		"less than none":      {[]quota.LimitSnapshot{{Size: 1, RemainingKnown: true, Remaining: -3}}, recording{"limit": 1, "remaining": -3, "utilization": 1}},
		"reset is over":       {[]quota.LimitSnapshot{{Reset: now.Add(-time.Second)}}, recording{"reset": 0}},
		"nothing":             {[]quota.LimitSnapshot{{}}, recording{}},
		"known, then unknown": {[]quota.LimitSnapshot{known, {Size: 20}}, recording{"limit": 10, "remaining": 5, "utilization": .5}},
		"unknown, then known": {[]quota.LimitSnapshot{{Size: 20}, known}, recording{"limit": 10, "remaining": 5, "utilization": .5}},
		"equal":               {[]quota.LimitSnapshot{known, {Size: 20, Remaining: 10, RemainingKnown: true}}, recording{"limit": 10, "remaining": 5, "utilization": .5}},
	} {
		var s quota.Snapshot
		for _, l := range tt.limits {
			s.Shown = append(s.Shown, quota.AccountSnapshot{Host: "api.test", Quotas: []quota.QuotaSnapshot{{Limits: []quota.LimitSnapshot{l}}}})
		}
		s.At = now
		got := recording{}
		for _, p := range NewRecorder(recording{}, 0).Quotas(s) {
			got[strings.TrimPrefix(p.Instrument.Name, "heed.client.quota.")] = p.Value
		}
		require.Equal(t, tt.want, got, name)
	}
}

func TestRecorder_boundsTheNumberOfQuotas(t *testing.T) {
	var s quota.Snapshot
	for i := range 1000 {
		s.Shown = append(s.Shown, quota.AccountSnapshot{Host: fmt.Sprintf("h%d.test", i%50), Quotas: []quota.QuotaSnapshot{{Limits: []quota.LimitSnapshot{{Name: fmt.Sprint(i / 50), Size: 1}}}}})
	}
	require.Len(t, NewRecorder(recording{}, 0).Quotas(s), 500)
}

// An attribute distinguishes a learned limit and a declared one from one that the server states.
func TestRecorder_statesHowAQuotaIsKnown(t *testing.T) {
	r := NewRecorder(recording{}, 0)
	for want, limit := range map[string]quota.LimitSnapshot{
		"stated": {Size: 5}, "learned": {Size: 5, Learned: true}, "declared": {Size: 5, Declared: true},
	} {
		limit.Unit = "requests"
		points := r.Quotas(quota.Snapshot{Shown: []quota.AccountSnapshot{{Host: "api.test", Quotas: []quota.QuotaSnapshot{{Limits: []quota.LimitSnapshot{limit}}}}}})
		require.Len(t, points, 1)
		require.Equal(t, Labels{"api.test", "", "", "requests", want}, points[0].Labels)
	}
}
