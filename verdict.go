package heed

import (
	"net/http"
	"strconv"
	"time"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
)

// A verdict says which requests may be sent again after what came of one.
type verdict uint8

const (
	final      verdict = iota // none: it is good, or would not get better
	idempotent                // those that do no harm when done twice
	always                    // any: the work was not done
)

// Retryable reports whether req may be sent again after what came of it, resp or
// err, by the table of [Retry], for programs with loops of their own. The body of
// req, the number of attempts and the wait are not looked at. What [With] said of
// req counts; err may be wrapped, as by http.Client.
func Retryable(req *http.Request, resp *http.Response, err error) bool {
	said := RequestFrom(req.Context())
	if said.NoRetry || resp == nil && err == nil {
		return false
	}
	v := final
	if err != nil {
		v = verdictOnError(err)
	} else {
		var r quota.Reader
		host := "" // of a request that nobody knows, as retryable makes it
		if req.URL != nil {
			host = req.URL.Host
		}
		report, o := r.Parse(host, resp.StatusCode, resp.Header, time.Now()), throttle.Accepted
		if report.Throttled {
			o = throttle.Throttled
		}
		v = verdictOn(resp, o, report.HasRetryAfter)
	}
	return v == always || v == idempotent && harmless(req, said)
}

// verdictOn judges an answer. said: it has a Retry-After.
func verdictOn(resp *http.Response, o throttle.Outcome, said bool) verdict {
	if resp.StatusCode < 400 && o != throttle.Throttled {
		return final
	}
	if v, ok := wordOf(resp.Header); ok {
		return v
	}
	switch s := resp.StatusCode; {
	case s < 400:
		return idempotent // the body says that it was refused, but not that nothing was done
	case s == http.StatusTooManyRequests, s == 529: // 529: overloaded, the request was not processed
		return always
	case s == http.StatusServiceUnavailable && said:
		return always
	case retriable(s):
		return idempotent
	case s < 500 && o == throttle.Throttled:
		return always
	}
	return final
}

// retriable reports whether status s is a failure that may be temporary. 520 to 524 are
// Cloudflare's for an origin that it cannot reach.
func retriable(s int) bool {
	switch s {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return 520 <= s && s <= 524
}

// wordOf returns what a failing server says itself about sending again.
func wordOf(h http.Header) (verdict, bool) {
	for _, name := range [...]string{"X-Should-Retry", "Stripe-Should-Retry"} {
		switch h.Get(name) {
		case "true":
			return always, true
		case "false":
			return final, true
		}
	}
	if n, err := strconv.ParseInt(h.Get("Grpc-Retry-Pushback-Ms"), 10, 64); err == nil && n < 0 {
		return final, true
	}
	return final, false
}

// forbidden reports whether a failing server says itself that resp is final.
func forbidden(resp *http.Response) bool {
	if resp == nil {
		return false
	}
	v, ok := wordOf(resp.Header)
	return ok && v == final
}

// harmless reports whether req may be done twice.
func harmless(req *http.Request, said Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return said.Idempotent || req.Header.Get("Idempotency-Key") != "" || req.Header.Get("X-Idempotency-Key") != ""
}
