package throttlehttp

import (
	"net/http"
	"path"

	"github.com/heed-go/heed/internal/httphost"
)

// Header returns a KeyFunc for a header, whose value becomes part of the key. It panics if
// name is not a token (RFC 9110, section 5.6.2).
//
// A request in which the header is missing, empty, or present more than once has no key.
// Clients can send any value: see [Secrets.Validate] for the consequences. Headers that are
// known to carry secrets (Authorization, Cookie, X-API-Key and the like) are hashed, as by
// [Secrets.Header] of the zero Secrets. Use Secrets.Header for other headers with secrets.
func Header(name string) KeyFunc {
	requireToken("Header", name)
	name = http.CanonicalHeaderKey(name)
	if httphost.IsSecret(name) {
		return defaultSecrets.Header(name)
	}
	kind := "header." + name
	return func(r *http.Request) (string, bool) { return plainKey(kind, single(r.Header[name])) }
}

// BasicUser returns the key of the user name in "Authorization: Basic". It does not check the
// password: it is meant to limit failed logins per user. If the application treats
// user names as case-insensitive, use [KeyFrom] with a function that normalizes them in the
// same way.
func BasicUser(r *http.Request) (key string, ok bool) {
	if len(r.Header["Authorization"]) != 1 {
		return "", false
	}
	user, _, _ := r.BasicAuth()
	return plainKey("basic", user)
}

// Method returns the method of r as a key. HEAD counts as GET, because it costs the server as
// much, and a client that uses both must not have twice the limit. Methods that are not in
// RFC 9110 or RFC 5789 share one key, because clients can make them up.
func Method(r *http.Request) (key string, ok bool) {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead:
		return "method:GET", true
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, http.MethodConnect, http.MethodTrace:
		return plainKey("method", r.Method)
	}
	return "method:", true
}

// Path returns the path of the URL as a key, without the query. The path is decoded and
// cleaned: dot segments, doubled slashes and a trailing slash are removed, so that a client
// cannot write one path in two ways. Upper and lower case differ.
//
// Clients can make up any number of paths. Prefer RoutePattern if a part of the path is a
// parameter.
func Path(r *http.Request) (key string, ok bool) {
	return plainKey("path", path.Clean("/"+r.URL.Path))
}

// RoutePattern returns the pattern of http.ServeMux that r matched as a key. Use it for
// handlers inside a mux: outside of one, requests have no pattern and therefore no key.
func RoutePattern(r *http.Request) (key string, ok bool) {
	return plainKey("route", r.Pattern)
}

// Host returns the host that r asks for as a key, in lower case and without the port. Clients
// choose the host, unless a proxy in front of the server accepts only known hosts.
func Host(r *http.Request) (key string, ok bool) {
	return plainKey("host", httphost.Name(r.Host))
}
