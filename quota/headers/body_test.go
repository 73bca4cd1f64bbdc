package headers

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReadBody_findsThrottlingAndDelays(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		body   string
		want   string
	}{
		{"GitHub GraphQL", 200, `{"errors":[{"type":"RATE_LIMITED","message":"API rate limit exceeded"}]}`, "refused"},
		{"GraphQL code", 200, `{"errors":[{"message":"x","extensions":{"code":"THROTTLED"}}]}`, "refused"},
		{"Shopify GraphQL", 200, `{"errors":[{"message":"Throttled"}],"extensions":{"cost":{"requestedQueryCost":502,"throttleStatus":` +
			`{"maximumAvailable":1000.0,"currentlyAvailable":12,"restoreRate":50.0}}}}`, "cost[points] 12/1000 rate 50, refused"},
		{"Shopify GraphQL served", 200, `{"data":{},"extensions":{"cost":{"throttleStatus":{"maximumAvailable":1000,"currentlyAvailable":900,"restoreRate":50}}}}`,
			"cost[points] 900/1000 rate 50"},
		{"Slack", 200, `{"ok":false,"error":"ratelimited"}`, "refused"},
		{"Slack served", 200, `{"ok":true,"messages":[{"type":"rate_limited","error":{"x":1}}]}`, ""},
		{"somebody's data", 200, `{"title":"rate limited","code":"THROTTLED","retry_after":5}`, ""},
		{"Telegram", 429, `{"ok":false,"error_code":429,"parameters":{"retry_after":35}}`, "retry 35s, refused"},
		{"Discord", 429, `{"message":"You are being rate limited.","retry_after":64.57,"global":true}`, "retry 1m4.57s, refused"},
		{"Google", 429, `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"57.238747106s"}]}}`,
			"retry 57.238747106s, refused"},
		{"Google 403", 403, `{"error":{"errors":[{"reason":"rateLimitExceeded"}],"code":403}}`, "refused"},
		{"Google 403 other", 403, `{"error":{"errors":[{"reason":"forbidden"}],"code":403}}`, ""},
		{"GitHub secondary", 403, `{"message":"You have exceeded a secondary rate limit. Please wait"}`, "refused"},
		// Issue 12.15: on a 400 only the Provider of the host decides; this case has no
		// host.
		{"DynamoDB, host unknown", 400, `{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"}`, ""},
		{"S3", 503, `<?xml version="1.0"?><Error><Code>SlowDown</Code></Error>`, "refused"},
		{"outage", 503, `<html>we will be back</html>`, ""},
		{"Salesforce", 403, `[{"errorCode":"REQUEST_LIMIT_EXCEEDED","message":"TotalRequests Limit exceeded."}]`, "refused"},
		{"prose of a mistake", 422, `{"message":"Rate limit exceeded is no valid title","code":"invalid"}`, ""},
		{"prose of another 403", 403, `{"message":"No access. See our docs on rate limits."}`, ""},
		{"cut off", 429, `{"parameters":{"retry_after":7},"rest":"abc`, "retry 7s, refused"},
		{"broken", 429, `{"retry_after":-7,"retry_after":"x"`, "refused"},
		{"deep", 200, strings.Repeat(`{"errors":[`, 5000), ""},
	} {
		var r Reader
		rep := r.Parse("", c.status, nil, time.Time{})
		r.ReadBody(c.status, nil, []byte(c.body), &rep)
		require.Equal(t, c.want, formatReport(rep), c.name)
		require.Equal(t, c.name == "Discord", rep.Global, c.name)
	}
}

func TestReadBody_callsReaderBody(t *testing.T) {
	r := Reader{Body: func(status int, _ http.Header, peek []byte, rep *Report) {
		rep.Throttled = string(peek) == "EAPI:Rate limit exceeded"
	}}
	var rep Report
	r.ReadBody(200, nil, []byte("EAPI:Rate limit exceeded"), &rep)
	require.True(t, rep.Throttled)
}

// The words of a limit in an error about something else do not make it a rejection.
func TestReadBody_ignoresUnrelatedErrors(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
	}{
		{400, `{"error":{"code":"QUOTA_EXCEEDED","message":"storage full"}}`},
		{402, `{"error":"quota_exceeded"}`},
		{413, `{"code":"quotaExceeded"}`},
		{422, `{"errors":[{"field":"name","code":"rate_limit"}]}`},
		{500, `panic: throttle body sensor`},
		{502, `{"error":"slow down"}`},
		{403, `token lacks scope rate_limit:read`},
		{403, `{"message":"token lacks scope rate_limit:read"}`},
		{403, `{"error":"forbidden","message":"You may not change throttling settings"}`},
		{403, `{"scopes":[{"type":"rate_limit","granted":false}]}`},
		{403, `<Error><Code>AccessDenied</Code><Message>no SlowDown</Message></Error>`},
		{503, `{"devices":[{"name":"throttle","status":"slow_down"}]}`},
	} {
		var r Reader
		rep := r.Parse("", c.status, nil, time.Time{})
		r.ReadBody(c.status, nil, []byte(c.body), &rep)
		require.False(t, rep.Throttled, "%d %s", c.status, c.body)
		require.False(t, rep.Permanent, "%d %s", c.status, c.body)
	}
}

// On other statuses the ErrorCodes of the host's Provider decide.
func TestReadBody_usesProviderErrorCodes(t *testing.T) {
	r := Reader{Hosts: map[string]Provider{"api.test": {ErrorCodes: []string{"QuotaPerSecond"}}}}
	for _, c := range []struct {
		host      string
		status    int
		body      string
		throttled bool
	}{
		{"dynamodb.eu-west-1.amazonaws.com", 400, `{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"}`, true},
		{"kinesis.eu-west-1.amazonaws.com:443", 400, `{"__type":"ThrottlingException","message":"Rate exceeded"}`, true},
		{"iam.amazonaws.com", 400, `<ErrorResponse><Error><Code>Throttling</Code></Error></ErrorResponse>`, true},
		{"iam.amazonaws.com", 400, `<ErrorResponse><Error><Code>ValidationError</Code></Error></ErrorResponse>`, false},
		{"dynamodb.eu-west-1.amazonaws.com", 400, `{"__type":"ValidationException","message":"Throttling is no table"}`, false},
		{"acme.my.salesforce.com", 403, `errorCode REQUEST_LIMIT_EXCEEDED`, true},
		{"api.test", 422, `{"error":{"code":"QuotaPerSecond"}}`, true},
		{"api.test", 422, `{"error":{"code":"quota_exceeded"}}`, false},
		{"api.test", 200, `{"code":"QuotaPerSecond"}`, false},
	} {
		rep := r.Parse(c.host, c.status, nil, time.Time{})
		r.ReadBody(c.status, nil, []byte(c.body), &rep)
		require.Equal(t, c.throttled, rep.Throttled, "%s %d %s", c.host, c.status, c.body)
	}
	require.True(t, r.inspectsBody(r.Provider("api.test"), 422, nil))
	require.False(t, r.inspectsBody(r.Provider("api.example.com"), 422, nil))
}

func TestReadBody_detectsPermanentRejections(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   bool
	}{
		{429, `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`, true},
		{429, `{"error":{"type":"invalid_request_error","code":"billing_hard_limit_reached"}}`, true},
		{403, `{"error":{"code":"account_suspended"}}`, true},
		{403, `{"error":{"code":403,"status":"PERMISSION_DENIED","details":[{"reason":"BILLING_DISABLED"}]}}`, true},
		{429, `{"error":{"type":"tokens","code":"rate_limit_exceeded"}}`, false},
		{429, `{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details","status":"RESOURCE_EXHAUSTED"}}`, false},
		{429, `{"items":[{"code":"insufficient_quota"}]}`, false},
		{200, `{"errors":[{"code":"insufficient_quota"}]}`, false},
	} {
		var r Reader
		rep := r.Parse("", c.status, nil, time.Time{})
		r.ReadBody(c.status, nil, []byte(c.body), &rep)
		require.Equal(t, c.want, rep.Permanent, c.body)
		require.Equal(t, c.status == 429 && !c.want, rep.Throttled, c.body)
	}
}

func TestReadBody_readsProblemDetails(t *testing.T) {
	const types = "https://iana.org/assignments/http-problem-types#"
	for kind, throttled := range map[string]bool{
		"quota-exceeded": true, "temporary-reduced-capacity": true, "abnormal-usage-detected": true, "date": false,
	} {
		for _, status := range []int{403, 503} {
			var r Reader
			rep := r.Parse("", status, nil, time.Time{})
			r.ReadBody(status, nil, []byte(`{"type":"`+types+kind+`","violated-policies":["daily","bandwidth"]}`), &rep)
			require.Equal(t, throttled, rep.Throttled, "%d %s", status, kind)
			require.Equal(t, []string{"daily", "bandwidth"}, rep.Violated)
			if throttled {
				require.Equal(t, StatedRejection, rep.Stated)
			}
		}
	}
}
