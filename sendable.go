package heed

import (
	"errors"
	"fmt"
	"net/http"

	"golang.org/x/net/http/httpguts"
)

// sendable returns an error that says what to mend if req cannot be sent as it is.
// net/http finds most of this too, but with errors that have no type, after a unit
// was taken, and any other Base may not look at all. Values of headers and of the
// URL may be secret: the errors name them and do not show them.
func sendable(req *http.Request) error {
	switch u := req.URL; {
	case u == nil:
		return errors.New("heed: the request has no URL: set Request.URL")
	case u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("heed: the URL has the scheme %q: it must be http or https", u.Scheme)
	case u.Host == "":
		return errors.New("heed: the URL has no host: write http://host/path")
	case !httpguts.ValidHostHeader(req.Host):
		return errors.New("heed: Request.Host has a character that a host cannot have: remove it, or leave Host empty to use the URL's")
	case req.Method != "" && !httpguts.ValidHeaderFieldName(req.Method): // both are tokens
		return fmt.Errorf("heed: the method %q is not a token: use one like GET", req.Method)
	case req.Header == nil:
		return errors.New("heed: the request has no Header: make one, it may be empty")
	}
	if err := sendableFields(req.Header, "header"); err != nil {
		return err
	}
	return sendableFields(req.Trailer, "trailer")
}

func sendableFields(fields http.Header, kind string) error {
	for name, values := range fields {
		if !httpguts.ValidHeaderFieldName(name) {
			return fmt.Errorf("heed: the %s name %q is not a token: remove what is no letter, digit or dash", kind, name)
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return fmt.Errorf("heed: the value of %s %q has a control character: remove line breaks and the like", kind, name)
			}
		}
	}
	return nil
}
