package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/heed-go/heed/internal/httphost"
)

// A valueSource finds the value of a key in a request.
type valueSource struct {
	index int // position in the set
	name  string

	// origin is the source that the file states. Empty means that the key is built in.
	origin   string
	value    func(*http.Request) (string, bool)
	used     bool     // at least one key uses it
	secret   bool     // its values are secrets, and are hashed in keys
	method   bool     // its values are methods
	position position // where the file declares it
}

// fromProgram is the origin of a source of Config.Values.
const fromProgram = "program"

// wellKnown maps built-in keys to functions that return their values.
var wellKnown = map[string]func(*http.Request) (string, bool){
	"remote_address": remoteAddress,
	"method":         method,
	"path":           requestPath,
	"host":           func(r *http.Request) (string, bool) { return nonEmpty(hostOf(r)) },
	":method":        method,
	":path":          requestPath,
	":authority":     func(r *http.Request) (string, bool) { return nonEmpty(hostOf(r)) },
}

func nonEmpty(s string) (string, bool) { return s, s != "" }

// method returns the method of r. An empty method means GET, as in net/http.
func method(r *http.Request) (string, bool) {
	if r.Method == "" {
		return http.MethodGet, true
	}
	return r.Method, true
}

// requestPath returns the decoded path of r as http.ServeMux reads it: without dot segments and
// doubled slashes, so that a client cannot write one path in many ways.
func requestPath(r *http.Request) (string, bool) {
	if r.URL == nil {
		return "", false
	}
	p := r.URL.Path
	if strings.HasPrefix(p, "/") && (strings.Contains(p, "//") || strings.Contains(p, "/.")) {
		clean := path.Clean(p)
		if strings.HasSuffix(p, "/") && clean != "/" {
			clean += "/"
		}
		p = clean
	}
	return nonEmpty(p)
}

// hostOf returns the host that r is for, in lower case and without port.
func hostOf(r *http.Request) string {
	host := r.Host
	if host == "" && r.URL != nil {
		host = r.URL.Host
	}
	return httphost.Name(host)
}

// remoteAddress returns the address of the client of r, from http.Request.RemoteAddr: the whole
// address for IPv4, and the first 64 bits for IPv6, because one client usually has a whole /64. It
// ignores headers; behind a proxy use Config.Values. RemoteAddr may have no port, as after
// middleware that replaces it.
func remoteAddress(r *http.Request) (string, bool) {
	if r.RemoteAddr == "" {
		return "", false
	}
	host := r.RemoteAddr
	if i := strings.IndexByte(host, ':'); i >= 0 && i == strings.LastIndexByte(host, ':') && strings.IndexByte(host, '.') >= 0 {
		return host[:i], true // the common case; does not allocate
	}
	at, err := netip.ParseAddrPort(host)
	addr := at.Addr()
	if err != nil {
		addr, err = netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	}
	if err != nil {
		return host, true
	}
	if addr = addr.Unmap().WithZone(""); addr.Is4() {
		return addr.String(), true
	}
	prefix, _ := addr.Prefix(64)
	return prefix.String(), true
}

// header returns a function that returns the value of a header. Several lines of the same header
// are joined with commas, so that no line is ignored.
func header(name string) func(*http.Request) (string, bool) {
	name = http.CanonicalHeaderKey(name)
	return func(r *http.Request) (string, bool) {
		switch v := r.Header[name]; len(v) {
		case 0:
			return "", false
		case 1:
			return nonEmpty(v[0])
		default:
			return nonEmpty(strings.Join(v, ","))
		}
	}
}

// ambiguous is the value of a cookie that a request has more than once with different values, and
// of a cookie or query parameter among more than maxSearched bytes. All such requests share it:
// otherwise a client would get a new limit with each value that it adds to the one that the
// application reads. It contains a semicolon, which no cookie value can contain.
const ambiguous = ";ambiguous"

// maxSearched is the maximum number of bytes of cookies, or of a query, that are searched for a
// value. Most servers accept less.
const maxSearched = 64 << 10

// cookie returns a function that returns the value of the named cookie, parsed as net/http does.
func cookie(name string) func(*http.Request) (string, bool) {
	return func(r *http.Request) (string, bool) {
		var single singleValue
		left := maxSearched
		for _, line := range r.Header["Cookie"] {
			if left -= len(line); left < 0 {
				return ambiguous, true
			}
			for line != "" {
				var pair string
				pair, line, _ = strings.Cut(line, ";")
				key, value, _ := strings.Cut(textproto.TrimString(pair), "=")
				if textproto.TrimString(key) != name {
					continue
				}
				if value, ok := cookieValue(value); ok && !single.add(value) {
					return ambiguous, true
				}
			}
		}
		return nonEmpty(single.value)
	}
}

// cookieValue returns a value without its quotes, and reports whether net/http accepts it.
func cookieValue(v string) (string, bool) {
	if len(v) > 1 && v[0] == '"' && v[len(v)-1] == '"' {
		v = v[1 : len(v)-1]
	}
	for i := range len(v) {
		if c := v[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return "", false
		}
	}
	return v, true
}

// A singleValue is the value that all occurrences of a name in a request have.
type singleValue struct {
	value string
	found bool
}

// add records a value. It reports whether all values recorded so far are equal.
func (o *singleValue) add(value string) bool {
	if o.found {
		return o.value == value
	}
	o.value, o.found = value, true
	return true
}

// query returns a function that returns the first value of a parameter, as url.Values.Get does. It
// does not allocate for other parameters.
func query(name string) func(*http.Request) (string, bool) {
	return func(r *http.Request) (string, bool) {
		switch {
		case r.URL == nil:
			return "", false
		case len(r.URL.RawQuery) > maxSearched:
			return ambiguous, true
		}
		for rest := r.URL.RawQuery; rest != ""; {
			var pair string
			pair, rest, _ = strings.Cut(rest, "&")
			key, value, _ := strings.Cut(pair, "=")
			if !unescapesTo(key, name) {
				continue
			}
			if value, err := url.QueryUnescape(value); err == nil {
				return nonEmpty(value)
			}
		}
		return "", false
	}
}

// unescapesTo reports whether url.QueryUnescape returns text for raw.
func unescapesTo(raw, text string) bool {
	for i := range len(text) {
		switch {
		case raw == "":
			return false
		case raw[0] == '%':
			if len(raw) < 3 || !isHex(raw[1], text[i]>>4) || !isHex(raw[2], text[i]&15) {
				return false
			}
			raw = raw[3:]
		case raw[0] == text[i] && text[i] != '+', raw[0] == '+' && text[i] == ' ':
			raw = raw[1:]
		default:
			return false
		}
	}
	return raw == ""
}

// isHex reports whether c is the hexadecimal digit for n.
func isHex(c, n byte) bool { return c == "0123456789abcdef"[n] || c == "0123456789ABCDEF"[n] }

func fixed(value string) func(*http.Request) (string, bool) {
	return func(*http.Request) (string, bool) { return value, true }
}

const (
	maxValueLen = 256 // in bytes; longer values are hashed
	hashPrefix  = "sha256:"
)

// keyPart returns value, which s has found, as a part of a key. A nil s is a segment of the path.
//
// All methods that are not registered are one part: a client could otherwise get a new limit with
// each method that it invents, as many handlers serve all methods.
func (s *valueSource) keyPart(value string) string {
	switch {
	case s != nil && s.secret && value != "":
		return hashed(value)
	case s != nil && s.method && !isRegistered(value):
		return otherMethod
	}
	return hashIfLong(value)
}

// otherMethod is the part of a key for methods that are not registered. No method contains a
// blank.
const otherMethod = "other methods"

// isRegistered reports whether method is a registered method of HTTP.
func isRegistered(method string) bool {
	switch method {
	case http.MethodGet, http.MethodPost: // the common case
		return true
	}
	return slices.Contains(registeredMethods, method)
}

// hashIfLong returns value as a part of a key. Values longer than maxValueLen are replaced by
// their hash, because clients may send values of any length. Values that begin with hashPrefix are
// hashed too, so that no client can send the hash of another value.
func hashIfLong(value string) string {
	if len(value) <= maxValueLen && !strings.HasPrefix(value, hashPrefix) {
		return value
	}
	return hashed(value)
}

func hashed(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hashPrefix + hex.EncodeToString(sum[:])
}
