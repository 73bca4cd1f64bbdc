package httphost

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCanonical_normalizes(t *testing.T) {
	for _, c := range []struct{ scheme, host, want, name string }{
		{"https", "api.github.com", "api.github.com", "api.github.com"},
		{"https", "API.GitHub.com", "api.github.com", "api.github.com"},
		{"https", "api.github.com:443", "api.github.com", "api.github.com"},
		{"https", "api.github.com.", "api.github.com", "api.github.com"},
		{"https", "API.github.com.:443", "api.github.com", "api.github.com"},
		{"https", "api.github.com:", "api.github.com", "api.github.com"},
		{"https", "api.github.com:80", "api.github.com:80", "api.github.com"},
		{"http", "api.github.com:80", "api.github.com", "api.github.com"},
		{"http", "api.github.com:443", "api.github.com:443", "api.github.com"},
		{"https", "API.test.:8443", "api.test:8443", "api.test"},
		{"https", "[::1]", "[::1]", "[::1]"},
		{"https", "[::1]:443", "[::1]", "[::1]"},
		{"https", "[FE80::1]:8443", "[fe80::1]:8443", "[fe80::1]"},
		{"https", "::1", "::1", "::1"},
		{"https", "", "", ""},
		{"https", ":443", "", ""},
		{"https", "127.0.0.1:8080", "127.0.0.1:8080", "127.0.0.1"},
	} {
		require.Equal(t, c.want, Canonical(c.scheme, c.host), c.host)
		require.Equal(t, c.name, Name(c.host), c.host)
		require.Equal(t, c.want, Canonical(c.scheme, c.want), "twice")
	}
}

func TestCanonical_doesNotCopy(t *testing.T) {
	for _, host := range []string{"api.test", "api.test:443", "api.test:8443", "api.test."} {
		require.Zero(t, testing.AllocsPerRun(100, func() { Canonical("https", host); Name(host) }), host)
	}
}

func FuzzCanonical(f *testing.F) {
	for _, s := range []string{"a:443", "[::1]:1", "A.", "::", "[", "]:", "a:b:c"} {
		f.Add("https", s)
	}
	f.Fuzz(func(t *testing.T, scheme, host string) {
		Canonical(scheme, host)
		Name(host)
	})
}

func TestIsCredential_takesCanonicalNames(t *testing.T) {
	for _, m := range []map[string]bool{credentials, secrets} {
		for name := range m {
			require.Equal(t, http.CanonicalHeaderKey(name), name)
			require.True(t, IsSecret(name), name)
		}
	}
	require.True(t, IsCredential("Authorization"))
	require.False(t, IsCredential("Cookie"))
	require.False(t, IsCredential("Accept"))
}

func TestNamesSecret_readsTheWordsOfAName(t *testing.T) {
	for name, words := range map[string][]string{
		"": nil, "a": {"a"}, "A": {"a"}, "-": nil, "X-Api-Key": {"x", "api", "key"}, "AWSAccessKeyId": {"aws", "access", "key", "id"},
		"apiKey2": {"api", "key"}, "x.y__Z": {"x", "y", "z"}, "URL": {"url"}, "pageToken": {"page", "token"},
	} {
		require.Equal(t, words, wordsOf(name), name)
	}
	for _, name := range []string{
		"api_key", "apikey", "APIKEY", "apiKey", "key", "access_token", "accessToken", "token", "id_token", "client_secret", "password", "sig", "signature",
		"X-Amz-Signature", "X-Amz-Credential", "X-Amz-Security-Token", "X-Goog-Signature", "x-oss-credential", "AWSAccessKeyId", "q-ak", "subscription-key",
		"X-Forwarded-Authorization", "Authentication", "X-Secret", "X-Session-Id", "X-Github-Token", "Set-Cookie", "auth", "jwt", "sessionId",
	} {
		require.True(t, NamesSecret(name), name)
	}
	for _, name := range []string{
		"", "q", "page", "pageToken", "page_token", "nextToken", "continuation-token", "sync_token", "Idempotency-Key", "X-Idempotency-Key", "sort_key", "monkey", "keyboard", "tokens",
		"Content-Type", "User-Agent", "X-Request-Id", "Accept", "author", "design", "signal", "assignee", "keyword", "public_key", "secretary", "Digest",
	} {
		require.False(t, NamesSecret(name), name)
	}
}
