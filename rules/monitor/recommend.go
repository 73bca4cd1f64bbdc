package monitor

import (
	"fmt"
	"strconv"

	"github.com/heed-go/heed/throttle"
)

// Action is what to change about a limit.
type Action uint8

const (
	// Keep means that the limit needs no change, or that too little is known.
	Keep Action = iota

	// Raise means to allow more units per period.
	Raise

	// UseTokenBucket means to keep the rate and to allow larger bursts.
	UseTokenBucket
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

// Recommendation is a recommended change of a limit and its reason.
type Recommendation struct {
	// Action is the recommended action.
	Action Action

	// Limit is the recommended limit. It is the current limit if Action is Keep.
	Limit throttle.Limit

	// Reason is the reason for the recommendation, as a part of a sentence.
	Reason string
}

// String returns a as one English sentence.
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
	minClaims        = 100  // fewer claims are too few for a recommendation
	minRejectedShare = 0.01 // a smaller share of rejections needs no change
	abuseFactor      = 10   // a demand of so many times the limit counts as abuse
)

// Recommend returns a recommendation for l, given the Counts of a Stats with that Limit. The first
// condition that is true decides:
//
//	Keep            fewer than 100 claims were decided
//	Keep            fewer than 1 in 100 of them were rejected
//	Keep            the demand of the rejected keys is not known
//	Keep            more than half of the streaks of rejections ended without a grant,
//	                as is usual for abuse
//	Keep            the rejected keys asked for 10 times the limit, or more
//	UseTokenBucket  a token bucket with the rate of l and the burst Demand.Burst would have
//	                granted all claims, and that burst is at most Demand.Peak: the keys send
//	                bursts, but keep to the rate
//	Raise           otherwise, to Demand.Peak units per Per
//
// Rejected keys are the sessions with a rejection, including rejections that shadow mode turned into
// grants. The demand is that of 19 of 20 such sessions, without those that asked for most. A token
// bucket with the recommended limit would have granted all claims of these 19. After Raise a fixed
// window or a sliding log would have too.
//
// Limitations: a client that repeats each rejected request immediately asks for more than it
// needs, so recommendations are more often too high than too low. Recommend does not know the
// capacity of the server that the limit protects.
func Recommend(l throttle.Limit, c Counts) Recommendation {
	keep := func(format string, args ...any) Recommendation {
		return Recommendation{Keep, l, fmt.Sprintf(format, args...)}
	}
	d, demanded := c.Demand, min(c.Demand.Burst, c.Demand.Peak)
	switch {
	case c.Decided() < minClaims:
		return keep("%d claims are too few to judge by", c.Decided())
	case c.RejectedShare() < minRejectedShare:
		return keep("it rejects %s of all claims", percent(c.RejectedShare()))
	case d.Sessions == 0:
		return keep("the demand of the rejected keys is not known")
	case c.Returned < c.Abandoned:
		return keep("of the rejected keys, %s were granted nothing afterwards", percent(1-c.ReturnedShare()))
	case demanded/abuseFactor >= max(l.Count, l.Burst):
		return keep("the rejected keys wanted %d times as much", demanded/max(l.Count, l.Burst))
	case d.Burst <= d.Peak:
		l.Burst = d.Burst
		return Recommendation{UseTokenBucket, l, fmt.Sprintf("%s of all claims were rejected, from keys that send bursts but keep to the rate", percent(c.RejectedShare()))}
	}
	if l.Count = d.Peak; l.Burst <= d.Peak {
		l.Burst = 0
	}
	return Recommendation{Raise, l, fmt.Sprintf("%s of all claims were rejected, from keys that need no more than that", percent(c.RejectedShare()))}
}

// percent returns a share as a percentage.
func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 1, 64) + " %" }
