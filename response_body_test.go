package heed

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

// exchange sends a request to a host. It returns the response and its body.
func exchange(t *testing.T, tr *Transport, method, url string, opts RequestOptions) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(WithOptions(t.Context(), opts), method, url, strings.NewReader("{}"))
	require.NoError(t, err)
	resp, err := tr.RoundTrip(req)
	require.NoError(t, err)
	return resp, text(t, resp)
}

const (
	isJSON      = "application/json; charset=utf-8"
	rateLimited = `{"errors":[{"type":"RATE_LIMITED","message":"API rate limit exceeded"}]}`
)

// TestTransport_obeysRejectionInSuccessBody checks that a rejection in the body of a 200
// is retried after the backoff if the request is idempotent, and that the caller gets the
// whole body. Some APIs respond like that; package headers lists them. A code without a
// time is no more than a bare 429: it holds no other request.
func TestTransport_obeysRejectionInSuccessBody(t *testing.T) {
	for _, tt := range []struct {
		name, url, body string
		opts            RequestOptions
		sent            int
	}{
		{"GraphQL query", "https://api.github.com/graphql", rateLimited, RequestOptions{Idempotent: true}, 2},
		{"GraphQL, of which nothing is known", "https://api.github.com/graphql", rateLimited, RequestOptions{}, 1},
		{"Slack", "https://slack.com/api/conversations.list", `{"ok":false,"error":"ratelimited"}`, RequestOptions{Idempotent: true}, 2},
		{"Slack, served", "https://slack.com/api/conversations.list", `{"ok":true,"error":""}`, RequestOptions{Idempotent: true}, 1},
		{"another host", "https://api.test/graphql", rateLimited, RequestOptions{Idempotent: true}, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(response{200, tt.body, []string{"Content-Type", isJSON}}, 200)
			resp, body := exchange(t, &Transport{Base: s}, "POST", tt.url, tt.opts)
			require.Equal(t, tt.sent, s.sent(), tt.name)
			require.Equal(t, s.opened, s.closed, tt.name)
			if tt.sent == 1 {
				require.Equal(t, tt.body, body, tt.name)
				return
			}
			require.Equal(t, "answer 2", body, tt.name)
			require.Positive(t, s.gaps()[0], tt.name)
			info, ok := InfoFrom(resp)
			require.True(t, ok)
			require.Equal(t, 2, info.Attempts, tt.name)
		})
	}
}

// TestTransport_readsRetryDelayFromBody checks that the wait of a rejection is read from
// its body, where some APIs state it.
func TestTransport_readsRetryDelayFromBody(t *testing.T) {
	for _, tt := range []struct {
		name, url, body string
		status          int
		wait            time.Duration
	}{
		{"Telegram", "https://api.telegram.org/bot/sendMessage", `{"ok":false,"error_code":429,"parameters":{"retry_after":35}}`, 429, 35 * time.Second},
		{"Google", "https://pubsub.googleapis.com/v1/x", `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"57.5s"}]}}`, 429, 57500 * time.Millisecond},
		// Issue 11.7: without a header, the wait is the minute that GitHub documents.
		{"GitHub's secondary limit", "https://api.github.com/x", `{"message":"You have exceeded a secondary rate limit."}`, 403, time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(response{tt.status, tt.body, []string{"Content-Type", isJSON}}, 200)
			resp, _ := exchange(t, &Transport{Base: s}, "POST", tt.url, RequestOptions{})
			require.Equal(t, 200, resp.StatusCode, tt.name)
			require.GreaterOrEqual(t, s.gaps()[0], tt.wait, tt.name)
			require.LessOrEqual(t, s.gaps()[0], tt.wait+tt.wait/10, tt.name)
		})
	}
}

// TestTransport_returnsInspectedBodyWhole checks that a response with a stated wait that
// is too long is returned with its whole body.
func TestTransport_returnsInspectedBodyWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := `{"parameters":{"retry_after":86400},"padding":"` + strings.Repeat("x", 100_000) + `"}`
		s := newScript(response{429, long, []string{"Content-Type", isJSON}})
		tr := &Transport{Base: s}
		resp, body := exchange(t, tr, "GET", "https://api.telegram.org/x", RequestOptions{})
		require.Equal(t, long, body)
		info, _ := InfoFrom(resp)
		require.ErrorIs(t, info.StopReason, ErrMaxElapsed) // a day is also longer than MaxWait, whose rule comes later
	})
}

// TestTransport_doesNotDelayStreams checks that a stream is returned as soon as its
// headers arrive, also from hosts whose bodies are inspected. JSON of unknown length is
// returned as soon as its first bytes arrive.
func TestTransport_doesNotDelayStreams(t *testing.T) {
	for contentType, wait := range map[string]time.Duration{
		"text/event-stream":    0,
		"application/x-ndjson": 0,
		"application/json":     10 * time.Millisecond,
	} {
		synctest.Test(t, func(t *testing.T) {
			tr := &Transport{Base: baseFunc(func(*http.Request) (*http.Response, error) {
				r, w := io.Pipe()
				go func() {
					for range 5 {
						time.Sleep(10 * time.Millisecond)
						io.WriteString(w, "piece ")
						time.Sleep(time.Minute)
					}
					w.Close()
				}()
				resp := newResponse(200, "", "Content-Type", contentType)
				resp.Body, resp.ContentLength = r, -1
				return resp, nil
			})}
			start := time.Now()
			req, err := http.NewRequestWithContext(t.Context(), "GET", "https://api.github.com/x", nil)
			require.NoError(t, err)
			resp, err := tr.RoundTrip(req)
			require.NoError(t, err)
			require.Equal(t, wait, time.Since(start), contentType)
			require.Equal(t, strings.Repeat("piece ", 5), text(t, resp))
		})
	}
}

// TestTransport_usesCustomHeaderRules checks that a program can set header rules for a
// host that has none.
func TestTransport_usesCustomHeaderRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(
			response{429, "", []string{"X-Our-Cap", "2", "X-Our-Rest", "0", "X-Our-Rest-Back", "5000"}},
			response{200, "EBUSY", []string{"Content-Type", "application/json"}},
			200)
		tr := &Transport{Base: s, Quota: &quota.Tracker{NeverTest: true, Reader: &headers.Reader{
			Hosts: map[string]headers.Provider{"api.test": {
				Headers: map[string]headers.Rule{
					"X-Our-Cap":       {Kind: headers.KindLimit, Name: "our"},
					"X-Our-Rest":      {Kind: headers.KindRemaining, Name: "our"},
					"X-Our-Rest-Back": {Kind: headers.KindResetAfter, Name: "our", Scale: time.Millisecond},
				},
				InspectSuccessBody: true,
			}},
			Body: func(_ int, _ http.Header, peek []byte, r *headers.Report) {
				if string(peek) == "EBUSY" {
					r.Throttled, r.RetryAfter, r.HasRetryAfter = true, 3*time.Second, true
				}
			},
		}}}
		resp, err := tr.RoundTrip(request(t, "GET", "").WithContext(WithOptions(t.Context(), RequestOptions{NoRetry: true})))
		require.NoError(t, err)
		info, ok := InfoFrom(resp)
		require.True(t, ok)
		require.Equal(t, []throttle.RemoteLimit{{Name: "our", Limit: 2, ResetAfter: 5 * time.Second}}, info.Limits)
		resp, err = get(t, tr)
		require.NoError(t, err)
		require.Equal(t, "answer 3", text(t, resp))
		require.GreaterOrEqual(t, s.gaps()[0], 5*time.Second, "what a header of our own says")
		require.GreaterOrEqual(t, s.gaps()[1], 3*time.Second, "what the hook says")
	})
}
