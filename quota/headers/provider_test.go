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
