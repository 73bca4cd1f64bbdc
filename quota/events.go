package quota

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	weakly "weak"

	"github.com/heed-go/heed/internal/explain"
	"github.com/heed-go/heed/internal/ticks"
)

// Events holds functions that a Tracker calls when a hold begins or ends, and when it learns
// a limit. Nil functions are not called. The functions are called without a lock, in the
// goroutine that reported a response, and must return quickly. What changes because there is no
// response is reported with the next one.
type Events struct {
	// Hold is called when a hold begins or ends.
	Hold func(HoldInfo)

	// LimitLearned is called when a limit of a server is learned, changed or dropped.
	LimitLearned func(LimitLearnedInfo)
}

// A HoldInfo describes a hold that begins or ends.
type HoldInfo struct {
	// Host is the host of the server.
	Host string

	// Limit is the name of the limit as in errors, such as "api.example.com: retry-after".
	Limit string

	// Held is true when the hold begins, and false when it ends.
	Held bool

	// For is the time until the end that the server stated, or else until one request may be sent
	// as a test, when the hold began or changed. Zero when the hold ends.
	For time.Duration

	// Estimated is set if the server did not state the hold.
	Estimated bool
}

// String returns a sentence such as "quota api.example.com (retry-after) is held for 30 s".
func (h HoldInfo) String() string {
	if !h.Held {
		return explain.Limit(h.Limit) + " is not held any more"
	}
	return explain.Limit(h.Limit) + " is held for " + explain.Duration(h.For)
}

// A LimitLearnedInfo describes a limit of a server that was learned, changed or dropped.
type LimitLearnedInfo struct {
	// Host is the host of the server.
	Host string

	// Limit is the name of the limit as in errors, such as "api.example.com: learned rate".
	Limit string

	// Change is what happened to the limit.
	Change Change

	// Name is the server's name of the limit. It is empty if the server states none, or if
	// the limit is estimated.
	Name string

	// Size is the number of requests in a window. Zero means that the limit is a rate.
	Size int64

	// Per is the length of the window, as the server stated it or as it was learned. Zero
	// means that it is not known.
	Per time.Duration

	// Rate is the estimated limit in requests per second. Zero means that the limit is a window.
	Rate float64
}

// Estimated reports whether the limit is estimated from rejections. If not, the server stated it.
func (l LimitLearnedInfo) Estimated() bool { return strings.HasSuffix(l.Limit, learnedRate) }

// String returns a sentence such as "quota api.example.com: stated limit default of 100 per 1
// min" or "quota api.example.com (learned rate): changed learned limit of 8.33 per second".
func (l LimitLearnedInfo) String() string {
	s := explain.Limit(l.Limit) + ": "
	if l.Change != Learned {
		s += l.Change.String() + " "
	}
	if l.Estimated() {
		s += "learned limit"
	} else {
		s += "stated limit"
	}
	if l.Name != "" {
		s += " " + l.Name
	}
	switch {
	case l.Change == Dropped:
	case l.Rate > 0:
		s += " of " + strconv.FormatFloat(l.Rate, 'g', 3, 64) + " per second"
	case l.Per > 0:
		s += " of " + strconv.FormatInt(l.Size, 10) + " per " + explain.Duration(l.Per)
	default:
		s += " of " + strconv.FormatInt(l.Size, 10)
	}
	return s
}

// A Change is what happened to a limit.
type Change uint8

const (
	// Learned means that the limit was not known before.
	Learned Change = iota

	// Changed means that its size, or the estimated rate, has changed.
	Changed

	// Dropped means that responses contradicted the limit, that it proved wrong or unneeded, or
	// that Tracker.Forget was called.
	Dropped
)

// String returns the name of c in lower case.
func (c Change) String() string { return nameOf(uint8(c), "change", "learned", "changed", "dropped") }

// maxPending is the maximum number of events that wait to be delivered. Further ones are dropped.
// Only a program whose functions do not return reaches it.
const maxPending = 1024

// listeners are the Events that were registered, and the events that are to be delivered to them.
// Events are added while a quota is locked, and delivered later without a lock.
type listeners struct {
	waiting atomic.Bool // pending is not empty

	mu      sync.Mutex // guards the fields below
	all     []weakly.Pointer[Events]
	pending []any // HoldInfo and LimitLearnedInfo, oldest first
}

// Listen registers e: its functions are called from now on, until e is garbage-collected. The
// program must keep a reference to e for as long as it wants the calls.
func (t *Tracker) Listen(e *Events) {
	t.listeners.CompareAndSwap(nil, new(listeners))
	l := t.listeners.Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.DeleteFunc(l.all, func(p weakly.Pointer[Events]) bool { return p.Value() == nil })
	l.all = append(l.all, weakly.Make(e))
}

func (l *listeners) add(event any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) < maxPending {
		l.pending = append(l.pending, event)
		l.waiting.Store(true)
	}
}

// deliver calls the functions for all pending events. The caller holds no lock. l may be nil.
func (l *listeners) deliver() {
	if l == nil || !l.waiting.Load() {
		return
	}
	l.mu.Lock()
	pending := l.pending
	l.pending = nil
	l.waiting.Store(false)
	all := slices.Clone(l.all)
	l.mu.Unlock()
	for _, event := range pending {
		for _, p := range all {
			e := p.Value()
			if e == nil {
				continue
			}
			switch event := event.(type) {
			case HoldInfo:
				if e.Hold != nil {
					e.Hold(event)
				}
			case LimitLearnedInfo:
				if e.LimitLearned != nil {
					e.LimitLearned(event)
				}
			}
		}
	}
}

// record adds the events for what has changed in a quota, which is locked, since before, as of now: holds that have
// begun, ended, or been extended by more than a second, and limits.
func (l *listeners) record(before reported, now time.Time) {
	after := before.q.reported(now)
	if after.heldUntil.IsZero() { // Forget has removed what is known of it
		after.estimated = before.estimated
	}
	l.recordHolds(&before, &after, now)
	for _, old := range before.limits {
		if !slices.ContainsFunc(after.limits, old.isSame) {
			old.Change = Dropped
			l.add(old)
		}
	}
	for _, limit := range after.limits {
		if slices.Contains(before.limits, limit) {
			continue
		}
		if i := slices.IndexFunc(before.limits, limit.isSame); i >= 0 {
			limit.Change = Changed
			if rate := before.limits[i].Rate; rate > 0 && math.Abs(limit.Rate-rate) <= rate/100 {
				continue // by less than 1 %
			}
		}
		l.add(limit)
	}
}

// reported is what events report of a quota.
type reported struct {
	q         *quota
	heldUntil time.Time // end of its hold; zero: there is none
	estimated bool      // the server has not stated it
	limits    []LimitLearnedInfo
}

// reported returns what events report of q.
func (q *quota) reported(now time.Time) (r reported) {
	ep := q.endpoint
	if r.q = q; q.Hold.Held {
		r.heldUntil, r.estimated = q.holdUntil(now), q.Hold.Estimated()
	}
	if learned := q.Learned; learned != nil {
		if w := &learned.Window; w.On() && !w.Declared {
			r.limits = append(r.limits, LimitLearnedInfo{Host: ep.host, Limit: ep.Names.LearnedRate, Size: w.ConfirmedLimit, Per: w.Length})
		}
		if learned.Loop.On() {
			r.limits = append(r.limits, LimitLearnedInfo{Host: ep.host, Limit: ep.Names.LearnedRate, Rate: learned.Loop.FiniteGoal()})
		}
	}
	for i := range q.Estimates {
		if e := &q.Estimates[i]; !e.Distrusted() {
			r.limits = append(r.limits, LimitLearnedInfo{Host: ep.host, Limit: ep.Names.Quota, Name: e.Name, Size: e.Limit, Per: e.Per})
		}
	}
	return r
}

// holdUntil returns the end of the hold as the server stated it, or else when it is tested next.
func (q *quota) holdUntil(now time.Time) time.Time {
	if q.Hold.Estimated() {
		return ticks.Later(q.NextTest(), now)
	}
	return q.Hold.Until
}

// recordHolds adds the events for a hold whose end has changed.
func (l *listeners) recordHolds(was, is *reported, now time.Time) {
	ep, before, held := is.q.endpoint, was.heldUntil, is.heldUntil
	hold := HoldInfo{Host: ep.host, Limit: ep.Names.RetryAfter, Estimated: is.estimated}
	if hold.Estimated {
		hold.Limit = ep.Names.LearnedRate
	}
	switch {
	case !held.IsZero() && (before.IsZero() || held.Sub(before) > time.Second):
		hold.Held, hold.For = true, max(held.Sub(now), 0)
		l.add(hold)
	case held.IsZero() && !before.IsZero():
		l.add(hold)
	}
}

// isSame reports whether l and o describe one limit of a quota, possibly before and after a change. A
// quota has one learned window and one learned rate at most.
func (l LimitLearnedInfo) isSame(o LimitLearnedInfo) bool {
	if l.Limit != o.Limit || l.Name != o.Name || (l.Rate > 0) != (o.Rate > 0) {
		return false
	}
	return l.Per == o.Per || l.Estimated()
}
