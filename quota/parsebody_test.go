package quota

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReadBody_findsWhatHeadersDoNotSay(t *testing.T) {
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
		{"DynamoDB", 400, `{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"}`, "refused"},
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
		require.Equal(t, c.want, tell(rep), c.name)
		require.Equal(t, c.name == "Discord", rep.Global, c.name)
	}
}

func TestReadBody_leavesItToTheUser(t *testing.T) {
	r := Reader{Body: func(status int, _ http.Header, peek []byte, rep *Report) {
		rep.Throttled = string(peek) == "EAPI:Rate limit exceeded"
	}}
	var rep Report
	r.ReadBody(200, nil, []byte("EAPI:Rate limit exceeded"), &rep)
	require.True(t, rep.Throttled)
}
