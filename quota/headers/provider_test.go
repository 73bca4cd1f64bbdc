package headers

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/httphost"
)

func TestReader_findsProviderInEverySpelling(t *testing.T) {
	var r Reader
	h := http.Header{"X-Ratelimit-Limit": {"30"}, "X-Ratelimit-Remaining": {"3"}}
	for _, host := range []string{"api.github.com", "API.GitHub.com", "api.github.com:443", "api.github.com."} {
		require.Equal(t, "3/30 per 1m0s", formatReport(r.Parse(host, 200, h, time.Now())), host)
	}
}

// The API keys in headers of the table are secrets, which are stored as hashes only. A tenant is none.
func TestProviders_accountHeadersAreSecrets(t *testing.T) {
	for i := range providers {
		for _, name := range providers[i].AccountHeaders {
			require.Equal(t, http.CanonicalHeaderKey(name), name)
			require.False(t, httphost.IsCredential(name), "%s: it is one at any host", name)
			require.Equal(t, name != "Xero-Tenant-Id", httphost.IsSecret(name), name)
		}
	}
}

// MediaWiki answers what it does not process with a 200, whatever the host is:
// https://www.mediawiki.org/wiki/Manual:Maxlag_parameter and https://www.mediawiki.org/wiki/API:Etiquette.
func TestParse_errorsOfMediaWiki(t *testing.T) {
	for _, tt := range []struct {
		code, retryAfter string
		throttled        bool
		wait             time.Duration
	}{
		{"maxlag", "5", true, 5 * time.Second},
		{"ratelimited", "", true, 0},
		{"badtoken", "", false, 0},
		{"readonly", "30", false, 0},
	} {
		h := http.Header{"Mediawiki-Api-Error": {tt.code}}
		if tt.retryAfter != "" {
			h.Set("Retry-After", tt.retryAfter)
		}
		rep := new(Reader).Parse("en.wikipedia.org", http.StatusOK, h, time.Time{})
		require.Equal(t, tt.throttled, rep.Throttled, tt.code)
		require.Equal(t, tt.wait, rep.Wait, tt.code)
		h.Set("X-Envoy-Ratelimited", "true")
		require.True(t, new(Reader).Parse("en.wikipedia.org", http.StatusTooManyRequests, h, time.Time{}).Throttled, tt.code)
		h.Del("X-Envoy-Ratelimited")
		require.True(t, new(Reader).Parse("en.wikipedia.org", http.StatusTooManyRequests, h, time.Time{}).Throttled, tt.code)
	}
}
