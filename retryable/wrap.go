package retryable

import (
	"errors"
	"net/http"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/heed-go/heed"
)

// Wrap puts t beneath client: each attempt waits until all limits admit it, and its
// outcome is reported to them. A nil t is a zero Transport. Call Wrap before the first
// request.
//
// The client owns t from then on. t sends each attempt once, whatever t.Retry says
// of attempts, and through what the client used before unless t.Base is set. To share
// limits with other Transports, share their Quota and Queue. The client gets an
// http.Client of its own, as the one before may be used elsewhere.
//
// With CheckRetry of the client's own, as with retryablehttp.DefaultRetryPolicy, these
// differences remain:
//
//   - An attempt that would have to wait too long, by the deadline of the context or
//     Retry.MaxWait, fails with a *heed.GiveUpError, and an attempt whose header, host
//     or URL is invalid fails before it is sent. DefaultRetryPolicy retries the
//     former, as any error that it does not know, and tries the latter once, since
//     their texts are those of net/http.
//   - The error of a request whose header alone says that it is idempotent (by an
//     Idempotency-Key) is wrapped once more if heed would retry it because of that.
//     Use errors.As on it. All other errors of the connection, of TLS and of
//     certificates have the type that they have without Wrap.
//   - Response.Request of a response that took a wait is a copy of the request: see
//     heed.InfoFrom.
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
	policy.MaxAttempts, policy.MaxThrottledAttempts = 1, 1
	t.Retry = &policy
	httpClient.Transport = singleAttempts{t}
	client.HTTPClient = &httpClient
}

// singleAttempts sends one attempt at a time. It marks the errors that CheckRetry would
// judge differently because it does not see the header of the request.
type singleAttempts struct{ *heed.Transport }

// RoundTrip implements http.RoundTripper.
func (a singleAttempts) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := a.Transport.RoundTrip(req)
	if err == nil {
		return resp, nil
	}
	retry := heed.Retryable(req, nil, err)
	if retry == heed.Retryable(requestWithMethod(req.Context(), req.Method), nil, err) {
		return resp, err // of the type that other CheckRetry functions look for
	}
	return resp, &classifiedError{error: err, retry: retry}
}

// A classifiedError is an error with the verdict on it.
type classifiedError struct {
	error
	retry bool
}

// Unwrap returns the error itself.
func (f *classifiedError) Unwrap() error { return f.error }

// Timeout is for url.Error, which asks this error only and none beneath.
func (f *classifiedError) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(f.error, &t) && t.Timeout()
}
