package serverrules

import (
	"net/http"
	"time"
)

// Envoy is envoyproxy/ratelimit with LIMIT_RESPONSE_HEADERS_ENABLED and several limits, in
// windows that are multiples of their unit since 1970. Each response has the headers of one
// limit: the one that rejects, or the one with the fewest requests remaining, always under
// the same names (src/service/ratelimit.go, CalculateReset in src/utils/utilities.go).
// All limits count all requests.
func Envoy(limits ...EnvoyLimit) Server {
	windows := make([]*window, len(limits))
	for i, l := range limits {
		windows[i] = &window{limit: l.Limit, per: l.Unit, aligned: true}
	}
	return func(r Request) Reply {
		reply := Reply{Header: http.Header{}}
		var shown *window
		for _, w := range windows {
			if !w.take(r.At) {
				reply.Status = http.StatusTooManyRequests
				shown = w
			} else if shown == nil || w.remaining() < shown.remaining() {
				shown = w
			}
		}
		setInt(reply.Header, "RateLimit-Limit", shown.limit)
		setInt(reply.Header, "RateLimit-Remaining", shown.remaining())
		setInt(reply.Header, "RateLimit-Reset", shown.end.Unix()-r.At.Unix())
		return reply
	}
}

// An EnvoyLimit is requests_per_unit and unit of a descriptor.
type EnvoyLimit struct {
	Limit int64
	Unit  time.Duration // time.Second, time.Minute, time.Hour or 24 h
}
