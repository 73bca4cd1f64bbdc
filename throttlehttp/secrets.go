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

// Secrets names clients by what only they should know: tokens, API keys, cookies. What
// goes into a key is a hash, so that keys can be shown, logged and stored in Redis, and
// nobody gets in with one:
//
//	Authorization: Bearer s3cr3t  ─▶  bearer=38e0b2…   the first 16 bytes of
//	                                                   HMAC-SHA-256(Key, "s3cr3t") in hex
//
// The hash has a key of its own because short secrets could be guessed from a plain
// one. Whoever knows Key can tell which client a key is:
//
//	printf %s s3cr3t | openssl dgst -sha256 -hmac "$KEY"
//
// A value that a request holds twice names nobody, for we cannot know which of the two
// the application goes by; neither does an empty one.
//
// A secret may be made up. If the limit stands before what checks it, set Known, or add
// a limit by [IP]: otherwise whoever sends another token each time is another client
// each time, and the limit is none.
//
// Fields must not change after the first request. Secrets must not be copied.
type Secrets struct {
	// Key makes the hashes, best of 32 random bytes. All processes that share limits
	// through a store must have the same, or each counts its clients for itself. Nil: a
	// random one of this process, which is right for limits that are kept in memory.
	Key []byte

	// Validate says whether a secret is one that was given out; others name nobody. It is
	// asked for every request and should answer from memory. Nil: all are.
	Validate func(secret string) bool

	macPool sync.Pool
}

// defaultSecrets is what the functions of the package use.
var defaultSecrets Secrets

// Bearer names a client by its bearer token (RFC 6750), like [Secrets.Bearer] of the
// zero Secrets.
func Bearer(r *http.Request) (key string, ok bool) { return defaultSecrets.Bearer(r) }

// APIKey names a client by its API key, like [Secrets.APIKey] of the zero Secrets.
func APIKey(r *http.Request) (key string, ok bool) { return defaultSecrets.APIKey(r) }

// APIKeyQuery names a client by a parameter of the URL, like [Secrets.Query] of the
// zero Secrets.
func APIKeyQuery(name string) KeyFunc { return defaultSecrets.Query(name) }

// Cookie names a client by a cookie, like [Secrets.Cookie] of the zero Secrets.
func Cookie(name string) KeyFunc { return defaultSecrets.Cookie(name) }

// Bearer names a client by the token after "Authorization: Bearer".
func (s *Secrets) Bearer(r *http.Request) (key string, ok bool) {
	scheme, token, _ := strings.Cut(single(r.Header["Authorization"]), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return s.keyFor("bearer", strings.Trim(token, " "))
}

// APIKey names a client by X-API-Key or Api-Key. Who sends both is unidentified. Where
// the application looks elsewhere, use [Secrets.Header] or [Secrets.Query].
func (s *Secrets) APIKey(r *http.Request) (key string, ok bool) {
	a, b := r.Header["X-Api-Key"], r.Header["Api-Key"]
	if len(a) > 0 && len(b) > 0 {
		return "", false
	}
	return s.keyFor("apikey", single(a)+single(b))
}

// Header names a client by a header that holds a secret. It panics if name is not the
// name of a header.
func (s *Secrets) Header(name string) KeyFunc {
	requireToken("Secrets.Header", name)
	name = http.CanonicalHeaderKey(name)
	kind := "header." + name
	return func(r *http.Request) (string, bool) { return s.keyFor(kind, single(r.Header[name])) }
}

// Query names a client by a parameter of the URL that holds a secret. That is a way to
// lose it, for URLs are logged; so nothing here reads one unless asked to. Bodies of
// forms are not read. It panics if name is not a token of HTTP.
func (s *Secrets) Query(name string) KeyFunc {
	requireToken("Secrets.Query", name)
	kind := "query." + name
	return func(r *http.Request) (string, bool) { return s.keyFor(kind, queryValue(r.URL.RawQuery, name)) }
}

// Cookie names a client by a cookie. It panics if name is not the name of a cookie.
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

// hasFewCookies reports whether r has a cookie that can begin so, and not so many that it
// would take memory to read them: a header has room for 100,000 of one name.
func hasFewCookies(r *http.Request, prefix string) bool {
	const maxCount = 20 // one, and what looks like one in other values
	n := 0
	for _, line := range r.Header["Cookie"] {
		n += strings.Count(line, prefix)
	}
	return 0 < n && n <= maxCount
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

// A mac is a keyed hash with room to work in.
type mac struct {
	hash.Hash
	buf [512]byte
	sum [sha256.Size]byte
}

// hashOf returns what is kept of the hash of secret, until m is used again.
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

// single returns the only value, without blanks, or "".
func single(values []string) string {
	if len(values) != 1 {
		return ""
	}
	return strings.Trim(values[0], " \t")
}

// queryValue returns the only value that a query has for name, or "". It reads what
// url.ParseQuery reads, which drops pairs that are not well-formed, and keeps nothing.
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

// queryNameIs reports whether url.QueryUnescape(k) returns name. It does not allocate, because
// a query may have 100,000 names.
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
		case k[0] == name[i] && name[i] != '+', k[0] == '+' && name[i] == ' ':
			k = k[1:]
		default:
			return false
		}
	}
	return k == ""
}

// isHex reports whether c is the hexadecimal digit for n.
func isHex(c, n byte) bool { return c == "0123456789abcdef"[n] || c == "0123456789ABCDEF"[n] }
