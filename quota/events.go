package quota

import (
	"math"
	"net/http"
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

// maxPending bounds the events that wait to be delivered: only a program whose functions
// do not return reaches it.
const maxPending = 1024

// listeners are the functions that are called for events, and the events for them.
type listeners struct {
	any     atomic.Bool
	waiting atomic.Bool // there are pending events

	mu      sync.Mutex
	events  []weakly.Pointer[Events]
	pending []any // HoldInfo and LimitLearnedInfo, in their order
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

// deliver calls the functions for all pending events. It is called without a lock.
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

// A view is what events tell of a bucket.
type view struct {
	active    bool
	until     time.Time
	cutUntil  time.Time
	loop      bool
	goal      float64
	window    limitView // the learned window
	estimates []limitView
}

type limitView struct {
	name       string
	per        time.Duration
	limit      int64
	distrusted bool
}

// view returns what events tell of b as it is; nil if there is no listener.
func (q *quota) view() *view {
	if !q.endpoint.tracker.listeners.any.Load() {
		return nil
	}
	v := &view{active: q.hold.active, until: q.hold.until}
	if q.inference != nil {
		v.cutUntil, v.loop, v.goal = q.inference.cut.until, q.inference.loop.on(), q.inference.loop.target()
		if w := &q.inference.window; w.on() && !w.declared {
			v.window = limitView{per: w.length, limit: w.confirmedLimit}
		}
	}
	for i := range q.estimates {
		e := &q.estimates[i]
		v.estimates = append(v.estimates, limitView{e.name, e.per, e.limit, e.early.distrusted()})
	}
	return v
}

// record adds events for all that has changed since before.
func (q *quota) record(before *view) {
	if before == nil {
		return
	}
	now, at := q.view(), q.now(time.Time{})
	if now == nil {
		return
	}
	q.recordHolds(before, now, at)
	l, names := &q.endpoint.tracker.listeners, q.endpoint.names
	if info, ok := windowInfo(names, before.window, now.window); ok {
		l.add(info)
	}
	info := LimitLearnedInfo{Host: names.host, Limit: names.learnedRate, Rate: now.goal}
	switch {
	case now.loop && !before.loop:
		info.Change = Learned
		l.add(info)
	case !now.loop && before.loop:
		info.Change = Dropped
		l.add(info)
	case now.loop && math.Abs(now.goal-before.goal) > before.goal/100:
		info.Change = Changed
		l.add(info)
	}
	for _, t := range now.estimates {
		i := slices.IndexFunc(before.estimates, func(o limitView) bool { return o.name == t.name && o.per == t.per })
		info := LimitLearnedInfo{Host: names.host, Limit: names.quota, Name: t.name, Size: t.limit, Per: t.per}
		switch {
		case i < 0:
			info.Change = Learned
		case t.distrusted && !before.estimates[i].distrusted:
			info.Change = Dropped
		case t.limit != before.estimates[i].limit:
			info.Change = Changed
		default:
			continue
		}
		l.add(info)
	}
}

// windowInfo returns the event for a learned window that has changed; ok is false if it has not.
func windowInfo(names *policyNames, before, now limitView) (info LimitLearnedInfo, ok bool) {
	if before == now {
		return info, false
	}
	info = LimitLearnedInfo{Host: names.host, Limit: names.learnedRate, Change: Changed, Size: now.limit, Per: now.per}
	switch {
	case before.limit == 0:
		info.Change = Learned
	case now.limit == 0:
		info.Change, info.Size, info.Per = Dropped, before.limit, before.per
	}
	return info, true
}

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

// target returns the rate that the loop aims at; 0: there is no loop.
func (l *rateLoop) target() float64 {
	if !l.on() {
		return 0
	}
	return l.finiteGoal()
}

// Forget drops everything that is known of the account of req at its host: limits, holds and
// estimates. Requests that wait for these limits are sent as to an unknown host.
func (t *Tracker) Forget(req *http.Request) {
	t.once.Do(t.init)
	key := t.keyOf(req)
	sh := &t.shards[key%numShards]
	sh.mu.Lock()
	ep := sh.endpoints[key]
	if ep != nil {
		t.sharing.remove(ep)
		delete(sh.endpoints, key)
	}
	sh.mu.Unlock()
	if ep == nil {
		return
	}
	t.recent.CompareAndSwap(ep, nil)
	ep.forget()
	t.wake()
	t.listeners.deliver()
}

// forget makes all quotas of s let everything through from now on: requests may wait for
// them still.
func (ep *endpoint) forget() {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	for _, q := range append([]*quota{ep.unknown.Load()}, ep.quotas...) {
		q.forget()
	}
}

func (q *quota) forget() {
	q.mu.Lock()
	before := q.view()
	q.hold, q.slow, q.successes, q.inference = hold{lastSent: q.hold.lastSent}, slowResponses{}, knownAfter, nil
	q.estimates = nil
	q.record(before)
	q.mu.Unlock()
	q.drop()
}
