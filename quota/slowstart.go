package quota

import (
	"time"

	"github.com/heed-go/heed/quota/internal/inflight"
)

// slowStart bounds the requests in flight to a host whose limit is not known, because all requests
// that are in flight when a limit is reached are rejected. As in TCP, the bound grows with each
// success, so it grows exponentially while requests wait:
//
//	bound                                                ╱  none: less than half of it is used
//	   │                                               ╱    one more per success:
//	18 ┤            ╱‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾     doubled in each round trip
//	   │        ╱
//	 4 ┤ ___╱     one more per two successes
//	   └────────────┬──────────────────────────────────┬──▶ successes
//	               28                                 100
//
// A host is known after 100 successes, or after 50 if no request is in flight then and none waits: such
// a burst was served, and there is no bound after it. After a hold whose limit was not learned, the bound
// is what was in flight before the hold, at least 18, for 100 successes, and grows as above after
// that. Without it the requests that waited for the hold would be sent, and rejected, in one round
// trip. While no response arrives, one request more is granted every growEvery, for long polls. Before
// the first of them it is decided whether requests hang, if responses usually take at most 20 ms.
//
// Tracker.InitialConcurrency replaces the 4. If it is negative, there is no bound.
type slowStart struct {
	successes   int  // successful responses, at most knownAfter
	denied      bool // the latest claim was denied, so a request waits: all requests in flight may be responded to before it is granted
	servedBurst bool // no request was in flight, and none waited, when at least burstServedAfter had succeeded

	maxInFlight int64 // requests in flight to a known host; 0: not bounded
	steady      int   // successes until maxInFlight grows
	peak        int64 // most requests in flight, since countdown began: the responses of a round trip may be counted before the next requests are granted
	countdown   int64 // successes until peak shows whether the bound is needed
}

const (
	maxGrowth        = 14                     // requests in flight, added to Tracker.InitialConcurrency, until the host is known
	knownAfter       = 100                    // successes after which the host is known
	burstServedAfter = 50                     // successes after which it is known if no request is in flight or waits
	growEvery        = 100 * time.Millisecond // time without a response that grants one request more
)

// bound begins to bound the requests in flight to a known host, to n, which does not grow for steady
// successes.
func (s *slowStart) bound(n int64, steady int) {
	s.maxInFlight, s.steady, s.countdown, s.peak = n, steady, n, 0
}

// knownBound returns the bound when a host becomes known, and the least bound after a hold.
func knownBound(initial int) int64 { return int64(max(initial, 0) + maxGrowth) }

// countSuccess counts a successful response, after which open claims are in flight. It reports whether slow
// start is over: the host is known, and there is no bound.
func (s *slowStart) countSuccess(open int64, initial int) (over bool) {
	switch {
	case s.successes < knownAfter:
		s.successes++
		s.servedBurst = s.servedBurst || s.successes >= burstServedAfter && open == 0 && !s.denied
		if s.successes == knownAfter && !s.servedBurst {
			s.bound(knownBound(initial), 0)
		}
	case s.maxInFlight == 0:
	case s.steady > 0:
		s.steady--
	default:
		s.maxInFlight++
		s.peak = max(s.peak, open+1)
		if s.countdown--; s.countdown > 0 {
			break
		}
		if s.countdown = s.maxInFlight; 2*s.peak < s.maxInFlight {
			s.maxInFlight = 0
		}
		s.peak = 0
	}
	return s.successes == knownAfter && s.maxInFlight == 0
}

// limit returns the bound on the requests in flight; 0: there is none. initial is
// Tracker.InitialConcurrency, or its default. If the server states its limits, the bound grows faster and
// ends when the host is known. Processes that share an Exchange begin at the same time, so they divide the
// growth.
func (s *slowStart) limit(initial int, stated bool, processes int) int64 {
	known := s.successes >= knownAfter || s.servedBurst
	switch {
	case initial < 0, stated && known:
		return 0
	case known:
		return s.maxInFlight
	case stated:
		return int64(initial + min(s.successes, maxGrowth))
	}
	return int64(initial + min(s.successes/2, maxGrowth/processes))
}

// A concurrencyCut limits the requests in flight after a bare rejection that is not evidence of a
// limit, until cutEndsAfter responses in a row are successful. The zero concurrencyCut does not
// limit them.
type concurrencyCut struct {
	until       time.Time // no claim is granted before
	maxInFlight int64     // requests in flight, and no more than have ever succeeded; 0: not bounded
	successes   int       // successes since the latest bare rejection
}

const (
	minInFlight  = 4 // least concurrencyCut.maxInFlight
	cutEndsAfter = 8 // successes in a row, after which the cut ends
)

// begin begins a cut after a bare rejection that is not evidence: half of inFlight requests may be in flight,
// at least minInFlight. Rejections within the round trip of a cut are of the same burst.
func (c *concurrencyCut) begin(inFlight float64, roundTrip time.Duration, now time.Time) {
	c.successes = 0
	if !now.Before(c.until) {
		c.until, c.maxInFlight = now.Add(roundTrip), max(minInFlight, int64(min(inFlight/2, inflight.Max)))
	}
}

// succeeded counts a successful response during the cut.
func (c *concurrencyCut) succeeded() {
	if c.successes++; c.successes >= cutEndsAfter {
		*c = concurrencyCut{}
	}
}
