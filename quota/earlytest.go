package quota

import "time"

// An earlyTest decides when to doubt a limit that states that nothing is left. Where its
// reset is more than an hour away, and not within the window that the server states, one
// request tests it after Tracker.MaxHold, and then after three, nine ... times as long, as
// for a Retry-After, see gate. A limit that is contradicted loses trust: three requests
// that were sent after it had stated that nothing is left, and were accepted before its
// reset.
type earlyTest struct {
	end          time.Time // the latest reset that was stated with nothing left; zero: units are left
	since        time.Time // when the next test was planned
	tests        int       // that found nothing left
	moved        int       // of them, those that moved the end
	contradicted int       // requests that were accepted
}

const contradictions = 3 // accepted requests, and a limit is not believed

// void reports whether the limit has lost trust, until it states that units are left.
func (e *earlyTest) void() bool { return e.contradicted >= contradictions }

// opens returns when the next request may be sent although nothing is left of t: at its
// reset, or before to test it.
func (t *told) opens(use use) time.Time {
	e := &t.early
	if e.end.IsZero() || e.moved >= movedTwice || t.reset.Sub(e.since) <= max(maxStated, t.per) {
		return t.reset
	}
	test := e.since
	if e.contradicted == 0 {
		test = test.Add(grown(use.maxHold, e.tests))
	}
	if test.Before(t.reset) {
		return test
	}
	return t.reset
}

// update takes in that left units are left of t until reset, by the response to claim n.
func (e *earlyTest) update(t *told, reset time.Time, left int64, n uint64, now time.Time) {
	switch {
	case left > 0:
		*e = earlyTest{}
	case e.end.IsZero():
		*e = earlyTest{end: reset, since: now, contradicted: e.contradicted}
	case t.probe && n > t.seen: // a test found nothing left
		if reset.Sub(e.end) > movedBy {
			e.moved++
		}
		e.tests++
		e.since, e.end = now, later(e.end, reset)
	}
}

// accepted notes that claim n was accepted, of which t had stated that nothing is left.
func (e *earlyTest) accepted(t *told, n uint64, now time.Time) {
	if e.end.IsZero() || n <= t.seen || !now.Before(t.reset) || t.remaining > 0 || t.refill.kind == flows || t.refill.kind == drips || t.slots.are {
		return
	}
	e.contradicted++
}
