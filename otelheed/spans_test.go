package otelheed

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
)

// A roundTripFunc is a function as an http.RoundTripper.
type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// respond returns a base that responds with the given statuses, and then with 200. A 429 and a
// 503 state that the client must wait for 5 s. A status of 0 is an error without a response.
func respond(statuses ...int) http.RoundTripper {
	var n atomic.Int64
	return roundTripFunc(func(*http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		status := http.StatusOK
		if i := int(n.Add(1)) - 1; i < len(statuses) {
			status = statuses[i]
		}
		if status == 0 {
			return nil, errors.New("broken")
		}
		if status == 429 || status == 503 {
			w.Header().Set("Retry-After", "5")
		}
		w.WriteHeader(status)
		return w.Result(), nil
	})
}

// traced returns a Telemetry whose spans the recorder keeps.
func traced(t *testing.T) (*Telemetry, *sdktrace.TracerProvider, *tracetest.SpanRecorder) {
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	telemetry, err := New(Config{TracerProvider: provider})
	require.NoError(t, err)
	return telemetry, provider, recorder
}

func newTransport(telemetry *Telemetry, provider trace.TracerProvider, base http.RoundTripper) *heed.Transport {
	return &heed.Transport{
		Base:  otelhttp.NewTransport(telemetry.RoundTripper(base), otelhttp.WithTracerProvider(provider)),
		Quota: &quota.Tracker{Rand: func() float64 { return 0 }},
		Trace: telemetry.Trace(),
	}
}

func get(t *testing.T, ctx context.Context, rt http.RoundTripper) error {
	req, err := http.NewRequestWithContext(ctx, "GET", "https://api.test/items?key=secret", http.NoBody)
	require.NoError(t, err)
	resp, err := rt.RoundTrip(req)
	if err == nil {
		require.NoError(t, resp.Body.Close())
	}
	return err
}

func attributesOf(span sdktrace.ReadOnlySpan) map[string]string {
	all := map[string]string{}
	for _, a := range span.Attributes() {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

// TestTelemetry_countsResends sends three attempts, each of which has a span of otelhttp.
func TestTelemetry_countsResends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		telemetry, provider, recorder := traced(t)
		require.NoError(t, get(t, t.Context(), newTransport(telemetry, provider, respond(503, 503))))
		var counts []string
		for _, span := range recorder.Ended() {
			if span.SpanKind() == trace.SpanKindClient {
				counts = append(counts, attributesOf(span)["http.request.resend_count"])
			}
		}
		require.Equal(t, []string{"", "1", "2"}, counts)
	})
}

func TestTelemetry_countsRedirects(t *testing.T) {
	telemetry, provider, recorder := traced(t)
	base := roundTripFunc(func(req *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		if req.URL.Path == "/a" {
			w.Header().Set("Location", "/b")
			w.WriteHeader(http.StatusFound)
		}
		resp := w.Result()
		resp.Request = req
		return resp, nil
	})
	req, err := http.NewRequestWithContext(t.Context(), "GET", "https://api.test/a", http.NoBody)
	require.NoError(t, err)
	resp, err := heed.NewClient(newTransport(telemetry, provider, base)).Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Len(t, recorder.Ended(), 2)
	require.Empty(t, attributesOf(recorder.Ended()[0])["http.request.resend_count"])
	require.Equal(t, "1", attributesOf(recorder.Ended()[1])["http.request.resend_count"])
}

// TestTelemetry_describesWaitsRetriesAndFailures checks the span of a wait, and the events of the
// caller's span for a retry and a failure.
func TestTelemetry_describesWaitsRetriesAndFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		telemetry, provider, recorder := traced(t)
		var want []string
		tr := newTransport(telemetry, provider, respond(429, 429, 429, 429, 429, 500, 500))
		tr.Quota.NeverTest = true
		tr.Retry = &heed.RetryPolicy{MaxAttempts: 2, Backoff: backoff.Constant(time.Second)}
		tr.Trace = heed.JoinTraces(tr.Trace, &heed.Trace{
			WaitDone: func(_ *http.Request, i heed.WaitInfo) {
				if i.Waited > 0 {
					want = append(want, i.String())
				}
			},
			Retry: func(_ *http.Request, i heed.RetryInfo) { want = append(want, i.String()) },
			Done: func(_ *http.Request, i heed.DoneInfo) {
				if i.StopReason != nil {
					want = append(want, i.String())
				}
			},
		})
		once := heed.WithOptions(t.Context(), heed.RequestOptions{NoRetry: true})
		for range 5 { // the last one shows that others would be rejected, too
			require.NoError(t, get(t, once, tr))
		}
		recorder.Reset()
		want = nil
		start := time.Now()
		ctx, caller := provider.Tracer("test").Start(t.Context(), "caller")
		require.NoError(t, get(t, ctx, tr))
		caller.End()
		require.Equal(t, []string{
			"waited 5 s for quota api.test (retry-after)",
			"attempt 1 failed with status 500: retry in 1 s",
			"gave up: heed: no attempts are left: RetryPolicy.MaxAttempts is 2 (after 2 attempts, the last with status 500)",
		}, want)

		var got []string
		for _, span := range recorder.Ended() {
			switch span.Name() {
			case "heed.wait":
				require.Equal(t, caller.SpanContext().SpanID(), span.Parent().SpanID())
				require.Equal(t, trace.SpanKindInternal, span.SpanKind())
				require.Equal(t, start, span.StartTime())
				require.Equal(t, start.Add(5*time.Second), span.EndTime())
				require.Equal(t, codes.Unset, span.Status().Code)
				require.Equal(t, map[string]string{
					"heed.description": want[0], "heed.limit.name": "api.test: retry-after", "heed.reason": "retry-after",
					"heed.result": "acquired", "heed.ahead": "0", "heed.attempt": "1",
				}, attributesOf(span))
				got = append(got, attributesOf(span)["heed.description"])
			case "caller":
				for _, e := range span.Events() {
					set := attribute.NewSet(e.Attributes...)
					description, _ := set.Value(descriptionKey)
					got = append(got, e.Name+": "+description.AsString())
				}
			}
		}
		require.Equal(t, []string{want[0], "heed.retry: " + want[1], "heed.give_up: " + want[2]}, got)
	})
}

// TestTelemetry_cancelIsNoError lets one wait end with a cancel and one with a deadline.
func TestTelemetry_cancelIsNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		telemetry, provider, recorder := traced(t)
		tr := newTransport(telemetry, provider, respond())
		tr.Limiter = throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1})
		_, err := tr.Limiter.Reserve(t.Context(), throttle.Claim{}) // never released
		require.NoError(t, err)
		for _, tt := range []struct {
			ctx       func(context.Context) (context.Context, context.CancelFunc)
			result    string
			status    codes.Code
			errorType string
		}{
			{func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				time.AfterFunc(time.Second, cancel)
				return ctx, cancel
			}, "canceled", codes.Unset, ""},
			{func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, time.Second)
			}, "too_long", codes.Error, "timeout"},
		} {
			parent, caller := provider.Tracer("test").Start(t.Context(), "caller")
			ctx, cancel := tt.ctx(parent)
			require.Error(t, get(t, ctx, tr))
			cancel()
			caller.End()
			spans := recorder.Ended()
			wait := spans[len(spans)-2]
			require.Equal(t, "heed.wait", wait.Name())
			require.Equal(t, tt.result, attributesOf(wait)["heed.result"])
			require.Equal(t, tt.status, wait.Status().Code)
			require.Equal(t, tt.errorType, attributesOf(wait)["error.type"])
		}
	})
}

// A caller without a recorded span gets no spans of waits, which would have no parent.
func TestTelemetry_addsNothingWithoutASpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		telemetry, provider, recorder := traced(t)
		require.NoError(t, get(t, t.Context(), newTransport(telemetry, provider, respond(429))))
		for _, span := range recorder.Ended() {
			require.NotEqual(t, "heed.wait", span.Name())
		}
	})
}

func TestRoundTripper_closesIdleConnections(t *testing.T) {
	telemetry, _, _ := traced(t)
	closed := &closer{}
	client := &http.Client{Transport: telemetry.RoundTripper(closed)}
	client.CloseIdleConnections()
	require.True(t, closed.closed)
	telemetry.RoundTripper(respond()).(*resendCounter).CloseIdleConnections() // without such a method
	require.NotNil(t, telemetry.RoundTripper(nil).(*resendCounter).base)
}

type closer struct {
	http.RoundTripper
	closed bool
}

func (c *closer) CloseIdleConnections() { c.closed = true }
