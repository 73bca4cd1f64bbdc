package throttlehttp

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"net/http"
	"net/url"
	"strings"
	"sync"
)

// Secrets returns keys for clients that identify themselves with a secret: a token, an API
// key or a cookie. The key is a hash, so that keys can be shown, logged and stored in Redis
// without revealing the secret:
//
//	Authorization: Bearer s3cr3t  ─▶  bearer=38e0b2…   the first 16 bytes of
//	                                                   HMAC-SHA-256(Key, "s3cr3t") in hex
//
// The hash is keyed because short secrets could be guessed from a plain one. With Key, the
// client of a key can be determined:
//
//	printf %s s3cr3t | openssl dgst -sha256 -hmac "$KEY"
//
// A request that holds a value twice has no key, because it is unknown which of the two the
// application uses. An empty value is no key either.
//
// Secrets that are not validated can be made up. If the limit is placed outside of the
// authentication, set Validate, or add a limit by [IP]. Otherwise a client that sends a new
// token with each request has a new key each time, and is not limited at all.
//
// The fields must not be changed after the first request. A Secrets must not be copied.
type Secrets struct {
	// Key is the key of the hashes, preferably 32 random bytes. All processes that share
	// limits through a store must use the same Key, or each counts clients separately. Nil
	// means a random key of this process, which suits limits that are kept in memory.
	Key []byte

	// Validate reports whether a secret has been issued; requests with other secrets have
	// no key. It is called for every request and should answer from memory. Nil means that
	// all secrets are accepted.
	Validate func(secret string) bool

	macPool sync.Pool
}

// defaultSecrets is the zero Secrets that the functions of the package use.
var defaultSecrets Secrets

// Bearer returns the key of the bearer token (RFC 6750) of r, as [Secrets.Bearer] of the
// zero Secrets does.
func Bearer(r *http.Request) (key string, ok bool) { return defaultSecrets.Bearer(r) }

// APIKey returns the key of the API key of r, as [Secrets.APIKey] of the zero Secrets does.
func APIKey(r *http.Request) (key string, ok bool) { return defaultSecrets.APIKey(r) }

// APIKeyQuery returns a KeyFunc for a parameter of the URL, as [Secrets.Query] of the zero
// Secrets does.
func APIKeyQuery(name string) KeyFunc { return defaultSecrets.Query(name) }

// Cookie returns a KeyFunc for a cookie, as [Secrets.Cookie] of the zero Secrets does.
func Cookie(name string) KeyFunc { return defaultSecrets.Cookie(name) }

// Bearer returns the key of the token after "Authorization: Bearer".
func (s *Secrets) Bearer(r *http.Request) (key string, ok bool) {
	scheme, token, _ := strings.Cut(single(r.Header["Authorization"]), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return s.keyFor("bearer", strings.Trim(token, " "))
}

// APIKey returns the key of the header X-API-Key or Api-Key. A request with both has no key.
// For other names and places use [Secrets.Header] or [Secrets.Query].
func (s *Secrets) APIKey(r *http.Request) (key string, ok bool) {
	a, b := r.Header["X-Api-Key"], r.Header["Api-Key"]
	if len(a) > 0 && len(b) > 0 {
		return "", false
	}
	return s.keyFor("apikey", single(a)+single(b))
}

// Header returns a KeyFunc for a header that holds a secret. It panics if name is not a
// token (RFC 9110, section 5.6.2).
func (s *Secrets) Header(name string) KeyFunc {
	requireToken("Secrets.Header", name)
	name = http.CanonicalHeaderKey(name)
	kind := "header." + name
	return func(r *http.Request) (string, bool) { return s.keyFor(kind, single(r.Header[name])) }
}

// Query returns a KeyFunc for a parameter of the URL that holds a secret. URLs are often
// logged, so secrets in URLs leak easily; the package reads them only with this function and
// [APIKeyQuery]. Form bodies are not read. Query panics if name is not a token (RFC 9110,
// section 5.6.2).
func (s *Secrets) Query(name string) KeyFunc {
	requireToken("Secrets.Query", name)
	kind := "query." + name
	return func(r *http.Request) (string, bool) { return s.keyFor(kind, queryValue(r.URL.RawQuery, name)) }
}

// Cookie returns a KeyFunc for a cookie. It panics if name is not a token (RFC 9110, section
// 5.6.2).
func (s *Secrets) Cookie(name string) KeyFunc {
	requireToken("Secrets.Cookie", name)
	kind, prefix := "cookie."+name, name+"="
	return func(r *http.Request) (string, bool) {
		if !hasFewCookies(r, prefix) {
			return "", false
		}
		if found := r.CookiesNamed(name); len(found) == 1 {
			return s.keyFor(kind, found[0].Value)
		}
		return "", false
	}
}

// hasFewCookies reports whether prefix occurs in the cookies of r at most maxCount times, so
// that parsing them takes little memory: a header can hold 100,000 cookies of one name.
func hasFewCookies(r *http.Request, prefix string) bool {
	const maxCount = 20 // the cookie itself, and occurrences within other values
	n := 0
	for _, line := range r.Header["Cookie"] {
		n += strings.Count(line, prefix)
	}
	return n <= maxCount
}

func (s *Secrets) keyFor(kind, secret string) (key string, ok bool) {
	if secret == "" || s.Validate != nil && !s.Validate(secret) {
		return "", false
	}
	m, _ := s.macPool.Get().(*mac)
	if m == nil {
		m = &mac{Hash: hmac.New(sha256.New, s.hmacKey())}
	}
	var text [2 * hashBytes]byte
	hex.Encode(text[:], m.hashOf(secret))
	s.macPool.Put(m)
	return kind + "=" + string(text[:]), true
}

func (s *Secrets) hmacKey() []byte {
	if len(s.Key) > 0 {
		return s.Key
	}
	return processKey()
}

var processKey = sync.OnceValue(func() []byte {
	key := make([]byte, 32)
	rand.Read(key)
	return key
})

// A mac is a keyed hash with its buffers.
type mac struct {
	hash.Hash
	buf [512]byte
	sum [sha256.Size]byte
}

// hashOf returns the first hashBytes of the hash of secret. The result is valid until the
// next call.
func (m *mac) hashOf(secret string) []byte {
	m.Reset()
	for len(secret) > 0 {
		n := copy(m.buf[:], secret)
		m.Write(m.buf[:n])
		secret = secret[n:]
	}
	clear(m.buf[:])
	return m.Sum(m.sum[:0])[:hashBytes]
}

// single returns the only value without surrounding blanks, or "" if there is not exactly one.
func single(values []string) string {
	if len(values) != 1 {
		return ""
	}
	return strings.Trim(values[0], " \t")
}

// queryValue returns the only value that a query has for name, or "" if there is not exactly
// one. Like url.ParseQuery, it ignores malformed pairs; unlike it, it builds no map.
func queryValue(query, name string) string {
	value, seen := "", false
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		k, v, _ := strings.Cut(pair, "=")
		if !queryNameIs(k, name) || strings.Contains(pair, ";") {
			continue
		}
		v, err := url.QueryUnescape(v)
		if err != nil {
			continue
		}
		if seen {
			return ""
		}
		value, seen = v, true
	}
	return value
}

// queryNameIs reports whether url.QueryUnescape(k) returns name, which is a token. It does not
// allocate, because a query may contain 100,000 names.
func queryNameIs(k, name string) bool {
	for i := range len(name) {
		switch {
		case k == "":
			return false
		case k[0] == '%':
			if len(k) < 3 || !isHex(k[1], name[i]>>4) || !isHex(k[2], name[i]&15) {
				return false
			}
			k = k[3:]
		case k[0] == name[i] && k[0] != '+': // a plus sign means a blank
			k = k[1:]
		default:
			return false
		}
	}
	return k == ""
}

// isHex reports whether c is the hexadecimal digit for n.
func isHex(c, n byte) bool { return c == "0123456789abcdef"[n] || c == "0123456789ABCDEF"[n] }
