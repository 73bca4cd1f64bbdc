package throttlehttp

import (
	"net/http"
	"path"

	"github.com/heed-go/heed/internal/httphost"
)

// Header names a client by a header, as it is. It panics if name is not the name of a
// header.
//
// A header that comes twice names nobody, and neither does an empty one. Anybody can
// send any value: see [Secrets.Validate] for what that means. What is known to carry
// secrets (Authorization, Cookie, X-API-Key and the like) is hashed, as by
// [Secrets.Header] of the zero Secrets, which is right for all other secrets too.
func Header(name string) KeyFunc {
	requireToken("Header", name)
	name = http.CanonicalHeaderKey(name)
	if httphost.IsSecret(name) {
		return defaultSecrets.Header(name)
	}
	kind := "header." + name
	return func(r *http.Request) (string, bool) { return plainKey(kind, single(r.Header[name])) }
}

// BasicUser names a client by the user of "Authorization: Basic", whoever says so: it
// is meant to limit failed logins per user. The password is not looked at. Where logins
// do not tell ann from Ann, use [Named] and do as they do.
func BasicUser(r *http.Request) (key string, ok bool) {
	if len(r.Header["Authorization"]) != 1 {
		return "", false
	}
	user, _, _ := r.BasicAuth()
	return plainKey("basic", user)
}

// Method separates requests by what they do. HEAD is GET, for it costs the server as
// much, and otherwise who uses both has twice the limit. Methods that are not in RFC
// 9110 or 5789 are one, since anybody can make them up.
func Method(r *http.Request) (key string, ok bool) {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead:
		return "method:GET", true
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, http.MethodConnect, http.MethodTrace:
		return plainKey("method", r.Method)
	}
	return "method:", true
}

// Path separates requests by the path of the URL, without its query: decoded, without
// dots and doubled slashes, and without a slash at the end, so that a client cannot
// write one path in two ways. Upper and lower case differ.
//
// There are as many paths as clients like to make up. RoutePattern is better where a
// part of the path is a parameter.
func Path(r *http.Request) (key string, ok bool) {
	return plainKey("path", path.Clean("/"+r.URL.Path))
}

// RoutePattern separates requests by the pattern of http.ServeMux that they matched. It
// is for handlers inside a mux: before one has looked, there is no pattern and nobody
// is identified.
func RoutePattern(r *http.Request) (key string, ok bool) {
	return plainKey("route", r.Pattern)
}

// Host separates requests by the host that they ask for, without port and in lower
// case. Clients choose it, unless something in front lets only known ones through.
func Host(r *http.Request) (key string, ok bool) {
	return plainKey("host", httphost.Name(r.Host))
}
