package heed

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/backoff"
)

// TestTransport_repeatsWhatAnOverloadedServerDidNotProcess checks that a POST is sent again if the server
// states that it is overloaded, and so did not process it.
func TestTransport_repeatsWhatAnOverloadedServerDidNotProcess(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		body   string
		sent   int
	}{
		{"OpenAI", 503, `{"error":{"message":"x","code":"server_is_overloaded"}}`, 2},
		{"Anthropic", 529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, 2},
		{"Anthropic behind a gateway", 503, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, 2},
		{"529", 529, "", 2},
		{"a bare 503", 503, "", 1},
		{"503 with another code", 503, `{"error":{"code":"server_error"}}`, 1},
		{"503 with a sentence", 503, "Rate limit exceeded", 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(response{tt.status, tt.body, []string{"Content-Type", "application/json"}}, 200)
			resp, err := (&Transport{Base: s}).RoundTrip(request(t, "POST", "x"))
			require.NoError(t, err)
			require.Equal(t, tt.sent, s.sent(), tt.name)
			require.Equal(t, map[int]int{1: tt.status, 2: 200}[tt.sent], resp.StatusCode, tt.name)
		})
	}
}

// TestTransport_delaysOfAmazon checks the delays that the SDKs of AWS have: at least a second after a throttling
// error, and an X-Amz-Retry-After that the own delay bounds.
func TestTransport_delaysOfAmazon(t *testing.T) {
	const host = "https://bedrock-runtime.us-east-1.amazonaws.com/model/x/invoke"
	own := 20 * time.Millisecond
	code, suggested := "ThrottlingException:http://internal.amazon.com/coral/", func(ms string) []string { return []string{"X-Amz-Retry-After", ms} }
	for _, tt := range []struct {
		name string
		url  string
		response
		want time.Duration
	}{
		{"a code in a header", host, response{429, "", []string{"X-Amzn-Errortype", code}}, time.Second},
		{"a code in a body", host, response{400, `{"__type":"ThrottlingException"}`, []string{"Content-Type", "application/x-amz-json-1.1"}}, time.Second},
		{"with a time", host, response{429, "", []string{"X-Amzn-Errortype", code, "Retry-After-Ms", "300"}}, 300 * time.Millisecond},
		{"a failure", host, response{500, "", nil}, own},
		{"a code in a header, of a gateway with a name of its own", "https://api.test/", response{429, "", []string{"X-Amzn-Errortype", "TooManyRequestsException"}}, time.Second},
		{"another host", "https://api.test/", response{500, `{"__type":"ThrottlingException"}`, nil}, own},
		{"suggested", host, response{500, "", suggested("1500")}, 1500 * time.Millisecond},
		{"suggested, throttled", host, response{429, "", append(suggested("1500"), "X-Amzn-Errortype", code)}, 1500 * time.Millisecond},
		{"suggested, less than the own delay", host, response{500, "", suggested("1")}, own},
		{"suggested, too long", host, response{500, "", suggested("60000")}, own + 5*time.Second},
		{"suggested by any host", "https://api.test/", response{503, "", suggested("1500")}, 1500 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(tt.response, 200)
			req, err := http.NewRequestWithContext(t.Context(), "GET", tt.url, nil)
			require.NoError(t, err)
			p := &RetryPolicy{Backoff: backoff.Constant(own), RetryAfterJitter: backoff.RetryAfterJitter{Min: time.Millisecond, Spread: -1}}
			resp, err := (&Transport{Base: s, Retry: p}).RoundTrip(req)
			require.NoError(t, err)
			require.Equal(t, 200, resp.StatusCode, tt.name)
			require.InDelta(t, tt.want.Seconds(), s.gaps()[0].Seconds(), 0.06, tt.name)
			require.GreaterOrEqual(t, s.gaps()[0], tt.want, tt.name)
		})
	}
}

// TestTransport_sendsOnceWhatWaitingDoesNotCure checks the rejections that end with the month or the day.
func TestTransport_sendsOnceWhatWaitingDoesNotCure(t *testing.T) {
	for name, body := range map[string]string{
		"Anthropic": `{"type":"error","error":{"type":"rate_limit_error","details":{"error_code":"enforced_spend_limit_reached"}}}`,
		"OpenAI":    `{"error":{"type":"insufficient_quota","code":"project_spend_limit_exceeded"}}`,
		"Gemini":    `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]},{"retryDelay":"2s"}]}}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(response{429, body, []string{"Content-Type", "application/json"}}, 200)
			resp, err := (&Transport{Base: s}).RoundTrip(request(t, "POST", "x"))
			require.NoError(t, err)
			require.Equal(t, 429, resp.StatusCode, name)
			require.Equal(t, 1, s.sent(), name)
			require.Equal(t, body, text(t, resp), name)
		})
	}
}

// TestTransport_fallbackTiersDelayNothing checks that a used-up Priority or fast tier, beyond which requests are
// processed in the standard tier, does not hold requests that state their tokens.
func TestTransport_fallbackTiersDelayNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h []string
		for _, tier := range []string{"Priority", "Fast"} {
			name := "Anthropic-" + tier + "-Input-Tokens-"
			h = append(h, name+"Limit", "1000", name+"Remaining", "0", name+"Reset", time.Now().Add(30*time.Second).Format(time.RFC3339))
		}
		s := newScript(response{200, "", h})
		tr := &Transport{Base: s}
		start := time.Now()
		for range 3 {
			req := request(t, "POST", "x")
			resp, err := tr.RoundTrip(req.WithContext(WithOptions(req.Context(), RequestOptions{Costs: map[string]int64{"input_tokens": 500}})))
			require.NoError(t, err)
			require.Equal(t, 200, resp.StatusCode)
		}
		require.Less(t, time.Since(start), time.Second, strings.Join(h, " "))
	})
}
