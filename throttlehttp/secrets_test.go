package throttlehttp_test

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/heed-go/heed/throttlehttp"
	"github.com/stretchr/testify/require"
)

// shared returns Secrets with a fixed Key. The expected hashes were computed with openssl.
func shared() *throttlehttp.Secrets { return &throttlehttp.Secrets{Key: []byte("of all instances")} }

const hashed = "b8b24e3d52d955ee8c7e433d7c1fe58b" // hash of s3cr3t

func TestSecrets_findWhatClientsSend(t *testing.T) {
	const authorization = "Authorization"
	s := shared()
	query := func(raw string) *http.Request {
		r := requestFrom()
		r.URL.RawQuery = raw
		return r
	}
	for _, tt := range []struct {
		name string
		of   throttlehttp.KeyFunc
		r    *http.Request
		want string
	}{
		{"bearer", s.Bearer, requestFrom(authorization, "Bearer s3cr3t"), "bearer=" + hashed},
		{"scheme in any case", s.Bearer, requestFrom(authorization, "bEARER  s3cr3t "), "bearer=" + hashed},
		{"no token", s.Bearer, requestFrom(authorization, "Bearer "), "?"},
		{"no blank", s.Bearer, requestFrom(authorization, "Bearer"), "?"},
		{"another scheme", s.Bearer, requestFrom(authorization, "Basic s3cr3t"), "?"},
		{"two tokens", s.Bearer, requestFrom(authorization, "Bearer s3cr3t", authorization, "Bearer s3cr3t"), "?"},
		{"API key", s.APIKey, requestFrom("X-API-Key", "s3cr3t"), "apikey=" + hashed},
		{"API key, its other header", s.APIKey, requestFrom("api-key", "s3cr3t"), "apikey=" + hashed},
		{"API key in both", s.APIKey, requestFrom("api-key", "s3cr3t", "X-API-Key", "s3cr3t"), "?"},
		{"API key in both, one empty", s.APIKey, requestFrom("api-key", "s3cr3t", "X-API-Key", ""), "?"},
		{"API key twice", s.APIKey, requestFrom("X-API-Key", "s3cr3t", "X-API-Key", "other"), "?"},
		{"header", s.Header("x-door"), requestFrom("X-Door", "s3cr3t"), "header.X-Door=" + hashed},
		{"no header", s.Header("x-door"), requestFrom(), "?"},
		{"cookie", s.Cookie("sid"), requestFrom("Cookie", "a=b; sid=s3cr3t"), "cookie.sid=" + hashed},
		{"cookie twice", s.Cookie("sid"), requestFrom("Cookie", "sid=a; sid=s3cr3t"), "?"},
		{"cookie in two lines", s.Cookie("sid"), requestFrom("Cookie", "sid=a", "Cookie", "sid=s3cr3t"), "?"},
		{"cookie in a cookie", s.Cookie("sid"), requestFrom("Cookie", "a=sid=b; xsid=c; sid=s3cr3t"), "cookie.sid=" + hashed},
		{"very many cookies", s.Cookie("sid"), requestFrom("Cookie", strings.Repeat("sid=s3cr3t;", 100_000)), "?"},
		{"no cookie", s.Cookie("sid"), requestFrom(), "?"},
		{"cookies tell case", s.Cookie("sid"), requestFrom("Cookie", "SID=s3cr3t"), "?"},
		{"query", s.Query("key"), query("a=b&key=s3cr3t"), "query.key=" + hashed},
		{"query, escaped", s.Query("key"), query("%6Be%79=s3%63r3t&%zz=1"), "query.key=" + hashed},
		{"query twice", s.Query("key"), query("key=s3cr3t&%6Bey=s3cr3t"), "?"},
		{"query as the application reads it", s.Query("key"), query("key=a;b&key=%zz&key=s3cr3t"), "query.key=" + hashed},
		{"no query", s.Query("key"), query(""), "?"},
		{"empty query", s.Query("key"), query("key="), "?"},
	} {
		require.Equal(t, tt.want, key(tt.of, tt.r), tt.name)
	}
}

// TestSecrets_lookNowhereElse checks that each function reads only its own part of the
// request.
func TestSecrets_lookNowhereElse(t *testing.T) {
	r := requestFrom()
	r.URL.RawQuery = "key=s3cr3t&api_key=s3cr3t&access_token=s3cr3t"
	for _, f := range []throttlehttp.KeyFunc{throttlehttp.APIKey, throttlehttp.Bearer, throttlehttp.Cookie("key"), throttlehttp.Header("Key")} {
		require.Equal(t, "?", key(f, r))
	}
}

// TestSecrets_boundsOfNamesAndCookies checks names in other spellings, the number of cookies
// that are parsed, and the shortest Key.
func TestSecrets_boundsOfNamesAndCookies(t *testing.T) {
	for query, ok := range map[string]bool{
		"a%2Bb=1": true, "a%2bb=1": true, "a+b=1": false, "a%20b=1": false, "%61%2b%62=1": true, "%62%2bb=1": false, "%71%2bb=1": false, "%6%2bb=1": false, "a%2b%6=1": false, "a%2bbc=1": false, "a=1": false,
	} {
		r := httptest.NewRequest(http.MethodGet, "/?"+query, nil)
		_, got := throttlehttp.APIKeyQuery("a+b")(r)
		require.Equal(t, ok, got, query)
	}
	for n, ok := range map[int]bool{0: true, 19: true, 20: false} {
		r := requestFrom("Cookie", "a=1"+strings.Repeat("; b=a=1", n))
		_, got := throttlehttp.Cookie("a")(r)
		require.Equal(t, ok, got, n)
	}
	_, got := throttlehttp.Cookie("a")(requestFrom("Cookie", "b=1"))
	require.False(t, got)
	for _, of := range []func(*throttlehttp.Secrets, string) throttlehttp.KeyFunc{(*throttlehttp.Secrets).Header, (*throttlehttp.Secrets).Query, (*throttlehttp.Secrets).Cookie} {
		require.Panics(t, func() { of(new(throttlehttp.Secrets), "a b") })
	}
	key := func(s *throttlehttp.Secrets) string {
		k, _ := s.Header("X-A")(requestFrom("X-A", "secret"))
		return k
	}
	require.Equal(t, key(&throttlehttp.Secrets{Key: []byte{1}}), key(&throttlehttp.Secrets{Key: []byte{1}}))
	require.NotEqual(t, key(&throttlehttp.Secrets{Key: []byte{1}}), key(&throttlehttp.Secrets{Key: []byte{2}}))
	require.Equal(t, key(new(throttlehttp.Secrets)), key(&throttlehttp.Secrets{Key: []byte{}}), "the key of the process")
}

func TestSecrets_areNeverShown(t *testing.T) {
	const secret = "s3cr3t"
	r := requestFrom("Authorization", "Bearer "+secret, "X-Api-Key", secret, "Cookie", "sid="+secret, "X-Door", secret)
	r.URL.RawQuery = "key=" + secret
	for i, f := range []throttlehttp.KeyFunc{
		throttlehttp.Bearer, throttlehttp.APIKey, throttlehttp.Cookie("sid"), throttlehttp.APIKeyQuery("key"),
		throttlehttp.Header("authorization"), throttlehttp.Header("cookie"), throttlehttp.Header("X-API-Key"),
		shared().Header("X-Door"), throttlehttp.Composite(throttlehttp.Bearer, throttlehttp.APIKey),
	} {
		k, ok := f(r)
		require.True(t, ok, i)
		require.NotContains(t, k, secret)
	}
	require.NotContains(t, key(throttlehttp.Bearer, r), hashed, "without a key of their own, the hashes of a process are its own")
	require.Equal(t, key(throttlehttp.Bearer, r), key(throttlehttp.Bearer, r))
	require.Equal(t, key(new(throttlehttp.Secrets).Bearer, r), key(throttlehttp.Bearer, r))
}

func TestSecrets_areDistinguished(t *testing.T) {
	s, seen := shared(), map[string]string{}
	for _, secret := range []string{"a", "b", "A", "a\x00", strings.Repeat("a", 511), strings.Repeat("a", 512), strings.Repeat("a", 513), strings.Repeat("a", 1<<20)} {
		k := key(s.APIKey, requestFrom("X-Api-Key", secret))
		require.Len(t, k, len("apikey=")+32)
		require.NotContains(t, seen, k)
		seen[k] = secret
		require.Equal(t, k, key(shared().APIKey, requestFrom("X-Api-Key", secret)), "another instance agrees")
	}
}

// TestSecrets_invalidOnesGiveNoKey checks that requests with invented keys count by
// address.
func TestSecrets_invalidOnesGiveNoKey(t *testing.T) {
	s := &throttlehttp.Secrets{Validate: func(secret string) bool { return secret == "s3cr3t" }}
	f := throttlehttp.FirstOf(s.APIKey, throttlehttp.IP{}.Key)
	require.Regexp(t, "^apikey=", key(f, requestFrom("X-API-Key", "s3cr3t")))
	require.Equal(t, "ip:192.0.2.7", key(f, requestFrom("X-API-Key", "made up")))
}

// TestSecrets_readQueriesAsOthersDo checks that Query finds the same value as
// r.URL.Query().
func TestSecrets_readQueriesAsOthersDo(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 14))
	pieces := []string{"key", "key=", "=", "&", "&", ";", "%6B", "%6b%65y", "%", "%zz", "+", "a", "\x00", "k+y"}
	s, found := shared(), 0
	for range 10_000 {
		var b strings.Builder
		for range rnd.IntN(9) {
			b.WriteString(pieces[rnd.IntN(len(pieces))])
		}
		r := requestFrom()
		r.URL.RawQuery = b.String()
		all, _ := url.ParseQuery(r.URL.RawQuery)
		want := "?"
		if v := all["key"]; len(v) == 1 && v[0] != "" {
			found++
			want = key(s.Query("key"), &http.Request{URL: &url.URL{RawQuery: url.Values{"key": {v[0]}}.Encode()}})
		}
		require.Equal(t, want, key(s.Query("key"), r), "%q", r.URL.RawQuery)
	}
	require.Greater(t, found, 300)
}
