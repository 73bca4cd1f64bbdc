package heed

import (
	"fmt"
	"net/http"

	"golang.org/x/net/http/httpguts"
)

// An invalidRequestError describes why a request can never be sent as it is.
type invalidRequestError string

func (u invalidRequestError) Error() string { return string(u) }

func invalidRequestf(format string, args ...any) error {
	return invalidRequestError(fmt.Sprintf(format, args...))
}

// validateRequest returns an error if base cannot send req as it is. net/http detects
// most of these errors too, but only after units were taken, and its errors have no type;
// another Base may not check at all.
//
// The messages begin like those of net/http, because some programs search for that text.
// The values of headers and of the URL may be secret, so the messages contain only names.
//
// An http.Transport accepts other schemes than http and https if they were added with
// RegisterProtocol.
func validateRequest(req *http.Request, base http.RoundTripper) error {
	u := req.URL
	if u == nil {
		return invalidRequestError("heed: the request has no URL: set Request.URL")
	}
	isHTTP := u.Scheme == "https" || u.Scheme == "http"
	switch {
	case !isHTTP && isTransport(base) && req.Header != nil:
	case !isHTTP:
		return invalidRequestf("heed: unsupported protocol scheme %q: it must be http or https", u.Scheme)
	case u.Host == "":
		return invalidRequestError("heed: the URL has no host: write http://host/path")
	case !httpguts.ValidHostHeader(req.Host):
		return invalidRequestError("heed: Request.Host has a character that a host cannot have: remove it, or leave Host empty to use the URL's")
	case req.Method != "" && !httpguts.ValidHeaderFieldName(req.Method): // methods and field names are both tokens
		return invalidRequestf("heed: the method %q is not a token: use one like GET", req.Method)
	case req.Header == nil:
		return invalidRequestError("heed: the request has no Header: make one, it may be empty")
	}
	if err := validateFields(req.Header, "header"); err != nil {
		return err
	}
	return validateFields(req.Trailer, "trailer")
}

// isTransport reports whether base is an *http.Transport.
func isTransport(base http.RoundTripper) bool {
	_, ok := base.(*http.Transport)
	return ok
}

// validateFields returns an error for the first invalid name or value of fields.
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
