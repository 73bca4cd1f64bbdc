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
		{"GitHub GraphQL", 200, `{"errors":[{"type":"RATE_LIMITED","message":"API rate limit exceeded"}]}`, "rejected"},
		{"GraphQL code", 200, `{"errors":[{"message":"x","extensions":{"code":"THROTTLED"}}]}`, "rejected"},
		{"Shopify GraphQL", 200, `{"errors":[{"message":"Throttled"}],"extensions":{"cost":{"requestedQueryCost":502,"throttleStatus":` +
			`{"maximumAvailable":1000.0,"currentlyAvailable":12,"restoreRate":50.0}}}}`, "cost[points] 12/1000 rate 50, rejected"},
		{"Shopify GraphQL served", 200, `{"data":{},"extensions":{"cost":{"throttleStatus":{"maximumAvailable":1000,"currentlyAvailable":900,"restoreRate":50}}}}`,
			"cost[points] 900/1000 rate 50"},
		{"Slack", 200, `{"ok":false,"error":"ratelimited"}`, "rejected"},
		{"Slack served", 200, `{"ok":true,"messages":[{"type":"rate_limited","error":{"x":1}}]}`, ""},
		{"somebody's data", 200, `{"title":"rate limited","code":"THROTTLED","retry_after":5}`, ""},
		{"Telegram", 429, `{"ok":false,"error_code":429,"parameters":{"retry_after":35}}`, "retry 35s, rejected"},
		{"Discord", 429, `{"message":"You are being rate limited.","retry_after":64.57,"global":true}`, "retry 1m4.57s, rejected"},
		{"Google", 429, `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"57.238747106s"}]}}`,
			"retry 57.238747106s, rejected"},
		// A 403 is a limit only with a code that the provider of the host documents.
		{"Google 403, host unknown", 403, `{"error":{"errors":[{"reason":"rateLimitExceeded"}],"code":403}}`, ""},
		{"Google 403 other", 403, `{"error":{"errors":[{"reason":"forbidden"}],"code":403}}`, ""},
		{"GitHub secondary", 403, `{"message":"You have exceeded a secondary rate limit. Please wait"}`, "rejected"},
		// Issue 12.15: on a 400 only the Provider of the host decides; this case has no
		// host.
		{"DynamoDB, host unknown", 400, `{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"}`, ""},
		{"S3, host unknown", 503, `<?xml version="1.0"?><Error><Code>SlowDown</Code></Error>`, ""},
		{"outage", 503, `<html>we will be back</html>`, ""},
		{"Salesforce, host unknown", 403, `[{"errorCode":"REQUEST_LIMIT_EXCEEDED","message":"TotalRequests Limit exceeded."}]`, ""},
		{"storage", 403, `{"code":"QuotaExceeded"}`, ""},
		{"a 503 with a time", 503, `{"code":"busy","retry_after":5}`, "retry 5s"},
		{"prose of a mistake", 422, `{"message":"Rate limit exceeded is no valid title","code":"invalid"}`, ""},
		{"prose of another 403", 403, `{"message":"No access. See our docs on rate limits."}`, ""},
		{"cut off", 429, `{"parameters":{"retry_after":7},"rest":"abc`, "retry 7s, rejected"},
		{"broken", 429, `{"retry_after":-7,"retry_after":"x"`, "rejected"},
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
		{"dynamodb.us-east-1.api.aws", 400, `{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"}`, true},
		{"iam.amazonaws.com", 400, `<ErrorResponse><Error><Code>Throttling</Code></Error></ErrorResponse>`, true},
		{"iam.amazonaws.com", 400, `<ErrorResponse><Error><Code>ValidationError</Code></Error></ErrorResponse>`, false},
		{"dynamodb.eu-west-1.amazonaws.com", 400, `{"__type":"ValidationException","message":"Throttling is no table"}`, false},
		{"acme.my.salesforce.com", 403, `errorCode REQUEST_LIMIT_EXCEEDED`, true},
		{"acme.my.salesforce.com", 403, `[{"errorCode":"REQUEST_LIMIT_EXCEEDED","message":"TotalRequests Limit exceeded."}]`, true},
		{"acme.s3.amazonaws.com", 503, `<?xml version="1.0"?><Error><Code>SlowDown</Code></Error>`, true},
		{"www.googleapis.com", 403, `{"error":{"errors":[{"reason":"rateLimitExceeded"}],"code":403}}`, true},
		{"www.googleapis.com", 403, `{"error":{"errors":[{"reason":"quotaExceeded"}],"code":403}}`, false},
		{"graph.facebook.com", 400, `{"error":{"message":"(#17) User request limit reached","type":"OAuthException","code":17,"fbtrace_id":"x"}}`, true},
		{"graph.facebook.com", 403, `{"error":{"message":"(#4) Application request limit reached","type":"OAuthException","is_transient":true,"code":4}}`, true},
		{"graph.facebook.com", 400, `{"error":{"message":"There have been too many calls to this ad-account.","code":80004,"error_subcode":2446079}}`, true},
		{"graph.facebook.com", 400, `{"error":{"message":"Invalid OAuth access token","type":"OAuthException","code":190,"error_subcode":4}}`, false},
		{"graph.facebook.com", 400, `{"error":{"message":"Invalid parameter","code":100,"error_data":{"code":4}}}`, false},
		{"graph.facebook.com", 400, `4 of 17 fields are invalid`, false},
		{"maps.googleapis.com", 200, `{"error_message":"You have exceeded your rate-limit for this API.","results":[],"status":"OVER_QUERY_LIMIT"}`, true},
		{"maps.googleapis.com", 200, `{"results":[{"status":"OVER_QUERY_LIMIT"}],"status":"OK"}`, false},
		{"ecs.aliyuncs.com", 400, `{"RequestId":"x","HostId":"ecs.aliyuncs.com","Code":"Throttling.User","Message":"Request was denied due to user flow control."}`, true},
		{"ecs.aliyuncs.com", 400, `<Error><Code>Throttling.Api</Code><Message>Request was denied due to api flow control.</Message></Error>`, true},
		{"ecs.aliyuncs.com", 400, `{"Code":"InvalidParameter","Message":"Throttling is no parameter"}`, false},
		{"api.vk.com", 200, `{"error":{"error_code":6,"error_msg":"Too many requests per second","request_params":[{"key":"v","value":"5.199"}]}}`, true},
		{"api.vk.com", 200, `{"error":{"error_code":5,"error_msg":"User authorization failed","error_subcode":6}}`, false},
		{"api.vk.com", 200, `{"response":{"error":{"error_code":6}}}`, false},
		{"api.bybit.com", 200, `{"retCode":10006,"retMsg":"Too many visits!","result":{},"time":1672738134824}`, true},
		{"api.bybit.com", 200, `{"retCode":0,"retMsg":"OK","result":{"retCode":10006}}`, false},
		{"100-abc-200.mktorest.com", 200, `{"requestId":"x","success":false,"errors":[{"code":"606","message":"Max rate limit '100' exceeded with in '20' secs"}]}`, true},
		{"100-abc-200.mktorest.com", 200, `{"requestId":"x","success":true,"result":[{"id":606,"code":"606"}]}`, false},
		{"open.feishu.cn", 400, `{"code":99991400,"msg":"request trigger frequency limit"}`, true},
		{"open.feishu.cn", 400, `{"code":99991663,"msg":"token invalid"}`, false},
		{"maps.googleapis.com", 200, `{"details":{"status":"OVER_QUERY_LIMIT"},"status":"OK"}`, false},
		{"www.googleapis.com", 200, `{"status":"OVER_QUERY_LIMIT"}`, false},
		{"api.linear.app", 400, `{"errors":[{"message":"Rate limit exceeded","extensions":{"type":"ratelimited","code":"RATELIMITED","statusCode":429}}]}`, true},
		{"api.linear.app", 400, `{"errors":[{"message":"Argument Validation Error","extensions":{"type":"invalid input","code":"INVALID_INPUT"}}]}`, false},
		{"api.test", 503, `{"error":{"code":"QuotaPerSecond"}}`, true},
		{"api.test", 503, `{"error":{"code":"rate_limit_exceeded"}}`, false},
		{"api.test", 422, `{"error":{"code":"QuotaPerSecond"}}`, true},
		{"api.test", 422, `{"error":{"code":"quota_exceeded"}}`, false},
		{"api.test", 200, `{"code":"QuotaPerSecond"}`, false},
	} {
		rep := r.Parse(c.host, c.status, nil, time.Time{})
		r.ReadBody(c.status, nil, []byte(c.body), &rep)
		require.Equal(t, c.throttled, rep.Throttled, "%s %d %s", c.host, c.status, c.body)
		require.Equal(t, c.throttled, rep.MinDelay == time.Second, "%s %d %s", c.host, c.status, c.body)
		require.Equal(t, NotStated, rep.Stated, "it states no time")
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
		{429, `{"type":"error","error":{"type":"rate_limit_error","message":"x","details":{"error_code":"enforced_spend_limit_reached"}}}`, true},
		{429, `{"error":{"type":"insufficient_quota","code":"organization_spend_limit_exceeded"}}`, true},
		{429, `{"error":{"code":"project_spend_limit_exceeded"}}`, true},
		{429, `{"error":{"code":"organization_usage_limit_exceeded"}}`, true},
		{429, `{"error":{"code":"credit_balance_exhausted"}}`, true},
		{403, `{"code":"spend_limit_exceeded","status":403}`, true},
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
				require.Equal(t, NotStated, rep.Stated, "it states no time")
			}
		}
	}
}

// Servers that state that they are overloaded have not processed the request.
func TestReadBody_detectsWhatWasNotProcessed(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   bool
	}{
		{503, `{"error":{"code":"server_is_overloaded","message":"Our servers are currently overloaded."}}`, true},
		{503, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, true},
		{529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, true},
		{503, `{"error":{"code":"server_error","message":"The server is overloaded."}}`, false},
		{503, `overloaded_error`, false},
		{500, `{"error":{"code":"server_is_overloaded"}}`, false},
		{403, `{"error":{"code":"server_is_overloaded"}}`, false},
		{200, `{"error":{"code":"server_is_overloaded"}}`, false},
	} {
		rep := readBody(new(Reader), "", c.status, "", c.body)
		require.Equal(t, c.want, rep.NotProcessed, "%d %s", c.status, c.body)
		require.Equal(t, c.status == 529, rep.Throttled, "a 503 without a time is no rejection")
		require.Equal(t, NotStated, rep.Stated)
	}
}

// Stripe's 429 for an object that another request has locked is about no limit.
func TestReadBody_aLockIsNoLimit(t *testing.T) {
	rep := readBody(new(Reader), "", 429, "", `{"error":{"code":"lock_timeout","message":"This object cannot be accessed right now because another API request or Stripe process is currently accessing it."}}`)
	require.False(t, rep.Throttled)
	require.False(t, rep.Permanent)
	require.True(t, readBody(new(Reader), "", 429, "", `{"error":{"code":"rate_limit"}}`).Throttled)
}

// Google's quotas per day are restored at midnight in California, whatever the delay in the body. The
// times are those before and after the changes of 2026.
func TestReadBody_dailyQuotasOfGoogle(t *testing.T) {
	body := func(id string) string {
		return `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaMetric":` +
			`"generativelanguage.googleapis.com/generate_content_free_tier_requests","quotaId":"` + id + `","quotaValue":"50"}]},` +
			`{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"2s"}]}}`
	}
	for now, want := range map[string]string{
		"2026-01-15T12:00:00Z": "2026-01-16T08:00:00Z",
		"2026-01-15T07:59:57Z": "2026-01-15T08:00:00Z",
		"2026-01-15T08:00:00Z": "2026-01-16T08:00:00Z",
		"2026-03-08T07:00:00Z": "2026-03-08T08:00:00Z", // at 10:00 daylight saving time begins
		"2026-03-08T09:00:00Z": "2026-03-09T07:00:00Z",
		"2026-03-08T11:00:00Z": "2026-03-09T07:00:00Z",
		"2026-07-01T06:59:00Z": "2026-07-01T07:00:00Z",
		"2026-10-31T20:00:00Z": "2026-11-01T07:00:00Z",
		"2026-11-01T08:30:00Z": "2026-11-02T08:00:00Z", // at 09:00 it ends
		"2026-12-31T23:00:00Z": "2027-01-01T08:00:00Z",
	} {
		at, err := time.Parse(time.RFC3339, now)
		require.NoError(t, err)
		end, err := time.Parse(time.RFC3339, want)
		require.NoError(t, err)
		h := http.Header{"Date": {at.Format(http.TimeFormat)}}
		var r Reader
		rep := r.Parse("", 429, h, at.Add(time.Hour)) // the local clock is wrong
		r.ReadBody(429, h, []byte(body("GenerateRequestsPerDayPerProjectPerModel-FreeTier")), &rep)
		require.Equal(t, end.Sub(at), rep.Wait, now)
	}
	const header = dateLine
	require.Equal(t, 2*time.Second, readBody(new(Reader), "", 429, header, body("GenerateRequestsPerMinutePerProjectPerModel")).Wait)
	rep := readBody(new(Reader), "", 429, "", body("PerDay"))
	require.InDelta(t, 12, rep.Wait.Hours(), 13, "without a Date the local time counts")
}

// HubSpot's quota per day ends at midnight in the time zone of the account, which is not known.
func TestReadBody_dailyQuotaOfHubSpot(t *testing.T) {
	const body = `{"status":"error","message":"You have reached your daily limit.","errorType":"RATE_LIMIT","policyName":"%s"}`
	const header = dateLine + "X-HubSpot-RateLimit-Daily: 250000\nX-HubSpot-RateLimit-Daily-Remaining: 0"
	rep := readBody(new(Reader), "", 429, dateLine, strings.Replace(body, "%s", "DAILY", 1))
	require.Equal(t, 46*time.Minute+40*time.Second, rep.Wait, "the next full hour after 22:13:20")
	rep = readBody(new(Reader), "", 429, header, strings.Replace(body, "%s", "SECONDLY", 1))
	require.NotEqual(t, StatedWait, rep.Stated)
}

// A rejection without a time has the wait that the API documents.
func TestProvider_documentedWaits(t *testing.T) {
	for _, c := range []struct {
		host         string
		status       int
		header, body string
		want         time.Duration
	}{
		{"api.airtable.com", 429, "", `{"errors":[{"error":"RATE_LIMIT_REACHED","message":"Rate limit exceeded. Please try again later"}]}`, 30 * time.Second},
		{"api.airtable.com", 429, "Retry-After: 3", "", 3 * time.Second},
		{"api.airtable.com", 503, "", "", 0},
		{"api.airtable.com", 403, "", "", 0},
		{"quickbooks.api.intuit.com", 429, "", `{"fault":{"error":[{"message":"message=ThrottleExceeded"}]}}`, time.Minute},
		{"api.podio.com", 420, "", `{"error":"rate_limit","error_description":"You have hit the rate limit."}`, time.Hour},
		{"api.podio.com", 420, "", `{"error":"rate_limit","error_description":"You have hit the rate limit. Please wait 300 seconds before trying again"}`, 5 * time.Minute},
		{"api.podio.com", 420, "X-Rate-Limit-Limit: 1000\nX-Rate-Limit-Remaining: 417", "", time.Hour},
		{"api.monday.com", 429, "", `{"errors":[{"message":"Complexity budget exhausted","extensions":{"code":"COMPLEXITY_BUDGET_EXHAUSTED","retry_in_seconds":15}}]}`, 15 * time.Second},
		{"api.monday.com", 200, "", `{"errors":[{"message":"Complexity budget exhausted","extensions":{"code":"COMPLEXITY_BUDGET_EXHAUSTED","retry_in_seconds":15}}]}`, 15 * time.Second},
		{"secure.na1.adobesign.com", 429, "", `{"code":"THROTTLING_TOO_MANY_REQUESTS","message":"x","retryInSeconds":1500}`, 1500 * time.Second},
		{"api.godaddy.com", 429, "", `{"code":"TOO_MANY_REQUESTS","message":"Too many requests","retryAfterSec":27}`, 27 * time.Second},
		{"mainnet.infura.io", 429, "", `{"jsonrpc":"2.0","id":1,"error":{"code":-32005,"message":"project ID request rate exceeded","data":{"allowed_rps":10.0,"backoff_seconds":30.0}}}`, 30 * time.Second},
		{"acme.azure-api.net", 429, "", `{"statusCode":429,"message":"Rate limit is exceeded. Try again in 4 seconds."}`, 4 * time.Second},
		{"acme.azure-api.net", 403, "", `{"statusCode":403,"message":"Out of call volume quota. Quota will be replenished in 22:56:30."}`, 82590 * time.Second},
		{"api.stackexchange.com", 400, "", `{"error_id":502,"error_message":"too many requests from this IP, more requests available in 53 seconds","error_name":"throttle_violation"}`, 53 * time.Second},
		{"api.stackexchange.com", 400, "", `{"error_id":400,"error_message":"page is too large","error_name":"bad_parameter"}`, 0},
		{"api.zoom.us", 429, dateLine, `{"code":429,"message":"You have exceeded the daily rate limit (100) of Meeting Create/Update API requests permitted for this user. You can resume these requests at GMT 00:00:00."}`, 6400 * time.Second},
	} {
		rep := readBody(new(Reader), c.host, c.status, c.header, c.body)
		require.Equal(t, c.want, rep.Wait, "%s %d %s", c.host, c.status, c.body)
		require.Equal(t, c.want > 0, rep.Throttled, "%s %d %s", c.host, c.status, c.body)
	}
}
