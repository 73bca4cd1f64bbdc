package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/heed-go/heed/internal/httphost"
)

// A source is where the value of a key comes from in a request.
type source struct {
	number int // in the set
	name   string
	told   string // what a file says of it; "": it is known without
	of     func(*http.Request) (string, bool)
	used   bool     // as the key of anything
	at     position // where the file says it
}

// program is told of a source that is in Setting.Values.
const program = "program"

// wellKnown are the keys whose values are known without being told.
var wellKnown = map[string]func(*http.Request) (string, bool){
	"remote_address": remoteAddress,
	"method":         method,
	"path":           requestPath,
	"host":           func(r *http.Request) (string, bool) { return some(hostOf(r)) },
	":method":        method,
	":path":          requestPath,
	":authority":     func(r *http.Request) (string, bool) { return some(hostOf(r)) },
}

func some(s string) (string, bool) { return s, s != "" }

// method returns the method of r, which is GET where a client leaves it empty.
func method(r *http.Request) (string, bool) {
	if r.Method == "" {
		return http.MethodGet, true
	}
	return r.Method, true
}

func requestPath(r *http.Request) (string, bool) {
	if r.URL == nil {
		return "", false
	}
	return some(r.URL.Path)
}

// hostOf returns the host that r is for, in lower case and without port.
func hostOf(r *http.Request) string {
	host := r.Host
	if host == "" && r.URL != nil {
		host = r.URL.Host
	}
	return httphost.Name(host)
}

// remoteAddress returns the address that r came from, as a server sees it: of IPv4
// all of it, of IPv6 the first 64 bits, for a client has the rest for itself. It
// believes no header; behind a proxy set Setting.Values.
func remoteAddress(r *http.Request) (string, bool) {
	if r.RemoteAddr == "" {
		return "", false
	}
	host := r.RemoteAddr
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.IndexByte(host, '.') >= 0 && host[0] != '[' {
		return host[:i], true // the common case, without a word of memory
	}
	at, err := netip.ParseAddrPort(host)
	if err != nil {
		return host, true
	}
	addr := at.Addr().Unmap().WithZone("")
	if addr.Is4() {
		return addr.String(), true
	}
	prefix, _ := addr.Prefix(64)
	return prefix.String(), true
}

// header returns what finds a header. One that comes on several lines has the value
// of them all, so that none of them hides behind another.
func header(name string) func(*http.Request) (string, bool) {
	name = http.CanonicalHeaderKey(name)
	return func(r *http.Request) (string, bool) {
		switch v := r.Header[name]; len(v) {
		case 0:
			return "", false
		case 1:
			return some(v[0])
		default:
			return some(strings.Join(v, ","))
		}
	}
}

func cookie(name string) func(*http.Request) (string, bool) {
	return func(r *http.Request) (string, bool) {
		c, err := r.Cookie(name)
		if err != nil {
			return "", false
		}
		return some(c.Value)
	}
}

// query returns what finds the first value of a query parameter, without reading all
// of them.
func query(name string) func(*http.Request) (string, bool) {
	return func(r *http.Request) (string, bool) {
		if r.URL == nil {
			return "", false
		}
		for rest := r.URL.RawQuery; rest != ""; {
			var pair string
			pair, rest, _ = strings.Cut(rest, "&")
			key, value, _ := strings.Cut(pair, "=")
			if key, err := url.QueryUnescape(key); err != nil || key != name {
				continue
			}
			if value, err := url.QueryUnescape(value); err == nil {
				return some(value)
			}
		}
		return "", false
	}
}

func fixed(value string) func(*http.Request) (string, bool) {
	return func(*http.Request) (string, bool) { return value, true }
}

const (
	maxValue = 256 // bytes of a value that are kept as they are
	hashed   = "sha256:"
)

// short returns value as part of a key. What is long, and clients send what they
// like, is known by its hash, so that a key has a size; and so is what looks as if it
// were one.
func short(value string) string {
	if len(value) <= maxValue && !strings.HasPrefix(value, hashed) {
		return value
	}
	sum := sha256.Sum256([]byte(value))
	return hashed + hex.EncodeToString(sum[:])
}
