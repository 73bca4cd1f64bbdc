package model

import (
	"slices"
	"time"

	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// StatesSame reports whether one of limits is probably one of q: it has the same name or, without a
// name, the same size and reset, and no more units left than q expects.
func (q *Quota) StatesSame(limits []throttle.RemoteLimit, now time.Time) bool {
	return slices.ContainsFunc(limits, func(l throttle.RemoteLimit) bool {
		i := q.estimateOf(l)
		return i >= 0 && (l.Name != "" || q.Estimates[i].Limit == l.Limit && q.Estimates[i].MayBeSameWindow(l, now))
	})
}

// StatesOther reports whether q has estimates, and none of them has the name of one of limits.
func (q *Quota) StatesOther(limits []throttle.RemoteLimit) bool {
	for _, l := range limits {
		for i := range q.Estimates {
			if q.Estimates[i].Name == l.Name {
				return false
			}
		}
	}
	return len(q.Estimates) > 0
}

// IsHeld reports whether a rejection limits the claims of q as of now.
func (q *Quota) IsHeld(now time.Time) bool {
	_, waits := q.Hold.Waits(now)
	return waits || q.Learned != nil && q.Learned.Loop.On()
}

// IsBlank reports whether q knows nothing, except successful responses, and no claim is in flight.
func (q *Quota) IsBlank() bool {
	return q.InFlight.Open == 0 && len(q.Estimates) == 0 && !q.Hold.Held && q.Learned == nil
}

// Matches compares limits, which a response states, with those of q. may is set if the response may
// concern q: the limits have the sizes that q knows, a reset that such a window or bucket can have,
// and no more units left than possible. A new quota may have any limits until it has observed the
// response that it was added for. shown is set if the response shows that these are the limits of q:
// more than one unit is used, and about as many as q knows of. An unused quota cannot be
// distinguished from any other of its size. reordered is how many responses that q has not observed
// may have arrived earlier.
func (q *Quota) Matches(limits []throttle.RemoteLimit, reordered int64, now time.Time) (may, shown bool) {
	if len(q.Estimates) == 0 {
		return !q.IsHeld(now) && q.Learned == nil, false
	}
	few := false
	for _, l := range limits {
		i := q.estimateOf(l)
		if i < 0 {
			continue
		}
		e := &q.Estimates[i]
		tolerated := reordered + q.InFlight.Span() + e.Limit/8
		if l.Limit != e.Limit || !e.MayBe(l, tolerated, now) {
			return false, false
		}
		over := !now.Before(e.Reset.Add(-statedlimit.ToleranceOf(l)))
		may, few, shown = true, few || !over && l.Remaining < e.Left(now)-tolerated, shown || l.Limit-l.Remaining > 1
	}
	return may, shown && !few
}
