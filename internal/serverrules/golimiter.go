package serverrules

import (
	"net/http"
	"strings"
	"time"
)

// GoLimiter is sethvargo/go-limiter with its memory store: windows without a gap from the
// first request on. All responses state the reset, and rejections Retry-After, as a date,
// which is rounded down to a second (httplimit/middleware.go, memorystore/store.go).
func GoLimiter(limit int64, per time.Duration) Server {
	w := &window{limit: limit, per: per}
	return func(r Request) Reply {
		if !w.end.IsZero() && !r.At.Before(w.end) {
			missed := r.At.Sub(w.end) / per // windows without a request
			w.end, w.used = w.end.Add((missed+1)*per), 0
		}
		ok := w.take(r.At)
		reset := strings.Replace(w.end.UTC().Format(http.TimeFormat), "GMT", "UTC", 1)
		h := http.Header{}
		setInt(h, "X-RateLimit-Limit", limit)
		setInt(h, "X-RateLimit-Remaining", w.remaining())
		h.Set("X-RateLimit-Reset", reset)
		if ok {
			return Reply{Header: h}
		}
		h.Set("Retry-After", reset)
		return Reply{Status: http.StatusTooManyRequests, Header: h}
	}
}
