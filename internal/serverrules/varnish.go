package serverrules

import (
	"net/http"
	"time"
)

// A VarnishConfig is a call of vsthrottle.is_denied, which is followed by synth(429).
type VarnishConfig struct {
	Limit int64
	Per   time.Duration
	Block time.Duration // zero means none

	// StateRemaining adds X-RateLimit-Limit and X-RateLimit-Remaining to all responses, from
	// vsthrottle.remaining. There is no reset to state.
	StateRemaining bool
}

// Varnish is vsthrottle of varnish-modules (vmod_vsthrottle.c): a token bucket that adds
// whole tokens for the time since the last request that took one, and loses fractions.
// With a block, a denied request starts it; denied requests do not extend it, but use up
// the tokens that are restored meanwhile.
func Varnish(c VarnishConfig) Server {
	tokens := c.Limit
	var last, blockedUntil time.Time
	return func(r Request) Reply {
		if last.IsZero() {
			last = r.At
		}
		tokens += int64(r.At.Sub(last).Seconds() / c.Per.Seconds() * float64(c.Limit))
		tokens = min(tokens, c.Limit)
		blocked := r.At.Before(blockedUntil)
		denied := true
		if blocked {
			last = r.At
		}
		if tokens > 0 {
			tokens--
			denied = blocked
			last = r.At
		} else if c.Block > 0 && !blocked {
			blockedUntil = r.At.Add(c.Block)
		}
		reply := Reply{Header: http.Header{}}
		if denied {
			reply.Status = http.StatusTooManyRequests
		}
		if c.StateRemaining {
			setInt(reply.Header, "X-RateLimit-Limit", c.Limit)
			setInt(reply.Header, "X-RateLimit-Remaining", tokens)
		}
		return reply
	}
}
