package rules

import (
	"fmt"
	"strconv"

	"github.com/heed-go/heed/throttle"
)

// Verdict is what to do with a limit.
type Verdict uint8

const (
	Leave  Verdict = iota // it does its job, or too little is known
	Relax                 // allow more in the long run
	Bucket                // keep the rate, and let more come at once
)

// String returns the name of v in lower case.
func (v Verdict) String() string {
	switch v {
	case Leave:
		return "leave"
	case Relax:
		return "relax"
	case Bucket:
		return "bucket"
	}
	return "verdict " + strconv.Itoa(int(v))
}

// An Advice says what to do with a limit, and why.
type Advice struct {
	Verdict Verdict
	Limit   throttle.Limit // what it should be; as it is if the verdict is Leave
	Reason  string
}

// String returns a as one sentence.
func (a Advice) String() string {
	switch a.Verdict {
	case Relax:
		return "Relax to " + a.Limit.String() + ": " + a.Reason + "."
	case Bucket:
		return "Use a token bucket of " + a.Limit.String() + ": " + a.Reason + "."
	}
	return "Leave it: " + a.Reason + "."
}

const (
	fewClaims = 100  // of which nothing can be said
	fewRefuse = 0.01 // a share of refusals that hurts nobody
	greed     = 10   // times the limit is more than it was made for
)

// Advise says whether to change l, given what a Tally with that Limit has counted. Of
// these the first that holds decides:
//
//	leave   fewer than 100 claims were decided
//	leave   fewer than 1 in 100 of them were refused
//	leave   what those wanted who were refused is not known
//	leave   more than half of those who were refused were granted nothing afterwards:
//	        they look like those whom a limit is to keep away
//	leave   they wanted 10 times the limit, or more
//	bucket  a token bucket with the rate of l would have granted them everything, with a
//	        burst that is no larger than what they wanted in one Per. They come in
//	        crowds, but want no more than l allows in the long run
//	relax   otherwise: to what they wanted in one Per
//
// "They" are those 19 of 20 visits with a refusal that wanted least, and what a shadow
// did not refuse counts as refused. A token bucket of the new limit would have granted
// them everything, and so would a fixed window or a log after Relax.
//
// Who is refused and asks again at once has asked for more than he needs. The advice is
// therefore rather too generous than too tight; and a limit that protects something
// which cannot do more must be left, whatever people want.
func Advise(l throttle.Limit, c Counts) Advice {
	leave := func(format string, args ...any) Advice {
		return Advice{Leave, l, fmt.Sprintf(format, args...)}
	}
	d, least := c.Demand, min(c.Demand.Burst, c.Demand.Peak)
	switch {
	case c.Asked() < fewClaims:
		return leave("%d claims are too few to judge by", c.Asked())
	case c.RefusedShare() < fewRefuse:
		return leave("it refuses %s of all claims", percent(c.RefusedShare()))
	case d.Visits == 0:
		return leave("what those wanted who were refused is not known")
	case c.Returned < c.GaveUp:
		return leave("of those who were refused, %s were granted nothing afterwards", percent(1-c.ReturnedShare()))
	case least/greed >= max(l.Count, l.Burst):
		return leave("those who were refused wanted %d times as much", least/max(l.Count, l.Burst))
	case d.Burst <= d.Peak:
		l.Burst = d.Burst
		return Advice{Bucket, l, fmt.Sprintf("%s of all claims were refused, of those who come in crowds but keep to the rate", percent(c.RefusedShare()))}
	}
	if l.Count = d.Peak; l.Burst <= d.Peak {
		l.Burst = 0
	}
	return Advice{Relax, l, fmt.Sprintf("%s of all claims were refused, of those who want no more than that", percent(c.RefusedShare()))}
}

// percent returns a share as people say it.
func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 1, 64) + " %" }
