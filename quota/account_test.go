package quota

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

// shareQuota reports whether two requests share a quota.
func shareQuota(tr *Tracker, a, b *http.Request) bool {
	return tr.Demand(a).Limiter == tr.Demand(b).Limiter
}

func TestTracker_comparesCanonicalHosts(t *testing.T) {
	var tr Tracker
	a := request(t, "https://api.github.com/x")
	for _, same := range []string{"https://API.GitHub.com/x", "https://api.github.com:443/x", "https://api.github.com./x", "https://Api.github.com.:443/x"} {
		require.True(t, shareQuota(&tr, a, request(t, same)), same)
	}
	for _, other := range []string{"https://api.github.com:80/x", "http://api.github.com:443/x", "https://github.com/x"} {
		require.False(t, shareQuota(&tr, a, request(t, other)), other)
	}
	require.True(t, shareQuota(&tr, request(t, "http://api.test"), request(t, "http://api.test:80")))
}

func TestTracker_distinguishesAccountsByCredentials(t *testing.T) {
	var tr Tracker
	for _, name := range []string{"Authorization", "X-Api-Key", "Api-Key", "Apikey", "Private-Token", "X-Auth-Token", "X-Access-Token",
		"Ocp-Apim-Subscription-Key", "X-Goog-Api-Key", "X-Vault-Token", "Xi-Api-Key"} {
		a, b := request(t, "https://api.test/", name, "one"), request(t, "https://api.test/", name, "two")
		require.False(t, shareQuota(&tr, a, b), name)
		require.False(t, shareQuota(&tr, a, request(t, "https://api.test/")), name)
		require.True(t, shareQuota(&tr, a, request(t, "https://api.test/x", name, "one", "Accept", "*/*")), name)
	}
	for _, name := range []string{"Cookie", "X-Csrf-Token", "X-Request-Id", "Proxy-Authorization", "X-Amz-Security-Token"} {
		require.True(t, shareQuota(&tr, request(t, "https://api.test/", name, "one"), request(t, "https://api.test/", name, "two")), name)
	}
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"https://api.test/?api_key=1", "https://api.test/?api_key=2", false},
		{"https://api.test/?q=1&apikey=1", "https://api.test/?q=1&apikey=2", false},
		{"https://api.test/?apiKey=1", "https://api.test/?apiKey=2", false},
		{"https://api.test/?q=1&apikey=1", "https://api.test/?apikey=1&q=2", true},
		{"https://api.test/?key=1", "https://api.test/?key=2", true},
		{"https://api.test/?version=1", "https://api.test/?version=2", true}, // as long as api_key
		{"https://api.test/?locale=1", "https://api.test/?locale=2", true},   // as long as apikey
		{"https://maps.googleapis.com/x?key=1", "https://maps.googleapis.com/x?key=2", false},
		{"https://maps.googleapis.com/x?key=1&q=1", "https://maps.googleapis.com/x?key=1&q=2", true},
		{"https://u1:p@api.test/", "https://u2:p@api.test/", false},
		{"https://u:p@api.test/", "https://p:u@api.test/", false},
		{"https://u:p@api.test/", "https://u:p@api.test/x", true},
	} {
		require.Equal(t, c.same, shareQuota(&tr, request(t, c.a), request(t, c.b)), "%s %s", c.a, c.b)
	}
	a := request(t, "https://api.test/", "Authorization", "one", "X-Api-Key", "two")
	require.False(t, shareQuota(&tr, a, request(t, "https://api.test/", "Authorization", "two", "X-Api-Key", "one")), "each value belongs to a name")
	require.True(t, shareQuota(&tr, a, request(t, "https://api.test/", "X-Api-Key", "two", "Authorization", "one")))
	require.True(t, shareQuota(&tr, a, request(t, "https://u:p@api.test/", "Authorization", "one", "X-Api-Key", "two")), "net/http does not send the user then")
}

// Schemes that sign requests send another Authorization with each request, but the same key.
func TestTracker_distinguishesSigningKeys(t *testing.T) {
	var tr Tracker
	auth := func(v string) *http.Request { return request(t, "https://api.test/", "Authorization", v) }
	for _, c := range [][3]string{
		{"AWS4-HMAC-SHA256 Credential=AKIA1/20261121/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=aa",
			"AWS4-HMAC-SHA256 Credential=AKIA1/20261122/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=bb",
			"AWS4-HMAC-SHA256 Credential=AKIA2/20261121/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=aa"},
		{`Digest username="ann", nonce="1"`, `Digest username="ann", nonce="2"`, `Digest username="bob", nonce="1"`},
		{`OAuth oauth_consumer_key="k", oauth_nonce="1", oauth_token="t"`, `OAuth oauth_consumer_key="k", oauth_nonce="2", oauth_token="t"`, `OAuth oauth_consumer_key="k", oauth_nonce="1", oauth_token="u"`},
		{`Hawk id="a", ts="1"`, `Hawk id="a", ts="2"`, `Hawk id="b", ts="1"`},
		{"AWS A:1", "AWS A:2", "AWS B:1"},
		{"GOOG4-HMAC-SHA256 Credential=A/20260101/auto/storage/goog4_request, SignedHeaders=host, Signature=1", "GOOG4-HMAC-SHA256 Credential=A/20260102/auto/storage/goog4_request, SignedHeaders=host, Signature=2", "GOOG4-HMAC-SHA256 Credential=B/20260101/auto/storage/goog4_request, SignedHeaders=host, Signature=1"},
		{"SharedKey a:1", "SharedKey a:2", "SharedKey b:1"},
		{"SharedKeyLite a:1", "SharedKeyLite a:2", "SharedKeyLite b:1"},
		{"SharedAccessSignature sr=x&sig=1&se=1&skn=a", "SharedAccessSignature sr=x&sig=2&se=2&skn=a", "SharedAccessSignature sr=x&sig=1&se=1&skn=b"},
		{`Signature keyId="t/u/a",algorithm="rsa-sha256",signature="1"`, `Signature keyId="t/u/a",algorithm="rsa-sha256",signature="2"`, `Signature keyId="t/u/b",algorithm="rsa-sha256",signature="1"`},
		{"TC3-HMAC-SHA256 Credential=A/2026-01-01/cvm/tc3_request, Signature=1", "TC3-HMAC-SHA256 Credential=A/2026-01-02/cvm/tc3_request, Signature=2", "TC3-HMAC-SHA256 Credential=B/2026-01-01/cvm/tc3_request, Signature=1"},
		{"ACS3-HMAC-SHA256 Credential=A,SignedHeaders=host,Signature=1", "ACS3-HMAC-SHA256 Credential=A,SignedHeaders=host,Signature=2", "ACS3-HMAC-SHA256 Credential=B,SignedHeaders=host,Signature=1"},
		{"SDK-HMAC-SHA256 Access=A, SignedHeaders=host, Signature=1", "SDK-HMAC-SHA256 Access=A, SignedHeaders=host, Signature=2", "SDK-HMAC-SHA256 Access=B, SignedHeaders=host, Signature=1"},
		{"EG1-HMAC-SHA256 client_token=a;access_token=a;nonce=1;signature=s", "EG1-HMAC-SHA256 client_token=a;access_token=a;nonce=2;signature=t", "EG1-HMAC-SHA256 client_token=b;access_token=a;nonce=1;signature=s"},
		{"HMAC-SHA256 Credential=A/20260101/cn/iam/request, Signature=1", "HMAC-SHA256 Credential=A/20260101/cn/iam/request, Signature=2", "HMAC-SHA256 Credential=B/20260101/cn/iam/request, Signature=1"},
	} {
		require.True(t, shareQuota(&tr, auth(c[0]), auth(c[1])), c[0])
		require.False(t, shareQuota(&tr, auth(c[0]), auth(c[2])), c[0])
	}
}

// The table of providers has the places of API keys, so that a rejection of one account does not hold the
// others.
func TestTracker_distinguishesAccountsOfProviders(t *testing.T) {
	var tr Tracker
	for _, c := range []struct{ name, url, header string }{
		{"GitLab", "https://gitlab.com/api", "Private-Token"},
		{"Fastly", "https://api.fastly.com/service", "Fastly-Key"},
		{"Elsevier", "https://api.elsevier.com/content", "X-ELS-APIKey"},
		{"DNS Made Easy", "https://api.dnsmadeeasy.com/V2.0", "x-dnsme-apiKey"},
		{"KuCoin", "https://api.kucoin.com/api", "KC-API-KEY"},
		{"Bybit", "https://api.bybit.com/v5", "X-BAPI-API-KEY"},
		{"Bitget", "https://api.bitget.com/api", "ACCESS-KEY"},
		{"bitFlyer", "https://api.bitflyer.com/v1", "ACCESS-KEY"},
		{"Walmart", "https://marketplace.walmartapis.com/v3", "WM_SEC.ACCESS_TOKEN"},
		{"NS1", "https://api.nsone.net/v1", "X-NSONE-Key"},
		{"Alpaca", "https://api.alpaca.markets/v2", "APCA-API-KEY-ID"},
		{"Coinbase", "https://api.exchange.coinbase.com/x", "CB-ACCESS-KEY"},
		{"CoinMarketCap", "https://pro-api.coinmarketcap.com/v1", "X-CMC_PRO_API_KEY"},
		{"Meraki", "https://api.meraki.com/api", "X-Cisco-Meraki-API-Key"},
		{"Hetzner DNS", "https://dns.hetzner.com/api", "Auth-API-Token"},
		{"Xero", "https://api.xero.com/api", "xero-tenant-id"},
		{"MailerLite", "https://api.mailerlite.com/api", "X-MailerLite-ApiKey"},
		{"Trello", "https://api.trello.com/1?key=K&token=%s", ""},
		{"Facebook", "https://graph.facebook.com/v19.0/me?access_token=%s", ""},
		{"Pipedrive", "https://api.pipedrive.com/v1/deals?api_token=%s", ""},
		{"Discogs", "https://api.discogs.com/releases?token=%s", ""},
		{"ip-api", "https://pro.ip-api.com/json?key=%s", ""},
		{"Telegram", "https://api.telegram.org/bot%s/sendMessage", ""},
		{"Mapbox", "https://api.mapbox.com/x?access_token=%s", ""},
		{"Finnhub", "https://finnhub.io/api?token=%s", ""},
		{"OpenWeather", "https://api.openweathermap.org/data?appid=%s", ""},
		{"OpenWeather, upper case", "https://api.openweathermap.org/data?APPID=%s", ""},
		{"CoinMarketCap, parameter", "https://pro-api.coinmarketcap.com/v1?CMC_PRO_API_KEY=%s", ""},
		{"Pingdom", "https://api.pingdom.com/api", "App-Key"},
		{"Podio", "https://api.podio.com/item?oauth_token=%s", ""},
		{"Sentry", "https://sentry.io/api", "X-Sentry-Auth"},
		{"Sentry, parameter", "https://o1.ingest.sentry.io/api?sentry_key=%s", ""},
		{"Telegram, files", "https://api.telegram.org/file/bot%s/photo.jpg", ""},
	} {
		of := func(key string) *http.Request {
			if c.header != "" {
				return request(t, c.url, c.header, key)
			}
			return request(t, fmt.Sprintf(c.url, key))
		}
		require.False(t, shareQuota(&tr, of("110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"), of("220201543:BBHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw")), c.name)
		require.True(t, shareQuota(&tr, of("110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"), of("110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw")), c.name)
	}
	sentry := func(now, key string) *http.Request {
		return request(t, "https://sentry.io/api", "X-Sentry-Auth", "Sentry sentry_version=7, sentry_timestamp="+now+", sentry_key="+key)
	}
	require.True(t, shareQuota(&tr, sentry("1", "a"), sentry("2", "a")), "the time of the request is no account")
	require.False(t, shareQuota(&tr, sentry("1", "a"), sentry("1", "b")))
	own := &Tracker{Reader: &headers.Reader{Hosts: map[string]headers.Provider{"api.test": {AccountHeaders: []string{"X-Acme-Key"}}}}}
	require.False(t, shareQuota(own, request(t, "https://api.test:443/", "X-Acme-Key", "a"), request(t, "https://api.test/", "X-Acme-Key", "b")))
	require.True(t, shareQuota(own, request(t, "https://other.test/", "X-Acme-Key", "a"), request(t, "https://other.test/", "X-Acme-Key", "b")))
}

func TestTracker_callsAccount(t *testing.T) {
	tr := &Tracker{Account: func(r *http.Request) string { return r.Header.Get("X-Tenant") }}
	a := request(t, "https://api.test/", "X-Tenant", "a", "Authorization", "one")
	require.True(t, shareQuota(tr, a, request(t, "https://api.test/?api_key=7", "X-Tenant", "a", "Authorization", "two")))
	require.False(t, shareQuota(tr, a, request(t, "https://api.test/", "X-Tenant", "b", "Authorization", "one")))
	require.False(t, shareQuota(tr, a, request(t, "https://other.test/", "X-Tenant", "a")))
}

func TestTracker_findsAnAccountWithoutAllocs(t *testing.T) {
	tr := Tracker{Reader: &headers.Reader{Hosts: map[string]headers.Provider{"a.test": {AccountHeaders: []string{"X-Acme-Key"}}}}}
	for _, req := range []*http.Request{
		request(t, "https://api.telegram.org/bot1:secret/send"),
		request(t, "https://api.fastly.com/", "Fastly-Key", "one"),
		request(t, "https://api.test/", "Authorization", "AWS4-HMAC-SHA256 Credential=AKID/20260101/us-east-1/s3/aws4_request, Signature=1"),
		request(t, "https://api.test/?X-Amz-Credential=AKID%2F20260101&X-Amz-Signature=1"),
		request(t, "https://api.test/"),
		request(t, "https://api.test:443/x?q=1&page=2", "Authorization", "Bearer one", "Accept", "application/json", "User-Agent", "x", "Accept-Encoding", "gzip"),
		request(t, "https://ann:secret@api.test/", "X-Api-Key", "one"),
		request(t, "https://maps.googleapis.com/x?key=1"),
	} {
		tr.Demand(req)
		require.Zero(t, testing.AllocsPerRun(100, func() { tr.endpointOf(req) }), req.URL)
	}
	a, b := request(t, "https://a.test/", "Authorization", "one"), request(t, "https://b.test/", "Authorization", "one")
	require.Zero(t, testing.AllocsPerRun(100, func() { tr.endpointOf(a); tr.endpointOf(b) }), "alternating hosts")
}

// An endpoint that Tracker.recent finds counts as used recently.
func TestTracker_keepsTheAccountInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &Tracker{MaxAccounts: 160}
		hot := request(t, "https://hot.test/")
		reject(t, tr, "https://hot.test/", "Retry-After", "60")
		for i := range 800 {
			r := request(t, "https://tenant.test/", "Authorization", fmt.Sprint("Bearer ", i))
			d := tr.Demand(r)
			dec, err := d.Limiter.Reserve(t.Context(), throttle.Claim{})
			require.NoError(t, err)
			d.Limiter.Report(t.Context(), throttle.Claim{}, dec, tr.Feedback(r, d, answer(200, "X-Ratelimit-Limit", "100", "X-Ratelimit-Remaining", "50", "X-Ratelimit-Reset", "3600"), nil, time.Now(), nil))
			for range 3 {
				dec, _ := tr.Demand(hot).Limiter.Reserve(t.Context(), throttle.Claim{DryRun: true})
				require.False(t, dec.OK, i)
			}
		}
		tr.Demand(request(t, "https://third.test/"))
		dec, _ := tr.Demand(hot).Limiter.Reserve(t.Context(), throttle.Claim{DryRun: true})
		require.False(t, dec.OK, "its hold of 60 s is kept")
	})
}

// An endpoint that was removed is not found by Tracker.recent, so one account never
// has two states.
func TestTracker_removesEndpointsEverywhere(t *testing.T) {
	tr := &Tracker{MaxAccounts: 1}
	req := request(t, "https://api.test/")
	ep := tr.endpointOf(req)
	tr.mu.Lock()
	tr.remove(ep)
	tr.mu.Unlock()
	require.NotSame(t, ep, tr.endpointOf(req))
}

// The state of an account does not keep the URL of its first request in memory: the query may be long,
// and contain credentials.
func TestTracker_keepsNoPartOfAURL(t *testing.T) {
	var tr Tracker
	raw := "https://api.test/?api_key=secret"
	ep := tr.endpointOf(request(t, raw))
	req := request(t, raw)
	for _, s := range []string{ep.host, ep.urlHost, ep.scheme, ep.Names.Quota} {
		require.NotEmpty(t, s)
		for _, part := range []string{req.URL.Host, req.URL.Scheme} {
			require.NotSame(t, unsafe.StringData(part), unsafe.StringData(s))
		}
	}
}
