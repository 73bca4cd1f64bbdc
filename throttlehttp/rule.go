package throttlehttp

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/heed-go/heed/throttle"
)

// A Rule is one limit and whom it is for. Only Limiter must be set.
//
// Failed logins, ten an hour for each address and name:
//
//	Rule{
//		Limiter: throttle.NewKeyedBuckets(throttle.Buckets{Limit: throttle.PerHour(10)}, nil),
//		Key:     JoinKey(IP{}.Key, name),
//		Settle:  OnStatus(http.StatusUnauthorized),
//		Hidden:  true,
//	}
type Rule struct {
	Limiter throttle.Limiter

	// Key says whose share a request is from: the limiter should then be one of many
	// keys, such as throttle.KeyedBuckets. Nil: all requests are of one.
	Key KeyFunc

	// Unidentified says what becomes of requests that Key finds nobody in, or "".
	Unidentified Unidentified

	// Cost says how many units a request takes before it is served; 0: the rule does not
	// concern it. A cost below 0 is a failure, see Middleware.FailClosed. Nil: 1.
	Cost func(*http.Request) int64

	// Settle says how many units a request turned out to have cost; 0: nothing. They are
	// instead of Cost, which was held while the request was served: so not more than
	// the limit are tried at the same time, either. What is more than Cost is taken from
	// requests to come. If the handler panics before it has sent a status, Cost remains.
	// Nil: Cost it is.
	Settle func(*http.Request, Answer) int64

	// Hidden keeps the limit out of what answers say, but for Retry-After: who guesses
	// passwords need not know how many guesses are left. No refusal of this Middleware
	// says more than that, then, whichever limit it is by.
	Hidden bool
}

// Unidentified says what a Rule does with a request that does not say whose it is.
type Unidentified uint8

const (
	ShareKey Unidentified = iota // all of them share one key, which nobody else has
	TurnAway                     // they are refused, with status 403
	LetPass                      // the rule does not concern them
)

func (u *Rule) check(i int) {
	switch {
	case u.Limiter == nil:
		panic("throttlehttp: Middleware: Rules[" + strconv.Itoa(i) + "] has no Limiter: set it, or leave out the rule")
	case u.Key == nil && u.Unidentified != ShareKey:
		panic("throttlehttp: Middleware: Rules[" + strconv.Itoa(i) + "] has no Key: without one there is nobody to be Unidentified")
	}
}

// demand returns what u asks of r. It is false if r is refused.
func (u *Rule) demand(r *http.Request) (d throttle.Demand, ok bool) {
	d.Cost = 1
	if u.Cost != nil {
		d.Cost = u.Cost(r)
	}
	if d.Cost == 0 {
		return d, true
	}
	if u.Key != nil {
		key, known := u.Key(r)
		switch {
		case known && key != "":
			d.Key = bounded("long", key)
		case u.Unidentified == TurnAway:
			return d, false
		case u.Unidentified == LetPass:
			return d, true
		}
	}
	d.Limiter = u.Limiter
	return d, true
}

// An Answer is what a handler did with a request.
type Answer struct {
	Status int   // that was sent; 101 also for a connection that was hijacked without a word
	Bytes  int64 // of body that the handler wrote
	Spent  int64 // what the handler said by Spend
}

// OnStatus returns a Rule.Settle that counts those requests, as one unit each, whose
// answers have one of these statuses.
func OnStatus(status ...int) func(*http.Request, Answer) int64 {
	return func(_ *http.Request, a Answer) int64 {
		if slices.Contains(status, a.Status) {
			return 1
		}
		return 0
	}
}
