package quota

import (
	"time"

	"github.com/heed-go/heed/internal/ticks"
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
func (q *quota) knownBound() int64 {
	return int64(max(q.endpoint.tracker.initialConcurrency, 0) + maxGrowth)
}

// countSuccess counts a successful response. If the host has shown no limit when the bound ends, the
// endpoint is unlimited.
func (q *quota) countSuccess() {
	q.span.N++
	s, open := &q.slowStart, q.inFlight.Open
	switch {
	case s.successes < knownAfter:
		s.successes++
		s.servedBurst = s.servedBurst || s.successes >= burstServedAfter && open == 0 && !s.denied
		if s.successes == knownAfter && !s.servedBurst {
			s.bound(q.knownBound(), 0)
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
	if s.successes == knownAfter && s.maxInFlight == 0 && q.inference == nil && len(q.estimates) == 0 && q.hold.LastSent == 0 && !q.endpoint.hasQuotas.Load() {
		q.endpoint.unlimited.Store(true)
	}
}

// maxInFlight returns the bound of slow start on the requests in flight; 0: there is none. If the
// server states its limits, the bound grows faster and ends when the host is known. Processes that
// share an Exchange begin at the same time, so they divide the growth.
func (q *quota) maxInFlight() int64 {
	start, s := q.endpoint.tracker.initialConcurrency, &q.slowStart
	stated, known := len(q.estimates) > 0, s.successes >= knownAfter || s.servedBurst
	switch {
	case start < 0, stated && known:
		return 0
	case known:
		return s.maxInFlight
	case stated:
		return int64(start + min(s.successes, maxGrowth))
	}
	growth := maxGrowth
	if q.shared != nil {
		growth /= 1 + len(q.shared.peers.all)
	}
	return int64(start + min(s.successes/2, growth))
}

// checkSlowStart reports whether slow start and the concurrencyCut allow one more request in flight
// as of now. If not, wait is the time until they do without a response; 0: they do not.
func (q *quota) checkSlowStart(now time.Time) (wait time.Duration, ok bool) {
	if q.inference != nil {
		c := &q.inference.cut
		if wait = c.until.Sub(now); wait > 0 {
			return wait, false
		}
		if c.maxInFlight > 0 && q.inFlight.Open >= min(c.maxInFlight, int64(max(q.slowStart.successes, 1))) {
			return 0, false
		}
	}
	bound := q.maxInFlight()
	if bound == 0 || q.inFlight.Open < bound {
		return 0, true
	}
	since := ticks.Later(q.lastResponse, q.span.Since)
	if since.IsZero() {
		return 0, false
	}
	if wait := 5 * q.slow.typical; wait <= growEvery {
		since = since.Add(wait) // whether requests hang is decided before
	}
	more := now.Sub(since) / growEvery
	return (more+1)*growEvery - now.Sub(since), q.inFlight.Open < bound+int64(more)
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

// cutConcurrency begins a concurrencyCut after a bare rejection that is not evidence: half of what is in
// flight may be, at least minInFlight. Rejections within its round trip are of the same burst.
func (q *quota) cutConcurrency(now time.Time) {
	c := &q.inference.cut
	c.successes = 0
	if now.Before(c.until) {
		return
	}
	c.until = now.Add(q.roundTrip())
	// By Little's law, because requests to an unlimited endpoint are not claims.
	inFlight := max(float64(q.inFlight.Open), q.inference.accepted.Latest(now)*q.roundTrip().Seconds())
	c.maxInFlight = max(minInFlight, int64(min(inFlight/2, inflight.Max)))
}
