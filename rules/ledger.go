package rules

import (
	"context"
	"sync"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A Ledger keeps a Tally of each limit of a file:
//
//	ledger := &rules.Ledger{}
//	f := &rules.File{Path: "limits.yaml", Setting: rules.Setting{Witness: ledger}}
//	…
//	for _, l := range f.Set().All() {
//		fmt.Println(l.Policy(), ledger.Advise(l))
//	}
//
// A limit that is in the file again when it has changed goes on with its Tally if it
// allows as much as before, and has a new one otherwise: what was counted under other
// numbers says nothing of these. A limit with an active time is measured by what holds
// at other times.
//
// The zero Ledger is good. No field may change once it is in use, and a Ledger must not
// be copied.
type Ledger struct {
	Keys, Top int           // as those of each Tally
	Later     time.Duration // as well

	// Alarm returns what is told of refusals and failures of a limit. It is called once
	// per limit. Nil, or a nil Alarm: nobody is told.
	Alarm func(l *Limit) *Alarm

	pages sync.Map // by *Limit: what is in force finds its page without a lock
	mu    sync.Mutex
	index map[heading]*page
}

// A heading is what a page is for: a limit, however often its file is read.
type heading struct {
	place string
	limit throttle.Limit
}

// A page is what a Ledger has of one limit.
type page struct {
	tally *Tally
	alarm *Alarm // nil: none
}

// Decided implements Witness.
func (g *Ledger) Decided(l *Limit, c throttle.Claim, d throttle.Decision) {
	p := g.page(l)
	p.tally.Decided(c, d)
	if p.alarm != nil {
		p.alarm.Decided(c, d)
	}
}

// Cancelled implements Witness.
func (g *Ledger) Cancelled(l *Limit, c throttle.Claim, _ throttle.Decision) {
	g.page(l).tally.Cancelled(c)
}

// Observed implements Witness.
func (g *Ledger) Observed(_ context.Context, l *Limit, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if p := g.page(l); p.alarm != nil {
		p.alarm.Observed(c, d, f)
	}
}

// Tally returns what counts the decisions of l.
func (g *Ledger) Tally(l *Limit) *Tally { return g.page(l).tally }

// Advise says what to do with l, given what was counted until now.
func (g *Ledger) Advise(l *Limit) Advice {
	return Advise(measured(l.Spec), g.page(l).tally.Snapshot())
}

// Keep forgets all limits but those of s. Call it when a file has changed, so that what
// was in it once is not kept for ever.
func (g *Ledger) Keep(s *Set) {
	g.mu.Lock()
	defer g.mu.Unlock()
	kept := map[heading]*page{}
	for _, l := range s.All() {
		h := headingOf(l)
		if p := g.index[h]; p != nil {
			kept[h] = p
		}
	}
	g.index = kept
	g.pages.Clear()
}

func (g *Ledger) page(l *Limit) *page {
	if p, ok := g.pages.Load(l); ok {
		return p.(*page)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	h := headingOf(l)
	p := g.index[h]
	if p == nil {
		p = &page{tally: &Tally{Limit: h.limit, Shadow: l.Shadow, Keys: g.Keys, Top: g.Top, Later: g.Later}}
		if g.Alarm != nil {
			p.alarm = g.Alarm(l)
		}
		if g.index == nil {
			g.index = map[heading]*page{}
		}
		g.index[h] = p
	}
	g.pages.Store(l, p)
	return p
}

func headingOf(l *Limit) heading { return heading{l.Place, measured(l.Spec)} }

// measured returns what demand for s is measured against; zero: it limits no rate, or
// one that is too slow.
func measured(s Spec) (l throttle.Limit) {
	switch s := s.(type) {
	case throttle.Quota:
		l = throttle.Limit{Name: s.Name, Count: s.Count, Per: lengthOf(s)}
	case throttle.LimitReq:
		l = throttle.Limit{Name: s.Name, Count: s.Rate, Per: s.Per, Burst: addSat(s.Burst, 1)}
	case throttle.Ticks:
		l = s.Limit
	default:
		l = rateOf(s)
	}
	if l.Validate() != nil {
		return throttle.Limit{}
	}
	return l
}

// lengthOf returns how long a window of q is, or is at least.
func lengthOf(q throttle.Quota) time.Duration {
	switch q.Anchor {
	case throttle.EachMinute:
		return time.Minute
	case throttle.EachHour:
		return time.Hour
	case throttle.EachDay:
		return day
	case throttle.EachMonth:
		return 28 * day
	}
	return q.Per
}
