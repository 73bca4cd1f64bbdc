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

	// For is the time until requests, or one probe, may be sent again, when the hold began or
	// changed. Zero when the hold ends.
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

	// Rate is the estimated limit in requests per second. Zero means that the server stated
	// the limit.
	Rate float64
}

// String returns a sentence such as "quota api.example.com: learned limit default of 100 per 1
// min".
func (l LimitLearnedInfo) String() string {
	s := explain.Limit(l.Limit) + ": " + l.Change.String() + " limit"
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

// watch begins to watch q, which is locked. The result adds the events for what has changed since, as
// of now: holds that have begun, ended, or been extended by more than a second, and limits.
func (l *listeners) watch(q *quota, now time.Time) (record func()) {
	heldBefore, cutBefore, limitsBefore := q.reported()
	return func() {
		held, cut, limits := q.reported()
		l.recordHolds(q, heldBefore, held, cutBefore, cut, now)
		for _, before := range limitsBefore {
			if !slices.ContainsFunc(limits, before.isSame) {
				before.Change = Dropped
				l.add(before)
			}
		}
		for _, limit := range limits {
			if slices.Contains(limitsBefore, limit) {
				continue
			}
			if i := slices.IndexFunc(limitsBefore, limit.isSame); i >= 0 {
				limit.Change = Changed
				if before := limitsBefore[i].Rate; before > 0 && math.Abs(limit.Rate-before) <= before/100 {
					continue // by less than 1 %
				}
			}
			l.add(limit)
		}
	}
}

// reported returns what events report of q: the end of its hold, zero if there is none, that of its
// concurrency.Cut, and its limits.
func (q *quota) reported() (heldUntil, cutUntil time.Time, limits []LimitLearnedInfo) {
	ep := q.endpoint
	if q.Hold.Active {
		heldUntil = q.Hold.Until
	}
	if inf := q.Inference; inf != nil {
		cutUntil = inf.Cut.Until
		if w := &inf.Window; w.On() && !w.Declared {
			limits = append(limits, LimitLearnedInfo{Host: ep.host, Limit: ep.Names.LearnedRate, Size: w.ConfirmedLimit, Per: w.Length})
		}
		if inf.Loop.On() {
			limits = append(limits, LimitLearnedInfo{Host: ep.host, Limit: ep.Names.LearnedRate, Rate: inf.Loop.FiniteGoal()})
		}
	}
	for i := range q.Estimates {
		if e := &q.Estimates[i]; !e.Distrusted() {
			limits = append(limits, LimitLearnedInfo{Host: ep.host, Limit: ep.Names.Quota, Name: e.Name, Size: e.Limit, Per: e.Per})
		}
	}
	return heldUntil, cutUntil, limits
}

// recordHolds adds the events for the hold and the concurrency.Cut of q, whose ends have changed.
func (l *listeners) recordHolds(q *quota, heldBefore, held, cutBefore, cut, now time.Time) {
	ep := q.endpoint
	hold := HoldInfo{Host: ep.host, Limit: ep.Names.RetryAfter, Estimated: q.Hold.Estimated}
	if hold.Estimated {
		hold.Limit = ep.Names.LearnedRate
	}
	switch {
	case !held.IsZero() && (heldBefore.IsZero() || held.Sub(heldBefore) > time.Second):
		hold.Held, hold.For = true, held.Sub(now)
		l.add(hold)
	case held.IsZero() && !heldBefore.IsZero():
		l.add(hold)
	}
	if cut.After(cutBefore) && cut.After(now) {
		l.add(HoldInfo{Host: ep.host, Limit: ep.Names.SlowStart, Held: true, For: cut.Sub(now), Estimated: true})
	}
}

// isSame reports whether l and o describe one limit of a quota, possibly before and after a change. A
// quota has one learned window and one learned rate at most.
func (l LimitLearnedInfo) isSame(o LimitLearnedInfo) bool {
	if l.Limit != o.Limit || l.Name != o.Name || (l.Rate > 0) != (o.Rate > 0) {
		return false
	}
	return l.Per == o.Per || strings.HasSuffix(l.Limit, learnedRate)
}
