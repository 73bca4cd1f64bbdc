package quota

import (
	"math/bits"
	"time"
)

// slowResponses limits the requests in flight to a server that responds late, does not respond, or
// closes connections. Some servers do so instead of rejecting requests. It cannot be distinguished
// from an outage or from slow work, so no rate is estimated from it. But until the server is healthy
// again, no more requests are in flight than when the slow responses began:
//
//	in flight
//	   │            late      a request that was sent after that is in time
//	 8 ┤           ──┴─────────┴╲    requests keep coming, and wait
//	   │        ╱                ╲
//	   │ ___╱‾‾╱                  ╲____
//	   └───────────────────────────────▶ time
//
// Failures begin slow responses, too, and halve the requests in flight, so that no request is sent in
// place of the next ones that fail.
//
// If many requests have waited, the bound is doubled with each response that is in time, until
// less than half of it is used. Then there is no bound.
//
// Only one claim at a time is watched, and during slow responses the next one that is granted. If
// its response is in time, the server is healthy, however long other responses take. So a host
// with slow routes and fast routes is not limited.
//
// In the parameters, sent is the number of the latest claim, open the number of claims in flight,
// and minimum the least bound.
type slowResponses struct {
	watched     uint64        // number of the watched claim; 0: none
	sent        time.Time     // when it was granted
	typical     time.Duration // moving average of the time from a claim to its response; 0: not known
	recent      uint8         // latest responses, a bit each: 1 is a failure, bit 0 is the latest response
	maxInFlight int64         // requests in flight; 0: not bounded
	since       uint64        // number of the latest claim when maxInFlight was last set
}

const (
	lateAfter     = 4                      // factor: a response is late after lateAfter*typical + lateMargin
	lateMargin    = 100 * time.Millisecond // see lateAfter
	typicalWeight = 8                      // divisor: weight of one response in typical
	maxFailures   = 4                      // of the latest 8 responses, which begin slow responses
)

// isLate reports whether a response is late that arrives after d.
func (s *slowResponses) isLate(d time.Duration) bool {
	return s.typical > 0 && d > lateAfter*s.typical+lateMargin
}

// begin bounds the requests in flight, unless they are bounded.
func (s *slowResponses) begin(sent uint64, open, minimum int64) {
	if s.maxInFlight == 0 {
		s.maxInFlight, s.since = max(open, minimum), sent
	}
}

// granted records that claim n, one of open, is granted at now.
func (s *slowResponses) granted(n uint64, open, minimum int64, now time.Time) {
	overdue := s.watched != 0 && s.isLate(now.Sub(s.sent))
	if overdue {
		s.begin(n-1, open, minimum)
	}
	if s.watched == 0 || overdue && s.watched <= s.since {
		s.watched, s.sent = n, now
	}
}

// record records that claim n has a response at now, or that it failed: there is none, or one that is a
// failure.
func (s *slowResponses) record(n uint64, failed bool, sent uint64, open, minimum int64, now time.Time) {
	s.recent <<= 1
	if failed {
		if n == s.watched {
			s.watched = 0
		}
		s.recent |= 1
		if s.maxInFlight == 0 && bits.OnesCount8(s.recent) >= maxFailures {
			s.begin(sent, open/2, minimum)
			s.recent = 0
		}
		return
	}
	if n != s.watched {
		return
	}
	took := max(now.Sub(s.sent), 1)
	s.watched = 0
	switch {
	case s.typical > 0 && s.isLate(took):
		s.begin(sent, open+1, minimum)
	case n <= s.since || s.maxInFlight == 0:
	case open < s.maxInFlight/2:
		s.maxInFlight = 0
	default: // many requests wait
		s.maxInFlight, s.since = 2*s.maxInFlight, sent
	}
	if s.typical == 0 {
		s.typical = took
	}
	s.typical += (took - s.typical) / typicalWeight // late responses count: if all are late, that is typical
}

// lateAt returns when the response to a claim that was granted at sent is late.
func (s *slowResponses) lateAt(sent time.Time) time.Time {
	return sent.Add(lateAfter*s.typical + lateMargin + 1)
}

// sentUntilLate returns how many requests are sent at rate, per second, until the first of them is overdue.
func (s *slowResponses) sentUntilLate(rate float64) int64 {
	return int64(lateAfter * rate * s.typical.Seconds())
}
