package monitor

import (
	"fmt"
	"strconv"

	"github.com/heed-go/heed/throttle"
)

// Action is what to do with a limit.
type Action uint8

const (
	Keep           Action = iota // it does its job, or too little is known
	Raise                        // allow more in the long run
	UseTokenBucket               // keep the rate, and let more come at once
)

// String returns the name of v in lower case.
func (v Action) String() string {
	switch v {
	case Keep:
		return "keep"
	case Raise:
		return "raise"
	case UseTokenBucket:
		return "token bucket"
	}
	return "action " + strconv.Itoa(int(v))
}

// A Recommendation says what to do with a limit, and why.
type Recommendation struct {
	Action Action
	Limit  throttle.Limit // what it should be; as it is if the verdict is Keep
	Reason string
}

// String returns a as one sentence.
func (a Recommendation) String() string {
	switch a.Action {
	case Raise:
		return "Raise to " + a.Limit.String() + ": " + a.Reason + "."
	case UseTokenBucket:
		return "Use a token bucket of " + a.Limit.String() + ": " + a.Reason + "."
	}
	return "Keep it: " + a.Reason + "."
}

const (
	minClaims       = 100  // of which nothing can be said
	minRefusedShare = 0.01 // a share of refusals that hurts nobody
	abuseFactor     = 10   // times the limit is more than it was made for
)

// Recommend says whether to change l, given what a Stats with that Limit has counted. Of
// these the first that holds decides:
//
//	keep    fewer than 100 claims were decided
//	keep    fewer than 1 in 100 of them were refused
//	keep    what those wanted who were refused is not known
//	keep    more than half of those who were refused were granted nothing afterwards:
//	        they look like those whom a limit is to keep away
//	keep    they wanted 10 times the limit, or more
//	bucket  a token bucket with the rate of l would have granted them everything, with a
//	        burst that is no larger than what they wanted in one Per. They come in
//	        crowds, but want no more than l allows in the long run
//	raise   otherwise: to what they wanted in one Per
//
// "They" are those 19 of 20 visits with a refusal that wanted least, and what a shadow
// did not refuse counts as refused. A token bucket of the new limit would have granted
// them everything, and so would a fixed window or a log after Raise.
//
// Who is refused and asks again at once has asked for more than he needs. The advice is
// therefore rather too generous than too tight; and a limit that protects something
// which cannot do more must be left, whatever people want.
func Recommend(l throttle.Limit, c Counts) Recommendation {
	keep := func(format string, args ...any) Recommendation {
		return Recommendation{Keep, l, fmt.Sprintf(format, args...)}
	}
	d, demanded := c.Demand, min(c.Demand.Burst, c.Demand.Peak)
	switch {
	case c.Decided() < minClaims:
		return keep("%d claims are too few to judge by", c.Decided())
	case c.RefusedShare() < minRefusedShare:
		return keep("it refuses %s of all claims", percent(c.RefusedShare()))
	case d.Sessions == 0:
		return keep("the demand of the refused keys is not known")
	case c.Returned < c.Abandoned:
		return keep("of the refused keys, %s were granted nothing afterwards", percent(1-c.ReturnedShare()))
	case demanded/abuseFactor >= max(l.Count, l.Burst):
		return keep("the refused keys wanted %d times as much", demanded/max(l.Count, l.Burst))
	case d.Burst <= d.Peak:
		l.Burst = d.Burst
		return Recommendation{UseTokenBucket, l, fmt.Sprintf("%s of all claims were refused, from keys that send bursts but keep to the rate", percent(c.RefusedShare()))}
	}
	if l.Count = d.Peak; l.Burst <= d.Peak {
		l.Burst = 0
	}
	return Recommendation{Raise, l, fmt.Sprintf("%s of all claims were refused, from keys that need no more than that", percent(c.RefusedShare()))}
}

// percent returns a share as people say it.
func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 1, 64) + " %" }
