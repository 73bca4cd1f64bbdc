package quota

import (
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	weakly "weak"

	"github.com/heed-go/heed/internal/explain"
)

// Events holds functions that a Tracker calls when a hold begins or ends, and when it learns
// a limit. Nil functions are not called. The functions are called without a lock, in the
// goroutine that reported the response, and must return quickly.
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

	// For is the time until requests, or one probe, may be sent again. Zero when the hold
	// ends.
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

	// Dropped means that responses contradicted the limit, or that it proved wrong or unneeded.
	Dropped
)

// String returns the name of c in lower case.
func (c Change) String() string {
	switch c {
	case Learned:
		return "learned"
	case Changed:
		return "changed"
	case Dropped:
		return "dropped"
	}
	return "unknown"
}

// maxPending is the maximum number of events that wait to be delivered. Further ones are dropped.
// Only a program whose functions do not return reaches it.
const maxPending = 1024

// listeners are the Events that were registered, and the events that are to be delivered to them.
// Events are added while a quota is locked, and delivered later without a lock.
type listeners struct {
	any     atomic.Bool // Listen was called
	waiting atomic.Bool // pending is not empty

	mu      sync.Mutex // guards the fields below
	events  []weakly.Pointer[Events]
	pending []any // HoldInfo and LimitLearnedInfo, oldest first
}

// Listen registers e: its functions are called from now on, until e is garbage-collected. The
// program must keep a reference to e for as long as it wants the calls.
func (t *Tracker) Listen(e *Events) {
	l := &t.listeners
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = slices.DeleteFunc(l.events, func(p weakly.Pointer[Events]) bool { return p.Value() == nil })
	l.events = append(l.events, weakly.Make(e))
	l.any.Store(true)
}

func (l *listeners) add(event any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) < maxPending {
		l.pending = append(l.pending, event)
		l.waiting.Store(true)
	}
}

// deliver calls the functions for all pending events. The caller holds no lock.
func (l *listeners) deliver() {
	if !l.waiting.Load() {
		return
	}
	l.mu.Lock()
	pending := l.pending
	l.pending = nil
	l.waiting.Store(false)
	events := slices.Clone(l.events)
	l.mu.Unlock()
	for _, event := range pending {
		for _, p := range events {
			if e := p.Value(); e != nil {
				e.call(event)
			}
		}
	}
}

func (e *Events) call(event any) {
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

// A view is the part of a quota that events report.
type view struct {
	active    bool      // see hold
	until     time.Time // see hold
	cutUntil  time.Time // concurrencyCut.until
	loop      bool      // a rate is learned
	goal      float64   // rate that the loop aims at, in requests per second
	window    limitView // learned window; zero: there is none
	estimates []limitView
}

// A limitView is the part of one limit that events report.
type limitView struct {
	name       string
	per        time.Duration
	limit      int64
	distrusted bool
}

// view returns the present view of q, or nil if there is no listener. The caller holds q.mu. A
// function that changes q calls record with the view before the change.
func (q *quota) view() *view {
	if !q.endpoint.tracker.listeners.any.Load() {
		return nil
	}
	v := &view{active: q.hold.active, until: q.hold.until}
	if inf := q.inference; inf != nil {
		v.cutUntil = inf.cut.until
		if inf.loop.on() {
			v.loop, v.goal = true, inf.loop.finiteGoal()
		}
		if w := &inf.window; w.on() && !w.declared {
			v.window = limitView{per: w.length, limit: w.confirmedLimit}
		}
	}
	for i := range q.estimates {
		e := &q.estimates[i]
		v.estimates = append(v.estimates, limitView{e.name, e.per, e.limit, e.early.distrusted()})
	}
	return v
}

// record adds the events for the differences between before and the present view. The caller holds
// q.mu.
func (q *quota) record(before *view) {
	if before == nil {
		return
	}
	l, names, now := &q.endpoint.tracker.listeners, q.endpoint.names, q.view()
	q.recordHolds(before, now, q.now(time.Time{}))
	if before.window != now.window {
		l.add(windowInfo(names, before.window, now.window))
	}
	if change, ok := rateChange(before, now); ok {
		l.add(LimitLearnedInfo{Host: names.host, Limit: names.learnedRate, Change: change, Rate: now.goal})
	}
	for _, e := range now.estimates {
		if change, ok := e.change(before.estimates); ok {
			l.add(LimitLearnedInfo{Host: names.host, Limit: names.quota, Change: change, Name: e.name, Size: e.limit, Per: e.per})
		}
	}
}

// recordHolds adds the events for holds that have begun, ended, or been extended by more than a
// second.
func (q *quota) recordHolds(before, now *view, at time.Time) {
	l, names := &q.endpoint.tracker.listeners, q.endpoint.names
	hold := HoldInfo{Host: names.host, Limit: names.retryAfter, Estimated: q.hold.estimated}
	if q.hold.estimated {
		hold.Limit = names.learnedRate
	}
	switch {
	case now.active && (!before.active || now.until.Sub(before.until) > time.Second):
		hold.Held, hold.For = true, max(now.until.Sub(at), 0)
		l.add(hold)
	case !now.active && before.active:
		l.add(hold)
	}
	if now.cutUntil.After(before.cutUntil) && now.cutUntil.After(at) {
		l.add(HoldInfo{Host: names.host, Limit: names.slowStart, Held: true, For: now.cutUntil.Sub(at), Estimated: true})
	}
}

// windowInfo returns the event for a learned window that has changed from before to now.
func windowInfo(names *policyNames, before, now limitView) LimitLearnedInfo {
	info := LimitLearnedInfo{Host: names.host, Limit: names.learnedRate, Change: Changed, Size: now.limit, Per: now.per}
	switch {
	case before.limit == 0:
		info.Change = Learned
	case now.limit == 0:
		info.Change, info.Size, info.Per = Dropped, before.limit, before.per
	}
	return info
}

// rateChange returns how the learned rate has changed, if it has by more than 1 %.
func rateChange(before, now *view) (c Change, ok bool) {
	switch {
	case now.loop && !before.loop:
		return Learned, true
	case before.loop && !now.loop:
		return Dropped, true
	}
	return Changed, now.loop && math.Abs(now.goal-before.goal) > before.goal/100
}

// change returns how the limit e, one of those before or a new one, has changed, if it has.
func (e limitView) change(before []limitView) (c Change, ok bool) {
	i := slices.IndexFunc(before, func(o limitView) bool { return o.name == e.name && o.per == e.per })
	switch {
	case i < 0:
		return Learned, true
	case e.distrusted && !before[i].distrusted:
		return Dropped, true
	}
	return Changed, e.limit != before[i].limit
}
