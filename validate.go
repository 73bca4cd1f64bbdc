package heed

import (
	"fmt"
	"net/http"
	"net/url"

	"golang.org/x/net/http/httpguts"
)

// invalidRequestError is why a request cannot be sent as it is, now or later.
type invalidRequestError string

func (u invalidRequestError) Error() string { return string(u) }

func invalidRequestf(format string, args ...any) error {
	return invalidRequestError(fmt.Sprintf(format, args...))
}

// validateRequest returns an error that says what to correct if base cannot send req as it
// is. net/http finds most of this too, but with errors that have no type, after a
// unit was taken, and any other Base may not look at all. The texts begin as those of
// net/http do, which some programs search. Values of headers and of the URL may be
// secret: the errors name them and do not show them.
//
// An http.Transport may have protocols of its own: see RegisterProtocol.
func validateRequest(req *http.Request, base http.RoundTripper) error {
	switch u := req.URL; {
	case u == nil:
		return invalidRequestError("heed: the request has no URL: set Request.URL")
	case !isHTTP(u) && isTransport(base) && req.Header != nil:
	case !isHTTP(u):
		return invalidRequestf("heed: unsupported protocol scheme %q: it must be http or https", u.Scheme)
	case u.Host == "":
		return invalidRequestError("heed: the URL has no host: write http://host/path")
	case !httpguts.ValidHostHeader(req.Host):
		return invalidRequestError("heed: Request.Host has a character that a host cannot have: remove it, or leave Host empty to use the URL's")
	case req.Method != "" && !httpguts.ValidHeaderFieldName(req.Method): // both are tokens
		return invalidRequestf("heed: the method %q is not a token: use one like GET", req.Method)
	case req.Header == nil:
		return invalidRequestError("heed: the request has no Header: make one, it may be empty")
	}
	if err := validateFields(req.Header, "header"); err != nil {
		return err
	}
	return validateFields(req.Trailer, "trailer")
}

func isHTTP(u *url.URL) bool { return u.Scheme == "https" || u.Scheme == "http" }

func isTransport(base http.RoundTripper) bool {
	_, ok := base.(*http.Transport)
	return ok
}

func validateFields(fields http.Header, kind string) error {
	for name, values := range fields {
		if !httpguts.ValidHeaderFieldName(name) {
			return invalidRequestf("heed: invalid %s field name %q: remove what is no letter, digit or dash", kind, name)
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return invalidRequestf("heed: invalid %s field value for %q: remove control characters such as line breaks", kind, name)
			}
		}
	}
	return nil
}
