package quota

import (
	"time"
)

// A slowResponses is a server that answers late, or not at all, or hangs up: some do so
// instead of refusing. Nobody can tell that from an outage or from slow work, so it
// teaches no rate. But as long as it lasts no more are in flight than when it began:
//
//	in flight
//	   │            late      one that was sent after that is in time
//	 8 ┤           ──┴─────────┴╲    callers keep coming, and wait
//	   │        ╱                ╲
//	   │ ___╱‾‾╱                  ╲____
//	   └───────────────────────────────▶ time
//
// When it is well those who have waited go in waves, each twice as large.
//
// One claim at a time is watched, and once there is a strain the next one: if that is
// in time the server is well, however long some others may take. So a host with
// slow routes and fast ones does not suffer.
type slowResponses struct {
	watched     uint64        // number of the claim that is; 0: none
	sent        time.Time     // when it was
	typical     time.Duration // between claim and answer; 0: not known
	failures    int           // in a row
	maxInFlight int64         // in flight; 0: no strain
	since       uint64        // number of the latest claim when it began
}

const (
	lateAfter        = 4                      // times as long as usual, and
	lateMargin       = 100 * time.Millisecond // is late
	typicalWeight    = 8                      // answers make up what is usual
	maxFailuresInRow = 2                      // failures in a row are a strain
)

// isLate reports whether an answer that took so long is late.
func (s *slowResponses) isLate(took time.Duration) bool {
	return s.typical > 0 && took > lateAfter*s.typical+lateMargin
}

// full reports whether no more may be in flight than the open claims are.
func (s *slowResponses) full(open int64) bool { return s.maxInFlight > 0 && open >= s.maxInFlight }

// begin begins a strain after sent claims, unless there is one. open are in flight;
// least may be at any time.
func (s *slowResponses) begin(sent uint64, open, least int64) {
	if s.maxInFlight == 0 {
		s.maxInFlight, s.since = max(open, least), sent
	}
}

// granted notes that claim n goes at now, as one of open.
func (s *slowResponses) granted(n uint64, open, least int64, now time.Time) {
	overdue := s.watched != 0 && s.isLate(now.Sub(s.sent))
	if overdue {
		s.begin(n-1, open, least)
	}
	if s.watched == 0 || overdue && s.watched <= s.since {
		s.watched, s.sent = n, now
	}
}

// responded notes that the watched claim was answered at now, after sent claims, while
// open others are in flight.
func (s *slowResponses) responded(sent uint64, open, least int64, now time.Time) {
	n, took := s.watched, max(now.Sub(s.sent), 1)
	s.watched = 0
	switch {
	case s.isLate(took):
		s.begin(sent, open+1, least)
	case n <= s.since || s.maxInFlight == 0:
	case open < s.maxInFlight/2:
		s.maxInFlight = 0
	default: // many have waited for this
		s.maxInFlight, s.since = 2*s.maxInFlight, sent
	}
	if s.typical == 0 {
		s.typical = took
	}
	s.typical += (took - s.typical) / typicalWeight // if all are late that is the new usual
}

// failed notes that claim n was not answered, or by a failure.
func (s *slowResponses) failed(n, sent uint64, open, least int64) {
	s.cancelled(n)
	if s.failures++; s.failures >= maxFailuresInRow {
		s.begin(sent, open+1, least)
	}
}

// cancelled notes that nothing will be heard of claim n.
func (s *slowResponses) cancelled(n uint64) {
	if n == s.watched {
		s.watched = 0
	}
}

// recordOutcome tells the strain of b what became of claim n. It reads the clock for the
// claim that is watched only.
func (q *quota) recordOutcome(n uint64, failed bool, now time.Time) {
	least := int64(q.endpoint.tracker.initialConcurrency())
	switch {
	case failed:
		q.slow.failed(n, q.inFlight.sent, q.inFlight.open, least)
		return
	case n == q.slow.watched:
		q.slow.responded(q.inFlight.sent, q.inFlight.open, least, q.now(now))
	}
	q.slow.failures = 0
}
