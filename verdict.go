package heed

import (
	"net/http"
	"strconv"
	"time"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

// A retryClass says which requests may be sent again after what came of one.
type retryClass uint8

const (
	retryNever      retryClass = iota // none: it is good, or would not get better
	retryIdempotent                   // those that do no harm when done twice
	retryAlways                       // any: the work was not done
)

// Retryable reports whether req may be sent again after what came of it, resp or
// err, by the table of [Retry], for programs with loops of their own. The body of
// req, the number of attempts and the wait are not looked at. What [With] said of
// req counts; err may be wrapped, as by http.Client.
func Retryable(req *http.Request, resp *http.Response, err error) bool {
	opts := OptionsFrom(req.Context())
	if opts.NoRetry || resp == nil && err == nil {
		return false
	}
	class := retryNever
	if err != nil {
		class = classifyError(err)
	} else {
		var r headers.Reader
		host := "" // of a request that nobody knows, as retryable makes it
		if req.URL != nil {
			host = req.URL.Host
		}
		report, o := r.Parse(host, resp.StatusCode, resp.Header, time.Now()), throttle.Accepted
		if report.Throttled {
			o = throttle.Throttled
		}
		class = classifyResponse(resp, o, report.HasRetryAfter)
	}
	return class == retryAlways || class == retryIdempotent && isIdempotent(req, opts)
}

// classifyResponse judges an answer. said: it has a Retry-After.
func classifyResponse(resp *http.Response, o throttle.Outcome, hasRetryAfter bool) retryClass {
	if resp.StatusCode < 400 && o != throttle.Throttled {
		return retryNever
	}
	if class, ok := retryHint(resp.Header); ok {
		return class
	}
	switch s := resp.StatusCode; {
	case s < 400:
		return retryIdempotent // the body says that it was refused, but not that nothing was done
	case s == http.StatusTooManyRequests, s == 529: // 529: overloaded, the request was not processed
		return retryAlways
	case s == http.StatusServiceUnavailable && hasRetryAfter:
		return retryAlways
	case isRetryableStatus(s):
		return retryIdempotent
	case s < 500 && o == throttle.Throttled:
		return retryAlways
	}
	return retryNever
}

// isRetryableStatus reports whether status s is a failure that may be temporary. 520 to 524 are
// Cloudflare's for an origin that it cannot reach.
func isRetryableStatus(s int) bool {
	switch s {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return 520 <= s && s <= 524
}

// retryHint returns what a failing server says itself about sending again.
func retryHint(h http.Header) (retryClass, bool) {
	for _, name := range [...]string{"X-Should-Retry", "Stripe-Should-Retry"} {
		switch h.Get(name) {
		case "true":
			return retryAlways, true
		case "false":
			return retryNever, true
		}
	}
	if n, err := strconv.ParseInt(h.Get("Grpc-Retry-Pushback-Ms"), 10, 64); err == nil && n < 0 {
		return retryNever, true
	}
	return retryNever, false
}

// forbidsRetry reports whether a failing server says itself that resp is final.
func forbidsRetry(resp *http.Response) bool {
	if resp == nil {
		return false
	}
	class, ok := retryHint(resp.Header)
	return ok && class == retryNever
}

// isIdempotent reports whether req may be done twice.
func isIdempotent(req *http.Request, opts RequestOptions) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return opts.Idempotent || req.Header.Get("Idempotency-Key") != "" || req.Header.Get("X-Idempotency-Key") != ""
}
