package learnedlimit

import (
	"math"
	"time"
)

// A RateTest finds out whether rejections depend on the rate. It measures the share of the requests that is rejected, and
// how many are accepted per second. The share is measured twice, because one that is noticed for being high is too high on
// average. Then requests are sent at that rate. If the rate is the reason, hardly any is rejected:
//
//	                        sent    rejected              sent at 20/s    rejected
//	a limit of 20/s         40/s    50 %, accepted 20/s   ─────────────▶    1 %     depends on the rate
//	a bad backend of two    40/s    50 %, accepted 20/s   ─────────────▶   50 %     does not
//
// A sequential probability ratio test (Wald, Sequential Tests of Statistical Hypotheses, 1945) decides whether
// rejections are as frequent as before or an eighth of that, after 5 to 20 responses in most cases. It goes on as long as
// requests are sent at the rate, because an outage may have ended when it began. Failures count as rejections
// if the caller passes them. The zero RateTest has measured nothing.
type RateTest struct {
	since    time.Time // of the first rejection; zero: there was none
	sentBy   uint64    // latest claim that was sent by then: later ones count
	last     time.Time // of the latest response
	accepted int
	rejected int
	again    bool // enough were rejected, and the share is measured again
	earlier  int  // accepted when that began

	share     float64 // of rejections when the rate began; 0: there is no rate
	score     float64 // logarithm of the likelihood ratio: positive if rejections have become rarer
	confirmed bool    // rejections were found to depend on the rate
	inRow     bool    // the latest response was a rejection
}

const (
	minRejected     = 6    // rejections after which the share is measured again
	minOf           = 5    // one of so many requests must be rejected
	minMeasures     = 16   // responses that show a share, each time
	maxMeasures     = 64   // responses after which a measurement with fewer rejections begins again
	rarer           = 8    // factor by which rejections become rarer at the right rate
	dependsAt       = 3.0  // score at which rejections depend on the rate: wrong once in e^3 = 20 times
	surelyDependsAt = 6.0  // highest score: rejections that do not depend on the rate any more are noticed
	leastConfirmed  = .5   // share of rejections that is too high for a rate that was found: one that is kept at a limit has some
	independsAt     = -2.2 // score at which they do not: wrong once in e^2.2 = 9 times
	minTripsRate    = 2    // round trips over which a rate is measured at least
)

// Measure adds the response to claim n that arrived now, when claim sent was the latest. If enough requests are rejected,
// it returns the rate of those that are accepted, in requests per second; 0: they are not.
func (t *RateTest) Measure(n, sent uint64, rejected bool, trip time.Duration, now time.Time) float64 {
	most := maxMeasures
	if t.again {
		most = minMeasures
	}
	tooFew := t.accepted+t.rejected >= most && minOf*t.rejected < t.accepted+t.rejected
	if t.since.IsZero() || tooFew || now.Sub(t.last) > max(IdleAfter, 2*trip) {
		*t = RateTest{}
		if !rejected {
			return 0
		}
		t.since, t.sentBy = now, sent
	}
	t.last = now
	if n <= t.sentBy {
		return 0
	}
	if !rejected {
		t.accepted++
		return 0
	}
	t.rejected++
	all, span := t.accepted+t.rejected, now.Sub(t.since)
	switch {
	case all < minMeasures || minOf*t.rejected < all:
		return 0
	case t.again:
		return float64(t.earlier+t.accepted) / max(span.Seconds(), 1e-3)
	case t.rejected >= minRejected && t.accepted >= minAccepted && span >= minTripsRate*trip:
		t.again, t.earlier, t.accepted, t.rejected = true, t.accepted, 0, 0
	}
	return 0
}

// Begin begins the test of the rate that Measure has returned.
func (t *RateTest) Begin() {
	*t = RateTest{share: min(float64(t.rejected)/float64(t.accepted+t.rejected), .95)}
}

// BeginConfirmed begins the test of a rate on which the rejections, a share of the latest responses, are known to depend.
func (t *RateTest) BeginConfirmed(share float64) {
	*t = RateTest{share: min(max(share, leastConfirmed), .95), score: surelyDependsAt, confirmed: true}
}

// Testing reports whether there is a rate of which it is not known whether rejections depend on it.
func (t *RateTest) Testing() bool { return t.share > 0 && !t.confirmed }

// Judge adds the response to a request that was sent at the rate. It reports whether rejections are now found to depend on
// the rate, or not to depend on it, which ends the test.
func (t *RateTest) Judge(rejected bool) (depends, independent bool) {
	if t.share == 0 {
		return false, false
	}
	again := t.inRow && t.confirmed // of several in a row the first one counts: a window that is used up rejects all
	t.inRow = rejected
	switch {
	case rejected && again:
	case rejected:
		t.score -= math.Log(rarer)
	default:
		t.score += math.Log((1 - t.share/rarer) / (1 - t.share))
	}
	if t.score <= independsAt {
		*t = RateTest{}
		return false, true
	}
	if t.score >= dependsAt {
		t.score, depends = min(t.score, surelyDependsAt), !t.confirmed
		t.share, t.confirmed = max(t.share, leastConfirmed), true
	}
	return depends, false
}
