package headers

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReader_findsProviderInEverySpelling(t *testing.T) {
	var r Reader
	h := http.Header{"X-Ratelimit-Limit": {"30"}, "X-Ratelimit-Remaining": {"3"}}
	for _, host := range []string{"api.github.com", "API.GitHub.com", "api.github.com:443", "api.github.com."} {
		require.Equal(t, "3/30 per 1m0s", formatReport(r.Parse(host, 200, h, time.Now())), host)
	}
}
