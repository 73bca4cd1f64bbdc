package statedlimit

import (
	"math"
	"time"

	"github.com/heed-go/heed/throttle"
)

// otherClients estimates how much of a limit other clients use: other processes of the same program,
// or other clients of the account. It needs no communication, because every client receives
// the numbers of the server: what was used, less what this process used, is the use of the others.
//
// While there are other clients, no client may use all that is left. If each of n clients spread
// what is left over the time until the reset as if it were the only one, and did so again after each
// response, they would never use more than there is:
//
//	left
//	 │╲  ╲
//	 │ ╲    ╲   one client
//	 │  ╲      ╲
//	 │   ╲_ ten   ╲
//	 └──────‾‾‾‾‾‾‾‾╲──▶ time
//	                reset
//
// and each would get the same. But ten clients would use most of it at the beginning. So the pace of
// each is multiplied by the square root of its share: the pace of all together is closer to even
// then, and different shares become more equal with every window. See otherClients.wait.
type otherClients struct {
	present  bool      // there are other clients; never if responses arrive later than units come back
	share    float64   // part of the used units that this process used, in (0, 1]; 0: not known
	lastSeen time.Time // when their use was last observed

	usedBefore int64         // units that were used before since: not by other clients of now
	own        int64         // units that this process has used from since on
	ownBefore  int64         // units that it used in the window before that
	since      time.Time     // when own began; zero: the limit was never stated
	window     time.Duration // longest time until the reset that was stated
	at         time.Time     // when the limit was last stated

	watched uint64        // number of the claim whose response will show the lag; 0: none
	sent    time.Time     // when it was granted
	lag     time.Duration // time from a claim to its response

	jitter float64 // length of the pause before the next claim, relative to an even pace; 1 on average

	// startedLate is set if most of the window was used when it was first stated, with a
	// resolution of seconds. Then its reset may be up to a second earlier than stated.
	startedLate bool
}

const (
	presentBelow    = 0.9              // share below which there are other clients
	goneAfter       = 5                // resets without other clients, after which there are none
	shareWithin     = 30 * time.Second // time until the reset; with a later reset units are shared only if too few are left
	attributeWithin = 2 * time.Second  // time until the first reset; with a later one, earlier use is not that of other clients now
	spareUnits      = 2                // units that no client uses: they show the others that the window is not over
	shareWeight     = 0.25             // of one response in the moving average share
	minExponent     = 1e-3             // of k, see otherClients.wait
)

// granted records that claim n is granted at now. random is in [0, 1).
func (o *otherClients) granted(n uint64, now time.Time, random float64) {
	o.own++
	o.jitter = 0.5 + random
	if o.watched == 0 {
		o.watched, o.sent = n, now
	}
}

// compare estimates the use of other clients from l, which the response to claim n states. sent is
// the number of the latest claim. It reports whether units came back earlier than expected: when
// other clients begin the next window, nothing else shows it.
func (e *Estimate) compare(l throttle.RemoteLimit, n, sent uint64, now time.Time) (early bool) {
	o, left, reset := &e.others, max(l.Remaining, 0), ResetOf(l, now).Sub(now)
	used, over, mostUsed := max(l.Limit-left, 0), !now.Before(e.Reset), left <= l.Limit/2
	cameBack := left-e.Remaining > l.Limit/2 && e.refill.kind != refillsEach && e.refill.kind != refillsNextWindow
	switch {
	case o.since.IsZero():
		o.begin(used, int64(sent), reset, now)
	case cameBack && (o.present || over): // this response is that to one of the first own claims of a window
		own := int64(1)
		if e.Probe {
			own = int64(sent - e.LastSent)
		}
		o.ownBefore = 0
		o.begin(used, own, reset, now)
	}
	if over || !mostUsed {
		o.startedLate = mostUsed && l.Resolution > 0
	}
	if o.watched != 0 && n >= o.watched {
		o.lag, o.watched = max(now.Sub(o.sent), 0), 0 // the clock may have been set back
	}
	if n > e.LastSent || left < e.Remaining {
		o.update(l.Limit, used, reset, now)
	}
	return cameBack && o.present
}

// begin begins the count of own units, of which own have been used. If the reset is far away, other
// clients may have used the rest long ago.
func (o *otherClients) begin(used, own int64, reset time.Duration, now time.Time) {
	o.usedBefore, o.own, o.since, o.at = 0, own, now, now
	if reset > attributeWithin {
		o.usedBefore = max(used-own, 0)
	}
}

// update applies that used units of limit are used, and come back within reset.
func (o *otherClients) update(limit, used int64, reset time.Duration, now time.Time) {
	if o.window = max(o.window, reset); now.Sub(o.since) >= o.window {
		o.ownBefore, o.own, o.since = o.own, 0, now
	}
	passed := float64(now.Sub(o.at)) / float64(max(now.Sub(o.at), reset)) // part of the window since the last update
	if used < limit/2 {                                                   // there is more than the other clients use
		o.share = min(o.share*(1+passed), 1)
	}
	o.at = now
	o.usedBefore = min(o.usedBefore, used)
	if used -= o.usedBefore; used < max(4, limit/20) {
		return // too few to tell
	}
	share := 1.0
	if own := o.recentOwn(now); used-own > max(2, limit/20) {
		share, o.lastSeen = float64(max(own, 1))/float64(used), now
	}
	if o.share == 0 {
		o.share = share
	}
	o.share += shareWeight * (share - o.share)
	o.present = o.lag < o.window && (o.share < presentBelow || o.present && now.Sub(o.lastSeen) < goneAfter*reset)
}

// recentOwn returns how many units this process used in the time of a window.
func (o *otherClients) recentOwn(now time.Time) int64 {
	rest := max(1-float64(now.Sub(o.since))/float64(o.window), 0)
	return o.own + int64(rest*float64(o.ownBefore))
}

// hasOthers reports whether other clients delay claims. That is only inferred, so a rejection must have shown that the
// limit is enforced.
func (e *Estimate) hasOthers() bool { return e.others.present && e.Proven() }

// isShared reports whether claims are paced as of now because of other clients: if the reset is near,
// or fewer units are left than will be used, at the cost of the requests until now, when there are
// responses to the open claims.
func (e *Estimate) isShared(now time.Time, open int64) bool {
	o := &e.others
	if present := e.hasOthers(); !present || e.Reset.Sub(now) <= shareWithin {
		return present
	}
	responses := max(o.recentOwn(now)-open, 1)
	each := float64(e.Limit-e.Remaining-o.usedBefore) / float64(responses)
	return float64(e.Remaining) < each*float64(open+1)
}

// wait returns how long after now the next claim of this process is due. At the time at, left units
// were left, open of which are in flight now. The next units come back at reset.
//
// All processes compute the same. Let u be the part of the time until the reset that is left, share
// that of this process, and
//
//	pace(u) = √share left(u) / u      left(u) = left u^k      k = (1-share) / √share
//
// where left(u) is what all of them leave. The integral of the pace from u to 1 is the number of
// claims that are due:
//
//	√share left (1-u^k) / k
func (o *otherClients) wait(left, open int64, at, now, reset time.Time) time.Duration {
	root, k := o.paceLaw()
	span := reset.Sub(at)
	units := float64(left-spareUnits) * math.Pow(1-float64(o.lag)/float64(max(span+o.lag, 1)), k)
	u := math.Pow(max(1-(float64(open)+o.jitter)*k/(root*max(units, 1e-9)), 0), 1/k)
	due := reset
	if rest := time.Duration(u * float64(span)); rest > 2*o.lag {
		due = reset.Add(-rest)
	} else if o.startedLate && left > 0 && open == 0 {
		due = reset.Add(-min(time.Duration((o.jitter-0.5)*float64(time.Second)), span-2*o.lag))
	}
	return max(due.Sub(now), 0)
}

// paceLaw returns √share and k, see wait.
func (o *otherClients) paceLaw() (root, k float64) {
	root = math.Sqrt(o.share)
	return root, max((1-o.share)/root, minExponent)
}

// CarryJitter subtracts from the jitter the part of the pause before the next claim that is over by
// now, because an update begins the pause again. Otherwise no request would be sent while updates
// arrive.
func (e *Estimate) CarryJitter(now time.Time, open int64) {
	o := &e.others
	span, rest := e.Reset.Sub(e.At), e.Reset.Sub(now)
	if !o.present || rest <= 0 || span <= rest {
		return
	}
	root, k := o.paceLaw()
	units := float64(max(e.Left(now)-spareUnits, 0))
	due := root * units * (1 - math.Pow(float64(rest)/float64(span), k)) / k
	o.jitter = max(o.jitter-max(due-float64(open), 0), 0)
}

// A Pacing is how a Tracker spends stated quotas. In the zero Pacing, units are spread over the time until the
// reset only while other clients use them, too.
type Pacing struct {
	Spread   bool    // units are always spread
	Headroom float64 // part of each quota that is reserved for other clients
}

// Reserved returns how many units of limit are reserved for other clients.
func (p Pacing) Reserved(limit int64) int64 {
	if !(p.Headroom > 0) { // also if it is no number
		return 0
	}
	return int64(math.Ceil(min(p.Headroom, 1) * float64(limit)))
}

// spreads reports whether the free units of e are spread over the time until its reset. If units come
// back evenly, claims are spread without that.
func (p Pacing) spreads(e *Estimate) bool {
	return p.Spread && e.refill.kind != refillsEvenly && e.refill.kind != refillsNextWindow && e.refill.log == nil
}

// scheduleNext sets when the next claim of e is due after a claim at now, with which open claims are in
// flight: the free units divide the time until the reset.
func (p Pacing) scheduleNext(e *Estimate, now time.Time, open int64) {
	units := e.Left(now) - open - p.Reserved(e.Limit)
	if left := e.Reset.Sub(now); left > 0 {
		e.next = now.Add(left / time.Duration(max(units+1, 1)))
	}
}
