package retryable

import (
	"errors"
	"net/http"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/heed-go/heed"
)

// Wrap makes client send its attempts through t: each attempt waits until all limits admit it,
// and its outcome is reported to them. A nil t means a zero Transport. Call Wrap before the
// first request.
//
// The client owns t from then on. t sends each attempt once, because Wrap sets MaxAttempts
// of a copy of t.Retry to 1. t sends through the previous transport of the
// client unless t.Base is set. To share limits with other Transports, share their Quota and
// Queue. Wrap replaces the http.Client of client by a copy, because the original may be used
// elsewhere.
//
// With another CheckRetry function, such as retryablehttp.DefaultRetryPolicy, these differences
// to a client without Wrap remain:
//
//   - An attempt that would have to wait too long, by the deadline of the context or
//     Retry.MaxServerWait, fails with a *heed.GiveUpError, and an attempt whose header, host
//     or URL is invalid fails before it is sent. DefaultRetryPolicy retries the
//     former, as any unknown error, and does not retry the latter, because their texts
//     are those of net/http.
//   - The error of a request that is idempotent only because of its header (an
//     Idempotency-Key) is wrapped in an unexported type if heed would retry it for that
//     reason. Use errors.As on it. All other errors of the connection, of TLS and of
//     certificates have the type that they have without Wrap.
//   - Response.Request of a response whose request had to wait is a copy of the request:
//     see heed.InfoFrom.
func Wrap(client *retryablehttp.Client, t *heed.Transport) {
	if t == nil {
		t = new(heed.Transport)
	}
	if client.HTTPClient == nil {
		client.HTTPClient = retryablehttp.NewClient().HTTPClient
	}
	httpClient := *client.HTTPClient
	if t.Base == nil {
		t.Base = httpClient.Transport
	}
	var policy heed.RetryPolicy
	if t.Retry != nil {
		policy = *t.Retry
	}
	policy.MaxAttempts = 1
	t.Retry = &policy
	httpClient.Transport = singleAttempts{t}
	client.HTTPClient = &httpClient
}

// singleAttempts sends a request once. It marks the errors for which CheckRetry, which does not
// see the header of the request, would make a different decision.
type singleAttempts struct{ *heed.Transport }

// RoundTrip implements http.RoundTripper.
func (a singleAttempts) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := a.Transport.RoundTrip(req)
	if err == nil {
		return resp, nil
	}
	retry := heed.Retryable(req, nil, err)
	if retry == heed.Retryable(requestWithMethod(req.Context(), req.Method), nil, err) {
		return resp, err // with the type that other CheckRetry functions expect
	}
	return resp, &classifiedError{error: err, retry: retry}
}

// A classifiedError is an error with the decision whether to retry it.
type classifiedError struct {
	error
	retry bool
}

// Unwrap returns the wrapped error.
func (f *classifiedError) Unwrap() error { return f.error }

// Timeout reports whether the wrapped error is a timeout. url.Error calls Timeout only on this
// error and does not unwrap it.
func (f *classifiedError) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(f.error, &t) && t.Timeout()
}
