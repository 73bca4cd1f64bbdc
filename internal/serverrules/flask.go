package serverrules

import (
	"net/http"
	"time"
)

// FlaskMoving is flask-limiter with the strategy moving-window and headers_enabled: a log of
// the accepted requests. All responses have headers; X-RateLimit-Reset is when the oldest
// request expires, and so moves with each one that does (__inject_headers and reset_at in
// flask_limiter/_extension.py; limits/storage/memory.py: an entry counts up to its expiry,
// inclusive).
func FlaskMoving(limit int, per time.Duration) Server {
	var accepted []time.Time // not older than per, oldest first
	return func(r Request) Reply {
		for len(accepted) > 0 && r.At.Sub(accepted[0]) > per {
			accepted = accepted[1:]
		}
		reply := Reply{Header: http.Header{}}
		if len(accepted) < limit {
			accepted = append(accepted, r.At)
		} else {
			reply.Status = http.StatusTooManyRequests
		}
		reset := accepted[0].Add(per).Unix() + 1
		setInt(reply.Header, "X-RateLimit-Limit", int64(limit))
		setInt(reply.Header, "X-RateLimit-Remaining", int64(limit-len(accepted)))
		setInt(reply.Header, "X-RateLimit-Reset", reset)
		setInt(reply.Header, "Retry-After", floorSeconds(time.Unix(reset, 0).Sub(r.At)))
		return reply
	}
}
