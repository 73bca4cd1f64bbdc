package httpbody

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRedactURL_hidesSecrets(t *testing.T) {
	for in, want := range map[string]string{
		"https://api.test/a%2Fb":                    "https://api.test/a%2Fb",
		"https://user:pass@api.test/a":              "https://user:xxxxx@api.test/a",
		"https://api.test/a?key=1&flag&b=&c=d=e":    "https://api.test/a?key=xxxxx&xxxxx&b=xxxxx&c=xxxxx",
		"https://api.test/a#access_token=secret":    "https://api.test/a",
		"mailto:user@api.test?subject=confidential": "mailto:user@api.test?subject=xxxxx",
	} {
		u, err := url.Parse(in)
		require.NoError(t, err)
		require.Equal(t, want, RedactURL(u))
	}
	require.Empty(t, RedactURL(nil))
}
