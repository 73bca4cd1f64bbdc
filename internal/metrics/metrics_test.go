package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// A recording is a Sink that keeps the sums of all series.
type recording map[string]float64

func (r recording) Record(_ context.Context, i *Instrument, v float64, l Labels) {
	r[i.Name+" "+strings.TrimRight(strings.Join(l[:], ","), ",")] += v
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
	r := NewRecorder(got)
	for i := range 10_000 {
		host, method := fmt.Sprintf("https://host%d.test/secret%d?key=secret", i, i), fmt.Sprintf("M%d", i)
		r.done(request(t, method, host), heed.DoneInfo{Attempts: 2, Status: 200})
		r.attemptDone(request(t, method, host), heed.AttemptDoneInfo{Status: 429, Outcome: throttle.Throttled})
		r.giveUp(request(t, method, host), heed.GiveUpInfo{Attempts: 1, Reason: errors.New(host)})
		r.waitDone(request(t, method, host), heed.WaitDoneInfo{Waited: 1, Limit: fmt.Sprint("limit", i)})
		r.ServerDecision(fmt.Sprint("limit", i), throttle.Decision{})
	}
	require.Len(t, got, 7*maxHosts+7)
	for series := range got {
		require.NotContains(t, series, "secret")
		require.NotContains(t, series, " M", "a method that net/http does not know")
	}
	require.InDelta(t, 9900, got["heed.client.throttled _OTHER,,429,false"], 0)
}

func TestRecorder_namesServersByTheConventions(t *testing.T) {
	s := servers{max: 10}
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
	r := NewRecorder(recording{})
	for name, want := range map[string]Labels{
		"api.test/users/secret: retry-after": {"api.test", "retry-after"},
		"api.test: quota of tokens":          {"api.test", "quota"},
		"own":                                {"own"},
		"":                                   {},
	} {
		require.Equal(t, want, r.limitLabels(name))
	}
}

func TestRecorder_classifiesTheEndOfAWait(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	r := NewRecorder(recording{})
	for _, tt := range []struct {
		ctx          context.Context
		err          error
		result, kind string
	}{
		{t.Context(), nil, "acquired", ""},
		{canceled, errors.New("the cause"), "canceled", ""},
		{t.Context(), context.Canceled, "canceled", ""},
		{t.Context(), fmt.Errorf("%w: RequestOptions.MaxWait is 1s", heed.ErrMaxWait), "too_long", "refused"},
		{t.Context(), context.DeadlineExceeded, "too_long", "timeout"},
		{t.Context(), &throttle.RefusedError{Decision: throttle.Decision{Wait: time.Second}}, "too_long", "refused"},
		{t.Context(), &throttle.RefusedError{Decision: throttle.Decision{Wait: throttle.Forever}}, "refused", "refused"},
		{t.Context(), &queue.FullError{}, "refused", "refused"},
		{t.Context(), queue.ErrClosed, "refused", "errors.errorString"},
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
	r := NewRecorder(got)
	r.giveUp(request(t, "GET", "https://api.test"), heed.GiveUpInfo{Attempts: 1, Reason: context.Canceled})
	r.giveUp(request(t, "GET", "https://api.test"), heed.GiveUpInfo{Reason: heed.ErrMaxWait})
	require.Empty(t, got, "canceled, and never sent")
}

func TestRecorder_nearLimitIsBelowAFifth(t *testing.T) {
	got := recording{}
	r := NewRecorder(got)
	for _, d := range []throttle.Decision{
		{OK: true, Limit: 100, Remaining: 20},
		{OK: true, Limit: 4, Remaining: 0},                    // too small to be near
		{OK: true, Limit: 100, Remaining: 0, OverLimit: true}, // a shadow limit
		{Limit: 100},
	} {
		r.ServerDecision("a", d)
	}
	require.NotContains(t, got, "heed.server.near_limit a")
	r.ServerDecision("a", throttle.Decision{OK: true, Limit: 100, Remaining: 19})
	require.InDelta(t, 1, got["heed.server.near_limit a"], 0)
	require.InDelta(t, 3, got["heed.server.requests a,acquired"], 0)
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
	for _, p := range NewRecorder(recording{}).Quotas(quota.Snapshot{At: now, Shown: []quota.AccountSnapshot{account(50), account(20), account(70), {Host: "b.test", Quotas: []quota.QuotaSnapshot{
		{Limits: []quota.LimitSnapshot{{Unit: "requests", Size: 5}}},
	}}}}) {
		got[p.Instrument.Name+" "+strings.TrimRight(strings.Join(p.Labels[:], ","), ",")] = p.Value
	}
	require.Equal(t, map[string]float64{
		"heed.client.quota.limit api.test,8443,n,tokens":       100,
		"heed.client.quota.remaining api.test,8443,n,tokens":   20,
		"heed.client.quota.utilization api.test,8443,n,tokens": .8,
		"heed.client.quota.reset api.test,8443,n,tokens":       60,
		"heed.client.quota.hold api.test,8443,quota":           70,
		"heed.client.quota.limit b.test,,,requests":            5,
	}, got)
}

func TestRecorder_boundsTheNumberOfQuotas(t *testing.T) {
	var s quota.Snapshot
	for i := range 1000 {
		s.Shown = append(s.Shown, quota.AccountSnapshot{Host: fmt.Sprintf("h%d.test", i%50), Quotas: []quota.QuotaSnapshot{{Limits: []quota.LimitSnapshot{{Name: fmt.Sprint(i), Size: 1}}}}})
	}
	require.LessOrEqual(t, len(NewRecorder(recording{}).Quotas(s)), maxSeries)
}
