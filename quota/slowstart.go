package quota

import "time"

// Slow start bounds the requests in flight to a host that is not known, because all that are in
// flight when a limit is met are rejected:
//
//	in flight
//	   │                                    ╱  one more for each success while requests wait
//	18 ┤            ╱‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾╱    (doubling in a round trip), until not needed
//	   │        ╱
//	 4 ┤ ___╱      one more for two successes
//	   └───────────┬──────────────────────┬────▶ successes
//	              28                     100
//
// After 100 successes the host is known, and so it is if 50 succeeded and no request was in flight
// then. After a hold whose limit has not been learned, the bound is what was in flight before it, for
// 100 successes, so that the requests that have waited are not sent, and rejected, in one round trip.
// While no response arrives, one more request is sent every growEvery, for long polls.
const (
	maxGrowth        = 14 // beyond Tracker.InitialConcurrency, until the host is known
	knownAfter       = 100
	burstServedAfter = 50
	growEvery        = 100 * time.Millisecond
)

// A slowStart is the state of slow start of one quota.
type slowStart struct {
	successes   int  // successful responses, up to knownAfter
	servedBurst bool // no request was in flight when at least burstServedAfter had succeeded

	maxInFlight int64 // when the host is known; 0: not bounded
	steady      int   // successes until maxInFlight grows
}

// isNew reports whether the host is not known.
func (s *slowStart) isNew() bool { return s.successes < knownAfter && !s.servedBurst }

// accepted counts a successful response while open requests are in flight. first is the bound that
// follows the initial phase.
func (s *slowStart) accepted(open, first int64) {
	if s.successes < knownAfter {
		s.successes++
		s.servedBurst = s.servedBurst || s.successes >= burstServedAfter && open == 0
		if s.successes == knownAfter && !s.servedBurst {
			s.maxInFlight = first
		}
		return
	}
	switch {
	case s.maxInFlight == 0:
	case s.steady > 0:
		s.steady--
	default:
		if s.maxInFlight++; 2*open < s.maxInFlight {
			s.maxInFlight = 0
		}
	}
}

// release bounds the requests in flight after a hold.
func (s *slowStart) release(maxInFlight int64) { s.maxInFlight, s.steady = maxInFlight, knownAfter }

// firstBound returns the bound that follows the initial phase of slow start.
func (q *quota) firstBound() int64 {
	return int64(max(q.endpoint.tracker.initialConcurrency(), 0) + maxGrowth)
}

// accepted counts a successful response that says nothing about limits.
func (q *quota) accepted() {
	q.span.n++
	if !q.start.isNew() && q.inference != nil && (q.inference.loop.on() || q.inference.window.on()) {
		return // an estimate holds requests back, so that the bound says nothing
	}
	q.start.accepted(q.inFlight.open, q.firstBound())
	if q.start.successes == knownAfter && q.start.maxInFlight == 0 && q.inference == nil && len(q.estimates) == 0 && q.hold.lastSent == 0 && !q.endpoint.hasQuotas.Load() {
		q.endpoint.unlimited.Store(true)
	}
}

// maxInFlight returns the bound on requests in flight by slow start; 0: there is none.
func (q *quota) maxInFlight() int64 {
	start := q.endpoint.tracker.initialConcurrency()
	switch {
	case start < 0:
		return 0
	case !q.start.isNew() && len(q.estimates) > 0:
		return 0 // the server states its limits
	case !q.start.isNew():
		return q.start.maxInFlight
	case len(q.estimates) > 0:
		return int64(start + q.start.successes)
	}
	growth := maxGrowth
	if q.shared != nil {
		growth /= 1 + len(q.shared.peers.all) // that begin at the same time
	}
	return int64(start + min(q.start.successes/2, growth))
}

// checkSlowStart reports whether one more request may be in flight as of now. If not, wait is the
// time until one may be sent even if no response arrives.
func (q *quota) checkSlowStart(now time.Time) (wait time.Duration, ok bool) {
	if q.inference != nil {
		if wait, ok = q.inference.cut.check(q.inFlight.open, now); !ok {
			return wait, false
		}
	}
	bound := q.maxInFlight()
	if bound == 0 || q.inFlight.open < bound {
		return 0, true
	}
	since := later(q.lastResponse, q.span.since)
	if since.IsZero() {
		return 0, false
	}
	more := now.Sub(since) / growEvery
	return (more+1)*growEvery - now.Sub(since), q.inFlight.open < bound+int64(more)
}
