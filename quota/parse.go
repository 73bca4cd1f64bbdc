package quota

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Parse reads what an answer says about limits. received is the local time of
// receipt; it counts only where the answer has no Date of its own.
func Parse(status int, h http.Header, received time.Time) Report {
	r := Report{Throttled: status == http.StatusTooManyRequests}
	var l Limit
	for _, p := range []string{"Ratelimit-", "X-Ratelimit-"} {
		if n, ok := number(h.Get(p + "Limit")); ok {
			l.Limit, l.HasLimit = int64(n), true
		}
		if n, ok := number(h.Get(p + "Remaining")); ok {
			l.Remaining, l.HasRemaining = int64(n), true
		}
		if n, ok := number(h.Get(p + "Reset")); ok {
			l.ResetAfter, l.HasReset, l.ResetForm = seconds(n), true, DeltaSeconds
			if n >= 1e9 {
				l.ResetAfter, l.ResetForm = max(time.Unix(int64(n), 0).Sub(serverNow(h, received)), 0), EpochSeconds
			}
		}
	}
	if l.HasLimit || l.HasRemaining || l.HasReset {
		r.Limits = []Limit{l}
	}
	for _, k := range []string{"Retry-After", "X-Ratelimit-Retry-After"} {
		v := strings.TrimSpace(h.Get(k))
		if n, ok := number(v); ok {
			r.RetryAfter, r.HasRetryAfter, r.RetryForm = max(r.RetryAfter, seconds(n)), true, DeltaSeconds
		} else if at, err := http.ParseTime(v); err == nil {
			r.RetryAfter, r.HasRetryAfter, r.RetryForm = max(r.RetryAfter, at.Sub(serverNow(h, received))), true, Date
		}
	}
	return r
}

func number(s string) (float64, bool) {
	n, err := strconv.ParseFloat(s, 64)
	return n, err == nil && n >= 0 && !math.IsInf(n, 0)
}

func serverNow(h http.Header, received time.Time) time.Time {
	if at, err := http.ParseTime(h.Get("Date")); err == nil {
		return at
	}
	return received
}

// seconds returns n seconds, rounded up to a nanosecond, saturating.
func seconds(n float64) time.Duration {
	if n >= math.MaxInt64/1e9 {
		return math.MaxInt64
	}
	return time.Duration(math.Ceil(n * 1e9))
}
