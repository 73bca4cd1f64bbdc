package quota

import (
	"time"

	"github.com/heed-go/heed/throttle"
)

// numMarks is how many responses are remembered: 50 for the evidence of a suspected
// limit, 20 before these, and room for responses that arrive meanwhile.
const numMarks = 100

// Kinds of responses beside the causes of package throttle.
const (
	markGood    = throttle.CauseUnknown // the request was accepted
	markNeutral = throttle.Cause(255)   // it failed in a way that no server rejects requests with, such as a 500
)

// marks are the latest responses of one quota, with their times. A rejection without
// numbers, a 503 or a closed connection proves nothing: healthy servers return a few of
// each. The marks decide when there are so many that a limit is the likely reason.
type marks struct {
	at    [numMarks]uint32 // in ticks, see tick
	kind  [numMarks]throttle.Cause
	n     int       // responses that were ever added; the newest is at (n-1) % numMarks
	total int       // responses of the quota, those before the marks included
	last  time.Time // of the newest
}

const maxMarkAge = 10 * time.Second // older responses are no evidence

// tick returns now in units of 65,536 ns. Differences are right modulo three days;
// marks older than maxMarkAge are dropped long before that.
func tick(now time.Time) uint32 { return uint32(now.UnixNano() >> 16) } //nolint:gosec // wraps on purpose

const ticksPerSecond = uint32(time.Second >> 16)

func (m *marks) add(kind throttle.Cause, now time.Time) {
	if now.Sub(m.last) > 2*maxMarkAge {
		m.restart()
	}
	m.at[m.n%numMarks], m.kind[m.n%numMarks] = tick(now), kind
	m.n++
	m.total++
	m.last = later(m.last, now)
}

// restart drops all marks, as after a cut: responses that came before it are no
// evidence for another one.
func (m *marks) restart() { m.n = 0 }

// kept returns how many marks there are.
func (m *marks) kept() int { return min(m.n, numMarks) }

// back returns the kind and the age in ticks of the mark that i others follow.
func (m *marks) back(i int, now uint32) (throttle.Cause, uint32) {
	at := (m.n - 1 - i) % numMarks
	return m.kind[at], now - m.at[at]
}

// count returns how many of the newest n marks are of kind, and how many there are.
// Marks of kind that are older than maxMarkAge do not count.
func (m *marks) count(kind throttle.Cause, n int, now time.Time) (bad, all int) {
	all, t := min(n, m.kept()), tick(now)
	for i := range all {
		if k, age := m.back(i, t); k == kind && age < uint32(maxMarkAge/time.Second)*ticksPerSecond {
			bad++
		}
	}
	return bad, all
}

// roundTrip returns how many of the marks of the last rtt are of kind, and how many
// there are.
func (m *marks) roundTrip(kind throttle.Cause, rtt time.Duration, now time.Time) (bad, all int) {
	t, span := tick(now), uint32(rtt>>16)
	for i := range m.kept() {
		k, age := m.back(i, t)
		if age > 0 && age >= span {
			break
		}
		if all++; k == kind {
			bad++
		}
	}
	return bad, all
}

// implied reports whether rejections without numbers are evidence of a limit: five of
// the last eight responses and, where more than eight arrived within one round trip, a
// third of those. Among the first 20 of a quota four of six suffice, since little has
// been learned of the server that would contradict them, unless the server stated that
// the latest may be repeated immediately.
func (m *marks) implied(retryNow bool, rtt time.Duration, now time.Time) bool {
	if m.total < 20 && !retryNow {
		bad, _ := m.count(throttle.CauseUnstated, 6, now)
		return bad >= 4
	}
	if bad, _ := m.count(throttle.CauseUnstated, 8, now); bad < 5 {
		return false
	}
	bad, all := m.roundTrip(throttle.CauseUnstated, rtt, now)
	return all <= 8 || 3*bad >= all
}

// impliedByStatements reports whether rejections that state when to come back are evidence
// of a limit: five of the last 16, since the responses to a burst arrive in any order, or
// three of the last eight of the first 30 of a quota.
func (m *marks) impliedByStatements(now time.Time) bool {
	if bad, _ := m.count(throttle.CauseUnstated, 16, now); bad >= 5 {
		return true
	}
	bad, _ := m.count(throttle.CauseUnstated, 8, now)
	return m.total <= 30 && bad >= 3
}

// suspected reports whether failures of kind are evidence of a limit, and their share
// of the responses that show it: 6 of 10 or 15 of 50, a quarter of those of one round trip where
// these are more than ten, and only where the server worked before.
func (m *marks) suspected(kind throttle.Cause, rtt time.Duration, now time.Time) (share float64, ok bool) {
	bad, all := m.count(kind, 50, now)
	share = float64(bad) / float64(max(all, 1))
	if few, last := m.count(kind, 10, now); few >= 6 {
		share = float64(few) / float64(last)
	} else if bad < 15 {
		return 0, false
	}
	if bad, all := m.roundTrip(kind, rtt, now); all > 10 && 4*bad < all {
		return 0, false
	}
	return share, m.workedBefore(kind, now)
}

// workedBefore reports whether at least 90 % of the 20 responses before the oldest
// failure of kind that counts succeeded. Of a quota with fewer than 20 responses one
// success suffices.
func (m *marks) workedBefore(kind throttle.Cause, now time.Time) bool {
	oldest, t, good := 0, tick(now), 0
	for i := range min(m.kept(), 50) {
		switch k, age := m.back(i, t); {
		case k == markGood:
			good++
		case k == kind && age < uint32(maxMarkAge/time.Second)*ticksPerSecond:
			oldest = i
		}
	}
	if m.total < 20 {
		return good > 0
	}
	good, seen := 0, 0
	for i := oldest + 1; i < m.kept() && seen < 20; i++ {
		if k, _ := m.back(i, t); k == markGood {
			good++
		}
		seen++
	}
	return seen > 0 && 10*good >= 9*seen
}

// credit adds what was accepted before the first mark: n responses, evenly until now.
func (m *marks) credit(n int64, span time.Duration, now time.Time) {
	m.total += int(min(n, 1000))
	n = min(n, numMarks/2)
	for i := range n {
		m.add(markGood, now.Add(-span*time.Duration(n-i)/time.Duration(n+1)))
		m.total--
	}
}

// acceptedRate counts accepted requests per second of the last minute.
type acceptedRate struct {
	second int64 // of the newest count
	n      [61]uint32
}

func (a *acceptedRate) add(n int64, now time.Time) {
	a.advance(now.Unix())
	a.n[a.second%int64(len(a.n))] += uint32(min(n, 1<<30)) //nolint:gosec // bounded
}

// spread adds n requests that were accepted evenly within span, which ends now.
func (a *acceptedRate) spread(n int64, span time.Duration, now time.Time) {
	seconds := min(int64(span/time.Second)+1, int64(len(a.n))-1)
	if whole := int64(span/time.Second) + 1; whole > seconds {
		n = n * seconds / whole
	}
	for i := seconds - 1; i >= 0; i-- {
		a.add(n/seconds, now.Add(-time.Duration(i)*time.Second))
	}
	a.add(n%seconds, now)
}

func (a *acceptedRate) advance(second int64) {
	if second-a.second >= int64(len(a.n)) {
		*a = acceptedRate{second: second}
		return
	}
	for a.second < second {
		a.second++
		a.n[a.second%int64(len(a.n))] = 0
	}
}

// highest returns the highest rate of five seconds in a row, in requests a second.
func (a *acceptedRate) highest(now time.Time) float64 {
	a.advance(now.Unix())
	most := uint32(0)
	for end := range a.n {
		sum := uint32(0)
		for i := range 5 {
			at := a.second - int64(end+i)
			if end+i < len(a.n) && at >= 0 {
				sum += a.n[at%int64(len(a.n))]
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
		if n := a.n[(a.second-i+int64(len(a.n)))%int64(len(a.n))]; n > 0 && i > 0 {
			sum, seconds = sum+n, seconds+1
		}
	}
	if seconds == 0 {
		return float64(a.n[a.second%int64(len(a.n))])
	}
	return float64(sum) / float64(seconds)
}
