package concurrency

import (
	"math/bits"
	"time"
)

// SlowResponses limits the requests in flight to a server that responds late, does not respond, or
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
type SlowResponses struct {
	Watched     uint64        // number of the watched claim; 0: none
	Sent        time.Time     // when it was granted
	Typical     time.Duration // moving average of the time from a claim to its response; 0: not known
	Recent      uint8         // latest responses, a bit each: 1 is a failure, bit 0 is the latest response
	MaxInFlight int64         // requests in flight; 0: not bounded
	since       uint64        // number of the latest claim when MaxInFlight was last set
}

const (
	LateAfter     = 4                      // factor: a response is late after LateAfter*Typical + lateMargin
	lateMargin    = 100 * time.Millisecond // see LateAfter
	typicalWeight = 8                      // divisor: weight of one response in typical
	maxFailures   = 4                      // of the latest 8 responses, which begin slow responses
)

// IsLate reports whether a response is late that arrives after d.
func (s *SlowResponses) IsLate(d time.Duration) bool {
	return s.Typical > 0 && d > LateAfter*s.Typical+lateMargin
}

// begin bounds the requests in flight, unless they are bounded.
func (s *SlowResponses) begin(sent uint64, open, minimum int64) {
	if s.MaxInFlight == 0 {
		s.MaxInFlight, s.since = max(open, minimum), sent
	}
}

// Granted records that claim n, one of open, is granted at now.
func (s *SlowResponses) Granted(n uint64, open, minimum int64, now time.Time) {
	overdue := s.Watched != 0 && s.IsLate(now.Sub(s.Sent))
	if overdue {
		s.begin(n-1, open, minimum)
	}
	if s.Watched == 0 || overdue && s.Watched <= s.since {
		s.Watched, s.Sent = n, now
	}
}

// Record records that claim n has a response at now, or that it failed: there is none, or one that is a
// failure.
func (s *SlowResponses) Record(n uint64, failed bool, sent uint64, open, minimum int64, now time.Time) {
	s.Recent <<= 1
	if failed {
		if n == s.Watched {
			s.Watched = 0
		}
		s.Recent |= 1
		if s.MaxInFlight == 0 && bits.OnesCount8(s.Recent) >= maxFailures {
			s.begin(sent, open/2, minimum)
			s.Recent = 0
		}
		return
	}
	if n != s.Watched {
		return
	}
	took := max(now.Sub(s.Sent), 1)
	s.Watched = 0
	switch {
	case s.Typical > 0 && s.IsLate(took):
		s.begin(sent, open+1, minimum)
	case n <= s.since || s.MaxInFlight == 0:
	case open < s.MaxInFlight/2:
		s.MaxInFlight = 0
	default: // many requests wait
		s.MaxInFlight, s.since = 2*s.MaxInFlight, sent
	}
	if s.Typical == 0 {
		s.Typical = took
	}
	s.Typical += (took - s.Typical) / typicalWeight // late responses count: if all are late, that is typical
}

// LateAt returns when the response to a claim that was granted at sent is late.
func (s *SlowResponses) LateAt(sent time.Time) time.Time {
	return sent.Add(LateAfter*s.Typical + lateMargin + 1)
}

// SentUntilLate returns how many requests are sent at rate, per second, until the first of them is overdue.
func (s *SlowResponses) SentUntilLate(rate float64) int64 {
	return int64(LateAfter * rate * s.Typical.Seconds())
}
