package quota

import (
	"math"
	"time"

	"github.com/heed-go/heed/throttle"
)

// others is what is known of how much of a told limit others use: other processes
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
type others struct {
	seen  bool    // there are others
	share float64 // ours of what was used, in (0, 1]; 0: not known yet

	met time.Time // when others were last seen at it

	base   int64         // units that were used before we heard of the limit
	mine   int64         // units of ours since mark
	prev   int64         // and for as long before it
	mark   time.Time     // zero: we have not heard of the limit yet
	window time.Duration // the longest that we heard it takes until units come back
	at     time.Time     // when we last heard of it

	number uint64        // of the claim whose answer will show the lag; 0: none
	sent   time.Time     // when it went
	lag    time.Duration // between a claim and its answer

	dice float64 // how much longer or shorter than even the next pause is: around 1

	// late is set if we first heard of this window when most of it was used, and
	// roughly. Then its reset may come up to a second sooner than told.
	late bool
}

const (
	notAlone   = 0.9              // a share below which there are others
	aloneAfter = 5                // resets without others there are none any more
	shareSoon  = 30 * time.Second // what resets later is shared only when little is left
	blameSoon  = 2 * time.Second  // and of what resets later we take our predecessor's use for no one's
	spareUnits = 2                // that nobody takes: they show the others that the window is not over
	newsWeight = 0.25             // of one answer in the share
)

// took notes that claim n of ours goes at now.
func (o *others) took(n uint64, now time.Time, random float64) {
	o.mine++
	o.dice = 0.5 + random
	if o.number == 0 {
		o.number, o.sent = n, now
	}
}

// answered notes that the answer to claim n came at now.
func (o *others) answered(n uint64, now time.Time) {
	if o.number != 0 && n >= o.number {
		o.lag, o.number = max(now.Sub(o.sent), 0), 0 // somebody may have set the clock back
	}
}

// begin is called when the limit is first heard of, after sent claims of ours. Who
// used what of a long window before says nothing of now.
func (o *others) begin(used, sent int64, reset time.Duration, now time.Time) {
	o.base, o.mine, o.mark, o.at = 0, sent, now, now
	if reset > blameSoon {
		o.base = max(used-sent, 0)
	}
}

// restart notes that most units came back, of which a first one was ours again.
func (o *others) restart(used int64, reset time.Duration, now time.Time) {
	o.prev = 0
	o.begin(used, 1, reset, now)
}

// learn takes over that used units of limit are used, and come back within reset.
func (o *others) learn(limit, used int64, reset time.Duration, now time.Time) {
	if o.window = max(o.window, reset); now.Sub(o.mark) >= o.window {
		o.prev, o.mine, o.mark = o.mine, 0, now
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
	if mine := o.recent(now); used-mine > max(2, limit/20) {
		share, o.met = float64(max(mine, 1))/float64(used), now
	}
	if o.share == 0 {
		o.share = share
	}
	if share > o.share { // others may only be waiting for this window to end
		o.share += min(newsWeight, part) * (share - o.share)
	} else {
		o.share += newsWeight * (share - o.share)
	}
	o.seen = o.share < notAlone || o.seen && now.Sub(o.met) < aloneAfter*reset
}

// recent returns how many units we used in the time of a window.
func (o *others) recent(now time.Time) int64 {
	rest := max(1-float64(now.Sub(o.mark))/float64(max(o.window, 1)), 0)
	return o.mine + int64(rest*float64(o.prev))
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
func (o *others) wait(left, open int64, at, now, reset time.Time) time.Duration {
	root, k := o.law()
	span := reset.Sub(at)
	units := float64(left-spareUnits) * math.Pow(1-float64(o.lag)/float64(max(span+o.lag, 1)), k)
	u := math.Pow(max(1-(float64(open)+o.dice)*k/(root*max(units, 1e-9)), 0), 1/k)
	due := reset
	if rest := time.Duration(u * float64(span)); rest > 2*o.lag {
		due = reset.Add(-rest)
	} else if o.late && left > 0 && open == 0 {
		due = reset.Add(-min(time.Duration((o.dice-0.5)*float64(time.Second)), span-2*o.lag))
	}
	return max(due.Sub(now), 0)
}

// law returns √share and k, see wait.
func (o *others) law() (root, k float64) {
	root = math.Sqrt(o.share)
	return root, max((1-o.share)/root, 1e-3)
}

// advance keeps what of the pause before our next claim is over by now, as news begin
// it anew. Else nobody would go as long as there are news.
func (t *told) advance(now time.Time, open int64) {
	o := &t.others
	span, rest := t.reset.Sub(t.at), t.reset.Sub(now)
	if !o.seen || o.share <= 0 || rest <= 0 || span <= rest {
		return
	}
	root, k := o.law()
	units := float64(max(t.left(now)-spareUnits, 0))
	due := root * units * (1 - math.Pow(float64(rest)/float64(span), k)) / k
	o.dice = max(o.dice-max(due-float64(open), 0), 0)
}

// compare learns from an answer to claim n, of sent so far, how much of the limit
// others use. It reports whether all units came back sooner than was thought: where
// others begin the next window, nothing else tells when.
func (t *told) compare(w throttle.RemoteLimit, n, sent uint64, now time.Time) (stepped bool) {
	o, left, reset := &t.others, max(w.Remaining, 0), resetOf(w, now).Sub(now)
	over, rise, most := !now.Before(t.reset), left-t.remaining > w.Limit/2, left <= w.Limit/2
	switch {
	case o.mark.IsZero():
		o.begin(max(w.Limit-left, 0), int64(sent), reset, now)
	case rise && (o.seen || over) && t.refill.kind != drips:
		o.restart(max(w.Limit-left, 0), reset, now)
	}
	if over || !most {
		o.late = most && w.Resolution > 0
	}
	o.answered(n, now)
	if n > t.seen || left < t.remaining {
		o.learn(w.Limit, max(w.Limit-left, 0), reset, now)
	}
	return rise && o.seen && t.refill.kind != drips
}

// shared reports whether what is left is shared with others by the time: if the
// reset is near, or little is left, or less than is gone by the time when open claims
// have been answered, as things went until now.
func (t *told) shared(now time.Time, open int64) bool {
	if o := &t.others; !o.seen || t.reset.Sub(now) <= shareSoon || float64(t.remaining) < spreadBelow*float64(t.limit) {
		return o.seen
	}
	answered := max(t.others.recent(now)-open, 1)
	each := float64(t.limit-t.remaining-t.others.base) / float64(answered)
	return float64(t.remaining) < each*float64(open+1)
}

// spread is how much later than told the first claim after a refusal may go. Those
// who were told to come back in whole seconds would else always come back in the
// same order, and the last of them find nothing left each time.
func (b *bucket) spread() time.Duration {
	for i := range b.told {
		if b.told[i].others.seen {
			return time.Second
		}
	}
	return 0
}
