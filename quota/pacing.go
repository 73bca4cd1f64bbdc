package quota

import (
	"math"
	"time"

	"github.com/heed-go/heed/throttle"
)

// otherClients is what is known of how much of a told limit others use: other processes
// of ours, or other clients of the same account. They see the numbers that we see,
// so nobody needs to be told of anybody. What was used less what we used is theirs.
//
// While they are there, nobody may take all that is left for itself. If each of n
// spread what is left over the time until the reset as though it were alone, and
// looked again each time, they would never use up more than there is:
//
//	left
//	 │╲  ╲
//	 │ ╲    ╲   one
//	 │  ╲      ╲
//	 │   ╲_ ten   ╲
//	 └──────‾‾‾‾‾‾‾‾╲──▶ time
//	                reset
//
// and all would get the same. But ten would use most of it at once. So each goes at
// the root of its share of that pace: all together are closer to even then, and
// shares that differ get closer, too, with every window.
type otherClients struct {
	present bool    // there are others
	share   float64 // ours of what was used, in (0, 1]; 0: not known yet

	lastSeen time.Time // when others were last seen at it

	base      int64         // units that were used before we heard of the limit
	own       int64         // units of ours since mark
	ownBefore int64         // and for as long before it
	since     time.Time     // zero: we have not heard of the limit yet
	window    time.Duration // the longest that we heard it takes until units come back
	at        time.Time     // when we last heard of it

	watched uint64        // of the claim whose answer will show the lag; 0: none
	sent    time.Time     // when it went
	lag     time.Duration // between a claim and its answer

	jitter float64 // how much longer or shorter than even the next pause is: around 1

	// late is set if we first heard of this window when most of it was used, and
	// roughly. Then its reset may come up to a second sooner than told.
	startedLate bool
}

const (
	presentBelow    = 0.9              // a share below which there are others
	goneAfter       = 5                // resets without others there are none any more
	shareWithin     = 30 * time.Second // what resets later is shared only when little is left
	attributeWithin = 2 * time.Second  // and of what resets later we take our predecessor's use for no one's
	spareUnits      = 2                // that nobody takes: they show the others that the window is not over
	shareWeight     = 0.25             // of one answer in the share
)

// granted notes that claim n of ours goes at now.
func (o *otherClients) granted(n uint64, now time.Time, random float64) {
	o.own++
	o.jitter = 0.5 + random
	if o.watched == 0 {
		o.watched, o.sent = n, now
	}
}

// responded notes that the answer to claim n came at now.
func (o *otherClients) responded(n uint64, now time.Time) {
	if o.watched != 0 && n >= o.watched {
		o.lag, o.watched = max(now.Sub(o.sent), 0), 0 // somebody may have set the clock back
	}
}

// begin is called when the limit is first heard of, after sent claims of ours. Who
// used what of a long window before says nothing of now.
func (o *otherClients) begin(used, sent int64, reset time.Duration, now time.Time) {
	o.base, o.own, o.since, o.at = 0, sent, now, now
	if reset > attributeWithin {
		o.base = max(used-sent, 0)
	}
}

// restart notes that most units came back, of which a first one was ours again.
func (o *otherClients) restart(used int64, reset time.Duration, now time.Time) {
	o.ownBefore = 0
	o.begin(used, 1, reset, now)
}

// update takes over that used units of limit are used, and come back within reset.
func (o *otherClients) update(limit, used int64, reset time.Duration, now time.Time) {
	if o.window = max(o.window, reset); now.Sub(o.since) >= o.window {
		o.ownBefore, o.own, o.since = o.own, 0, now
	}
	part := float64(now.Sub(o.at)) / float64(max(now.Sub(o.at), reset, 1)) // of a window that has passed
	if used < limit/2 {                                                    // nobody needs to be modest
		o.share = min(o.share*(1+part), 1)
	}
	o.at = now
	o.base = min(o.base, used)
	if used -= o.base; used < max(4, limit/20) {
		return // too few to tell
	}
	share := 1.0
	if mine := o.recentOwn(now); used-mine > max(2, limit/20) {
		share, o.lastSeen = float64(max(mine, 1))/float64(used), now
	}
	if o.share == 0 {
		o.share = share
	}
	if share > o.share { // others may only be waiting for this window to end
		o.share += min(shareWeight, part) * (share - o.share)
	} else {
		o.share += shareWeight * (share - o.share)
	}
	o.present = o.share < presentBelow || o.present && now.Sub(o.lastSeen) < goneAfter*reset
}

// recentOwn returns how many units we used in the time of a window.
func (o *otherClients) recentOwn(now time.Time) int64 {
	rest := max(1-float64(now.Sub(o.since))/float64(max(o.window, 1)), 0)
	return o.own + int64(rest*float64(o.ownBefore))
}

// wait returns how long after now our next claim is due. At the time at there were
// left units left, open of which are on their way by now, and more come back at
// reset.
//
// All do as we do, so of what was left then a part of u^k is still there when a part
// u of the time is left, if share is ours and
//
//	pace(u) = √share left(u) / u      left(u) = left u^k      k = (1-share) / √share
//
// The integral of our pace is how many claims of ours are due by then:
// √share left (1-u^k) / k.
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
	return root, max((1-o.share)/root, 1e-3)
}

// carryJitter keeps what of the pause before our next claim is over by now, as news begin
// it anew. Else nobody would go as long as there are news.
func (e *estimate) carryJitter(now time.Time, open int64) {
	o := &e.others
	span, rest := e.reset.Sub(e.at), e.reset.Sub(now)
	if !o.present || o.share <= 0 || rest <= 0 || span <= rest {
		return
	}
	root, k := o.paceLaw()
	units := float64(max(e.left(now)-spareUnits, 0))
	due := root * units * (1 - math.Pow(float64(rest)/float64(span), k)) / k
	o.jitter = max(o.jitter-max(due-float64(open), 0), 0)
}

// compare learns from an answer to claim n, of sent so far, how much of the limit
// others use. It reports whether all units came back sooner than was thought: where
// others begin the next window, nothing else tells when.
func (e *estimate) compare(w throttle.RemoteLimit, n, sent uint64, now time.Time) (stepped bool) {
	o, left, reset := &e.others, max(w.Remaining, 0), resetOf(w, now).Sub(now)
	over, rise, most := !now.Before(e.reset), left-e.remaining > w.Limit/2, left <= w.Limit/2
	switch {
	case o.since.IsZero():
		o.begin(max(w.Limit-left, 0), int64(sent), reset, now)
	case rise && (o.present || over) && e.refill.kind != refillsEach:
		o.restart(max(w.Limit-left, 0), reset, now)
	}
	if over || !most {
		o.startedLate = most && w.Resolution > 0
	}
	o.responded(n, now)
	if n > e.seen || left < e.remaining {
		o.update(w.Limit, max(w.Limit-left, 0), reset, now)
	}
	return rise && o.present && e.refill.kind != refillsEach
}

// isShared reports whether what is left is shared with others by the time: if the
// reset is near, or little is left, or less than is gone by the time when open claims
// have been answered, as things went until now.
func (e *estimate) isShared(now time.Time, open int64) bool {
	if o := &e.others; !o.present || e.reset.Sub(now) <= shareWithin || float64(e.remaining) < spreadBelow*float64(e.limit) {
		return o.present
	}
	answered := max(e.others.recentOwn(now)-open, 1)
	each := float64(e.limit-e.remaining-e.others.base) / float64(answered)
	return float64(e.remaining) < each*float64(open+1)
}

// spreadOfClients is how much later than told the first claim after a refusal may go. Those
// who were told to come back in whole seconds would else always come back in the
// same order, and the last of them find nothing left each time.
func (q *quota) spreadOfClients() time.Duration {
	for i := range q.estimates {
		if q.estimates[i].others.present {
			return time.Second
		}
	}
	return 0
}

// A Pacing selects how the remaining units of a quota are spent over the time until its reset.
type Pacing uint8

const (
	// Auto sends requests immediately while at least a tenth of the quota remains. Below that
	// it spreads them like Spread, if the reset is more than 30 seconds and not more than an
	// hour away, or is within a window that the server states.
	Auto Pacing = iota

	// Burst sends requests immediately until no units remain.
	Burst

	// Spread sends requests at even intervals, so that no units remain at the reset.
	Spread
)

const (
	spreadBelow = 0.1              // of the limit, in Auto
	spreadFar   = 30 * time.Second // from the reset, in Auto
)

// A pacing is how we use the quotas that servers tell.
type pacing struct {
	mode     Pacing
	headroom float64 // left to others

	maxHold time.Duration // until the first test of a reset that is too far away
}

// reserved returns how many units of limit are left to others.
func (p pacing) reserved(limit int64) int64 {
	if p.headroom <= 0 {
		return 0
	}
	return int64(math.Ceil(min(p.headroom, 1) * float64(limit)))
}

// spreads reports whether the units that are free of t are to be spread over the
// time until its reset. Those of a bucket that fills up evenly are so by nature.
func (p pacing) spreads(e *estimate, units int64, now time.Time) bool {
	if p.mode == Burst || e.refill.kind == refillsEvenly || e.refill.log != nil {
		return false
	}
	far := e.reset.Sub(now)
	few := float64(units) < spreadBelow*float64(e.limit) && far > spreadFar && far <= max(maxStated, e.per)
	return p.mode == Spread || few
}

// scheduleNext notes that a claim goes at now. Units of t are free for the time that is
// left, so the next one is due after its part of that.
func (p pacing) scheduleNext(e *estimate, now time.Time, f *inFlight) {
	units := e.left(now) - f.open - p.reserved(e.limit)
	if left := e.reset.Sub(now); left > 0 {
		e.next = now.Add(left / time.Duration(max(units+1, 1)))
	}
}
