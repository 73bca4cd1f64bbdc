package quota

import (
	"math"
	"slices"
	"time"
)

// A learnedWindow is a limit of so many requests in a window of time, inferred from
// rejections that do not describe it. It is a hypothesis from the first stop on: as many
// requests as were accepted before the stop, in the time from the first of them to the end
// of the stop.
//
//	sent      ||||||||  ·   ·   |||||||·        |||||||          |||||||
//	           8 ok    stop     8 ok   test           reset
//	          ├──── length ────┤├──── length ────┤
//
// A token bucket, a ban and a window look alike until then. So the next requests are sent as
// the window allows, and one more in the middle of it:
//
//   - rejected before the window is used up: it is a bucket, and what it accepted since the
//     last rejection gives its rate;
//   - the one in the middle is accepted: it is a ban, or a bucket that was refilled, and the
//     rate is at least that of the window;
//   - the one in the middle is rejected: it is a window.
//
// A window that has been confirmed is tested again after many windows, because the server may
// have raised its limit. Windows begin with their first request, or on a grid of the server's
// clock: the end of the first is on that grid, which is tried once.
type learnedWindow struct {
	limit          int64         // requests per window; 0: there is no hypothesis
	confirmedLimit int64         // limit as it was confirmed; limit is lower while other clients use the window
	length         time.Duration // best estimate
	minLength      time.Duration // length is longer than this
	maxLength      time.Duration // and not longer than this

	start    time.Time // when the first request of the present window was sent; zero: none yet
	reset    time.Time // when it ends
	next     time.Time // when the next request may be sent
	used     int64     // requests granted in it
	accepted int64     // of them, accepted
	before   uint64    // number of the latest claim before it

	opening uint64 // number of the claim that tests whether the window has ended; 0: none
	test    uint64 // number of the claim that was sent beyond the limit; 0: none

	windows   int  // since the latest test
	testAfter int  // windows before the next test
	confirmed bool // a test was rejected

	onGrid   bool      // windows end at boundary plus a multiple of length
	gridless bool      // they do not
	boundary time.Time // end of a window

	lowered time.Time // when a rejection lowered limit
	refused int       // tests that were rejected since then

	declared bool // by the program: see Tracker.Declare. It needs no test

	stopped  time.Time     // when the latest stop began: see rateSince
	total    int64         // accepted since then
	stated   time.Duration // that the rejections stated to wait; 0: nothing
	measured float64       // what rateSince was when it was too low; 0: it was not
}

const (
	minLearned      = 8                      // accepted requests that make a window credible
	maxLearned      = 10 * time.Minute       // a longer stop shows no window: an estimate must not hold requests for so long
	minStop         = time.Millisecond       // between a stop and its probe
	openingDelay    = 15 * time.Millisecond  // after an estimated end
	statedTestAfter = 2                      // windows
	testEvery       = 20                     // windows
	minUnconfirmed  = 2                      // requests in flight while a window is not confirmed, one more
	maxUnconfirmed  = 4                      // for four accepted ones, and at most so many
	confirmedPart   = 24                     // of a window that is confirmed
	leastInterval   = 10 * time.Millisecond  // between requests, if that takes no longer than burstPart
	burstPart       = 7                      // of a window, in which its requests are sent
	agreeingRates   = 0.25                   // rates that differ by less agree
	muchLower       = 1.6                    // times: a rate that is lower than another
	tooLow          = 4                      // a rate so many times lower than that of the window is measured again
	maxLateness     = 8                      // a window that is so many times as long as thought is none
	nearlyAll       = 0.9                    // of a limit: rejected later than that, the limit is lower
	minTestWait     = 100 * time.Millisecond // after the start of a window
)

// A verdict is what a response says of a learned window.
type verdict uint8

const (
	consistent   verdict = iota
	bucketLike           // rejected too early: it has a rate
	faster               // accepted beyond the limit: it is no window
	inconsistent         // neither
)

func (w *learnedWindow) on() bool { return w.limit > 0 }

// newLearnedWindow returns the hypothesis after a stop that began at stopped and ended with the
// acceptance of a probe that was sent at probed. refused is when the last probe was sent that
// was rejected; zero: none was. There is none where few requests were accepted, or over a
// longer time than the stop took.
func newLearnedWindow(first acceptedSpan, stopped, refused, probed time.Time, n uint64) (w learnedWindow) {
	sending, waiting := stopped.Sub(first.since), probed.Sub(stopped)
	if first.n < minLearned || sending > waiting || waiting < minStop || sending+waiting > maxLearned {
		return w
	}
	w = learnedWindow{limit: first.n, confirmedLimit: first.n, maxLength: probed.Sub(first.since), stopped: stopped, boundary: probed}
	if w.minLength = sending; refused.After(stopped) {
		w.minLength = refused.Sub(first.since)
	}
	w.length = usualLengthWithin(w.minLength, w.maxLength)
	w.begin(probed, n)
	w.used = 1
	w.count()
	return w
}

// state notes that the rejections stated to wait for d. If requests were accepted then, that
// may well be the end of the window, and the test can wait.
func (w *learnedWindow) state(d time.Duration, ended bool) {
	w.stated = d
	if ended {
		w.testAfter = statedTestAfter
	}
}

// usualLengthWithin returns the longest usual length of windows that is longer than least and, with
// a tolerance for jitter and round trips, not longer than most; most if there is none.
func usualLengthWithin(least, most time.Duration) time.Duration {
	for _, u := range usualLengths {
		if u > least && u <= most+openingDelay {
			return u
		}
	}
	return most
}

// begin begins a window with claim n, which is sent now.
func (w *learnedWindow) begin(now time.Time, n uint64) {
	w.start, w.before, w.used, w.accepted, w.test = now, n-1, 0, 0, 0
	w.windows++
	w.next = now.Add(w.interval())
	w.reset = now.Add(w.length)
	if grid := w.nextOnGrid(now); !w.gridless && grid.Before(w.reset.Add(-w.length/8)) && grid.Sub(now) > w.length/8 {
		w.reset = grid
	}
}

// interval returns the time between two requests: they are sent in the first part of a window,
// but not all at one time, unless the program has declared it.
func (w *learnedWindow) interval() time.Duration {
	if w.declared {
		return 0
	}
	each := w.length / time.Duration(w.limit)
	if w.confirmed {
		if each/burstPart >= leastInterval {
			return max(each/confirmedPart, leastInterval)
		}
		return each / confirmedPart
	}
	return each / burstPart
}

// nextOnGrid returns the next end of a window after now, if they are on a grid.
func (w *learnedWindow) nextOnGrid(now time.Time) time.Time {
	passed := now.Sub(w.boundary) % w.length
	if passed < 0 {
		passed += w.length
	}
	return now.Add(w.length - passed)
}

// check reports whether the next claim of f may be sent as of now. If not, wait says when to
// ask again; 0: when a response has come. A claim that has ended without a verdict, as with a
// failure, is not waited for.
func (w *learnedWindow) check(now time.Time, f *inFlight) (wait time.Duration, ok bool) {
	open := f.open
	switch {
	case !w.on():
		return 0, true
	case w.declared && (w.start.IsZero() || !now.Before(w.reset)):
		return 0, true
	case w.opening != 0 && f.after(w.opening-1) > 0, w.test != 0 && open > 0:
		return 0, false
	case !now.Before(w.reset.Add(openingDelay)):
		return 0, true
	case w.used < w.limit:
		wait = w.next.Sub(now)
		return max(wait, 0), wait <= 0 && (w.confirmed || open < w.mostInFlight())
	case w.testDue() && open > 0 && w.testAt().Before(w.reset):
		return 0, false
	case w.testDue() && w.testAt().Before(w.reset):
		wait = w.testAt().Sub(now)
		return max(wait, 0), wait <= 0
	}
	if w.declared {
		return w.reset.Sub(now), false
	}
	return w.reset.Add(openingDelay).Sub(now), false
}

// testAt returns when a request is sent beyond the limit: in the middle of the window, or soon
// after a rejection that came early.
func (w *learnedWindow) testAt() time.Time {
	middle := w.start.Add(max(w.reset.Sub(w.start)/2, minTestWait))
	if soon := w.lowered.Add(basePause << min(w.refused, 12)); w.limit < w.confirmedLimit && (w.refused > 0 || soon.Before(middle)) {
		return soon
	}
	return middle
}

// mostInFlight is how many requests may be in flight while w is not confirmed: twice as many
// with each window that was not used up, so that they do not hide that there is no limit.
func (w *learnedWindow) mostInFlight() int64 {
	return min(minUnconfirmed+w.accepted/4, maxUnconfirmed) << min(max(w.windows-1, 0), 20)
}

// testDue reports whether a request is to be sent beyond the limit of the present window.
func (w *learnedWindow) testDue() bool {
	return w.test == 0 && w.used == w.limit && w.measured == 0 && (w.windows > w.testAfter || w.limit < w.confirmedLimit)
}

// granted notes that claim n is sent now.
func (w *learnedWindow) granted(n uint64, now time.Time) {
	switch {
	case !w.on():
		return
	case w.declared && (w.start.IsZero() || !now.Before(w.reset)):
		w.begin(now, n)
	case !now.Before(w.reset.Add(openingDelay)):
		w.opening = n
		return
	case w.used >= w.limit:
		w.test = n
	}
	w.used++
	w.next = now.Add(w.interval())
}

// canceled notes that claim n was not sent.
func (w *learnedWindow) canceled(n uint64) {
	switch n {
	case w.opening:
		w.opening = 0
	case w.test:
		w.test, w.used = 0, w.used-1
	default:
		if n > w.before && w.used > 0 {
			w.used--
		}
	}
}

// succeeded takes in that claim n was accepted. sent is when the latest claim was sent.
func (w *learnedWindow) succeeded(n uint64, sent time.Time) verdict {
	switch {
	case !w.on():
	case n == w.opening:
		w.opened(n, sent)
	case n == w.test:
		w.count()
		if w.limit < w.confirmedLimit {
			w.limit, w.test, w.refused = min(w.limit+max(w.confirmedLimit/8, 1), w.confirmedLimit), 0, 0
			return consistent
		}
		return faster
	case n > w.before:
		w.count()
	}
	return consistent
}

// count counts an accepted request of the present window.
func (w *learnedWindow) count() {
	w.accepted++
	w.total++
}

// opened notes that the window has ended: claim n, sent at sent, was the first of a new one.
func (w *learnedWindow) opened(n uint64, sent time.Time) {
	grid := w.reset.Before(w.start.Add(w.length))
	if took := sent.Sub(w.start); !grid && took < w.maxLength {
		w.maxLength = max(took, w.length)
	}
	w.onGrid = w.onGrid || grid && sent.Before(w.start.Add(w.length))
	if !w.reset.Before(sent.Add(-time.Second)) {
		w.boundary = w.reset
	}
	if w.closed() {
		w.measured = 0 // it was used up without a rejection, so it is to be tested as any other
	}
	w.opening = 0
	w.begin(sent, n)
	w.used = 1
	w.count()
}

// rejected takes in that claim n was rejected; the latest claim is sent.
func (w *learnedWindow) rejected(n, sent uint64, now time.Time) verdict {
	switch {
	case !w.on():
	case n == w.opening:
		return w.stillClosed(now)
	case n == w.test && w.declared:
		w.refused++
		w.test, w.used, w.lowered = 0, w.limit, now
	case n == w.test:
		w.confirmed, w.windows, w.testAfter, w.confirmedLimit = true, 0, testEvery, max(w.limit, 1)
	case n <= w.before:
	case w.used > w.limit || w.closed():
	case float64(w.accepted) >= nearlyAll*float64(w.limit), w.confirmed && w.accepted > 0, w.declared:
		w.limit = max(w.accepted, 1)
		w.used, w.lowered, w.refused = w.limit, now, 0
		if !w.confirmed {
			w.confirmedLimit = w.limit
		}
	case w.rateSince(now)*tooLow < w.rate() && w.measured == 0 && w.testAfter == 0:
		w.measured, w.stopped, w.before, w.accepted, w.total = w.rateSince(now), now, sent, 0, 0
		w.used, w.reset = w.limit, now.Add(min(w.maxLength/2, maxPause))
	default:
		return bucketLike
	}
	return consistent
}

// closed reports whether the present window was found to be used up early.
func (w *learnedWindow) closed() bool { return w.used >= w.limit && w.accepted >= w.limit }

// released notes that a hold which the server stated has ended with a probe that was sent at
// sent: a window begins.
func (w *learnedWindow) released(n uint64, sent time.Time) {
	if w.declared && sent.Before(w.reset) {
		w.count() // of the same window
		return
	}
	w.opening = 0
	w.begin(sent, n)
	w.used = 1
	w.count()
}

// stillClosed notes that the request which tested the end of the window was rejected.
func (w *learnedWindow) stillClosed(now time.Time) verdict {
	w.opening = 0
	passed := now.Sub(w.start)
	switch end := w.start.Add(w.length); {
	case w.reset.Before(end): // it was not on the grid
		w.onGrid, w.gridless = false, !w.onGrid
		w.reset = end
	case passed >= 2*w.maxLength: // after an idle time
		w.reset = now.Add(w.length)
	case passed < w.maxLength:
		w.minLength = max(w.minLength, passed)
		w.length = usualLengthWithin(w.minLength, w.maxLength)
		w.reset = w.start.Add(max(w.length, passed+openingDelay))
	case passed > maxLateness*w.maxLength, passed > maxLearned:
		return inconsistent
	default: // it is longer than was seen
		w.minLength, w.maxLength = passed, maxLateness*passed
		w.length = nextUsualLength(passed)
		w.maxLength = w.length
		w.reset = w.start.Add(w.length)
	}
	return consistent
}

// rateSince returns what was accepted since the latest stop began, over that time, in
// requests a second.
func (w *learnedWindow) rateSince(now time.Time) float64 {
	return (float64(w.total) + 0.5) / max(now.Sub(w.stopped).Seconds(), 1e-3)
}

// bucketRate returns the rate of the bucket that w turned out to be. It is sure if two
// measurements agree. Otherwise the rate is at least that: a sliding counter restores less
// than its rate after a burst.
func (w *learnedWindow) bucketRate(now time.Time) (rate float64, sure bool) {
	rate, before := w.rateSince(now), w.rate()
	if w.measured > 0 {
		before = w.measured
	}
	if w.testAfter > 0 && tooLow*rate >= before && muchLower*rate < before { // units came back, but fewer
		return rate, true
	}
	sure = math.Abs(rate-before) < agreeingRates*max(rate, before) || w.testAfter > 0
	return max(rate, before), sure
}

// nextUsualLength returns the shortest usual length of windows that is longer than d.
func nextUsualLength(d time.Duration) time.Duration {
	for _, u := range slices.Backward(usualLengths) {
		if u > d {
			return u
		}
	}
	return 2 * d
}

// rate returns requests per second at which the window is used up.
func (w *learnedWindow) rate() float64 {
	return float64(w.confirmedLimit) / max(w.maxLength.Seconds(), 1e-3)
}
