package serverrules

import (
	"net/http"
	"time"
)

// ModEvasive is mod_evasive of Apache for one URL: access_checker in mod_evasive20.c.
// More than pageCount requests within a second of the clock (DOSPageInterval 1) block the
// client for the blocking period, and each request during the block begins it anew. Times
// are whole seconds.
//
// The module sets the time of a new entry to 0. That is why the first second admits one
// request more, and why the first rejection does not block yet: the second one does.
func ModEvasive(pageCount int64, blocking time.Duration, code int) Server {
	var seen, rejectedBefore bool
	var blockedAt, hitAt, count int64 // times in seconds since 1970
	period := floorSeconds(blocking)
	return func(r Request) Reply {
		now := r.At.Unix()
		if now-blockedAt < period {
			blockedAt = now
			return status(code)
		}
		if !seen {
			seen = true
			return Reply{}
		}
		reply := Reply{}
		if now == hitAt && count >= pageCount {
			reply = status(code)
			if rejectedBefore {
				blockedAt = now
			}
			rejectedBefore = true
		} else if now > hitAt {
			count = 0
		}
		hitAt = now
		count++
		return reply
	}
}

// ModQoS is mod_qos of Apache with QS_ClientEventLimitCount and QS_ErrorResponseCode 429: a
// window that begins with the first request (mod-qos.sourceforge.net, directive
// QS_ClientEventLimitCount). The response states nothing.
func ModQoS(limit int64, per time.Duration) Server {
	w := &window{limit: limit, per: per}
	return func(r Request) Reply {
		if w.take(r.At) {
			return Reply{}
		}
		return status(http.StatusTooManyRequests)
	}
}
