package quota

import (
	"time"

	"github.com/heed-go/heed/throttle"
)

// numMarks is how many responses are remembered: 50 for the evidence of a suspected
// limit, 20 before these, and room for responses that arrive meanwhile.
const maxEvidence = 100

// Kinds of responses beside the causes of package throttle.
const (
	causeSuccess = throttle.CauseUnknown // the request was accepted
	causeOther   = throttle.Cause(255)   // it failed in a way that no server rejects requests with, such as a 500
)

// evidence are the latest responses of one quota, with their times. A rejection without
// numbers, a 503 or a closed connection proves nothing: healthy servers return a few of
// each. The marks decide when there are so many that a limit is the likely reason.
type evidence struct {
	times  [maxEvidence]uint32 // in ticks, see tick
	causes [maxEvidence]throttle.Cause
	n      int       // responses that were ever added; the newest is at (n-1) % numMarks
	total  int       // responses of the quota, those before the marks included
	last   time.Time // of the newest
}

const maxEvidenceAge = 10 * time.Second // older responses are no evidence

// tick returns now in units of 65,536 ns. Differences are right modulo three days;
// marks older than maxMarkAge are dropped long before that.
func tick(now time.Time) uint32 { return uint32(now.UnixNano() >> 16) } //nolint:gosec // wraps on purpose

const ticksPerSecond = uint32(time.Second >> 16)

func (ev *evidence) add(kind throttle.Cause, now time.Time) {
	if now.Sub(ev.last) > 2*maxEvidenceAge {
		ev.restart()
	}
	ev.times[ev.n%maxEvidence], ev.causes[ev.n%maxEvidence] = tick(now), kind
	ev.n++
	ev.total++
	ev.last = later(ev.last, now)
}

// restart drops all marks, as after a cut: responses that came before it are no
// evidence for another one.
func (ev *evidence) restart() { ev.n = 0 }

// len returns how many marks there are.
func (ev *evidence) len() int { return min(ev.n, maxEvidence) }

// at returns the kind and the age in ticks of the mark that i others follow.
func (ev *evidence) at(i int, now uint32) (throttle.Cause, uint32) {
	at := (ev.n - 1 - i) % maxEvidence
	return ev.causes[at], now - ev.times[at]
}

// count returns how many of the newest n marks are of kind, and how many there are.
// Marks of kind that are older than maxMarkAge do not count.
func (ev *evidence) count(kind throttle.Cause, n int, now time.Time) (bad, all int) {
	all, t := min(n, ev.len()), tick(now)
	for i := range all {
		if k, age := ev.at(i, t); k == kind && age < uint32(maxEvidenceAge/time.Second)*ticksPerSecond {
			bad++
		}
	}
	return bad, all
}

// roundTrip returns how many of the marks of the last rtt are of kind, and how many
// there are.
func (ev *evidence) roundTrip(kind throttle.Cause, rtt time.Duration, now time.Time) (bad, all int) {
	t, span := tick(now), uint32(rtt>>16)
	for i := range ev.len() {
		k, age := ev.at(i, t)
		if age > 0 && age >= span {
			break
		}
		if all++; k == kind {
			bad++
		}
	}
	return bad, all
}

// impliesLimit reports whether rejections without numbers are evidence of a limit: five of
// the last eight responses and, where more than eight arrived within one round trip, a
// third of those. Among the first 20 of a quota four of six suffice, since little has
// been learned of the server that would contradict them, unless the server stated that
// the latest may be repeated immediately.
func (ev *evidence) impliesLimit(retryNow bool, rtt time.Duration, now time.Time) bool {
	if ev.total < 20 && !retryNow {
		bad, _ := ev.count(throttle.CauseUnstated, 6, now)
		return bad >= 4
	}
	if bad, _ := ev.count(throttle.CauseUnstated, 8, now); bad < 5 {
		return false
	}
	bad, all := ev.roundTrip(throttle.CauseUnstated, rtt, now)
	return all <= 8 || 3*bad >= all
}

// statedImplyLimit reports whether rejections that state when to come back are evidence
// of a limit: five of the last 16, since the responses to a burst arrive in any order, or
// three of the last eight of the first 30 of a quota.
func (ev *evidence) statedImplyLimit(now time.Time) bool {
	if bad, _ := ev.count(throttle.CauseUnstated, 16, now); bad >= 5 {
		return true
	}
	bad, _ := ev.count(throttle.CauseUnstated, 8, now)
	return ev.total <= 30 && bad >= 3
}

// suggestsLimit reports whether failures of kind are evidence of a limit, and their share
// of the responses that show it: 6 of 10 or 15 of 50, a quarter of those of one round trip where
// these are more than ten, and only where the server worked before.
func (ev *evidence) suggestsLimit(kind throttle.Cause, rtt time.Duration, now time.Time) (share float64, ok bool) {
	bad, all := ev.count(kind, 50, now)
	share = float64(bad) / float64(max(all, 1))
	if few, last := ev.count(kind, 10, now); few >= 6 {
		share = float64(few) / float64(last)
	} else if bad < 15 {
		return 0, false
	}
	if bad, all := ev.roundTrip(kind, rtt, now); all > 10 && 4*bad < all {
		return 0, false
	}
	return share, ev.workedBefore(kind, now)
}

// workedBefore reports whether at least 90 % of the 20 responses before the oldest
// failure of kind that counts succeeded. Of a quota with fewer than 20 responses one
// success suffices.
func (ev *evidence) workedBefore(kind throttle.Cause, now time.Time) bool {
	oldest, t, good := 0, tick(now), 0
	for i := range min(ev.len(), 50) {
		switch k, age := ev.at(i, t); {
		case k == causeSuccess:
			good++
		case k == kind && age < uint32(maxEvidenceAge/time.Second)*ticksPerSecond:
			oldest = i
		}
	}
	if ev.total < 20 {
		return good > 0
	}
	good, seen := 0, 0
	for i := oldest + 1; i < ev.len() && seen < 20; i++ {
		if k, _ := ev.at(i, t); k == causeSuccess {
			good++
		}
		seen++
	}
	return seen > 0 && 10*good >= 9*seen
}

// credit adds what was accepted before the first mark: n responses, evenly until now.
func (ev *evidence) credit(n int64, span time.Duration, now time.Time) {
	ev.total += int(min(n, 1000))
	n = min(n, maxEvidence/2)
	for i := range n {
		ev.add(causeSuccess, now.Add(-span*time.Duration(n-i)/time.Duration(n+1)))
		ev.total--
	}
}

// acceptedRate counts accepted requests per second of the last minute.
type acceptedRate struct {
	second int64 // of the newest count
	counts [61]uint32
}

func (a *acceptedRate) add(n int64, now time.Time) {
	a.advance(now.Unix())
	a.counts[a.second%int64(len(a.counts))] += uint32(min(n, 1<<30)) //nolint:gosec // bounded
}

// spread adds n requests that were accepted evenly within span, which ends now.
func (a *acceptedRate) spread(n int64, span time.Duration, now time.Time) {
	seconds := min(int64(span/time.Second)+1, int64(len(a.counts))-1)
	if whole := int64(span/time.Second) + 1; whole > seconds {
		n = n * seconds / whole
	}
	for i := seconds - 1; i >= 0; i-- {
		a.add(n/seconds, now.Add(-time.Duration(i)*time.Second))
	}
	a.add(n%seconds, now)
}

func (a *acceptedRate) advance(second int64) {
	if second-a.second >= int64(len(a.counts)) {
		*a = acceptedRate{second: second}
		return
	}
	for a.second < second {
		a.second++
		a.counts[a.second%int64(len(a.counts))] = 0
	}
}

// highest returns the highest rate of five seconds in a row, in requests a second.
func (a *acceptedRate) highest(now time.Time) float64 {
	a.advance(now.Unix())
	most := uint32(0)
	for end := range a.counts {
		sum := uint32(0)
		for i := range 5 {
			at := a.second - int64(end+i)
			if end+i < len(a.counts) && at >= 0 {
				sum += a.counts[at%int64(len(a.counts))]
			}
		}
		most = max(most, sum)
	}
	return float64(most) / 5
}

// latest returns the rate of the last five seconds, those without any left out. The
// second that has just begun counts only if there is no other.
func (a *acceptedRate) latest(now time.Time) float64 {
	a.advance(now.Unix())
	sum, seconds := uint32(0), 0
	for i := range int64(6) {
		if n := a.counts[(a.second-i+int64(len(a.counts)))%int64(len(a.counts))]; n > 0 && i > 0 {
			sum, seconds = sum+n, seconds+1
		}
	}
	if seconds == 0 {
		return float64(a.counts[a.second%int64(len(a.counts))])
	}
	return float64(sum) / float64(seconds)
}
