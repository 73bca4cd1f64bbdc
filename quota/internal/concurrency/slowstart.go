package concurrency

import (
	"time"
)

// SlowStart bounds the requests in flight to a host whose limit is not known, because all requests
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
// trip. While no response arrives, one request more is granted every GrowEvery, for long polls. Before
// the first of them it is decided whether requests hang, if responses usually take at most 20 ms.
//
// Tracker.InitialConcurrency replaces the 4. If it is negative, there is no bound.
type SlowStart struct {
	Successes   int  // successful responses, at most KnownAfter
	Denied      bool // the latest claim was denied, so a request waits: all requests in flight may be responded to before it is granted
	servedBurst bool // no request was in flight, and none waited, when at least burstServedAfter had succeeded

	MaxInFlight int64 // requests in flight to a known host; 0: not bounded
	steady      int   // successes until maxInFlight grows
	peak        int64 // most requests in flight, since countdown began: the responses of a round trip may be counted before the next requests are granted
	countdown   int64 // successes until peak shows whether the bound is needed
}

const (
	maxGrowth        = 14                     // requests in flight, added to Tracker.InitialConcurrency, until the host is known
	KnownAfter       = 100                    // successes after which the host is known
	burstServedAfter = 50                     // successes after which it is known if no request is in flight or waits
	GrowEvery        = 100 * time.Millisecond // time without a response that grants one request more
)

// Bound begins to bound the requests in flight to a known host, to n, which does not grow for steady
// successes.
func (s *SlowStart) Bound(n int64, steady int) {
	s.MaxInFlight, s.steady, s.countdown, s.peak = n, steady, n, 0
}

// KnownBound returns the bound when a host becomes known, and the least bound after a hold.
func KnownBound(initial int) int64 { return int64(max(initial, 0) + maxGrowth) }

// CountSuccess counts a successful response, after which open claims are in flight. It reports whether slow
// start is over: the host is known, and there is no bound.
func (s *SlowStart) CountSuccess(open int64, initial int) (over bool) {
	switch {
	case s.Successes < KnownAfter:
		s.Successes++
		s.servedBurst = s.servedBurst || s.Successes >= burstServedAfter && open == 0 && !s.Denied
		if s.Successes == KnownAfter && !s.servedBurst {
			s.Bound(KnownBound(initial), 0)
		}
	case s.MaxInFlight == 0:
	case s.steady > 0:
		s.steady--
	default:
		s.MaxInFlight++
		s.peak = max(s.peak, open+1)
		if s.countdown--; s.countdown > 0 {
			break
		}
		if s.countdown = s.MaxInFlight; 2*s.peak < s.MaxInFlight {
			s.MaxInFlight = 0
		}
		s.peak = 0
	}
	return s.Successes == KnownAfter && s.MaxInFlight == 0
}

// Limit returns the bound on the requests in flight; 0: there is none. initial is
// Tracker.InitialConcurrency, or its default. If the server states its limits, the bound grows faster and
// ends when the host is known. Processes that share an Exchange begin at the same time, so they divide the
// growth.
func (s *SlowStart) Limit(initial int, stated bool, processes int) int64 {
	known := s.Successes >= KnownAfter || s.servedBurst
	switch {
	case initial < 0, stated && known:
		return 0
	case known:
		return s.MaxInFlight
	case stated:
		return int64(initial + min(s.Successes, maxGrowth))
	}
	return int64(initial + min(s.Successes/2, maxGrowth/processes))
}
