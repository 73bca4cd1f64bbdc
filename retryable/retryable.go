// Package retryable is for programs that have a client of
// github.com/hashicorp/go-retryablehttp and want to keep it.
//
//	client := retryablehttp.NewClient()
//	client.CheckRetry, client.Backoff = retryable.CheckRetry, retryable.Backoff
//	retryable.Wrap(client, nil)
//
// CheckRetry and Backoff are those of package heed in the form that the client asks
// for: a POST is not done twice, and nobody comes back before a server said. Wrap
// puts a heed.Transport beneath: every attempt then waits in line for the limits of
// servers and for those that the program sets. Each is of use without the others.
//
// What stays the client's own is how often it tries, RetryMax; the bodies that it
// sends again; and that when its retries are used up it returns an error in place of
// the last answer, unless its ErrorHandler is PassthroughErrorHandler.
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

// defaultMaxWait is the longest wait that a server may ask for, as heed.RetryPolicy.MaxWait is.
const defaultMaxWait = 2 * time.Minute

var (
	_ retryablehttp.CheckRetry = CheckRetry
	_ retryablehttp.Backoff    = Backoff
)

// CheckRetry is a retryablehttp.CheckRetry that has a request sent again where
// heed.Retryable says that it may be.
//
// It does not where the server asks for a wait that passes the deadline of ctx, or is
// longer than two minutes or the MaxWait that heed.WithOptions put into ctx: the caller then
// has the answer at once. A request that failed without an answer has lost its
// headers on the way here, so that without Wrap an Idempotency-Key does not count;
// heed.WithOptions does.
func CheckRetry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case err != nil && resp != nil:
		return false, err // http.Client gives both for a redirect that it does not follow
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

// Backoff is a retryablehttp.Backoff: full jitter that doubles from least, and no
// longer than most; or, if the server said how long, that and up to half a second or
// a tenth more, which grows with the attempt.
func Backoff(minDelay, maxDelay time.Duration, attempt int, resp *http.Response) time.Duration {
	if resp != nil {
		if report := headers.Parse(resp.StatusCode, resp.Header, time.Now()); report.HasRetryAfter {
			return backoff.RetryAfterJitter{}.Delay(report.RetryAfter, attempt+1)
		}
	}
	minDelay = max(minDelay, 1) // 0 is no pause here, and the default there
	return backoff.Exponential{Base: minDelay, Max: max(minDelay, maxDelay)}.Delay(attempt+1, 0)
}

// maxServerWait returns the longest wait that a server may ask for.
func maxServerWait(ctx context.Context) time.Duration {
	if d := heed.OptionsFrom(ctx).MaxWait; d > 0 {
		return d
	}
	return defaultMaxWait
}

// requestOf returns the request that resp answers, or as good as nothing is known of it.
func requestOf(ctx context.Context, resp *http.Response) *http.Request {
	if resp.Request != nil {
		return resp.Request
	}
	return requestWithMethod(ctx, http.MethodPost)
}

// shouldRetryError reports whether to send again after err. Beneath Wrap that was decided where
// the request was still known; http.Client leaves the method and the URL.
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

// requestWithMethod returns a request of which only the method is known.
func requestWithMethod(ctx context.Context, method string) *http.Request {
	return (&http.Request{Method: method}).WithContext(ctx)
}
