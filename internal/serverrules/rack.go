package serverrules

import (
	"net/http"
	"time"
)

// RackHeaders selects the headers with which RackAttack rejects.
type RackHeaders int

// The responders of Rack::Attack.
const (
	RackBare       RackHeaders = iota // the default
	RackRetryAfter                    // throttled_response_retry_after_header = true
	RackReadme                        // the throttled_responder of README.md: RateLimit-Limit, -Remaining and -Reset
)

// RackAttack is a throttle of Rack::Attack: windows are multiples of the period since 1970,
// and only rejections have headers (cache.rb, throttle.rb, configuration.rb, README.md).
func RackAttack(limit int64, per time.Duration, headers RackHeaders) Server {
	w := &window{limit: limit, per: per, aligned: true}
	return func(r Request) Reply {
		if w.take(r.At) {
			return Reply{}
		}
		reply := status(http.StatusTooManyRequests)
		switch headers {
		case RackRetryAfter:
			setInt(reply.Header, "Retry-After", w.end.Unix()-r.At.Unix())
		case RackReadme:
			setInt(reply.Header, "RateLimit-Limit", limit)
			setInt(reply.Header, "RateLimit-Remaining", 0)
			setInt(reply.Header, "RateLimit-Reset", w.end.Unix())
		}
		return reply
	}
}

// Allow2Ban is a blocklist by Allow2Ban of Rack::Attack: the request that reaches maxRetry
// within a window of findTime is accepted and bans the client, which gets 403 for banTime.
// Rejected requests do not extend the ban (allow2ban.rb, fail2ban.rb).
func Allow2Ban(maxRetry int64, findTime, banTime time.Duration) Server {
	w := &window{limit: maxRetry - 1, per: findTime, aligned: true}
	var banned time.Time
	return func(r Request) Reply {
		if r.At.Before(banned) {
			return status(http.StatusForbidden)
		}
		if !w.take(r.At) {
			banned = r.At.Add(banTime)
		}
		return Reply{}
	}
}
