package learnedlimit

import (
	"math"
	"time"

	"github.com/heed-go/heed/quota/internal/inflight"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// A Window is a limit of a number of requests per window of time that is inferred from
// rejections which do not describe it, or that the program declared. After the first stop it is a
// hypothesis: the limit is the number of requests that were accepted before the stop, and the length
// is the time from the first of them to the end of the stop.
//
//	sent      ||||||||   x   x    |||||||    x     |||||||          |||||||
//	          8 accepted, stop,   8 accepted, test, reset
//	          ├───── length ─────┤├───── length ────┤
//
// A token bucket, a stop for another reason and a window look the same until then. So the next requests are sent as the
// window allows, and one more, the test, in the middle of it:
//
//   - A request is rejected before the window is used up: the limit is a bucket. What it accepted
//     since the stop gives its rate.
//   - The test is accepted: it was a stop for another reason, or a bucket that is full again. The rate is at
//     least that of the window.
//   - The test is rejected: the limit is a window, and is confirmed.
//
// A confirmed window is tested again after testEvery windows, because the server may have raised its
// limit. The first request after the estimated end of a window is sent alone: it is the probe. A
// window begins with its first request, or windows end on a grid of the server's clock. The end of
// the first window would be on that grid, which is assumed until a probe is rejected.
//
// The zero Window is no hypothesis. It is not safe for concurrent use.
type Window struct {
	Limit          int64         // requests per window; 0: there is no hypothesis
	ConfirmedLimit int64         // limit that was inferred or confirmed; limit is lower while other clients use the window
	Length         time.Duration // best estimate
	minLength      time.Duration // length is longer than this
	maxLength      time.Duration // length is at most this

	Start      time.Time // when the first request of the present window was sent; zero: no window has begun
	Reset      time.Time // estimated end of the present window
	next       time.Time // when the next request may be sent
	Used       int64     // requests of the present window that were granted
	Accepted   int64     // requests of these that were accepted
	lastBefore uint64    // number of the latest claim before the present window

	probe uint64 // number of the claim that tests whether the window has ended; 0: none
	test  uint64 // number of the claim that was sent beyond the limit; 0: none

	windows   int  // windows since the latest test
	testAfter int  // windows before the next test
	confirmed bool // a test was rejected, or the window is declared

	gridless bool      // windows do not end at boundary plus a multiple of length
	boundary time.Time // end of a window

	loweredAt     time.Time // when a rejection lowered limit; zero: never
	rejectedTests int       // tests that were rejected since then

	Declared bool // the program declared the limit: it is not tested

	stoppedAt         time.Time     // when the latest stop began, see rateSinceStop
	acceptedSinceStop int64         // requests that were accepted since then
	stated            time.Duration // longest wait that the rejections stated; 0: none
}

const (
	minLearnedLimit  = 8                // accepted requests that make a window credible
	maxLearnedLength = 10 * time.Minute // a longer stop shows no window: an estimate must not hold requests for so long
	minStop          = time.Millisecond // minimum time between a stop and its probe
	testEvery        = 20               // windows before the next test of a confirmed window

	statedTestAfter = 2 // windows before the first test, if the rejections stated when to come back

	maxUnconfirmed     = 4                     // requests in flight while a window is not confirmed
	unconfirmedDivisor = 7                     // the requests are sent in this part of a window that is not confirmed
	confirmedDivisor   = 24                    // and in this part of one that is
	minInterval        = 10 * time.Millisecond // between requests of a confirmed window, if unconfirmedDivisor allows it

	firstTestAfter = time.Second // from a rejection that lowered the limit to its first test

	longStop = 3 * time.Second // a rejection that stops all requests for longer costs more than a lower rate

	agreeingRates = 0.25 // difference of two rates that agree, relative to the higher one
)

// A Verdict is what a response shows about a learned window.
type Verdict uint8

const (
	FitsWindow   Verdict = iota // nothing contradicts the window
	FitsBucket                  // it was rejected before the window was used up: a bucket, which has a rate
	BeyondWindow                // it was accepted beyond the limit: there is no window, but at least its rate
	FitsNothing                 // it was rejected after the longest possible end: neither a window nor a bucket
)

// On reports whether there is a hypothesis.
func (w *Window) On() bool { return w.Limit > 0 }

// NewWindow returns the hypothesis after a stop that ended when claim n, which was sent at probed,
// was accepted. first counts what was accepted before, until the stop began. rejected is when the last
// probe that was rejected was sent; zero: none was. There is no hypothesis if few requests were accepted,
// or over a longer time than the stop took.
func NewWindow(first AcceptedSpan, rejected, probed time.Time, n uint64) (w Window) {
	stopped := first.Until
	sending, waiting := stopped.Sub(first.Since), probed.Sub(stopped)
	if first.N < minLearnedLimit || sending < 0 || sending > waiting || waiting < minStop || sending+waiting > maxLearnedLength {
		return w
	}
	w = Window{Limit: first.N, ConfirmedLimit: first.N, maxLength: probed.Sub(first.Since), stoppedAt: stopped, boundary: probed}
	if w.minLength = sending; rejected.After(stopped) {
		w.minLength = rejected.Sub(first.Since)
	}
	w.Length = usualLengthWithin(w.minLength, w.maxLength)
	w.beginAccepted(probed, n)
	return w
}

// NewDeclaredWindow returns the limit that the program declared.
func NewDeclaredWindow(limit int64, length time.Duration) Window {
	return Window{
		Limit: limit, ConfirmedLimit: limit, Length: length, maxLength: length,
		Declared: true, confirmed: true, gridless: true, testAfter: math.MaxInt,
	}
}

// DescribeStop records what is known of the stop after which w, which is new, began: the longest wait
// that the rejections stated, 0: none; and whether the first test was accepted.
func (w *Window) DescribeStop(stated time.Duration, firstProbe bool) {
	w.stated = stated
	if stated > 0 && firstProbe { // the server has stated the end of its window
		w.testAfter = statedTestAfter
	}
}

// nextMultiple returns the first time after now that is a multiple of length away from start. length
// is positive.
func nextMultiple(now, start time.Time, length time.Duration) time.Time {
	passed := now.Sub(start) % length
	if passed < 0 {
		passed += length
	}
	return now.Add(length - passed)
}

// usualLengthWithin returns the longest usual length of windows that is longer than minimum and, with
// a tolerance for jitter and round trips, at most maximum. It is maximum if there is none.
func usualLengthWithin(minimum, maximum time.Duration) time.Duration {
	for _, u := range statedlimit.UsualLengths {
		if u > minimum && u <= maximum+statedlimit.OpeningDelay {
			return u
		}
	}
	return maximum
}

// Probing reports whether the response to a probe or a test is awaited.
func (w *Window) Probing() bool { return w.probe != 0 || w.test != 0 }

// begin begins a window with claim n, which is sent now.
func (w *Window) begin(now time.Time, n uint64) {
	w.Start, w.lastBefore, w.Used, w.Accepted, w.test = now, n-1, 0, 0, 0
	w.windows++
	w.next = now.Add(w.interval())
	w.Reset = now.Add(w.Length)
	if grid := nextMultiple(now, w.boundary, w.Length); !w.gridless && grid.Before(w.Reset.Add(-w.Length/8)) && grid.Sub(now) > w.Length/8 {
		w.Reset = grid
	}
}

// beginAccepted begins a window with claim n, which was sent at sent and has been accepted.
func (w *Window) beginAccepted(sent time.Time, n uint64) {
	w.begin(sent, n)
	w.probe, w.Used = 0, 1
	w.countAccepted()
}

// countAccepted counts an accepted request of the present window.
func (w *Window) countAccepted() {
	w.Accepted++
	w.acceptedSinceStop++
}

// interval returns the time between two requests: they are sent in the first part of a window, but
// not all at one time, unless the program has declared it.
func (w *Window) interval() time.Duration {
	if w.Declared {
		return 0
	}
	even := w.Length / time.Duration(w.Limit)
	if !w.confirmed {
		return even / unconfirmedDivisor
	}
	if even/unconfirmedDivisor >= minInterval {
		return max(even/confirmedDivisor, minInterval)
	}
	return even / confirmedDivisor
}

// end returns when the first request after the present window may be sent.
func (w *Window) end() time.Time {
	if w.Declared {
		return w.Reset
	}
	return w.Reset.Add(statedlimit.OpeningDelay)
}

// Check reports whether the next claim of f may be sent as of now. If not, wait is the time until it
// may; 0: when a response arrives. A probe that has ended and was neither accepted nor rejected, such
// as one that failed, is sent again.
func (w *Window) Check(now time.Time, f *inflight.Claims) (wait time.Duration, ok bool) {
	switch {
	case !w.On(), w.Declared && (w.Start.IsZero() || !now.Before(w.Reset)):
		return 0, true
	case w.probe != 0 && f.After(w.probe-1) > 0, w.test != 0 && f.Open > 0:
		return 0, false
	case !now.Before(w.end()):
		return 0, true
	case w.Used < w.Limit:
		wait = w.next.Sub(now)
		return max(wait, 0), wait <= 0 && (w.confirmed || f.Open < maxUnconfirmed)
	case !w.testDue() || !w.testAt().Before(w.Reset):
		return w.end().Sub(now), false
	case f.Open > 0:
		return 0, false
	}
	wait = w.testAt().Sub(now)
	return max(wait, 0), wait <= 0
}

// testDue reports whether a request is to be sent beyond the limit of the present window.
func (w *Window) testDue() bool {
	return w.test == 0 && w.Used == w.Limit && (w.windows > w.testAfter || w.Limit < w.ConfirmedLimit)
}

// testAt returns when the test is sent: in the middle of the window or, if a rejection has lowered the
// limit, soon after that.
func (w *Window) testAt() time.Time {
	middle := w.Start.Add(w.Reset.Sub(w.Start) / 2)
	if soon := w.loweredAt.Add(firstTestAfter << min(w.rejectedTests, 12)); w.Limit < w.ConfirmedLimit && (w.rejectedTests > 0 || soon.Before(middle)) {
		return soon
	}
	return middle
}

// Granted records that claim n is sent now.
func (w *Window) Granted(n uint64, now time.Time) {
	switch {
	case !w.On():
		return
	case w.Declared && (w.Start.IsZero() || !now.Before(w.Reset)):
		w.begin(now, n)
	case !now.Before(w.end()):
		w.probe = n
		return
	case w.Used >= w.Limit:
		w.test = n
	}
	w.Used++
	w.next = now.Add(w.interval())
}

// Canceled records that claim n was not sent.
func (w *Window) Canceled(n uint64) {
	switch n {
	case w.probe:
		w.probe = 0
	case w.test:
		w.test, w.Used = 0, w.Used-1
	default:
		if n > w.lastBefore && w.Used > 0 {
			w.Used--
		}
	}
}

// Succeeded applies that claim n was accepted. sent is when the latest claim was sent.
func (w *Window) Succeeded(n uint64, sent time.Time) Verdict {
	switch {
	case !w.On():
	case n == w.probe:
		w.probeAccepted(n, sent)
	case n == w.test:
		w.countAccepted()
		if w.Limit >= w.ConfirmedLimit {
			return BeyondWindow
		}
		w.Limit, w.test, w.rejectedTests = w.ConfirmedLimit, 0, 0
	case n > w.lastBefore:
		w.countAccepted()
	}
	return FitsWindow
}

// probeAccepted applies that the window has ended: claim n, sent at sent, was the first of a new one.
func (w *Window) probeAccepted(n uint64, sent time.Time) {
	if !w.Reset.Before(sent.Add(-time.Second)) {
		w.boundary = w.Reset
	}
	w.beginAccepted(sent, n)
}

// Released applies that a hold that the server stated has ended with claim n, which was sent at sent
// and accepted: a window begins.
func (w *Window) Released(n uint64, sent time.Time) {
	if w.Declared && sent.Before(w.Reset) {
		w.countAccepted() // of the present window
		return
	}
	w.beginAccepted(sent, n)
}

// Rejected applies that claim n was rejected.
func (w *Window) Rejected(n uint64, now time.Time) Verdict {
	switch {
	case !w.On():
	case n == w.probe:
		return w.probeRejected(now)
	case n == w.test && w.Declared:
		w.rejectedTests++
		w.test, w.Used, w.loweredAt = 0, w.Limit, now
	case n == w.test:
		w.confirmed, w.windows, w.testAfter, w.ConfirmedLimit = true, 0, testEvery, w.Limit
	case n <= w.lastBefore, w.Used > w.Limit, w.Used == w.Limit && w.Accepted >= w.Limit:
	case w.confirmed && w.Accepted > 0, w.Declared:
		w.Limit = max(w.Accepted, 1)
		w.Used, w.loweredAt, w.rejectedTests = w.Limit, now, 0
	default:
		return FitsBucket
	}
	return FitsWindow
}

// probeRejected applies that the probe was rejected: the window is longer than length.
func (w *Window) probeRejected(now time.Time) Verdict {
	w.probe = 0
	passed := now.Sub(w.Start)
	switch end := w.Start.Add(w.Length); {
	case w.Reset.Before(end): // the end was not on the grid
		w.gridless, w.Reset = true, end
	case passed >= 2*w.maxLength: // after an idle time
		w.Reset = now.Add(w.Length)
	case passed < w.maxLength:
		w.minLength = max(w.minLength, passed)
		w.Length = usualLengthWithin(w.minLength, w.maxLength)
		w.Reset = w.Start.Add(max(w.Length, passed+statedlimit.OpeningDelay))
	default:
		return FitsNothing
	}
	return FitsWindow
}

// rate returns the rate at which the window is used up, in requests per second.
func (w *Window) rate() float64 {
	return float64(w.ConfirmedLimit) / max(w.maxLength.Seconds(), 1e-3)
}

// rateSinceStop returns the rate of accepted requests since the latest stop began, in requests per
// second.
func (w *Window) rateSinceStop(now time.Time) float64 {
	return (float64(w.acceptedSinceStop) + 0.5) / max(now.Sub(w.stoppedAt).Seconds(), 1e-3)
}

// bucketRate returns the rate of the bucket that w turned out to be, in requests per second. sure
// reports whether the rate of the window agrees. Otherwise the rate is a lower bound, because a sliding
// counter restores less than its rate after a burst.
func (w *Window) bucketRate(now time.Time) (rate float64, sure bool) {
	rate, before := w.rateSinceStop(now), w.rate()
	return max(rate, before), math.Abs(rate-before) < agreeingRates*max(rate, before)
}

// RateLoop returns the loop that follows w, which is no window, as v shows. It begins now with the rate
// that the responses have shown. lastSent is the number of the latest claim.
func (w *Window) RateLoop(v Verdict, lastSent uint64, now time.Time) (l RateLoop) {
	if v == FitsBucket {
		rate, sure := w.bucketRate(now)
		l.BeginAt(throttle.CauseUnstated, rate, lastSent, now)
		if l.confirmed = sure; !sure {
			l.Goal, l.growth = math.Inf(1), .2
		}
		return l
	}
	l.BeginAt(throttle.CauseUnstated, w.rate(), lastSent, now)
	l.Goal, l.growth = math.Inf(1), .2
	if w.stated > 0 && w.stated <= shortHold {
		l.Rate = belowWindow * float64(w.ConfirmedLimit) / w.stated.Seconds()
		l.Goal = l.Rate
	}
	if w.maxLength > longStop { // each rejection would cost a stop as long
		l.growth, l.plateau = .5, max(l.plateau, plateauOf(w.maxLength))
	}
	return l
}
