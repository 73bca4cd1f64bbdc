package statedlimit

import (
	"cmp"
	"math"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/quota/internal/inflight"
	"github.com/heed-go/heed/throttle"
)

// An Estimate models one server limit: how many units remain, and how and when units come back.
//
// Its state is what a response stated, the one that was applied last. It was received at the time at:
//
//	limit, remaining   in the units of the server
//	reset              when units come back: all of them, or, of a bucket, the last one
//	refill             how units come back
//	lastSent           claims up to this number had been sent at the time at
//
// Prediction of what is left at time t, and admission of one unit:
//
//	left(t) = remaining + returned(at, t)           at most limit
//	free(t) = left(t) - in flight - reserved        at least 1: admit
//
//	returned(at, t) = 0                             units come back together, at reset, or one by one before it, as in a
//	                                                sliding log: the next responses state how many
//	                  rate (t - at)                 evenly, as in a token bucket
//	                  rate (reset - at) +           evenly, in the window of length w after the one in which they
//	                  used at reset (t - reset)/w   were used, as in a sliding counter
//
// The server may have counted some requests in flight already. They are subtracted twice then, which
// delays requests until responses arrive, but never exceeds the limit:
//
//	remaining: 7
//	├── in flight: 3 ──┼───── free: 4 ─────┤
//
// If responses take longer than units to come back, the owner leaves out the requests in flight whose units have come
// back, and passes what accepted requests state to Outdated.
//
// Update by the response to claim n, received at t, which states r units until R. Responses arrive
// out of order. The first row that applies counts. R is later or earlier if it differs from reset by
// more than the tolerance; it is not compared if units come back evenly, because it moves then:
//
//	n <= lastSent, R earlier                  a window that is over    ignored
//	n <= lastSent, R later, r > left(t)       a bucket, fuller then    ignored
//	t >= reset, or R later                    a new window             remaining = r, reset = R
//	n > lastSent                              a newer state            remaining = r, reset = R
//	n <= lastSent, r >= left(t)               an older state           reset is refined
//	n <= lastSent, r < left(t)                maybe an older state     remaining = r, reset = R
//
// The first request after reset is the probe: its response states what is left in the new window. Until
// then the estimate admits all requests, and its owner bounds them. If more units are used than this process
// sends requests, because of their cost or of other clients, what is left suffices for fewer, see use.
// A limit of requests in flight has other equations, see updateConcurrency. What accepted
// requests contradict admits all, see proof. An Estimate is not safe for concurrent use.
type Estimate struct {
	Name         string // RemoteLimit.Name
	Limit        int64
	Remaining    int64         // as of at
	highest      int64         // units left that the server has stated at most
	share        share         // of this process, if responses take longer than a window
	Per          time.Duration // length of the window that the server states; 0: not stated
	Reset        time.Time     // never zero once a response was applied
	At           time.Time     // when the response applied last was received
	openAtUpdate int64         // claims in flight at the time at
	LastSent     uint64        // number of the latest claim that was sent by then
	Probe        bool          // the claim after lastSent is the probe, whose response has not arrived
	next         time.Time     // when the next claim is admitted, if a pacing spreads claims
	refill       refill
	rate         statedRate    // that the resets of a bucket state
	window       time.Duration // longest time until the reset that was stated
	use          use
	start        windowStart
	concurrent   bool // it counts requests in flight, as the server states
	enforced     bool // if concurrent: a rejection has stated that none is left
	proof        proof
	resolution   time.Duration // of the latest reset: the true one may be so much earlier
	untimed      bool          // the latest statement has no reset
	probePause   time.Duration // until the next probe of a limit without a stated reset; 0: one second
	Weighted     bool          // claims cost different numbers of units, such as tokens: how many a claim uses is not measured
}

const (
	MaxEstimates = 8 // estimates of one quota; the drafts of RateLimit and the APIs in testdata state fewer limits

	Tolerance = 1100 * time.Millisecond // maximum difference of two statements of one reset: many are in whole seconds

	minMeasured = 50 * time.Millisecond // minimum time over which a rate is measured

	defaultReset  = time.Second     // until the reset of a limit for which the server states no time
	maxProbePause = 2 * time.Second // the same, at most
)

// NewEstimate returns an estimate of the limit that l states, before any response is applied to it.
func NewEstimate(l throttle.RemoteLimit, weighted bool) Estimate {
	return Estimate{Name: l.Name, Per: l.Per, Remaining: l.Limit, Weighted: weighted, concurrent: l.Unit == UnitConcurrent}
}

// CountsRequests reports whether l states how many requests are left, or how many more may be in
// flight: units of which the cost of every request is known.
func CountsRequests(l throttle.RemoteLimit) bool {
	return !l.RemainingUnknown && (l.Unit == "" || l.Unit == "requests" || l.Unit == UnitConcurrent)
}

// statesReset reports whether l states when units come back.
func statesReset(l throttle.RemoteLimit) bool { return l.ResetAfter > 0 || l.Per > 0 }

// ToleranceOf returns the maximum difference between the reset of l and other statements of it.
func ToleranceOf(l throttle.RemoteLimit) time.Duration {
	return Tolerance + max(l.Resolution-time.Second, 0)
}

// ResetOf returns the reset of l, received now. If l does not state it, it is a window or
// defaultReset from now.
func ResetOf(l throttle.RemoteLimit, now time.Time) time.Time {
	after := min(l.ResetAfter, headers.MaxDelay)
	if after <= 0 {
		after = min(max(l.Per, 0), headers.MaxDelay)
	}
	if after == 0 {
		after = defaultReset
	}
	return now.Add(after)
}

// Free returns how many units are admitted as of now. If there are too few, wait is the time until
// there may be more; 0: when a response arrives.
func (e *Estimate) Free(now time.Time, f *inflight.Claims, p Pacing) (units int64, wait time.Duration) {
	if e.concurrent {
		return e.freeConcurrency(now, f, p)
	}
	if e.Distrusted() || e.doubted(now) {
		return math.MaxInt64, 0
	}
	units = e.requests(e.Left(now)-p.Reserved(e.Limit)) - f.Open
	switch {
	case e.probing(f): // what has waited is sent at a growing rate until its response
		return max(max(e.requests(e.mostLeft()-p.Reserved(e.Limit)), 1)-f.Open, 0), 0
	case e.needsProbe(now, f, p):
		return math.MaxInt64, 0
	case units > 0 && p.spreads(e):
		return unitsAfter(e.next.Sub(now), units)
	case units > 0:
		return units, 0
	}
	wait = e.OpensAt().Sub(now)
	if next := e.UntilFree(units, now); next > 0 {
		wait = min(wait, next)
	}
	return 0, wait
}

// mostLeft returns how many units may be left before the first request of a window: no more than the server has stated
// to be left, and that request. A bucket may hold fewer than its limit. If the server states no reset, one unit is: that there
// are more is known by the response of that request.
func (e *Estimate) mostLeft() int64 {
	if e.untimed {
		return 1
	}
	return min(e.Limit, e.highest+1)
}

// unitsAfter returns units if wait is over, and wait otherwise.
func unitsAfter(wait time.Duration, units int64) (int64, time.Duration) {
	if wait > 0 {
		return 0, wait
	}
	return units, 0
}

// Left returns the prediction of the units that remain as of now, requests in flight not subtracted.
func (e *Estimate) Left(now time.Time) int64 {
	return e.Remaining + e.returned(now)
}

// needsProbe reports whether the next claim is sent as a probe: the window is over, and nothing is
// free of what was left in it.
func (e *Estimate) needsProbe(now time.Time, f *inflight.Claims, p Pacing) bool {
	if e.probing(f) || e.concurrent || now.Before(e.OpensAt()) {
		return false
	}
	return e.requests(e.Remaining-p.Reserved(e.Limit)) <= f.Open
}

// probing reports whether the response to the probe is awaited. If its caller has given up, or it has failed, the next
// claim is the probe.
func (e *Estimate) probing(f *inflight.Claims) bool { return e.Probe && f.After(e.LastSent) > 0 }

// Granted records that the next claim is granted at now, before f counts it. It reports whether the claim is a probe: the
// first one after the reset.
func (e *Estimate) Granted(now time.Time, f *inflight.Claims, p Pacing) (probe bool) {
	if probe = e.needsProbe(now, f, p); probe {
		e.Probe, e.LastSent = true, f.Sent
	}
	p.scheduleNext(e, now, f.Open+1)
	return probe
}

// Distrusted reports whether the limit is not obeyed, because accepted requests have contradicted it, or because
// nothing has shown yet when its units come back. See proof.
func (e *Estimate) Distrusted() bool {
	return e.proof.ignored || e.unconfirmed() && !e.Weighted
}

// doubted reports whether a claim of now need not wait for e: nothing has confirmed it in the time for which claims
// have waited.
func (e *Estimate) doubted(now time.Time) bool {
	p := &e.proof
	return !p.right && !p.freeAt.IsZero() && !now.Before(p.freeAt) && !e.Weighted
}

// Delay records that a claim waits for e as of now. Until a rejection confirms e, claims wait once, for at most the time
// longest from then on: a limit that is not enforced costs no more, however often it is stated. It returns the time until
// the claim may be asked again; 0: e has been confirmed.
func (e *Estimate) Delay(longest time.Duration, now time.Time) time.Duration {
	p := &e.proof
	if p.right || e.Weighted {
		return 0
	}
	if end := now.Add(longest); p.freeAt.IsZero() || end.Before(p.freeAt) {
		p.freeAt = end
	}
	return max(p.freeAt.Sub(now), 1)
}

// Untimed reports whether the server does not state when units come back, so that each wait for them is a guess.
func (e *Estimate) Untimed() bool { return e.untimed }

// unconfirmed reports whether the server does not state when units come back, and no rejection has coincided with a
// statement that none are left.
func (e *Estimate) unconfirmed() bool { return e.untimed && !e.proof.right }

// Proven reports whether rejections have coincided with the limit.
func (e *Estimate) Proven() bool { return e.proof.right && !e.proof.ignored }

// ResetsTogether reports whether responses have shown that all units come back at the stated reset, so that none does
// before.
func (e *Estimate) ResetsTogether() bool { return e.refill.kind == refillsAtReset }

// Rounded reports whether all that is known of a wait for e is that it ends within the second to which resets are rounded. The rate
// of a bucket is not known while it was only measured: requests that wait for it show no higher one.
func (e *Estimate) Rounded(wait time.Duration) bool {
	known := e.refill.kind == refillsEvenly && e.rate.known() || e.refill.kind == refillsNextWindow
	return wait <= Tolerance && e.resolution >= time.Second && !e.untimed && !known && !e.concurrent
}

// ResetsLater reports whether the reset is later, as of now, than rounding explains.
func (e *Estimate) ResetsLater(now time.Time) bool {
	return e.Reset.Sub(now) > Tolerance+max(e.resolution-time.Second, 0)
}

// CountsInFlight reports whether the limit counts requests in flight.
func (e *Estimate) CountsInFlight() bool { return e.concurrent }

// sinceUpdate returns how many claims the server may have counted after what the latest update of e states.
func (e *Estimate) sinceUpdate(f *inflight.Claims) int64 {
	return e.openAtUpdate + int64(f.Sent-e.LastSent)
}

// Window returns the longest time after which units come back, as far as it is known; 0: it is not.
func (e *Estimate) Window() time.Duration { return max(e.Per, e.refill.window, e.window) }

// OpensAt returns when the next request may be sent although no unit is left: when a unit comes back.
func (e *Estimate) OpensAt() time.Time {
	if e.refill.kind == refillsNextWindow {
		return e.Reset.Add(e.refill.window) // until then, what comes back is known
	}
	return e.Reset.Add(e.unitDelay())
}

// Update applies l, which the response to claim n states, received now. n is 0 if another quota
// granted the claim.
func (e *Estimate) Update(l throttle.RemoteLimit, n uint64, now time.Time, f *inflight.Claims) {
	e.update(l, n, false, now, f)
}

// update is Update. rejected reports whether the response is a rejection.
func (e *Estimate) update(l throttle.RemoteLimit, n uint64, rejected bool, now time.Time, f *inflight.Claims) {
	own := int64(0)
	if n > 0 && !rejected {
		own = 1
	}
	if e.concurrent {
		e.updateConcurrency(l, own, now, f)
		return
	}
	reset, left := e.resetOf(l, now), max(l.Remaining, 0)
	e.untimed, e.resolution = !statesReset(l), l.Resolution
	e.proof.update(reset, left, l.Limit, l.Resolution, f.Sent, now)
	newer, over := n > e.LastSent, !now.Before(e.Reset)
	e.observe(l, left, reset, now)
	e.start.observe(l, now, over, e.Probe && newer && left == 0 && reset.Sub(e.Reset) <= ToleranceOf(l))
	switch {
	case e.refill.kind == refillsEvenly: // the reset of a bucket moves
	case e.refill.kind != refillsNextWindow:
		reset = e.start.refine(reset, l.Resolution)
	case e.refill.floor: // its windows do not begin with a request
		reset = reset.Add(l.Resolution)
	}
	if e.refill.kind != refillsEvenly && l.Limit == e.Limit {
		switch ahead := reset.Sub(e.Reset); {
		case ahead < -ToleranceOf(l) && !newer:
			return // it states a window that is over
		case ahead > ToleranceOf(l) && !newer && left > e.Left(now):
			return // it states an earlier time, at which a bucket was fuller
		case ahead > ToleranceOf(l):
			over = true
		case !over && e.refill.kind != refillsOneByOne: // whose reset moves with each unit
			reset = e.earlierReset(reset, l)
		}
	}
	if !e.Weighted {
		e.use.update(left, cmp.Or(n, f.Sent), over)
	}
	switch {
	case over:
		e.observeReset(l, left, reset, now, f)
	case newer:
		e.refill.update(e, left, ResetOf(l, now).Add(l.Resolution), now, f)
	case left >= e.Left(now):
		e.refineReset(reset)
		return
	}
	e.refill.part = e.partAt(left, rejected, now, f)
	e.Limit, e.Remaining, e.Per, e.Reset = max(l.Limit, left), left, l.Per, reset
	e.At, e.LastSent, e.openAtUpdate, e.Probe = now, f.Sent, f.Open, false
	e.refill.begin(left, now, f.Open)
}

// resetOf returns the reset of l, received now: probePause from now if l does not state it and a
// pause is known.
func (e *Estimate) resetOf(l throttle.RemoteLimit, now time.Time) time.Time {
	if e.probePause > 0 && !statesReset(l) {
		return now.Add(e.probePause)
	}
	return ResetOf(l, now)
}

// earlierReset returns the reset of the present window, for which l states reset. A reset that is
// stated in coarse units is the true one or later, so the earliest is the best.
func (e *Estimate) earlierReset(reset time.Time, l throttle.RemoteLimit) time.Time {
	if l.Resolution == 0 || e.Reset.After(reset) {
		return reset
	}
	return e.Reset
}

// refineReset applies the reset that the response to an older claim stated.
func (e *Estimate) refineReset(reset time.Time) {
	if e.refill.kind == refillsEvenly { // the bucket was emptier later, so it is full later
		reset = ticks.Later(reset, e.Reset)
	}
	e.Reset, e.openAtUpdate = reset, max(e.openAtUpdate-1, 0) // the claim was counted before at
}

// TooFew reports whether so many units are probably too few for a request.
func (e *Estimate) TooFew(units int64) bool { return float64(units) < max(e.use.each, 1) }

// requests returns for how many requests so many units suffice. Before a rejection has shown that the limit is enforced,
// that is one unit each.
func (e *Estimate) requests(units int64) int64 {
	if e.use.each <= 1 || !e.Proven() {
		return units
	}
	return int64(math.Round(float64(units) / e.use.each))
}

// Accepted counts claim n, whose response, received now, states that it was accepted. test reports whether it was
// granted as a test.
func (e *Estimate) Accepted(n uint64, test bool, now time.Time) {
	if !e.concurrent && !e.Weighted {
		refills := e.refill.kind != refillUnknown && e.refill.kind != refillsAtReset
		e.proof.accepted(n, refills && !test, now)
	}
}

// Used counts n units that an accepted request used. Call it before Update, which begins a measurement with what the
// response states.
func (e *Estimate) Used(n int64) { e.refill.responses += n }

// UpdateByResponse is Update for the response to a claim of requests. rejected reports whether it is a
// rejection, accepted whether the request was accepted, and repeated whether it was rejected before.
func (e *Estimate) UpdateByResponse(l throttle.RemoteLimit, n uint64, rejected, accepted, repeated bool, now time.Time, f *inflight.Claims) {
	if rejected {
		e.enforced = e.enforced || e.concurrent && l.Remaining <= 0
		e.proof.rejected(n, repeated, e.TooFew(l.Remaining))
		if n > e.LastSent {
			e.rejectedByCounter(l.Resolution, now)
		}
	}
	if accepted {
		e.proof.restated(l.Remaining, now)
	}
	e.adaptProbePause(l, n, rejected)
	e.update(l, n, rejected, now, f)
}

// A share measures which part of a limit this process may use, when statements are over before they arrive. One claim at a time is watched:
//
//	share = own requests in the window in which it was sent + units left that its response states
//
// Others use the rest. A fixed window may have begun between the requests that count as own, so the least of a few is taken.
type share struct {
	claim   uint64 // watched; 0: none
	own     int64  // requests in the window that ends with it
	samples int    // since least was begun
	least   int64  // share of these
}

// shareSamples is the number of claims of which the least share is taken.
const shareSamples = 4

// sent watches claim n, which is sent now, if none is watched that f contains.
func (s *share) sent(n uint64, own int64, f *inflight.Claims) {
	if s.claim == 0 || !f.Contains(s.claim) {
		s.claim, s.own = n, own
	}
}

// accepted applies that claim n was accepted, and that left units are left by its response. ok is set if units are this process's part of the limit.
func (s *share) accepted(n uint64, left int64) (units int64, ok bool) {
	if n != s.claim {
		return 0, false
	}
	if units = ticks.Add(s.own, left); s.samples > 0 {
		units = min(units, s.least)
	}
	s.claim, s.least, s.samples = 0, units, (s.samples+1)%shareSamples
	return units, s.samples == 0
}

// Sent applies that claim n is sent now, with own requests in the window that ends with it, to a limit whose window is shorter than responses take.
func (e *Estimate) Sent(n uint64, own int64, f *inflight.Claims) { e.share.sent(n, own, f) }

// observe learns from l what does not depend on when it was stated: the most units that are left, the length of the window and the rate of a
// bucket.
func (e *Estimate) observe(l throttle.RemoteLimit, left int64, reset, now time.Time) {
	e.highest = max(e.highest, left)
	if e.rate.add(l.Limit-left, l.ResetAfter, l.Resolution, e.highest+1 >= l.Limit, now); e.rate.known() {
		if e.refill.kind != refillsEvenly {
			e.refill.kind, e.refill.rate = refillsEvenly, 0
		}
		e.refill.rate = e.rate.bound(e.refill.rate)
	}
	if statesReset(l) {
		e.window = max(e.window, reset.Sub(now))
	}
}

// Outdated applies l, which the response to claim n states, an accepted request that has taken longer than units to come back. What is left
// and until when is over then. It reports whether that is all that l states.
func (e *Estimate) Outdated(l throttle.RemoteLimit, n uint64, now time.Time) bool {
	if e.concurrent || e.refill.kind == refillsEvenly || l.Limit != e.Limit {
		return false
	}
	left := max(l.Remaining, 0)
	e.proof.restated(left, now)
	e.observe(l, left, e.resetOf(l, now), now)
	if units, ok := e.share.accepted(n, left); ok {
		e.highest = min(e.highest, max(units, 1)-1)
	}
	return true
}

// CountUnstated counts claim n, whose response does not state this limit. accepted reports whether
// the request was accepted. It returns true if the limit is out of date: the response to the probe is
// a rejection and does not state it either. If the probe was accepted, the server states the limit in rejections only, as
// some do. Then a window has begun, of which nothing else is known.
func (e *Estimate) CountUnstated(n uint64, accepted bool, now time.Time, f *inflight.Claims) (outdated bool) {
	switch {
	case e.Probe && n > e.LastSent:
		if !accepted || e.Limit == 0 {
			return true
		}
		e.Remaining, e.At, e.LastSent, e.openAtUpdate, e.Probe, e.Reset = e.Limit-1, now, f.Sent, f.Open, false, now
		e.refill, e.proof.known = refill{kind: refillsAtReset}, false
	case !e.concurrent && !e.Probe:
		e.Remaining = max(e.Remaining-1, 0)
	}
	return false
}

// Explains counts the rejection of claim n, whose response states a wait of 0 and not this limit, and reports whether the limit
// explains it: by the count of the client nothing is left of it for longer than a response takes. repeated reports whether the
// request was rejected before. A rejection that states another wait or none shows less: it may concern one resource.
func (e *Estimate) Explains(n uint64, repeated bool, trip time.Duration, now time.Time) bool {
	if e.concurrent || !e.TooFew(e.Remaining) || e.Reset.Sub(now) < trip {
		return false
	}
	e.proof.rejected(n, repeated, false)
	return !e.Distrusted()
}

// adaptProbePause adapts the pause between probes of a limit without a stated reset: it is shorter after an accepted probe,
// which shows that a unit came back in it, and longer after a rejected one. l is what the response to claim n states.
func (e *Estimate) adaptProbePause(l throttle.RemoteLimit, n uint64, rejected bool) {
	if 2*l.Remaining >= l.Limit {
		e.probePause = 0 // the limit has not been used for a while
	}
	if !e.Probe || n <= e.LastSent {
		return
	}
	if pause := cmp.Or(e.probePause, defaultReset); rejected {
		e.probePause = min(2*pause, maxProbePause)
	} else {
		e.probePause = max(pause*3/4, minMeasured)
	}
}

// MayBeSameWindow reports whether l, received now, may state the present window of e.
func (e *Estimate) MayBeSameWindow(l throttle.RemoteLimit, now time.Time) bool {
	if !now.Before(e.Reset) {
		return true // the present window is over
	}
	apart := ResetOf(l, now).Sub(e.Reset)
	return (e.refill.kind == refillsEvenly || -2*ToleranceOf(l) < apart && apart < 2*ToleranceOf(l)) && l.Remaining <= e.Left(now)
}

// MayBe reports whether w may state e as of now, although it may state up to reordered more units
// than e has left, because responses arrive out of order.
func (e *Estimate) MayBe(w throttle.RemoteLimit, reordered int64, now time.Time) bool {
	if e.concurrent || e.Reset.Sub(now) <= ToleranceOf(w) {
		return true // the window of e is over
	}
	apart := ResetOf(w, now).Sub(e.Reset)
	if -2*ToleranceOf(w) < apart && apart < 2*ToleranceOf(w) && w.Remaining <= e.Left(now)+reordered {
		return true
	}
	return e.refill.kind != refillsAtReset && e.mayBeBucket(w, reordered, now)
}

// maxRateRatio is the factor by which the refill rates of two statements of one bucket may differ. Such
// a rate is computed from the missing units and the time at which the bucket is full, which are rounded
// and stated for different times.
const maxRateRatio = 4

// mayBeBucket reports whether w and e may state the same bucket. The reset of a bucket is the time
// at which it is full, so its missing units and the time until the reset give the refill rate,
// which must be about the same for both.
func (e *Estimate) mayBeBucket(w throttle.RemoteLimit, reordered int64, now time.Time) bool {
	missing, untilFull, passed := float64(e.Limit-e.Remaining), e.Reset.Sub(e.At).Seconds(), now.Sub(e.At).Seconds()
	if missing <= 0 || untilFull <= 0 || passed < 0 {
		return w.Remaining <= e.Limit
	}
	tolerated := ToleranceOf(w).Seconds()
	returned := int64(min(missing*passed/max(untilFull-tolerated, untilFull/2), missing)) + 1
	if w.Remaining > e.Remaining+returned+reordered {
		return false
	}
	expected, stated := float64(w.Limit-w.Remaining)/missing*untilFull, ResetOf(w, now).Sub(now).Seconds()
	return stated >= expected/maxRateRatio-tolerated && stated <= expected*maxRateRatio+tolerated
}

// IsOtherWindow reports whether l, received now, which has the name of e and another size, is another
// limit: its window ends at another time, or is longer than every one of e. Otherwise the size of e
// has changed.
func (e *Estimate) IsOtherWindow(l throttle.RemoteLimit, now time.Time) bool {
	reset, rough := ResetOf(l, now), 2*ToleranceOf(l)
	if !statesReset(l) {
		return false
	}
	if now.Before(e.Reset) {
		return reset.Sub(e.Reset).Abs() > rough
	}
	return e.window > 0 && reset.Sub(now) > 2*e.window+rough
}

// A proof decides whether a limit is obeyed. Some servers state limits that they do not enforce, values that are
// constant, cached or of another client. So more accepted requests than were left contradict a limit, and it is
// ignored until rejections coincide with it:
//
//	stated      5 of 9 left until T
//	accepted    1 2 3 4 5 6 7         more than 5, and the 4 others as a bucket restores them until T
//
// If rejections have coincided with it before, and units come back one by one, that is no contradiction.
type proof struct {
	ignored     bool          // accepted requests have contradicted the limit
	right       bool          // rejections have coincided with it since
	doubt       uint8         // contradictions, less rejections that coincided with it
	against     uint8         // accepted requests that contradict it, since the latest rejection that coincided with it
	row         uint16        // rejections in a row that coincided with it
	countedDown bool          // in the window until, accepted requests stated fewer and fewer units, and at last at most one
	known       bool          // the fields below are set
	sentBy      uint64        // latest claim that was sent when the server stated what is left
	at          time.Time     // when it did
	used        int64         // units that were used then
	left        int64         // units left then, less later claims that were accepted
	until       time.Time     // reset that it stated
	resolution  time.Duration // the true one may be so much earlier
	highest     int64         // most units that an accepted request of the window stated
	freeAt      time.Time     // claims do not wait after it until a rejection coincides with the limit; zero: none has waited since the latest one did
}

const (
	maxDoubt       = 6
	contradictions = 3 // accepted requests that contradict a limit that was right
	coincides      = 1 // rejections in a row that confirm a limit, doubled by each doubt
)

// update applies a statement that left of limit units are left until reset, received when claim sent was the latest.
func (p *proof) update(reset time.Time, left, limit int64, resolution time.Duration, sent uint64, now time.Time) {
	if p.known && now.Before(p.until) && left >= p.left {
		return
	}
	if !p.known || !now.Before(p.until) {
		p.until, p.resolution = reset, resolution
	}
	p.known, p.sentBy, p.at, p.used, p.left = true, sent, now, max(limit-left, 1), left
}

// restated applies that a response which accepts a request states that left units are left. Values that decrease to at
// most one are counted by the server, so that a rejection with none left coincides with the limit whenever its request
// was sent.
func (p *proof) restated(left int64, now time.Time) {
	if !p.known || !now.Before(p.until) {
		p.highest, p.countedDown = left, false
		return
	}
	p.highest = max(p.highest, left)
	p.countedDown = p.countedDown || left <= 1 && left < p.highest
}

// accepted applies that claim n was accepted. refills reports whether a unit may have come back for it.
func (p *proof) accepted(n uint64, refills bool, now time.Time) {
	if !p.known || n <= p.sentBy || !now.Before(p.until) {
		return
	}
	p.row = 0
	back := int64(float64(p.used) * float64(now.Sub(p.at)+p.resolution) / float64(max(p.until.Sub(p.at), 1))) // of a bucket that is full then, or its resolution earlier
	if p.left--; p.left >= -back || p.right && (refills || !now.Before(p.until.Add(-p.resolution))) {
		return
	}
	if p.against++; p.right && p.against < contradictions {
		return // it may restore units in another way than is known
	}
	if !p.ignored {
		p.ignored, p.right, p.doubt = true, false, min(p.doubt+2, maxDoubt)
	}
}

// rejected applies that claim n was rejected, and whether the same request was before. usedUp reports whether no unit is
// left, by the response or by the count of the client.
func (p *proof) rejected(n uint64, repeated, usedUp bool) {
	if !p.known || (n <= p.sentBy || repeated) && !p.countedDown || !usedUp && p.left > 0 {
		return
	}
	p.against = 0
	if p.row++; p.row < coincides<<p.doubt {
		return
	}
	p.ignored, p.right, p.row, p.freeAt = false, true, 0, time.Time{}
	p.doubt -= min(p.doubt, 1)
}
