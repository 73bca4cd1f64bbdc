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

// distrusted reports whether the limit has lost trust, until it states that units are left.
func (t *earlyTest) distrusted() bool { return t.contradicted >= contradictions }

// opensAt returns when the next request may be sent although nothing is left of t: at its
// reset, or before to test it.
func (e *estimate) opensAt(use pacing) time.Time {
	t := &e.early
	if t.end.IsZero() || t.moved >= maxMoved || e.reset.Sub(t.since) <= max(maxStated, e.per) {
		return e.reset
	}
	test := t.since
	if t.contradicted == 0 {
		test = test.Add(tripled(use.maxHold, t.tests))
	}
	if test.Before(e.reset) {
		return test
	}
	return e.reset
}

// update takes in that left units are left of t until reset, by the response to claim n.
func (t *earlyTest) update(e *estimate, reset time.Time, left int64, n uint64, now time.Time) {
	switch {
	case left > 0:
		*t = earlyTest{}
	case t.end.IsZero():
		*t = earlyTest{end: reset, since: now, contradicted: t.contradicted}
	case e.probe && n > e.seen: // a test found nothing left
		if reset.Sub(t.end) > movedBy {
			t.moved++
		}
		t.tests++
		t.since, t.end = now, later(t.end, reset)
	}
}

// accepted notes that claim n was accepted, of which t had stated that nothing is left.
func (t *earlyTest) accepted(e *estimate, n uint64, now time.Time) {
	if t.end.IsZero() || n <= e.seen || !now.Before(e.reset) || e.remaining > 0 || e.refill.kind == refillsEvenly || e.refill.kind == refillsEach || e.concurrency.confirmed {
		return
	}
	t.contradicted++
}
