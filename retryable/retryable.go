// Package retryable connects package heed with github.com/hashicorp/go-retryablehttp, for
// programs that keep a client of that library.
//
//	client := retryablehttp.NewClient()
//	client.CheckRetry, client.Backoff = retryable.CheckRetry, retryable.Backoff
//	retryable.Wrap(client, nil)
//
// CheckRetry and Backoff apply the rules of package heed: a POST is not repeated unless it is
// safe, and Retry-After is obeyed. Wrap inserts a heed.Transport, which makes every attempt
// wait for the limits of servers and for those of the program. CheckRetry, Backoff and Wrap
// can be used separately.
//
// The client keeps control of the number of attempts (RetryMax) and of rewinding request
// bodies. After the last attempt it returns an error instead of the last response, unless its
// ErrorHandler is PassthroughErrorHandler.
package retryable

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/quota/headers"
)

// defaultMaxWait is the longest Retry-After that is waited for by default. It is the default
// of heed.RetryPolicy.MaxServerWait.
const defaultMaxWait = 10 * time.Minute

var (
	_ retryablehttp.CheckRetry = CheckRetry
	_ retryablehttp.Backoff    = Backoff
)

// CheckRetry is a retryablehttp.CheckRetry that retries a request if heed.Retryable allows it.
//
// It does not retry if the server asks for a wait that exceeds the deadline of ctx, or that is
// longer than the MaxWait that heed.WithOptions stored in ctx, or 10 minutes if there is none.
// The caller then receives the response immediately. After a failure without a response,
// CheckRetry knows the method and ctx, but not the header: without Wrap, declare the request
// idempotent by heed.WithOptions instead of an Idempotency-Key header.
func CheckRetry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case err != nil && resp != nil:
		return false, err // http.Client returns both for a redirect that it does not follow
	case err != nil:
		return shouldRetryError(ctx, err), nil
	}
	if !heed.Retryable(requestOf(ctx, resp), resp, nil) {
		return false, nil
	}
	report := headers.Parse(resp.StatusCode, resp.Header, time.Now())
	deadline, hasDeadline := ctx.Deadline()
	return report.RetryAfter <= maxServerWait(ctx) && !(hasDeadline && time.Until(deadline) <= report.RetryAfter), nil
}

// Backoff is a retryablehttp.Backoff. Without Retry-After it returns a delay with full jitter,
// whose range begins at minDelay and doubles with each attempt up to maxDelay. With Retry-After
// it returns that wait and a random addition of up to half a second or a tenth of the wait,
// whichever is longer; the range of the addition doubles with each attempt.
func Backoff(minDelay, maxDelay time.Duration, attempt int, resp *http.Response) time.Duration {
	if resp != nil {
		if report := headers.Parse(resp.StatusCode, resp.Header, time.Now()); report.HasRetryAfter {
			return backoff.RetryAfterJitter{}.Delay(report.RetryAfter, attempt+1)
		}
	}
	minDelay = max(minDelay, 1) // retryablehttp uses 0 for no pause, Exponential for the default
	return backoff.Exponential{Base: minDelay, Max: max(minDelay, maxDelay)}.Delay(attempt+1, 0)
}

// maxServerWait returns the longest wait that a server may ask for.
func maxServerWait(ctx context.Context) time.Duration {
	if d := heed.OptionsFrom(ctx).MaxWait; d > 0 {
		return d
	}
	return defaultMaxWait
}

// requestOf returns the request of resp. If it is unknown, it returns a POST, which is not
// idempotent.
func requestOf(ctx context.Context, resp *http.Response) *http.Request {
	if resp.Request != nil {
		return resp.Request
	}
	return requestWithMethod(ctx, http.MethodPost)
}

// shouldRetryError reports whether to retry after err. Beneath Wrap the decision was made with
// the request at hand and is stored in err. Otherwise only the method and the URL are known,
// from the url.Error of http.Client.
func shouldRetryError(ctx context.Context, err error) bool {
	var f *classifiedError
	if errors.As(err, &f) {
		return f.retry
	}
	method := http.MethodPost
	var u *url.Error
	if errors.As(err, &u) {
		if !strings.HasPrefix(u.URL, "http://") && !strings.HasPrefix(u.URL, "https://") {
			return false
		}
		method = strings.ToUpper(u.Op)
	}
	return heed.Retryable(requestWithMethod(ctx, method), nil, err)
}

// requestWithMethod returns a request with a method and a context only.
func requestWithMethod(ctx context.Context, method string) *http.Request {
	return (&http.Request{Method: method}).WithContext(ctx)
}
