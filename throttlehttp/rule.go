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
//		Limiter: keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerHour(10)}, nil),
//		Key:     Composite(IP{}.Key, name),
//		Settle:  OnStatus(http.StatusUnauthorized),
//		Hidden:  true,
//	}
type Rule struct {
	Limiter throttle.Limiter

	// Key says whose share a request is from: the limiter should then be one of many
	// keys, such as keyed.Buckets. Nil: all requests are of one.
	Key KeyFunc

	// MissingKey says what becomes of requests that Key finds nobody in, or "".
	MissingKey MissingKey

	// Cost says how many units a request takes before it is served; 0: the rule does not
	// concern it. A cost below 0 is a failure, see Middleware.FailClosed. Nil: 1.
	Cost func(*http.Request) int64

	// FinalCost says how many units a request turned out to have cost; 0: nothing. They are
	// instead of Cost, which was held while the request was served: so not more than
	// the limit are tried at the same time, either. What is more than Cost is taken from
	// requests to come. If the handler panics before it has sent a status, Cost remains.
	// Nil: Cost it is.
	FinalCost func(*http.Request, Response) int64

	// Hidden keeps the limit out of what answers say, but for Retry-After: who guesses
	// passwords need not know how many guesses are left. No refusal of this Middleware
	// says more than that, then, whichever limit it is by.
	Hidden bool
}

// MissingKey says what a Rule does with a request that does not say whose it is.
type MissingKey uint8

const (
	Shared MissingKey = iota // all of them share one key, which nobody else has
	Reject                   // they are refused, with status 403
	Skip                     // the rule does not concern them
)

func (u *Rule) check(i int) {
	switch {
	case u.Limiter == nil:
		panic("throttlehttp: Middleware: Rules[" + strconv.Itoa(i) + "] has no Limiter: set it, or leave out the rule")
	case u.Key == nil && u.MissingKey != Shared:
		panic("throttlehttp: Middleware: Rules[" + strconv.Itoa(i) + "] has no Key: MissingKey is only used with one")
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
			d.Key = boundedKey("long", key)
		case u.MissingKey == Reject:
			return d, false
		case u.MissingKey == Skip:
			return d, true
		}
	}
	d.Limiter = u.Limiter
	return d, true
}

// A Response is what a handler did with a request.
type Response struct {
	Status    int   // that was sent; 101 also for a connection that was hijacked without a word
	Bytes     int64 // of body that the handler wrote
	AddedCost int64 // what the handler said by Spend
}

// OnStatus returns a Rule.FinalCost that counts those requests, as one unit each, whose
// answers have one of these statuses.
func OnStatus(status ...int) func(*http.Request, Response) int64 {
	return func(_ *http.Request, a Response) int64 {
		if slices.Contains(status, a.Status) {
			return 1
		}
		return 0
	}
}
