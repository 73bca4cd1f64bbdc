package serverrules

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Express is express-rate-limit with its memory store: windows begin with the first request.
// headers writes its headers; see source/headers.ts and source/lib.ts of that project.
func Express(limit int64, per time.Duration, headers func(http.Header, Window)) Server {
	w := &window{limit: limit, per: per}
	return func(r Request) Reply {
		reply := Reply{Header: http.Header{}}
		if !w.take(r.At) {
			reply.Status = http.StatusTooManyRequests
			setInt(reply.Header, "Retry-After", ceilSeconds(w.left(r.At)))
		}
		headers(reply.Header, Window{Limit: limit, Per: per, Remaining: w.remaining(), End: w.end, Now: r.At})
		return reply
	}
}

// A Window is the state of a fixed window that a server writes into headers.
type Window struct {
	Limit, Remaining int64
	Per              time.Duration
	End, Now         time.Time
}

func (w Window) left() int64 { return ceilSeconds(w.End.Sub(w.Now)) }

// Legacy writes the headers of express-rate-limit's option legacyHeaders.
func Legacy(h http.Header, w Window) {
	setInt(h, "X-RateLimit-Limit", w.Limit)
	setInt(h, "X-RateLimit-Remaining", w.Remaining)
	h.Set("Date", w.Now.UTC().Format(http.TimeFormat))
	setInt(h, "X-RateLimit-Reset", ceilUnix(w.End))
}

// Draft6 writes the headers of express-rate-limit's and hono-rate-limiter's draft-6.
func Draft6(h http.Header, w Window) {
	h.Set("RateLimit-Policy", fmt.Sprintf("%d;w=%d", w.Limit, ceilSeconds(w.Per)))
	setInt(h, "RateLimit-Limit", w.Limit)
	setInt(h, "RateLimit-Remaining", w.Remaining)
	setInt(h, "RateLimit-Reset", w.left())
}

// Draft7 writes the headers of express-rate-limit's and hono-rate-limiter's draft-7.
func Draft7(h http.Header, w Window) {
	h.Set("RateLimit-Policy", fmt.Sprintf("%d;w=%d", w.Limit, ceilSeconds(w.Per)))
	h.Set("RateLimit", fmt.Sprintf("limit=%d, remaining=%d, reset=%d", w.Limit, w.Remaining, w.left()))
}

// Draft8 returns a function that writes the headers of express-rate-limit's draft-8 for a
// limit of the given name. pk is the key of a client with the address 127.0.0.1.
func Draft8(name string) func(http.Header, Window) {
	return func(h http.Header, w Window) {
		h.Add("RateLimit-Policy", fmt.Sprintf("%q; q=%d; w=%d; pk=:MTJjYTE3YjQ5YWYy:", name, w.Limit, ceilSeconds(w.Per)))
		h.Add("RateLimit", fmt.Sprintf("%q; r=%d; t=%d", name, w.Remaining, w.left()))
	}
}

// ExpressTwice is two instances of express-rate-limit with draft-8 in a row. The second one
// does not see requests that the first one rejects.
func ExpressTwice(limit1 int64, per1 time.Duration, limit2 int64, per2 time.Duration) Server {
	first, second := Express(limit1, per1, Draft8("burst")), Express(limit2, per2, Draft8("sustained"))
	return func(r Request) Reply {
		reply := first(r)
		if !reply.OK() {
			return reply
		}
		last := second(r)
		for name, values := range last.Header {
			reply.Header[name] = append(reply.Header[name], values...)
		}
		reply.Status = last.Status
		return reply
	}
}

// Fastify is @fastify/rate-limit with its local store: index.js (applyRateLimit and
// rateLimitRequestHandler) and store/LocalStore.js of August 2026.
func Fastify(limit int64, per time.Duration) Server {
	w := &window{limit: limit, per: per}
	return w.xRateLimit(ceilSeconds, func(now time.Time) string { return strconv.FormatInt(ceilSeconds(w.left(now)), 10) })
}

// Koa is koa-ratelimit with its memory driver: index.js and limiter/memory.js. The reset is a
// time in seconds with a fraction, Retry-After is rounded down.
func Koa(limit int64, per time.Duration) Server {
	w := &window{limit: limit, per: per}
	return w.xRateLimit(floorSeconds, func(time.Time) string { return strconv.FormatFloat(float64(w.end.UnixMicro())/1e6, 'f', -1, 64) })
}

// xRateLimit returns a server that states w in X-RateLimit headers: reset returns
// X-RateLimit-Reset, and retryAfter the Retry-After of a rejection from what is left of w.
func (w *window) xRateLimit(retryAfter func(left time.Duration) int64, reset func(now time.Time) string) Server {
	return func(r Request) Reply {
		reply := Reply{Header: http.Header{}}
		ok := w.take(r.At)
		setInt(reply.Header, "X-RateLimit-Limit", w.limit)
		setInt(reply.Header, "X-RateLimit-Remaining", w.remaining())
		reply.Header.Set("X-RateLimit-Reset", reset(r.At))
		if !ok {
			reply.Status = http.StatusTooManyRequests
			setInt(reply.Header, "Retry-After", retryAfter(w.left(r.At)))
		}
		return reply
	}
}
