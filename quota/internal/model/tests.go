package model

import (
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// Tests decide when one request is sent although the server rejects requests, or has stated that nothing is left:
//
//	wait begins   round trip   1 s   1.5 s    2.3 s      3.4 s
//	├──────────────────┼────────┼──────┼────────┼────────────┼─────▶
//	                 test     test    test     test         test
//
// An accepted test ends the wait and halves the pause. A rejected one makes it longer by half, because a server may
// extend its ban with each request; after a 5xx it is at most maxServerPause. One that fails shows nothing, so the
// pause stays. Where the server states the ends of waits, the pause is kept from one such wait to the next, so that
// statements that are right are hardly ever tested.
type tests struct {
	on     bool             // requests wait
	since  time.Time        // when the wait began
	claim  uint64           // the test in flight; 0: none
	next   time.Time        // the next test is not sent before
	kind   waitKind         // of the wait
	pauses [2]time.Duration // after the latest rejected test, for each kind of wait
	end    time.Time        // that the server states of the wait that was tested last

	rejections int  // tests of this wait that were rejected
	chances    int8 // last chances that were returned, less those that were taken
}

// A waitKind says whether the server has stated the end of a wait.
type waitKind uint8

const (
	openEnd waitKind = iota
	statedEnd
)

const (
	firstPause     = time.Second
	maxServerPause = 1600 * time.Millisecond // 2 s with the random part
	testJitter     = 0.25                    // random part that is added to a pause

	holdChances  = 64 // last chances that are given during holds before one was accepted
	quotaChances = 1  // the same of a stated limit: what the server counts is seldom wrong
	maxChances   = 64 // that were returned and not taken
)

// takeChance reports whether a call that would fail, because it cannot wait any longer for something that is not proven,
// is sent instead, as its last chance. The first so many are free. Each takes one, and each one that is accepted returns two,
// as does each accepted test. So where half of them are accepted, there are always more, and where the wait is right, hardly
// any.
func (t *tests) takeChance(first int8) bool {
	if t.chances+first <= 0 {
		return false
	}
	t.chances--
	return true
}

// returnChances returns n chances.
func (t *tests) returnChances(n int8) { t.chances = min(t.chances+n, maxChances) }

// chanceEnded applies that a last chance was accepted or rejected, or that it was neither, which shows nothing.
func (t *tests) chanceEnded(accepted, rejected bool) {
	switch {
	case accepted:
		t.accepted()
	case !rejected:
		t.returnChances(1)
	}
}

// begin begins a wait. stated reports whether the server has stated its end.
func (t *tests) begin(stated bool, trip time.Duration, now time.Time) {
	if t.on {
		return
	}
	if t.kind = statedEnd; !stated {
		t.kind, t.pauses[openEnd] = openEnd, 0
	}
	t.on, t.rejections, t.since, t.next = true, 0, now, now.Add(max(trip, *t.pause()))
}

// rejected applies that the test was rejected. server reports whether by a 5xx.
func (t *tests) rejected(server bool, random float64, now time.Time) {
	pause := t.pause()
	t.claim, *pause, t.rejections = 0, t.longer(), t.rejections+1
	if server {
		*pause = min(*pause, maxServerPause)
	}
	t.schedule(random, now)
}

// longer returns the pause that follows the present one while waits prove right.
func (t *tests) longer() time.Duration { return max(*t.pause()*3/2, firstPause) }

// pause returns the pause of the present wait.
func (t *tests) pause() *time.Duration { return &t.pauses[t.kind] }

// failed applies that the test has failed, which shows nothing.
func (t *tests) failed(random float64, now time.Time) {
	t.claim, *t.pause() = 0, max(*t.pause(), firstPause)
	t.schedule(random, now)
}

// schedule sets when the next test is sent.
func (t *tests) schedule(random float64, now time.Time) {
	t.next = now.Add(*t.pause() + time.Duration(testJitter*random*float64(*t.pause())))
}

// accepted applies that the test was accepted, or that the wait is over.
func (t *tests) accepted() {
	*t = tests{next: t.next, claim: t.claim, kind: t.kind, pauses: t.pauses, chances: t.chances}
	*t.pause() /= 2
	t.returnChances(2)
}

// onTime applies that the test was accepted because the wait was over, as the server had stated.
func (t *tests) onTime(random float64, now time.Time) {
	pause := t.longer()
	t.accepted()
	*t.pause() = pause
	t.schedule(random, now)
}

// Testing reports whether the latest claim is a test that is in flight.
func (q *Quota) Testing() bool { return q.tests.claim != 0 && q.tests.claim == q.InFlight.Sent }

// NextTest returns the time before which no test is sent.
func (q *Quota) NextTest() time.Time { return q.tests.next }

// RejectedTests returns how many tests of this wait were rejected, and the pause after the last of
// them. Those of other processes do not count.
func (q *Quota) RejectedTests() (n int, pause time.Duration) {
	return q.tests.rejections, *q.tests.pause()
}

// testDueIn returns the time from now until a test may be sent. ok is false while one is in flight.
func (q *Quota) testDueIn(now time.Time) (wait time.Duration, ok bool) {
	if q.tests.claim != 0 && q.InFlight.Contains(q.tests.claim) {
		return 0, false
	}
	return max(q.tests.next.Sub(now), q.Account.Host.testIn(now), 0), true
}

// beginWait begins a wait for what denied d.
func (q *Quota) beginWait(d *decision, now time.Time) {
	first := q.trip.Typical()
	if d.doubt != nil { // the first test decides
		first = 0
	}
	q.tests.begin(d.end > 0, first, now)
}

// beginHold begins the wait for a hold. The first test of one that is not trusted decides whether it is right. Those of trusted ones go
// on from one hold to the next: otherwise holds that are shorter than the pause would never be tested.
func (q *Quota) beginHold(now time.Time) {
	trip, stated := q.trip.Typical(), !q.Hold.Estimated()
	first := now.Add(trip)
	if stated && q.Hold.Trusted() {
		first = ticks.Later(first, q.tests.next)
	}
	q.tests.on = false
	q.tests.begin(stated, trip, now)
	q.tests.next = first
}

// testInstead grants a claim that would have to wait for the server as a test, if one is due. Otherwise the wait of
// d is at most the time until the next test, and 0 while one is in flight.
func (q *Quota) testInstead(d *decision, c Claim, now time.Time) {
	stated := d.end > 0
	if stated && q.Account.NeverTest || d.inFlight {
		return
	}
	if !c.DryRun {
		q.beginWait(d, now)
	}
	wait, ok := q.testDueIn(now)
	switch {
	case !ok:
		d.Wait = 0
	case wait > 0 || !q.tests.on:
		if d.Wait == 0 || wait < d.Wait {
			d.Wait, d.Test = max(wait, time.Millisecond), true
		}
	default:
		d.grant(0)
		if !c.DryRun {
			d.Grant = q.grant(c.Units, now)
			q.tests.claim, q.tests.end = number(d.Grant), now.Add(d.end)
			q.Account.Host.tested(now)
		}
	}
}
