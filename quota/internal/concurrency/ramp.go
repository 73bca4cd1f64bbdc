package concurrency

import (
	"math"
	"time"
)

// A Ramp bounds the requests in flight for a short time after a wait, so that what has waited is not sent all together.
// The bound grows with time alone, whether or not there are responses:
//
//	bound = before + 2^(10 (now - start) / (end - start))
//
// Requests that were in flight before have not waited, so they do not count. At the end there is no bound. The zero Ramp
// does not bound.
type Ramp struct {
	start, end time.Time
	before     int64  // requests in flight before
	few        int64  // requests after which it pauses; 0: it does not
	last       uint64 // claim after which it pauses, or has paused; 0: it has not
}

const doublings = 10 // of the bound, from the start to the end

// NewRamp returns a Ramp that begins at start with one request in flight, besides those that were before.
func NewRamp(before int64, start time.Time, length time.Duration) Ramp {
	return Ramp{start: start, end: start.Add(length), before: before}
}

// PauseAfter makes r pause after so many requests, until the response to the last of them. 0 means that it does not.
func (r *Ramp) PauseAfter(requests int64) { r.few = requests }

// Sent applies that claim n is sent now, the last one of open in flight. A pause that begins with it lasts for at most longest. Then
// r begins again with one.
func (r *Ramp) Sent(n uint64, open int64, longest time.Duration, now time.Time) {
	if r.few == 0 || !r.On(now) {
		return
	}
	if r.few--; r.few == 0 {
		*r = NewRamp(open, now.Add(longest), max(r.end.Sub(now), longest))
		r.last = n
	}
}

// Resume ends a pause that is over, with open in flight. accepted is a claim that the server has accepted; 0: none.
func (r *Ramp) Resume(accepted uint64, open int64, now time.Time) {
	switch {
	case r.last == 0:
	case accepted == r.last:
		*r = NewRamp(open, now, r.end.Sub(r.start))
	case !now.Before(r.start):
		r.before, r.last = min(r.before, open), 0
	}
}

// Check reports whether one more request may be sent as of now, with open in flight. If not, wait is the time
// until it may, if no response arrives before.
func (r *Ramp) Check(open int64, now time.Time) (wait time.Duration, ok bool) {
	if r.end.IsZero() || !now.Before(r.end) {
		return 0, true
	}
	length := float64(r.end.Sub(r.start)) / doublings
	opens := r.start.Add(time.Duration(length * math.Log2(float64(max(open+1-r.before, 1)))))
	if wait = min(opens.Sub(now), r.end.Sub(now)); wait <= 0 {
		return 0, true
	}
	return wait, false
}

// Bound returns the bound as of now; 0: there is none.
func (r *Ramp) Bound(now time.Time) int64 {
	if r.end.IsZero() || !now.Before(r.end) {
		return 0
	}
	part := max(float64(now.Sub(r.start))/float64(r.end.Sub(r.start)), 0)
	return r.before + int64(math.Exp2(doublings*part))
}

// On reports whether requests are bounded as of now.
func (r *Ramp) On(now time.Time) bool { return now.Before(r.end) }
