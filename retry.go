package heed

import (
	"net/http"
	"time"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/throttle"
)

// RetryPolicy says which requests are sent again, how often and how soon. The zero Retry
// is what the zero Transport does.
//
// Sent again, if the body can be:
//
//	answer                                    request
//	429, and 403 that is a throttle           any: the server refused the work
//	503 with Retry-After, 529                 any
//	408, 425, 500, 502, 503, 504,             idempotent
//	520 to 524
//	X-Should-Retry or Stripe-Should-Retry     as it says
//	a failure before anything was sent        any
//	any other failure                         idempotent
//	a certificate that is not trusted,        none
//	insufficient_quota and the like in a body,
//	any other answer
//
// Idempotent are GET, HEAD, OPTIONS, TRACE, PUT, DELETE, whatever has an
// Idempotency-Key or X-Idempotency-Key, and what heed.RequestOptions says is.
type RetryPolicy struct {
	MaxAttempts int // most times a request is sent; 0: 4, below 0 and 1: once

	// MaxThrottledAttempts is most times a request is sent if all that goes wrong is that the
	// server says to slow down. Where many share a limit, one may be refused
	// several times because of the others, and the wait is the limit's, so this
	// is a bound on patience rather than on load. 0: Attempts if that is set, else 10.
	MaxThrottledAttempts int

	Backoff backoff.Policy // pause after a failure; nil: the zero backoff.Exponential

	// RetryAfterJitter makes the delay where the server states a Retry-After. Zero seconds are
	// obeyed too unless Floor.Least is set: the first retry of a call is then sent
	// immediately, and each later one after a tenth of the delay of Backoff.
	RetryAfterJitter backoff.RetryAfterJitter

	Budget *backoff.Budget // bounds retries to a share of the requests; nil: one of the Transport's own

	// MaxWait is the longest pause, and the longest wait in line that the server
	// asks for: whoever would wait longer is told so at once, those who are in line
	// already when the server says so, too. Limits of our own may make a request wait
	// as long as its context allows. 0: 2 min, negative: any.
	MaxWait time.Duration

	// MaxElapsed is the longest time from the end of the first attempt to the start
	// of the last. The first wait in the queue and the time that the last attempt
	// takes are not part of it: a running attempt is never cancelled. Waits for
	// limits of our own are, from the second attempt on. Zero means 3 minutes,
	// negative any time.
	MaxElapsed time.Duration

	// AttemptTimeout is how long an attempt may take until its answer begins. The
	// answer's body then has all the time that the request has. 0: any.
	AttemptTimeout time.Duration

	// MaxBodyBuffer is how many bytes of a body that has no GetBody and cannot seek are
	// kept while it is sent, to send them again. A body known to be longer is not
	// kept at all; one that turns out to be is let go and sent once. 0: 256 KiB,
	// negative: none.
	MaxBodyBuffer int64

	// AttemptHeader is the name of a header that tells the server the number of
	// the attempt, from the second on; "": none.
	AttemptHeader string

	// IdempotencyKey makes the Idempotency-Key of a request that has none and is not
	// idempotent, the same for all its attempts; nil: none. A 409, which says that
	// the first attempt is still at work, is then sent again too.
	IdempotencyKey func() string

	// Idempotent reports whether a request may be processed twice, for a whole API. It
	// adds to the rules above, is asked for requests that they do not call idempotent,
	// and must not modify the request. Nil: the rules alone. Retryable does not ask it.
	Idempotent func(req *http.Request) bool

	// BeforeSend may change the headers of attempts from the second on, for example to
	// sign them anew, in a copy of the request. An error ends the call; nil: none.
	BeforeSend func(req *http.Request, attempt int) error

	// ShouldRetry has the last word, if it is not nil, on each answer and failure. It is
	// told what is about to happen and returns what shall. An error ends the call
	// with a GiveUpError that matches it. It must not read the body. The bounds
	// above hold whatever it returns.
	ShouldRetry func(req *http.Request, resp *http.Response, err error, again bool) (bool, error)
}

const (
	defaultMaxAttempts          = 4
	defaultMaxThrottledAttempts = 10
	defaultMaxWait              = 2 * time.Minute
	defaultMaxElapsed           = 3 * time.Minute
	defaultMaxBodyBuffer        = 256 << 10
)

// withDefaults returns r with its defaults filled in. The default of Budget is budget, or a
// new one if that is nil.
func (r *RetryPolicy) withDefaults(budget *backoff.Budget) RetryPolicy {
	var p RetryPolicy
	if r != nil {
		p = *r
	}
	if p.MaxThrottledAttempts == 0 && p.MaxAttempts == 0 {
		p.MaxThrottledAttempts = defaultMaxThrottledAttempts
	}
	if p.MaxAttempts == 0 {
		p.MaxAttempts = defaultMaxAttempts
	}
	p.MaxThrottledAttempts = max(p.MaxThrottledAttempts, p.MaxAttempts)
	if p.Backoff == nil {
		p.Backoff = backoff.Exponential{}
	}
	if p.Budget == nil {
		p.Budget = budget
	}
	if p.Budget == nil {
		p.Budget = new(backoff.Budget)
	}
	if p.MaxBodyBuffer == 0 {
		p.MaxBodyBuffer = defaultMaxBodyBuffer
	}
	p.MaxWait = boundOrDefault(p.MaxWait, defaultMaxWait)
	p.MaxElapsed = boundOrDefault(p.MaxElapsed, defaultMaxElapsed)
	return p
}

// boundOrDefault returns d, or its default if it is zero, or throttle.Forever if it is
// negative.
func boundOrDefault(d, or time.Duration) time.Duration {
	switch {
	case d == 0:
		return or
	case d < 0:
		return throttle.Forever
	}
	return d
}
