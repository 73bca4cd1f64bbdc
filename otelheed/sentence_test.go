package otelheed

import (
	"bytes"
	"context"
	"encoding/json"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/debugpage"
	"github.com/heed-go/heed/quota"
)

// TestSentence_isTheSameInErrorLogSpanAndPage sends a request that waits behind another one
// for a quota. It compares the sentences about its wait and about its failure in the error,
// in the records of heed.LogTrace, in the spans, and on the debug page and in its JSON.
func TestSentence_isTheSameInErrorLogSpanAndPage(t *testing.T) {
	const wait = "waited 5 s for quota api.test (retry-after), 1 ahead"
	for name, tt := range map[string]struct {
		statuses []int  // after five rejections: of the one ahead, and the one that is compared
		giveUp   string // beginning of the sentence about the failure; empty: it succeeds
	}{
		"granted":                          {[]int{200, 200}, ""},
		"granted, then broken":             {[]int{200, 0}, "gave up: heed: "},
		"given up because the hold is new": {[]int{429}, `gave up: throttle: rejected by limit "api.test: retry-after": `},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				var page debugpage.Page
				exporter := tracetest.NewInMemoryExporter()
				provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
				telemetry, err := New(Config{TracerProvider: provider})
				require.NoError(t, err)
				observed := heed.JoinTraces(heed.LogTrace(slog.New(slog.NewJSONHandler(&log, nil))), telemetry.Trace(), page.Trace())

				tr := &heed.Transport{Base: respond(append([]int{429, 429, 429, 429, 429}, tt.statuses...)...), Quota: &quota.Tracker{NeverTest: true, Rand: func() float64 { return 0 }}}
				once := heed.WithOptions(t.Context(), heed.RequestOptions{NoRetry: true})
				for range 5 {
					require.NoError(t, post(once, tr))
				}
				var ahead sync.WaitGroup
				ahead.Go(func() { _ = post(once, tr) })
				synctest.Wait()
				ctx, caller := provider.Tracer("test").Start(t.Context(), "caller")
				ctx = heed.WithOptions(ctx, heed.RequestOptions{MaxWait: 7 * time.Second})
				err = post(heed.WithTrace(ctx, observed), tr)
				caller.End()
				ahead.Wait()

				logged := loggedSentences(t, &log)
				require.Equal(t, wait, logged[0])
				if tt.giveUp == "" {
					require.NoError(t, err)
					require.Len(t, logged, 1)
				} else {
					var g *heed.GiveUpError
					require.ErrorAs(t, err, &g)
					require.Equal(t, wait, g.LongestWait.String())
					require.Contains(t, strings.Split(err.Error(), ": "), wait)
					require.Len(t, logged, 2)
					require.True(t, strings.HasPrefix(logged[1], tt.giveUp), logged[1])
				}
				require.Equal(t, logged, spanSentences(exporter.GetSpans()))
				require.Equal(t, logged, htmlSentences(t, &page))
				require.Equal(t, logged, jsonSentences(t, &page))
			})
		})
	}
}

// post sends a request that is not idempotent.
func post(ctx context.Context, rt http.RoundTripper) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://api.test/items", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// loggedSentences returns the messages of the records in log.
func loggedSentences(t *testing.T, log *bytes.Buffer) (all []string) {
	for line := range strings.Lines(log.String()) {
		var record struct{ Msg string }
		require.NoError(t, json.Unmarshal([]byte(line), &record))
		all = append(all, record.Msg)
	}
	return all
}

// spanSentences returns the descriptions of spans and of their events.
func spanSentences(spans tracetest.SpanStubs) (all []string) {
	description := func(attributes []attribute.KeyValue) {
		set := attribute.NewSet(attributes...)
		if v, ok := set.Value(descriptionKey); ok {
			all = append(all, v.AsString())
		}
	}
	for _, span := range spans {
		description(span.Attributes)
		for _, event := range span.Events {
			description(event.Attributes)
		}
	}
	return all
}

var decisionText = regexp.MustCompile(`<span class="text">([^<]*)</span> <span class="request">`)

// htmlSentences returns the decisions on p, oldest first.
func htmlSentences(t *testing.T, p *debugpage.Page) (all []string) {
	for _, match := range decisionText.FindAllStringSubmatch(bodyOf(t, p, "text/html"), -1) {
		all = append(all, html.UnescapeString(match[1]))
	}
	slices.Reverse(all)
	return all
}

// jsonSentences returns the decisions in the JSON of p, oldest first.
func jsonSentences(t *testing.T, p *debugpage.Page) (all []string) {
	var state struct{ Decisions []struct{ Text string } }
	require.NoError(t, json.Unmarshal([]byte(bodyOf(t, p, "application/json")), &state))
	for _, d := range state.Decisions {
		all = append(all, d.Text)
	}
	slices.Reverse(all)
	return all
}

// bodyOf returns what p responds to a request that accepts one media type.
func bodyOf(t *testing.T, p *debugpage.Page, accept string) string {
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	req.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	p.ServeHTTP(w, req)
	require.Equal(t, http.StatusOK, w.Code)
	return w.Body.String()
}
