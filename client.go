package heed

import "net/http"

// NewClient returns a client that sends through t; nil is a zero Transport of its
// own. The client follows redirects as any http.Client; each hop is a request of
// its own to t.
func NewClient(t *Transport) *http.Client {
	if t == nil {
		t = new(Transport)
	}
	return &http.Client{Transport: t}
}
