package quota

import "time"

// A strain is a server that answers late, or not at all, or hangs up: some do so
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
type strain struct {
	watched  uint64        // number of the claim that is; 0: none
	sent     time.Time     // when it was
	usual    time.Duration // between claim and answer; 0: not known
	failures int           // in a row
	most     int64         // in flight; 0: no strain
	since    uint64        // number of the latest claim when it began
}

const (
	lateAfter  = 4                      // times as long as usual, and
	lateBy     = 100 * time.Millisecond // is late
	usualOf    = 8                      // answers make up what is usual
	failsInRow = 2                      // failures in a row are a strain
)

// late reports whether an answer that took so long is late.
func (s *strain) late(took time.Duration) bool {
	return s.usual > 0 && took > lateAfter*s.usual+lateBy
}

// full reports whether no more may be in flight than the open claims are.
func (s *strain) full(open int64) bool { return s.most > 0 && open >= s.most }

// begin begins a strain after sent claims, unless there is one. open are in flight;
// least may be at any time.
func (s *strain) begin(sent uint64, open, least int64) {
	if s.most == 0 {
		s.most, s.since = max(open, least), sent
	}
}

// granted notes that claim n goes at now, as one of open.
func (s *strain) granted(n uint64, open, least int64, now time.Time) {
	overdue := s.watched != 0 && s.late(now.Sub(s.sent))
	if overdue {
		s.begin(n-1, open, least)
	}
	if s.watched == 0 || overdue && s.watched <= s.since {
		s.watched, s.sent = n, now
	}
}

// answered notes that the watched claim was answered at now, after sent claims, while
// open others are in flight.
func (s *strain) answered(sent uint64, open, least int64, now time.Time) {
	n, took := s.watched, max(now.Sub(s.sent), 1)
	s.watched = 0
	switch {
	case s.late(took):
		s.begin(sent, open+1, least)
	case n <= s.since || s.most == 0:
	case open < s.most/2:
		s.most = 0
	default: // many have waited for this
		s.most, s.since = 2*s.most, sent
	}
	if s.usual == 0 {
		s.usual = took
	}
	s.usual += (took - s.usual) / usualOf // if all are late that is the new usual
}

// failed notes that claim n was not answered, or by a failure.
func (s *strain) failed(n, sent uint64, open, least int64) {
	s.cancelled(n)
	if s.failures++; s.failures >= failsInRow {
		s.begin(sent, open+1, least)
	}
}

// cancelled notes that nothing will be heard of claim n.
func (s *strain) cancelled(n uint64) {
	if n == s.watched {
		s.watched = 0
	}
}

// relate tells the strain of b what became of claim n. It reads the clock for the
// claim that is watched only.
func (b *bucket) relate(n uint64, failed bool, now time.Time) {
	least := int64(b.site.tracker.start())
	switch {
	case failed:
		b.strain.failed(n, b.flight.sent, b.flight.open, least)
		return
	case n == b.strain.watched:
		b.strain.answered(b.flight.sent, b.flight.open, least, b.now(now))
	}
	b.strain.failures = 0
}
