package worlds

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/heed-go/heed/quota"
)

// An invariant is a property of a client that holds in all worlds to which it applies.
type invariant struct {
	name string

	// applies reports whether w is a world in which the invariant can be checked.
	applies func(w *World) bool

	// violations returns the number of violations. peer is the better peer in the same
	// world, and oracle is nil if the world has no limit.
	violations func(r, peer, oracle *Run) int

	// peerless is set if the invariant is not meaningful for a client with an own limit, because the peers have none.
	peerless bool
}

var invariants = []invariant{
	{"I1", func(*World) bool { return true }, func(r, _, _ *Run) int { return Disobedience(r) }, false},
	{"I1b", func(*World) bool { return true }, func(r, _, _ *Run) int { return EarlyRepeats(r) }, false},
	{"I2", (*World).uneventful, func(r, _, _ *Run) int { return Delays(r) }, false},
	{"I3", (*World).recovers, func(r, _, _ *Run) int { return Untested(r) }, false},
	{"I4", (*World).noExtendedBan, Regret, true},
	{"I5", (*World).isolated, func(r, peer, _ *Run) int { return Contagion(r, peer) }, false},
	{"I6", func(*World) bool { return true }, func(r, _, _ *Run) int { return Remains(r) }, false},
	{"I7", (*World).rejectsAll, func(r, _, _ *Run) int { return Hammering(r) }, false},
	{"I7b", (*World).overLimit, func(r, _, _ *Run) int { return Rejections(r) }, false},
}

// Invariants returns the names of the invariants that Violations checks: those of the
// tracker's design that can be seen from outside.
func Invariants() []string {
	names := make([]string, 0, len(invariants))
	for _, i := range invariants {
		names = append(names, i.name)
	}
	return names
}

// Violations returns the number of violations of each invariant that applies to the client and the world of
// r. peer is the better peer in the same world; for a client with an own limit it is that of WithoutTracker. oracle is nil if the
// world has no limit. Those clients themselves are not judged.
func Violations(r, peer, oracle *Run) map[string]int {
	if v := variants[r.Client]; hasOwnLimit(r.Client) && v.mode == quota.Disabled {
		return nil
	}
	all := map[string]int{}
	for _, i := range invariants {
		if i.applies(r.World) && !(i.peerless && hasOwnLimit(r.Client)) && !(i.name == "I6" && r.Memory == nil) {
			all[i.name] = i.violations(r, peer, oracle)
		}
	}
	return all
}

// tolerance is by how much a request may be early or late: one millisecond.
const tolerance = time.Millisecond

// Disobedience returns the number of requests that were sent again before the time that the
// Retry-After header of their own rejection stated (I1).
func Disobedience(r *Run) int {
	return r.repeatedBefore(func(a Attempt) time.Duration { return a.RetryAfter })
}

// EarlyRepeats returns the number of requests that were sent again before the reset that
// their own rejection stated, if it had no Retry-After header (I1). It may be right to send them
// earlier if the limit is a bucket and the reset is the time at which it is full.
func EarlyRepeats(r *Run) int {
	return r.repeatedBefore(func(a Attempt) time.Duration {
		if a.RetryAfter > 0 {
			return 0
		}
		return a.Reset
	})
}

// repeatedBefore returns the number of requests that were sent again before a time of their
// rejection.
func (r *Run) repeatedBefore(stated func(Attempt) time.Duration) (n int) {
	until := make([]time.Duration, len(r.Results))
	for _, a := range r.Attempts {
		if a.Sent < until[a.Call]-tolerance {
			n++
		}
		until[a.Call] = 0
		if a.Rejected {
			until[a.Call] = stated(a)
		}
	}
	return n
}

// uneventful reports whether nothing in w is a reason to delay a request.
func (w *World) uneventful() bool {
	return w.Limit == nil && w.Stated == nil && w.Latency.Failing == 0 && w.onlyPermissions()
}

func (w *World) onlyPermissions() bool {
	return !slices.ContainsFunc(w.Troubles, func(t Trouble) bool { return !t.Permission })
}

// Delays returns the number of calls that were delayed before their first attempt, or were not sent (I2). It applies to
// worlds without rejections, failures and statements. Of a client with an own limit, it is the number of calls that waited for
// another one.
func Delays(r *Run) (n int) {
	if hasOwnLimit(r.Client) {
		for i := range r.Waits {
			if r.Waits[i].waitedForServer() {
				n++
			}
		}
		return n
	}
	for i, sent := range r.firstSent() {
		result := r.Results[i]
		if result.Reason == NotMade {
			continue
		}
		if sent < 0 || sent-result.Start > tolerance {
			n++
		}
	}
	return n
}

// firstSent returns when the first attempt of each call was sent, or -1.
func (r *Run) firstSent() []time.Duration {
	sent := make([]time.Duration, len(r.Results))
	for i := range sent {
		sent[i] = -1
	}
	for _, a := range r.Attempts {
		if a.Number == 1 {
			sent[a.Call] = a.Sent
		}
	}
	return sent
}

// recovers reports whether there is a time from which the server of w accepts all requests.
func (w *World) recovers() bool {
	if w.Limit != nil || w.Latency.Failing > 0 {
		return false
	}
	return !slices.ContainsFunc(w.Troubles, func(t Trouble) bool {
		return !t.Permission && (t.To == 0 || t.Period > 0)
	})
}

// recovery returns the time from which the server of w accepts all requests.
func (w *World) recovery() (at time.Duration) {
	for _, t := range w.Troubles {
		if !t.Permission {
			at = max(at, t.To)
		}
	}
	return at
}

// Untested returns how often no request was sent although calls waited that had not been
// sent yet, and the server would have accepted them, and the number of these calls that
// were not sent soon after a request had been accepted (I3).
//
// A request must be sent within the longest of 1 s, two median latencies and two times the
// duration of the latest attempt; 2 s after a failure; and after a 429 as long as the rejections
// have lasted. Of a client with an own limit, times in which that is used up do not count, and that of the release is not judged: the
// own limit delays it.
func Untested(r *Run) (n int) {
	w := r.World
	from, patience := w.recovery(), r.testInterval()
	sent := r.firstSent()
	waits := r.waitsAfter(from, sent)
	if len(waits) == 0 {
		return 0
	}
	last := Attempt{Sent: from, Done: from}
	next := 0
	for _, a := range append(slices.Clone(r.Attempts), Attempt{Sent: r.Elapsed}) {
		if a.Sent < from {
			last = Attempt{Sent: from, Done: max(a.Done, from)}
			continue
		}
		for next < len(waits) && waits[next].end <= last.Sent {
			next++
		}
		longest := max(patience, 2*(last.Done-last.Sent)) + tolerance
		n += gaps(waits[next:], max(last.Sent, r.ownLimitFree(last.Sent)), a.Sent, longest)
		last = a
	}
	if hasOwnLimit(r.Client) {
		return n
	}
	return n + r.slowRelease(from, waits)
}

// ownLimitFree returns the earliest time from t on at which the own limit on requests in flight of r is not used up.
func (r *Run) ownLimitFree(t time.Duration) time.Duration {
	if !variants[r.Client].inFlight {
		return t
	}
	var done []time.Duration // of the attempts in flight
	for _, a := range r.Attempts {
		if a.Sent <= t && a.Done > t {
			done = append(done, a.Done)
		}
	}
	over := len(done) - int(r.World.ownInFlight())
	if over < 0 {
		return t
	}
	slices.Sort(done)
	return done[over]
}

// testInterval returns the longest time without a request while calls wait.
func (r *Run) testInterval() time.Duration {
	interval := max(time.Second, 2*r.World.Median())
	var first, last time.Duration
	for _, a := range r.Attempts {
		switch {
		case a.Status == http.StatusTooManyRequests:
			if first == 0 {
				first = a.Done
			}
			last = a.Done
		case a.Status < 0 || a.Status >= 500:
			interval = max(interval, 2*time.Second)
		}
	}
	return max(interval, last-first)
}

// A span is the time for which a call waited.
type span struct{ begin, end time.Duration }

// waitsAfter returns the times for which calls waited for their first attempt after from, in
// the order of their ends.
func (r *Run) waitsAfter(from time.Duration, sent []time.Duration) (waits []span) {
	for i, result := range r.Results {
		s := span{max(result.Start, from), sent[i]}
		if sent[i] < 0 {
			s.end = result.Start + result.Duration
		}
		if result.Reason != NotMade && s.end-s.begin > tolerance {
			waits = append(waits, s)
		}
	}
	slices.SortFunc(waits, func(a, b span) int { return cmp.Compare(a.end, b.end) })
	return waits
}

// gaps returns 1 if some of waits, in the order of their ends, cover a time of more than
// longest between begin and end, in which nothing was sent.
func gaps(waits []span, begin, end, longest time.Duration) int {
	if end-begin <= longest {
		return 0
	}
	var covered []span
	for _, s := range waits {
		s.begin, s.end = max(s.begin, begin), min(s.end, end)
		if s.begin < s.end {
			covered = append(covered, s)
		}
	}
	slices.SortFunc(covered, func(a, b span) int { return cmp.Compare(a.begin, b.begin) })
	current := span{}
	for i, s := range covered {
		if i == 0 || s.begin > current.end {
			current = s
		}
		if current.end = max(current.end, s.end); current.end-current.begin > longest {
			return 1
		}
	}
	return 0
}

// slowRelease returns the number of calls that waited when a request was first accepted after
// the recovery, and were sent later than a tenth of the time for which calls had waited,
// at least two round trips and at most 5 s.
func (r *Run) slowRelease(from time.Duration, waits []span) (n int) {
	for _, a := range r.Attempts {
		if a.Sent < from || a.Cause != Served {
			continue
		}
		began := a.Done
		for _, s := range waits {
			if s.begin < a.Done && s.end > a.Done {
				began = min(began, s.begin)
			}
		}
		within := max(min((a.Done-began)/10, 5*time.Second), 2*max(r.World.Median(), a.Done-a.Sent)) + tolerance
		for _, s := range waits {
			if s.begin < a.Done && s.end > a.Done+within {
				n++
			}
		}
		return n
	}
	return 0
}

func (w *World) noExtendedBan() bool { return w.Limit == nil || !w.Limit.Ban.Extend }

// Regret returns 1 if the harm of r exceeds 5 points within max(60 s, 20 median latencies), or
// 0.5 points and three standard errors within ten times as long (I4).
func Regret(r, peer, oracle *Run) int {
	if c := Compare(r, peer, oracle); c.Short > 5 || c.Long > .5 {
		return 1
	}
	return 0
}

// isolated reports whether the only reason for failures in w is that backends, resources,
// tenants or routes are rejected, which have at most a tenth of the requests.
func (w *World) isolated() bool {
	if w.Limit != nil || w.Stated != nil || w.Latency.Failing > 0 {
		return false
	}
	found := 0
	for n := range w.Troubles {
		t := &w.Troubles[n]
		if t.Permission {
			continue
		}
		if t.By == ByRequest || !t.Rejects() {
			return false
		}
		found++
	}
	return found > 0 && 10*w.affectedCalls() <= len(w.calls)
}

func (w *World) affectedCalls() (n int) {
	for i := range w.calls {
		if w.affected(i) {
			n++
		}
	}
	return n
}

// affected reports whether a trouble affects the first attempt of a call.
func (w *World) affected(call int) bool {
	for n := range w.Troubles {
		if t := &w.Troubles[n]; !t.Permission && w.affects(t, n, call, 1) {
			return true
		}
	}
	return false
}

// Contagion returns how many more calls that no trouble affects fail than with the peer, if
// they are more than 0.2 % of these calls (I5).
func Contagion(r, peer *Run) int {
	others, more := 0, 0
	for i, result := range r.Results {
		if r.World.affected(i) {
			continue
		}
		others++
		if !result.OK() {
			more++
		}
		if !peer.Results[i].OK() {
			more--
		}
	}
	if 500*more <= others {
		return 0
	}
	return more
}

// Remains returns the number of violations of what bounds the memory of a tracker (I6): an account takes at most 16 KiB, the bytes
// that it has reserved are those of what it holds, and nothing that it has learned remains when the server states and rejects nothing
// any more.
func Remains(r *Run) int { return len(r.Memory.Problems) }

// rejectsAll reports whether the server of w rejects all requests for a time.
func (w *World) rejectsAll() bool {
	return slices.ContainsFunc(w.Troubles, func(t Trouble) bool { return t.total() && t.Rejects() && t.Period == 0 })
}

// probesPerMinute is how many calls may be sent per minute while everything is rejected.
const probesPerMinute = 60

// Hammering returns how many calls were sent for the first time while the server rejected
// everything, beyond 60 in a minute (I7). It counts from the first rejection on. The requests
// that were in flight then, and retries, are not counted.
func Hammering(r *Run) (n int) {
	for _, t := range r.World.Troubles {
		if !t.total() || !t.Rejects() || t.Period > 0 {
			continue
		}
		begin, count := time.Duration(-1), 0
		for _, a := range r.Attempts {
			switch {
			case a.Sent < t.From || a.Sent >= t.To:
			case begin < 0 || a.Sent <= begin:
				if a.Rejected && (begin < 0 || a.Done < begin) {
					begin = a.Done
				}
			case a.Number == 1:
				count++
			}
		}
		minutes := int((t.To-max(begin, t.From))/time.Minute) + 1
		n += max(count-minutes*probesPerMinute, 0)
	}
	return n
}

// overLimit reports whether w has a limit per time that a demand exceeds, and no other
// reason for rejections.
func (w *World) overLimit() bool {
	l := w.Limit
	return l != nil && l.Kind != InFlight && l.Load >= 1.05 && len(w.Troubles) == 0 && w.Latency.Failing == 0 &&
		l.Others == 0 && l.Backends == 1 && !l.CountRejected && l.Scope == PerHost
}

// Rejections returns the number of rejected requests after the first minute, if they are
// more than 3 % of the requests (I7), and more than can be chance.
func Rejections(r *Run) int {
	sent, rejected := 0, 0
	for _, a := range r.Attempts {
		if a.Sent < time.Minute {
			continue
		}
		sent++
		if a.Cause == ByLimit {
			rejected++
		}
	}
	if rejected < 10 || 100*rejected <= 3*sent {
		return 0
	}
	return rejected
}
