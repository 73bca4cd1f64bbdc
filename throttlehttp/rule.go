package throttlehttp

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/heed-go/heed/throttle"
)

// A Rule is one limit of a Middleware, with the key and the cost of each request. Only
// Limiter is required.
//
// Ten failed logins an hour for each address and name:
//
//	Rule{
//		Limiter:   keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerHour(10)}),
//		Key:       Composite(IP{}.Key, name),
//		FinalCost: OnStatus(http.StatusUnauthorized),
//		Hidden:    true,
//	}
type Rule struct {
	// Limiter grants or rejects the requests. It must not be nil.
	Limiter throttle.Limiter

	// Key returns the key of a request for Limiter, which should then have a limit for each
	// key, as keyed.NewBuckets does. Nil means that all requests share one key.
	Key KeyFunc

	// MissingKey is what happens to requests for which Key returns false or "". Zero means
	// Shared.
	MissingKey MissingKey

	// Cost returns the number of units that a request takes before it is served. If it
	// returns 0, the rule does not apply to the request. A negative cost is an error: see
	// Middleware.FailClosed. Nil means 1.
	Cost func(*http.Request) int64

	// FinalCost returns the number of units that a request has cost, once it has been served;
	// 0 means none. It gets the request as the handler got it, with the pattern and the values of
	// the path that an http.ServeMux has set. It replaces Cost, which is taken before the request is served, so that
	// concurrent requests cannot exceed the limit either. Units in excess of Cost are taken
	// from later requests. If the handler panics before it has sent a status, Cost remains. If
	// the client leaves, or the context of the request ends otherwise, before the handler has
	// sent a status, the request costs at least Cost.
	// Nil means that Cost is final.
	FinalCost func(*http.Request, Response) int64

	// Hidden omits the limit from the headers of responses, except Retry-After: clients that
	// guess passwords should not see how many guesses are left. If any Rule of a Middleware
	// is Hidden, its rejections report only Retry-After, whichever limit rejected the request.
	// Limits that reject nothing, as throttle.Shadow, are always omitted.
	Hidden bool
}

// MissingKey is what a Rule does with a request that has no key.
type MissingKey uint8

const (
	Shared MissingKey = iota // all such requests share one key, which no other request has
	Reject                   // such requests are rejected with status 403
	Skip                     // the rule does not apply to such requests
)

// check panics if u, the rule with index i, cannot work.
func (u *Rule) check(i int) {
	switch {
	case u.Limiter == nil:
		panic("throttlehttp: Middleware: Rules[" + strconv.Itoa(i) + "] has no Limiter: set it, or leave out the rule")
	case u.Key == nil && u.MissingKey != Shared:
		panic("throttlehttp: Middleware: Rules[" + strconv.Itoa(i) + "] has no Key: MissingKey is only used with one")
	}
	u.Limiter.Traits() // panics if it lacks what it needs
}

// demand returns the demand of r on u; its Limiter is nil if the rule does not apply. ok is
// false if r is rejected because it has no key.
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

// A Response describes how a handler responded to a request.
type Response struct {
	Status    int   // status code; 101 also for a hijacked connection
	Bytes     int64 // bytes of the body that the handler wrote
	AddedCost int64 // sum of the costs that the handler added with AddCost
}

// OnStatus returns a Rule.FinalCost that returns 1 for responses with one of the given
// statuses, and 0 for all others.
func OnStatus(status ...int) func(*http.Request, Response) int64 {
	return func(_ *http.Request, a Response) int64 {
		if slices.Contains(status, a.Status) {
			return 1
		}
		return 0
	}
}
