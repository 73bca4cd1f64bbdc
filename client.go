package heed

import "net/http"

// NewClient returns a client that sends through t; nil is a zero Transport of its
// own. The client follows redirects as any http.Client; each hop is a request of
// its own to t.
//
// The client's Timeout, if it gets one, is for a call with all its hops, attempts and
// pauses, and with the time in line: it says how long the caller can wait. How long
// one attempt may take is RetryPolicy.AttemptTimeout.
func NewClient(t *Transport) *http.Client {
	if t == nil {
		t = new(Transport)
	}
	return &http.Client{Transport: t}
}
