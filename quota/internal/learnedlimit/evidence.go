package learnedlimit

import (
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// Kinds of responses in addition to the causes of package throttle.
const (
	CauseSuccess = throttle.CauseUnknown // the request was accepted
	causeOther   = throttle.Cause(255)   // it failed in a way in which no server rejects requests, such as with a 500
)

// Evidence is a ring of the latest responses of one quota. One rejection that states nothing, one
// 503 or one closed connection does not show a limit, because healthy servers return a few of each.
// The evidence decides when there are so many of one kind that a limit is the probable reason. The
// zero Evidence holds no response.
type Evidence struct {
	times  [maxEvidence]uint32         // in ticks, see tick
	causes [maxEvidence]throttle.Cause // kind of each response
	N      int                         // responses since the latest restart; the newest has index (N-1) % maxEvidence
	Total  int                         // responses of the quota, including those that were dropped
	last   time.Time                   // of the newest one
}

const (
	maxEvidence    = 100              // responses in the ring: 50 for a suspected cause, 20 before these, and those that arrive meanwhile
	maxEvidenceAge = 10 * time.Second // an older rejection is no evidence

	maxEvidenceTicks = uint32(maxEvidenceAge/time.Second) * uint32(time.Second>>16)
)

// tick returns now in ticks of 65,536 ns. Differences are correct modulo three days. Responses are
// dropped long before that.
func tick(now time.Time) uint32 { return uint32(now.UnixNano() >> 16) } //nolint:gosec // wraps on purpose

// Add adds a response of a kind. If the one before is much older, all others are dropped.
func (ev *Evidence) Add(kind throttle.Cause, now time.Time) {
	if ev.N > 0 && now.Sub(ev.last) > 2*maxEvidenceAge {
		ev.Restart()
	}
	ev.times[ev.N%maxEvidence], ev.causes[ev.N%maxEvidence] = tick(now), kind
	ev.N++
	ev.Total++
	ev.last = ticks.Later(ev.last, now)
}

// AddAccepted adds n accepted requests, evenly over the time took, which ends now. They were sent
// before the first response that was added.
func (ev *Evidence) AddAccepted(n int64, took time.Duration, now time.Time) {
	ev.Total += int(min(n, 1000))
	n = min(n, maxEvidence/2)
	for i := range n {
		ev.Add(CauseSuccess, now.Add(-took*time.Duration(n-i)/time.Duration(n+1)))
		ev.Total--
	}
}

// Restart drops all responses. After a change of the limits, those from before it are no evidence
// for another change.
func (ev *Evidence) Restart() { ev.N = 0 }

// len returns how many responses are in the ring.
func (ev *Evidence) len() int { return min(ev.N, maxEvidence) }

// at returns the kind of a response, and its age in ticks. The newest one has i = 0.
func (ev *Evidence) at(i int, now uint32) (throttle.Cause, uint32) {
	at := (ev.N - 1 - i) % maxEvidence
	return ev.causes[at], now - ev.times[at]
}

// Count returns how many of the newest n responses, all of them, are of kind and not too old.
func (ev *Evidence) Count(kind throttle.Cause, n int, now time.Time) (ofKind, all int) {
	all, t := min(n, ev.len()), tick(now)
	for i := range all {
		if k, age := ev.at(i, t); k == kind && age < maxEvidenceTicks {
			ofKind++
		}
	}
	return ofKind, all
}

// countRoundTrip returns how many responses of the last rtt there are, and how many of them are of
// kind.
func (ev *Evidence) countRoundTrip(kind throttle.Cause, rtt time.Duration, now time.Time) (ofKind, all int) {
	t, span := tick(now), uint32(rtt>>16)
	for i := range ev.len() {
		k, age := ev.at(i, t)
		if age > 0 && age >= span {
			break
		}
		if all++; k == kind {
			ofKind++
		}
	}
	return ofKind, all
}

// ImpliesLimit reports whether bare rejections are evidence of a limit: 5 of the last 8 responses
// and, if more than 8 arrived within one round trip, a third of those. Among the first 20 responses
// of a quota 4 of 6 suffice, because a server that has accepted little is not known to be healthy.
// That does not apply if the latest one stated, as retryNow, that the request may be repeated now.
func (ev *Evidence) ImpliesLimit(retryNow bool, rtt time.Duration, now time.Time) bool {
	if ev.Total < 20 && !retryNow {
		rejected, _ := ev.Count(throttle.CauseUnstated, 6, now)
		return rejected >= 4
	}
	if rejected, _ := ev.Count(throttle.CauseUnstated, 8, now); rejected < 5 {
		return false
	}
	rejected, all := ev.countRoundTrip(throttle.CauseUnstated, rtt, now)
	return all <= 8 || 3*rejected >= all
}

// StatedImplyLimit reports whether rejections that state a wait are evidence of a limit that
// they do not state: 5 of the last 16 responses, because those to one burst arrive in any order, or
// 3 of the last 8 among the first 30 of a quota.
func (ev *Evidence) StatedImplyLimit(now time.Time) bool {
	if rejected, _ := ev.Count(throttle.CauseUnstated, 16, now); rejected >= 5 {
		return true
	}
	rejected, _ := ev.Count(throttle.CauseUnstated, 8, now)
	return ev.Total <= 30 && rejected >= 3
}

// SuggestsLimit reports whether failures of kind, a suspected cause, are evidence of a limit: 6 of
// the last 10 responses or 15 of the last 50, a quarter of those of one round trip if these are more
// than 10, and only if the server was healthy before. share is their part of the last 10 or 50
// responses.
func (ev *Evidence) SuggestsLimit(kind throttle.Cause, rtt time.Duration, now time.Time) (share float64, ok bool) {
	failed, all := ev.Count(kind, 50, now)
	share = float64(failed) / float64(max(all, 1))
	if few, last := ev.Count(kind, 10, now); few >= 6 {
		share = float64(few) / float64(last)
	} else if failed < 15 {
		return 0, false
	}
	if failed, all := ev.countRoundTrip(kind, rtt, now); all > 10 && 4*failed < all {
		return 0, false
	}
	return share, ev.WasHealthy(kind, now)
}

// SuggestsBan reports whether 403s are evidence of a ban by a host that is not known yet: 5 of the last 8
// responses, as of bare rejections, if the server was healthy before.
func (ev *Evidence) SuggestsBan(now time.Time) bool {
	forbidden, _ := ev.Count(throttle.CauseForbidden, 8, now)
	return forbidden >= 5 && ev.WasHealthy(throttle.CauseForbidden, now)
}

// WasHealthy reports whether at least 90 % of the 20 responses before the oldest failure of kind
// that counts were successful. If the quota has had fewer than 20 responses, one success suffices.
func (ev *Evidence) WasHealthy(kind throttle.Cause, now time.Time) bool {
	oldest, successes, t := 0, 0, tick(now)
	for i := range min(ev.len(), 50) {
		switch k, age := ev.at(i, t); {
		case k == CauseSuccess:
			successes++
		case k == kind && age < maxEvidenceTicks:
			oldest = i
		}
	}
	if ev.Total < 20 {
		return successes > 0
	}
	successes = 0
	before := min(ev.len()-oldest-1, 20)
	for i := range before {
		if k, _ := ev.at(oldest+1+i, t); k == CauseSuccess {
			successes++
		}
	}
	return before > 0 && 10*successes >= 9*before
}

// An AcceptedRate counts the requests that were accepted in each second of the last minute.
type AcceptedRate struct {
	second int64      // Unix time of the newest count
	counts [61]uint32 // a ring: the count of Unix second s has index s % 61
}

// Add counts n requests that were accepted now. Zero only drops the counts that are too old by now.
func (a *AcceptedRate) Add(n int64, now time.Time) {
	second := now.Unix()
	if second-a.second >= int64(len(a.counts)) {
		*a = AcceptedRate{second: second}
	}
	for a.second < second {
		a.second++
		a.counts[a.second%int64(len(a.counts))] = 0
	}
	a.counts[a.second%int64(len(a.counts))] += uint32(min(n, 1<<30)) //nolint:gosec // bounded
}

// AddEvenly counts n requests that were accepted evenly over the time took, which ends now.
func (a *AcceptedRate) AddEvenly(n int64, took time.Duration, now time.Time) {
	seconds := min(int64(took/time.Second)+1, int64(len(a.counts))-1)
	if whole := int64(took/time.Second) + 1; whole > seconds {
		n = n * seconds / whole
	}
	for i := seconds - 1; i >= 0; i-- {
		a.Add(n/seconds, now.Add(-time.Duration(i)*time.Second))
	}
	a.Add(n%seconds, now)
}

// Highest returns the highest rate in five consecutive seconds, in requests per second.
func (a *AcceptedRate) Highest(now time.Time) float64 {
	a.Add(0, now)
	highest := uint32(0)
	for end := range a.counts {
		sum := uint32(0)
		for i := range 5 {
			second := a.second - int64(end+i)
			if end+i < len(a.counts) && second >= 0 {
				sum += a.counts[second%int64(len(a.counts))]
			}
		}
		highest = max(highest, sum)
	}
	return float64(highest) / 5
}

// Latest returns the rate of the last five complete seconds, without those in which nothing was
// accepted, in requests per second. If there is none, it is the count of the present second.
func (a *AcceptedRate) Latest(now time.Time) float64 {
	a.Add(0, now)
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
