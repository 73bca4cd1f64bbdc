package serverrules

import (
	"net/http"
	"time"
)

// A SlidingCounterConfig configures a SlidingCounter: Limit per Per.
type SlidingCounterConfig struct {
	Limit int64
	Per   time.Duration

	// Offset is how long after multiples of Per since 1970 windows begin.
	Offset time.Duration

	// Headers writes the headers of all responses. nil means that they have none.
	Headers func(http.Header, Window)

	// RetryAfter returns the Retry-After of a rejection: left is the time until the end of the
	// window, and unit that until one unit is free. nil means that there is none.
	RetryAfter func(left, unit time.Duration) int64

	// Others is how many requests per second other clients send, from the first request on.
	Others float64
}

// SlidingCounter estimates the requests of the last Per from two counts: that of the present
// window, and that of the window before, weighted by the part of it that is within the last Per
// and rounded down, as @upstash/ratelimit does (src/lua-scripts/single.ts, slidingWindow).
// Rejected requests do not count.
func SlidingCounter(c SlidingCounterConfig) Server {
	var start, end time.Time
	var previous, current, others int64
	free := func(now time.Time) int64 {
		return c.Limit - current - previous*int64(end.Sub(now))/int64(c.Per)
	}
	return func(r Request) Reply {
		for begin := r.At.Add(-c.Offset).Truncate(c.Per).Add(c.Offset); !r.At.Before(end); {
			if previous = 0; !end.IsZero() && end.Equal(begin) {
				previous = current
			}
			current, end = 0, begin.Add(c.Per)
		}
		if start.IsZero() {
			start = r.At
		}
		sent := int64(r.At.Sub(start).Seconds() * c.Others)
		current += max(min(sent-others, free(r.At)), 0)
		others = sent
		reply := Reply{Header: http.Header{}}
		if free(r.At) > 0 {
			current++
		} else {
			reply.Status = http.StatusTooManyRequests
			left := end.Sub(r.At)
			unit := left
			if previous > 0 { // its weight falls below a whole number
				unit = min(left, time.Duration(int64(left)*previous%int64(c.Per)/previous+1))
			}
			if c.RetryAfter != nil {
				setInt(reply.Header, "Retry-After", c.RetryAfter(left, unit))
			}
		}
		if c.Headers != nil {
			c.Headers(reply.Header, Window{Limit: c.Limit, Remaining: max(free(r.At), 0), Per: c.Per, End: end, Now: r.At})
		}
		return reply
	}
}

// UntilWindow is the Retry-After until the end of the window, in seconds, rounded up.
func UntilWindow(left, _ time.Duration) int64 { return ceilSeconds(left) }

// UntilUnit is the Retry-After until one unit is free, in seconds, rounded up.
func UntilUnit(_, unit time.Duration) int64 { return ceilSeconds(unit) }

// XRateLimit returns a function that writes X-RateLimit headers with a Unix time as the reset,
// in units of the given length, rounded down.
func XRateLimit(unit time.Duration) func(http.Header, Window) {
	return func(h http.Header, w Window) {
		setInt(h, "X-RateLimit-Limit", w.Limit)
		setInt(h, "X-RateLimit-Remaining", w.Remaining)
		setInt(h, "X-RateLimit-Reset", w.End.UnixNano()/int64(unit))
	}
}
