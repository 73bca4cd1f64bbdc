package quota

import (
	"sync"
	"time"
)

// vendors is the table. A row stands here because rules cannot tell it: most APIs
// need none. The first row whose name or host fits counts.
var vendors = []Vendor{
	{Name: "Airweave", Buckets: every(time.Minute)},
	{Name: "Amazon", Hosts: []string{".amazonaws.com", ".amazonaws.com.cn"}, Headers: map[string]Meaning{
		"X-Amzn-Ratelimit-Limit": {Says: FieldRate, Distinct: true},
	}, Codes: []string{ // as the SDKs of AWS have them
		"Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled", "RequestThrottledException",
		"TooManyRequestsException", "RequestLimitExceeded", "ProvisionedThroughputExceededException",
		"BandwidthLimitExceeded", "EC2ThrottledException", "PriorRequestNotComplete", "SlowDown", "TransactionInProgressException",
	}},
	{Name: "Atlassian", Hosts: []string{".atlassian.net"}, Buckets: []Bucket{
		{Sizeless: true},
		{Counts: "points", Window: time.Hour},
	}},
	{Name: "BigCommerce", Hosts: []string{"api.bigcommerce.com"}, Headers: map[string]Meaning{
		"X-Rate-Limit-Requests-Quota": {Says: FieldLimit, Name: "-", Distinct: true},
		"X-Rate-Limit-Requests-Left":  {Says: FieldRemaining, Name: "-", Distinct: true},
		"X-Rate-Limit-Time-Reset-Ms":  {Says: FieldResetAfter, Name: "-", Scale: time.Millisecond, Distinct: true},
		"X-Rate-Limit-Time-Window-Ms": {Says: FieldWindow, Name: "-", Scale: time.Millisecond, Distinct: true},
	}},
	{Name: "Bitget", Hosts: []string{"api.bitget.com"}, Headers: map[string]Meaning{
		"X-Mbx-Used-Remain-Limit": {Says: FieldRemaining, Name: "-", Distinct: true},
	}},
	{Name: "Bybit", Hosts: []string{"api.bybit.com"}, Headers: map[string]Meaning{
		"X-Bapi-Limit":                 {Says: FieldLimit, Name: "-", Distinct: true},
		"X-Bapi-Limit-Status":          {Says: FieldRemaining, Name: "-", Distinct: true},
		"X-Bapi-Limit-Reset-Timestamp": {Says: FieldReset, Name: "-", Distinct: true},
	}},
	{Name: "Binance", Hosts: []string{".binance.com"}, Refusals: []int{418}},
	{Name: "bitFlyer", Hosts: []string{"api.bitflyer.com"}, Headers: map[string]Meaning{
		"X-Ratelimit-Period": {}, // counts down: the rest of the window, which Reset says too
	}, Buckets: every(5 * time.Minute)},
	{Name: "Buildkite", Hosts: []string{"api.buildkite.com", "graphql.buildkite.com"}, Buckets: []Bucket{
		{Counts: "points", Window: 5 * time.Minute},
	}},
	{Name: "Dataverse", Hosts: []string{".dynamics.com"}, Headers: map[string]Meaning{
		"X-Ms-Ratelimit-Time-Remaining-Xrm-Requests": {Distinct: true}, // seconds of execution
	}},
	{Name: "DNS Made Easy", Hosts: []string{"api.dnsmadeeasy.com"}, Buckets: every(5 * time.Minute)},
	{Name: "DNSimple", Hosts: []string{"api.dnsimple.com"}, Buckets: every(time.Hour)},
	{Name: "DigitalOcean", Hosts: []string{"api.digitalocean.com"}, Buckets: every(time.Hour)},
	{Name: "Discogs", Hosts: []string{"api.discogs.com"}, Buckets: every(time.Minute)},
	{Name: "Discord", Hosts: []string{"discord.com"}, Headers: map[string]Meaning{
		"X-Ratelimit-Global": {Read: func(v string, r *Report) { r.Global = v == "true" }},
	}},
	{Name: "Elsevier", Hosts: []string{"api.elsevier.com"}, Buckets: every(7 * day)},
	{Name: "Envoy", Headers: map[string]Meaning{
		"X-Envoy-Ratelimited": {Distinct: true, Read: func(_ string, r *Report) { r.Throttled = true }},
	}},
	{Name: "Facebook", Hosts: []string{"graph.facebook.com"}, Headers: map[string]Meaning{
		"X-App-Usage":                 {Distinct: true, Read: readPercent},
		"X-Ad-Account-Usage":          {Distinct: true, Read: readPercent},
		"X-Business-Use-Case-Usage":   {Distinct: true, Read: readPercent},
		"X-Fb-Ads-Insights-Throttle":  {Distinct: true, Read: readPercent},
		"X-Page-Usage":                {Distinct: true, Read: readPercent},
		"X-Ad-Account-Insights-Usage": {Distinct: true, Read: readPercent},
	}},
	{Name: "Fastly", Hosts: []string{"api.fastly.com"}, Buckets: every(time.Hour)},
	{Name: "Fitbit", Hosts: []string{"api.fitbit.com"}, Buckets: every(time.Hour)},
	{Name: "GitHub", Hosts: []string{"api.github.com"}, Body: true, Buckets: []Bucket{
		{Name: "graphql", Counts: "points", Window: time.Hour},
		{Name: "search", Window: time.Minute},
		{Name: "code_search", Window: time.Minute},
		{Name: "-", Limit: 30, Window: time.Minute},
		{Name: "-", Limit: 10, Window: time.Minute},
		{Window: time.Hour},
	}},
	{Name: "Freshdesk", Hosts: []string{".freshdesk.com", ".freshservice.com"}, Headers: map[string]Meaning{
		"X-Ratelimit-Used-Currentrequest": {Distinct: true}, // units of this request
	}},
	{Name: "GitLab", Hosts: []string{"gitlab.com"}, Buckets: every(time.Minute)},
	{Name: "GoCardless", Hosts: []string{"api.gocardless.com"}, Buckets: every(time.Minute)},
	{Name: "Google", Hosts: []string{".googleapis.com"}, AccountParams: []string{"key"}},
	{Name: "Hetzner", Hosts: []string{"dns.hetzner.com", "api.hetzner.cloud"}, Buckets: every(time.Hour)},
	{Name: "Imgur", Hosts: []string{"api.imgur.com"}, Buckets: []Bucket{
		{Name: "user", Counts: "credits", Window: time.Hour},
		{Name: "client", Counts: "credits", Window: day},
	}},
	{Name: "ip-api.com", Hosts: []string{"ip-api.com", ".ip-api.com"}, Headers: map[string]Meaning{
		"X-Rl":  {Says: FieldRemaining, Name: "-", Distinct: true},
		"X-Ttl": {Says: FieldResetAfter, Name: "-"},
	}},
	{Name: "KuCoin", Hosts: []string{"api.kucoin.com", "api-futures.kucoin.com"}, Headers: map[string]Meaning{
		"Gw-Ratelimit-Limit":     {Says: FieldLimit, Name: "-", Distinct: true},
		"Gw-Ratelimit-Remaining": {Says: FieldRemaining, Name: "-", Distinct: true},
		"Gw-Ratelimit-Reset":     {Says: FieldResetAfter, Name: "-", Scale: time.Millisecond, Distinct: true},
	}, Buckets: every(30 * time.Second)},
	{Name: "Lightspeed Retail", Hosts: []string{"api.lightspeedapp.com"}, Headers: map[string]Meaning{
		"X-Ls-Api-Bucket-Level": {Says: FieldLimit, Name: "-", Distinct: true},
	}},
	{Name: "Jira", Buckets: []Bucket{{Sizeless: true}, {Counts: "points", Window: time.Hour}}},
	{Name: "Linear", Hosts: []string{"api.linear.app"}, Body: true, Buckets: every(time.Hour)},
	{Name: "lemlist", Hosts: []string{"api.lemlist.com"}, Buckets: every(2 * time.Second)},
	{Name: "MailerLite", Hosts: []string{"api.mailerlite.com"}, Buckets: every(time.Minute)},
	{Name: "Mashery", Headers: map[string]Meaning{
		"X-Mashery-Error-Code": {Distinct: true, Read: readMashery},
	}},
	{Name: "Mastodon", Hosts: []string{"mastodon.social", "mastodon.online"}, Buckets: []Bucket{
		{Limit: 30, Window: 30 * time.Minute},
		{Limit: 300, Window: 5 * time.Minute},
	}},
	{Name: "Miro", Hosts: []string{"api.miro.com"}, Buckets: []Bucket{{Counts: "credits", Window: time.Minute}}},
	{Name: "Mistral", Hosts: []string{"api.mistral.ai"}, Buckets: []Bucket{
		{Name: "bysize", As: "size", Counts: "tokens"},
		{Name: "bysize-minute", As: "size", Counts: "tokens"},
		{Name: "bysize-month", As: "size-month", Counts: "tokens"},
	}},
	{Name: "NCBI", Hosts: []string{"eutils.ncbi.nlm.nih.gov"}, Buckets: every(time.Second)},
	{Name: "Okta", Hosts: []string{".okta.com", ".oktapreview.com"}, Buckets: []Bucket{
		{Sizeless: true, As: "concurrency", Counts: "concurrent_requests"},
		{Window: time.Minute},
	}},
	{Name: "Persona", Hosts: []string{"withpersona.com"}, Buckets: every(time.Minute)},
	{Name: "Pingdom", Hosts: []string{"api.pingdom.com"}, Headers: map[string]Meaning{
		"Req-Limit-Short": {Distinct: true, Read: func(v string, r *Report) { readPingdom("short", v, r) }},
		"Req-Limit-Long":  {Distinct: true, Read: func(v string, r *Report) { readPingdom("long", v, r) }},
	}},
	{Name: "Pipedrive", Hosts: []string{".pipedrive.com"}, Headers: map[string]Meaning{
		"X-Daily-Ratelimit-Token-Limit":     {Says: FieldLimit, Unit: "tokens", Distinct: true},
		"X-Daily-Ratelimit-Token-Remaining": {Says: FieldRemaining, Unit: "tokens", Distinct: true},
	}},
	{Name: "Prisjakt", Headers: map[string]Meaning{
		"X-Rate-Limit-Reset": {Says: FieldResetAfter, Scale: time.Millisecond},
	}, Buckets: every(time.Hour)},
	{Name: "pyannote", Hosts: []string{"api.pyannote.ai"}, Buckets: every(time.Minute)},
	{Name: "Reddit", Hosts: []string{".reddit.com"}, Buckets: every(10 * time.Minute)},
	{Name: "Resend", Hosts: []string{"api.resend.com"}, Buckets: every(time.Second)},
	{Name: "Salesforce", Hosts: []string{".salesforce.com", ".force.com"}, Buckets: []Bucket{
		{Name: "api-usage", Window: day},
	}, Codes: []string{"REQUEST_LIMIT_EXCEEDED"}},
	{Name: "Sentry", Hosts: []string{".sentry.io", "sentry.io"}, Headers: map[string]Meaning{
		"X-Sentry-Rate-Limits": {Distinct: true, Read: readSentry},
	}},
	{Name: "Shopify", Hosts: []string{".myshopify.com"}, Body: true, Headers: map[string]Meaning{
		"X-Shopify-Shop-Api-Call-Limit":      {Says: FieldLimit, Name: "shop", Distinct: true},
		"Http_x_shopify_shop_api_call_limit": {Distinct: true}, // the same again
	}},
	{Name: "SkuVault", Hosts: []string{"app.skuvault.com"}, Headers: map[string]Meaning{
		"X-Ratelimit-Reset": {Says: FieldResetAfter, Scale: time.Millisecond},
	}},
	{Name: "Slack", Hosts: []string{"slack.com"}, Body: true},
	{Name: "Strava", Hosts: []string{"www.strava.com"}, Headers: map[string]Meaning{
		"X-Ratelimit-Limit":     {Says: FieldLimit, Windows: []time.Duration{15 * time.Minute, day}},
		"X-Readratelimit-Limit": {Says: FieldLimit, Windows: []time.Duration{15 * time.Minute, day}},
	}},
	{Name: "Telegram", Hosts: []string{"api.telegram.org"}},
	{Name: "TMDB", Hosts: []string{"api.themoviedb.org"}, Buckets: every(10 * time.Second)},
	{Name: "Trello", Hosts: []string{"api.trello.com"}, Buckets: []Bucket{
		{Name: "db-query-time", Counts: "milliseconds"},
	}},
	{Name: "Twilio", Hosts: []string{".twilio.com"}, Headers: map[string]Meaning{
		"Twilio-Concurrent-Requests": {Says: FieldUsed, Unit: "concurrent_requests", Distinct: true},
	}},
	{Name: "Walmart", Hosts: []string{"marketplace.walmartapis.com"}, Headers: map[string]Meaning{
		"X-Current-Token-Count":     {Says: FieldRemaining, Name: "-", Distinct: true},
		"X-Next-Replenishment-Time": {Says: FieldReset, Name: "-", Distinct: true},
	}},
	{Name: "X (Twitter)", Hosts: []string{"api.twitter.com", "api.x.com"}, Buckets: []Bucket{
		{Name: "app", Window: day},
		{Name: "-", As: "user", Window: 15 * time.Minute},
	}},
	{Name: "Xero", Hosts: []string{"api.xero.com"}, Buckets: []Bucket{
		{Name: "day", Max: 5000},
		{Name: "min", As: "minute", Max: 60},
		{Name: "app-min", As: "app-minute", Max: 10000},
	}},
	{Name: "Zendesk", Hosts: []string{".zendesk.com"}, Buckets: []Bucket{
		{Name: "-", As: "account", Window: time.Minute},
	}},
}

// every is an API all of whose limits are per window.
func every(window time.Duration) []Bucket { return []Bucket{{Window: window}} }

// distinct returns the rows whose header names mean one thing on every host.
var distinct = sync.OnceValue(func() map[string]*Meaning {
	m := make(map[string]*Meaning)
	for i := range vendors {
		for name, row := range vendors[i].Headers {
			if row.Distinct {
				m[name] = &row
			}
		}
	}
	return m
})
