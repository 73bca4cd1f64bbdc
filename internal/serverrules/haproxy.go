package serverrules

import (
	"net/http"
	"time"
)

// An HAProxyConfig is a rule that denies requests by the rate counter of a stick table.
type HAProxyConfig struct {
	Limit     int64 // requests per Per that are not denied
	Per       time.Duration
	Rejection Reply

	// OnlyAccepted counts accepted requests only, as gpc0_rate does if gpc0 is incremented
	// after the deny rule. Otherwise denied requests count too, as with http_req_rate.
	OnlyAccepted bool

	// StateRemaining adds X-RateLimit-Limit and X-RateLimit-Remaining to all responses, by
	// http-response set-header with the counter of the table. HAProxy has no reset to state.
	StateRemaining bool
}

// HAProxy is `http-request deny if { sc_http_req_rate(0) gt 50 }` of HAProxy 2.6: the
// counter of the current period plus the part of the previous one that lies within the last
// period (freq_ctr.c). A period begins with the first request.
func HAProxy(c HAProxyConfig) Server {
	var start time.Time
	var current, previous int64
	return func(r Request) Reply {
		switch p := r.At.Sub(start); {
		case start.IsZero() || p >= 2*c.Per:
			start, current, previous = r.At, 0, 0
		case p >= c.Per:
			start, current, previous = start.Add(c.Per), 0, current
		}
		rest := float64(c.Per-r.At.Sub(start)) / float64(c.Per)
		rate := 1 + current + int64(float64(previous)*rest) // with this request
		reply := Reply{}
		if rate > c.Limit {
			reply = c.Rejection
		}
		if reply.OK() || !c.OnlyAccepted {
			current++
		}
		if c.StateRemaining {
			reply.Header = reply.Header.Clone()
			if reply.Header == nil {
				reply.Header = http.Header{}
			}
			setInt(reply.Header, "X-RateLimit-Limit", c.Limit)
			setInt(reply.Header, "X-RateLimit-Remaining", max(c.Limit-rate, 0))
		}
		return reply
	}
}
