package retryable

import (
	"errors"
	"net/http"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/heed-go/heed"
)

// Wrap puts t beneath client, so that each attempt stands in line for all limits,
// takes its units, and tells the limits what the server said. A nil t is a zero
// Transport. Call it before the first request.
//
// T is the client's from then on. It sends each attempt once, whatever t.Retry says
// of attempts, and through what the client used before unless t.Base is set. To share
// limits with other Transports, share their Quota and Waiter. Client gets an
// http.Client of its own, as the one before may be used elsewhere.
func Wrap(client *retryablehttp.Client, t *heed.Transport) {
	if t == nil {
		t = new(heed.Transport)
	}
	if client.HTTPClient == nil {
		client.HTTPClient = retryablehttp.NewClient().HTTPClient
	}
	own := *client.HTTPClient
	if t.Base == nil {
		t.Base = own.Transport
	}
	var once heed.Retry
	if t.Retry != nil {
		once = *t.Retry
	}
	once.Attempts, once.Throttled = 1, 1
	t.Retry = &once
	own.Transport = attempts{t}
	client.HTTPClient = &own
}

// attempts sends one attempt at a time, and marks what fails with what CheckRetry
// cannot see any more.
type attempts struct{ *heed.Transport }

// RoundTrip implements http.RoundTripper.
func (a attempts) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := a.Transport.RoundTrip(req)
	if err != nil {
		err = &failure{error: err, again: heed.Retryable(req, nil, err)}
	}
	return resp, err
}

// A failure is an error with the verdict on it.
type failure struct {
	error
	again bool
}

// Unwrap returns the error itself.
func (f *failure) Unwrap() error { return f.error }

// Timeout is for url.Error, which asks this error only and none beneath.
func (f *failure) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(f.error, &t) && t.Timeout()
}
