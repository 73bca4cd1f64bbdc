package headers

import (
	"sync"
	"time"
)

// amazonCodes are the codes of throttling errors in the SDKs of AWS.
var amazonCodes = []string{
	"Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled", "RequestThrottledException",
	"TooManyRequestsException", "RequestLimitExceeded", "ProvisionedThroughputExceededException",
	"BandwidthLimitExceeded", "EC2ThrottledException", "PriorRequestNotComplete", "SlowDown", "TransactionInProgressException",
}

// providers is the built-in table. It contains only APIs whose headers the general rules
// cannot interpret, whose accounts have an unusual place in requests, or whose rejections are
// stated in their own way; most APIs need no row. The first row whose name or host matches is
// used.
var providers = []Provider{
	{Name: "Airtable", Hosts: []string{"api.airtable.com"}, RejectionWait: 30 * time.Second},
	{Name: "Airweave", LimitHints: []LimitHint{{Window: time.Minute}}},
	{Name: "Amazon", Hosts: []string{".amazonaws.com", ".amazonaws.com.cn", ".api.aws"}, Headers: map[string]Rule{
		"X-Amzn-Ratelimit-Limit": {Kind: KindRate, Unique: true},
		"X-Amzn-Errortype":       {Unique: true, Read: readAmazonErrorType},
	}, ErrorCodes: amazonCodes},
	{Name: "Alibaba Cloud", Hosts: []string{".aliyuncs.com"}, AccountParams: []string{"AccessKeyId"}, ErrorCodes: []string{"Throttling", "Throttling.Api", "Throttling.User"}},
	{Name: "Alpaca", Hosts: []string{".alpaca.markets"}, AccountHeaders: []string{"Apca-Api-Key-Id"}},
	{Name: "Anthropic", Hosts: []string{"api.anthropic.com"}, ErrorCodes: []string{"rate_limit_error"}},
	{Name: "Atlassian", Hosts: []string{".atlassian.net"}, LimitHints: []LimitHint{
		{WithoutLimit: true},
		{Unit: "points", Window: time.Hour},
	}},
	{Name: "Auth0", Hosts: []string{".auth0.com"}, Headers: map[string]Rule{
		"Auth0-Client-Quota-Limit":       {Unique: true, Read: func(v string, r *Report) { readAuth0("client", v, r) }},
		"Auth0-Organization-Quota-Limit": {Unique: true, Read: func(v string, r *Report) { readAuth0("organization", v, r) }},
	}},
	{Name: "BigCommerce", Hosts: []string{"api.bigcommerce.com"}, Headers: map[string]Rule{
		"X-Rate-Limit-Requests-Quota": {Kind: KindLimit, Name: "-", Unique: true},
		"X-Rate-Limit-Requests-Left":  {Kind: KindRemaining, Name: "-", Unique: true},
		"X-Rate-Limit-Time-Reset-Ms":  {Kind: KindResetAfter, Name: "-", Scale: time.Millisecond, Unique: true},
		"X-Rate-Limit-Time-Window-Ms": {Kind: KindWindow, Name: "-", Scale: time.Millisecond, Unique: true},
	}},
	{Name: "Bitget", Hosts: []string{"api.bitget.com"}, AccountHeaders: []string{"Access-Key"}, Headers: map[string]Rule{
		"X-Mbx-Used-Remain-Limit": {Kind: KindRemaining, Name: "-", Unique: true},
	}},
	{Name: "Bybit", Hosts: []string{"api.bybit.com"}, AccountHeaders: []string{"X-Bapi-Api-Key"}, Headers: map[string]Rule{
		"X-Bapi-Limit":                 {Kind: KindLimit, Name: "-", Unique: true},
		"X-Bapi-Limit-Status":          {Kind: KindRemaining, Name: "-", Unique: true},
		"X-Bapi-Limit-Reset-Timestamp": {Kind: KindReset, Name: "-", Unique: true},
	}, InspectSuccessBody: true, ErrorCodes: []string{"10006"}},
	{Name: "Binance", Hosts: []string{".binance.com"}, ThrottledStatuses: []int{418}},
	{Name: "bitFlyer", Hosts: []string{"api.bitflyer.com"}, AccountHeaders: []string{"Access-Key"}, Headers: map[string]Rule{
		"X-Ratelimit-Period": {}, // counts down: the rest of the window, which Reset states as well
	}, LimitHints: []LimitHint{{Window: 5 * time.Minute}}},
	{Name: "Buildkite", Hosts: []string{"api.buildkite.com", "graphql.buildkite.com"}, LimitHints: []LimitHint{
		{Unit: "points", Window: 5 * time.Minute},
	}},
	{Name: "Cisco Meraki", Hosts: []string{".meraki.com"}, AccountHeaders: []string{"X-Cisco-Meraki-Api-Key"}},
	{Name: "Coinbase", Hosts: []string{".coinbase.com"}, AccountHeaders: []string{"Cb-Access-Key"}},
	{Name: "Codex", Headers: map[string]Rule{ // of ChatGPT plans
		"X-Codex-Primary-Used-Percent":          {Kind: KindUsed, Name: "primary", Unit: unitPercent, Unique: true},
		"X-Codex-Primary-Window-Minutes":        {Kind: KindWindow, Name: "primary", Unit: unitPercent, Scale: time.Minute, Unique: true},
		"X-Codex-Primary-Reset-After-Seconds":   {Kind: KindResetAfter, Name: "primary", Unit: unitPercent, Scale: time.Second, Unique: true},
		"X-Codex-Secondary-Used-Percent":        {Kind: KindUsed, Name: "secondary", Unit: unitPercent, Unique: true},
		"X-Codex-Secondary-Window-Minutes":      {Kind: KindWindow, Name: "secondary", Unit: unitPercent, Scale: time.Minute, Unique: true},
		"X-Codex-Secondary-Reset-After-Seconds": {Kind: KindResetAfter, Name: "secondary", Unit: unitPercent, Scale: time.Second, Unique: true},
	}},
	{Name: "CoinMarketCap", Hosts: []string{"pro-api.coinmarketcap.com"}, AccountHeaders: []string{"X-Cmc_pro_api_key"}, AccountParams: []string{"cmc_pro_api_key"}},
	{Name: "Dataverse", Hosts: []string{".dynamics.com"}, Headers: map[string]Rule{
		"X-Ms-Ratelimit-Time-Remaining-Xrm-Requests": {Unique: true}, // seconds of execution
	}},
	{Name: "DNS Made Easy", Hosts: []string{"api.dnsmadeeasy.com"}, AccountHeaders: []string{"X-Dnsme-Apikey"}, LimitHints: []LimitHint{{Window: 5 * time.Minute}}},
	{Name: "DNSimple", Hosts: []string{"api.dnsimple.com"}, LimitHints: []LimitHint{{Window: time.Hour}}},
	{Name: "DigitalOcean", Hosts: []string{"api.digitalocean.com"}, LimitHints: []LimitHint{{Window: time.Hour}}},
	{Name: "Discogs", Hosts: []string{"api.discogs.com"}, AccountParams: []string{"token", "key"}, LimitHints: []LimitHint{{Window: time.Minute}}},
	{Name: "Discord", Hosts: []string{"discord.com"}, Headers: map[string]Rule{
		"X-Ratelimit-Global": {Read: func(v string, r *Report) { r.Global = v == "true" }},
	}},
	{Name: "DocuSign", Hosts: []string{".docusign.net"}, ErrorCodes: []string{
		"HOURLY_APIINVOCATION_LIMIT_EXCEEDED", "BURST_APIINVOCATION_LIMIT_EXCEEDED",
	}},
	{Name: "Elsevier", Hosts: []string{"api.elsevier.com"}, AccountHeaders: []string{"X-Els-Apikey"}, LimitHints: []LimitHint{{Window: 7 * day}}},
	{Name: "Envoy", Headers: map[string]Rule{
		"X-Envoy-Ratelimited": {Unique: true, Read: func(_ string, r *Report) { r.Throttled = true }},
	}},
	{Name: "Facebook", Hosts: []string{"graph.facebook.com"}, AccountParams: []string{"access_token"}, Headers: map[string]Rule{
		"X-App-Usage":                 {Unique: true, Read: readMetaUsage},
		"X-Ad-Account-Usage":          {Unique: true, Read: readMetaUsage},
		"X-Business-Use-Case-Usage":   {Unique: true, Read: readMetaUsage},
		"X-Fb-Ads-Insights-Throttle":  {Unique: true, Read: readMetaUsage},
		"X-Page-Usage":                {Unique: true, Read: readMetaUsage},
		"X-Ad-Account-Insights-Usage": {Unique: true, Read: readMetaUsage},
	}, ErrorCodes: []string{ // of apps, users, pages, own limits, and those of each business use case
		"4", "17", "32", "613", "80000", "80001", "80002", "80003", "80004", "80005", "80006", "80008", "80009", "80014",
	}},
	{Name: "Fastly", Hosts: []string{"api.fastly.com"}, AccountHeaders: []string{"Fastly-Key"}, LimitHints: []LimitHint{{Window: time.Hour}}},
	{Name: "Finnhub", Hosts: []string{"finnhub.io"}, AccountParams: []string{"token"}, AccountHeaders: []string{"X-Finnhub-Token"}},
	{Name: "Fitbit", Hosts: []string{"api.fitbit.com"}, LimitHints: []LimitHint{{Window: time.Hour}}},
	{Name: "GitHub", Hosts: []string{"api.github.com"}, InspectSuccessBody: true, LimitHints: []LimitHint{
		{Name: "graphql", Unit: "points", Window: time.Hour},
		{Name: "search", Window: time.Minute},
		{Name: "code_search", Window: time.Minute},
		{Name: "-", Limit: 30, Window: time.Minute},
		{Name: "-", Limit: 10, Window: time.Minute},
		{Window: time.Hour},
	}},
	{Name: "Freshdesk", Hosts: []string{".freshdesk.com", ".freshservice.com"}, Headers: map[string]Rule{
		"X-Ratelimit-Used-Currentrequest": {Unique: true}, // units of this request
	}},
	{Name: "GitLab", Hosts: []string{"gitlab.com"}, AccountParams: []string{"private_token", "access_token"}, LimitHints: []LimitHint{{Window: time.Minute}}},
	{Name: "GoCardless", Hosts: []string{"api.gocardless.com"}, LimitHints: []LimitHint{{Window: time.Minute}}},
	{Name: "Google", Hosts: []string{".googleapis.com"}, AccountParams: []string{"key", "access_token"}, ErrorCodes: []string{
		"rateLimitExceeded", "userRateLimitExceeded", "dailyLimitExceeded", "RATE_LIMIT_EXCEEDED",
	}},
	{Name: "Google Maps", Hosts: []string{"maps.googleapis.com"}, AccountParams: []string{"key", "client"}, InspectSuccessBody: true, ErrorCodes: []string{"OVER_QUERY_LIMIT"}},
	{Name: "Hetzner", Hosts: []string{"dns.hetzner.com", "api.hetzner.cloud"}, AccountHeaders: []string{"Auth-Api-Token"}, LimitHints: []LimitHint{{Window: time.Hour}}},
	{Name: "Imgur", Hosts: []string{"api.imgur.com"}, LimitHints: []LimitHint{
		{Name: "user", Unit: "credits", Window: time.Hour},
		{Name: "client", Unit: "credits", Window: day},
	}},
	{Name: "ip-api.com", Hosts: []string{"ip-api.com", ".ip-api.com"}, AccountParams: []string{"key"}, Headers: map[string]Rule{
		"X-Rl":  {Kind: KindRemaining, Name: "-", Unique: true},
		"X-Ttl": {Kind: KindResetAfter, Name: "-"},
	}},
	{Name: "Kraken", Hosts: []string{"api.kraken.com"}, InspectSuccessBody: true, ErrorCodes: []string{
		"EAPI:Rate limit exceeded", "EOrder:Rate limit exceeded", "EGeneral:Too many requests",
	}},
	{Name: "KuCoin", Hosts: []string{"api.kucoin.com", "api-futures.kucoin.com"}, AccountHeaders: []string{"Kc-Api-Key"}, Headers: map[string]Rule{
		"Gw-Ratelimit-Limit":     {Kind: KindLimit, Name: "-", Unique: true},
		"Gw-Ratelimit-Remaining": {Kind: KindRemaining, Name: "-", Unique: true},
		"Gw-Ratelimit-Reset":     {Kind: KindResetAfter, Name: "-", Scale: time.Millisecond, Unique: true},
	}, LimitHints: []LimitHint{{Window: 30 * time.Second}}},
	{Name: "Lightspeed Retail", Hosts: []string{"api.lightspeedapp.com"}, Headers: map[string]Rule{
		"X-Ls-Api-Bucket-Level": {Kind: KindLimit, Name: "-", Unique: true},
	}},
	{Name: "Jira", LimitHints: []LimitHint{{WithoutLimit: true}, {Unit: "points", Window: time.Hour}}},
	{Name: "Linear", Hosts: []string{"api.linear.app"}, InspectSuccessBody: true, LimitHints: []LimitHint{{Window: time.Hour}},
		ErrorCodes: []string{"RATELIMITED"}}, // of a 400
	{Name: "Lark", Hosts: []string{"open.feishu.cn", "open.larksuite.com", "open.larkoffice.com"}, ErrorCodes: []string{"99991400"}}, // also of a 400
	{Name: "lemlist", Hosts: []string{"api.lemlist.com"}, AccountParams: []string{"access_token"}, LimitHints: []LimitHint{{Window: 2 * time.Second}}},
	{Name: "MailerLite", Hosts: []string{"api.mailerlite.com"}, AccountHeaders: []string{"X-Mailerlite-Apikey"}, LimitHints: []LimitHint{{Window: time.Minute}}},
	{Name: "Mapbox", Hosts: []string{"api.mapbox.com"}, AccountParams: []string{"access_token"}},
	{Name: "Marketo", Hosts: []string{".mktorest.com"}, AccountParams: []string{"access_token"}, InspectSuccessBody: true, ErrorCodes: []string{"606", "615"}}, // in 20 s, in flight
	{Name: "Mashery", Headers: map[string]Rule{
		"X-Mashery-Error-Code": {Unique: true, Read: readMashery},
	}},
	{Name: "Mastodon", Hosts: []string{"mastodon.social", "mastodon.online"}, LimitHints: []LimitHint{
		{Limit: 30, Window: 30 * time.Minute},
		{Limit: 300, Window: 5 * time.Minute},
	}},
	{Name: "MediaWiki", Headers: map[string]Rule{ // of a 200
		"Mediawiki-Api-Error": {Unique: true, Read: func(code string, r *Report) { r.Throttled = r.Throttled || code == "ratelimited" || code == "maxlag" }},
	}},
	{Name: "Miro", Hosts: []string{"api.miro.com"}, LimitHints: []LimitHint{{Unit: "credits", Window: time.Minute}}},
	{Name: "Mistral", Hosts: []string{"api.mistral.ai"}, LimitHints: []LimitHint{
		{Name: "bysize", Rename: "size", Unit: "tokens"},
		{Name: "bysize-minute", Rename: "size", Unit: "tokens"},
		{Name: "bysize-month", Rename: "size-month", Unit: "tokens"},
	}},
	{Name: "monday", Hosts: []string{"api.monday.com"}, InspectSuccessBody: true, ErrorCodes: []string{
		"COMPLEXITY_BUDGET_EXHAUSTED", "ComplexityException", "maxConcurrencyExceeded", "DAILY_LIMIT_EXCEEDED", "RATE_LIMIT_EXCEEDED",
	}},
	{Name: "NCBI", Hosts: []string{"eutils.ncbi.nlm.nih.gov"}, LimitHints: []LimitHint{{Window: time.Second}}},
	{Name: "NS1", Hosts: []string{"api.nsone.net"}, AccountHeaders: []string{"X-Nsone-Key"}},
	{Name: "Okta", Hosts: []string{".okta.com", ".oktapreview.com"}, LimitHints: []LimitHint{
		{WithoutLimit: true, Rename: "concurrency", Unit: "concurrent_requests"},
		{Window: time.Minute},
	}},
	{Name: "OpenWeather", Hosts: []string{".openweathermap.org"}, AccountParams: []string{"appid"}},
	{Name: "Persona", Hosts: []string{"withpersona.com"}, LimitHints: []LimitHint{{Window: time.Minute}}},
	{Name: "Pingdom", Hosts: []string{"api.pingdom.com"}, AccountHeaders: []string{"App-Key"}, Headers: map[string]Rule{
		"Req-Limit-Short": {Unique: true, Read: func(v string, r *Report) { readPingdom("short", v, r) }},
		"Req-Limit-Long":  {Unique: true, Read: func(v string, r *Report) { readPingdom("long", v, r) }},
	}},
	{Name: "Pipedrive", Hosts: []string{".pipedrive.com"}, AccountParams: []string{"api_token"}, Headers: map[string]Rule{
		"X-Daily-Ratelimit-Token-Limit":     {Kind: KindLimit, Unit: "tokens", Unique: true},
		"X-Daily-Ratelimit-Token-Remaining": {Kind: KindRemaining, Unit: "tokens", Unique: true},
	}},
	{Name: "Podio", Hosts: []string{"api.podio.com"}, AccountParams: []string{"oauth_token"}, ErrorCodes: []string{"rate_limit"}, RejectionWait: time.Hour,
		LimitHints: []LimitHint{{Window: time.Hour}}},
	{Name: "Prisjakt", Headers: map[string]Rule{
		"X-Rate-Limit-Reset": {Kind: KindResetAfter, Scale: time.Millisecond},
	}, LimitHints: []LimitHint{{Window: time.Hour}}},
	{Name: "pyannote", Hosts: []string{"api.pyannote.ai"}, LimitHints: []LimitHint{{Window: time.Minute}}},
	{Name: "QuickBooks", Hosts: []string{".api.intuit.com"}, RejectionWait: time.Minute},
	{Name: "Reddit", Hosts: []string{".reddit.com"}, LimitHints: []LimitHint{{Window: 10 * time.Minute}}},
	{Name: "Resend", Hosts: []string{"api.resend.com"}, LimitHints: []LimitHint{{Window: time.Second}}},
	{Name: "Salesforce", Hosts: []string{".salesforce.com", ".force.com"}, LimitHints: []LimitHint{
		{Name: "api-usage", Window: day},
	}, ErrorCodes: []string{"REQUEST_LIMIT_EXCEEDED"}},
	{Name: "Sentry", Hosts: []string{".sentry.io", "sentry.io"}, AccountHeaders: []string{"X-Sentry-Auth"}, AccountParams: []string{"sentry_key"}, Headers: map[string]Rule{
		"X-Sentry-Rate-Limits": {Unique: true, Read: readSentry},
	}},
	{Name: "Shopify", Hosts: []string{".myshopify.com"}, InspectSuccessBody: true, Headers: map[string]Rule{
		"X-Shopify-Shop-Api-Call-Limit":      {Kind: KindLimit, Name: "shop", Unique: true},
		"Http_x_shopify_shop_api_call_limit": {Unique: true}, // a duplicate of the header above
	}},
	{Name: "SkuVault", Hosts: []string{"app.skuvault.com"}, Headers: map[string]Rule{
		"X-Ratelimit-Reset": {Kind: KindResetAfter, Scale: time.Millisecond},
	}},
	{Name: "Slack", Hosts: []string{"slack.com"}, InspectSuccessBody: true},
	{Name: "Stack Exchange", Hosts: []string{"api.stackexchange.com"}, AccountParams: []string{"key", "access_token"}, ErrorCodes: []string{"throttle_violation"}},
	{Name: "Strava", Hosts: []string{"www.strava.com"}, Headers: map[string]Rule{
		"X-Ratelimit-Limit":     {Kind: KindLimit, Windows: []time.Duration{15 * time.Minute, day}},
		"X-Readratelimit-Limit": {Kind: KindLimit, Windows: []time.Duration{15 * time.Minute, day}},
	}},
	{Name: "Telegram", Hosts: []string{"api.telegram.org"}, AccountSegment: "bot"},
	{Name: "TMDB", Hosts: []string{"api.themoviedb.org"}, LimitHints: []LimitHint{{Window: 10 * time.Second}}},
	{Name: "Trello", Hosts: []string{"api.trello.com"}, AccountParams: []string{"key", "token"}, LimitHints: []LimitHint{
		{Name: "db-query-time", Unit: "milliseconds"},
	}},
	{Name: "Twilio", Hosts: []string{".twilio.com"}, Headers: map[string]Rule{
		"Twilio-Concurrent-Requests": {Kind: KindUsed, Unit: "concurrent_requests", Unique: true},
	}},
	{Name: "VK", Hosts: []string{"api.vk.com", "api.vk.ru"}, AccountParams: []string{"access_token"}, InspectSuccessBody: true, ErrorCodes: []string{"6", "29"}}, // per second, of a method
	{Name: "Walmart", Hosts: []string{"marketplace.walmartapis.com"}, AccountHeaders: []string{"Wm_sec.access_token"}, Headers: map[string]Rule{
		"X-Current-Token-Count":     {Kind: KindRemaining, Name: "-", Unique: true},
		"X-Next-Replenishment-Time": {Kind: KindReset, Name: "-", Unique: true},
	}},
	{Name: "X (Twitter)", Hosts: []string{"api.twitter.com", "api.x.com"}, LimitHints: []LimitHint{
		{Name: "app", Window: day},
		{Name: "-", Rename: "user", Window: 15 * time.Minute},
	}},
	{Name: "Xero", Hosts: []string{"api.xero.com"}, AccountHeaders: []string{"Xero-Tenant-Id"}, LimitHints: []LimitHint{
		{Name: "day", Max: 5000},
		{Name: "min", Rename: "minute", Max: 60},
		{Name: "app-min", Rename: "app-minute", Max: 10000},
	}},
	{Name: "Zendesk", Hosts: []string{".zendesk.com"}, LimitHints: []LimitHint{
		{Name: "-", Rename: "account", Window: time.Minute},
	}},
}

// uniqueRules returns the rules of headers whose names have one meaning on all hosts.
var uniqueRules = sync.OnceValue(func() map[string]*Rule {
	m := make(map[string]*Rule)
	for i := range providers {
		for name, rule := range providers[i].Headers {
			if rule.Unique {
				m[name] = &rule
			}
		}
	}
	return m
})
