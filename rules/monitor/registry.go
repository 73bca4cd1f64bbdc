package monitor

import (
	"context"
	"sync"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/warmup"
)

// A Registry keeps a Stats of each limit of a file:
//
//	registry := &monitor.Registry{}
//	f := &rules.File{Path: "limits.yaml", Config: rules.Config{DecisionHook: registry}}
//	…
//	for _, l := range f.Set().All() {
//		fmt.Println(l.Policy(), registry.Recommend(l))
//	}
//
// A limit that is in the file again when it has changed goes on with its Stats if it
// allows as much as before, and has a new one otherwise: what was counted under other
// numbers says nothing of these. A limit with an active time is measured by what holds
// at other times.
//
// The zero Registry is good. No field may change once it is in use, and a Registry must not
// be copied.
type Registry struct {
	MaxSessions, TopKeys int           // as those of each Stats
	ReturnWithin         time.Duration // as well

	// Alert returns what is told of refusals and failures of a limit. It is called once
	// per limit. Nil, or a nil Alert: nobody is told.
	Alert func(l *rules.Limit) *Alert

	byLimit sync.Map // by *rules.Limit: what is in force finds its page without a lock
	mu      sync.Mutex
	entries map[limitKey]*registryEntry
}

// A limitKey is what a page is for: a limit, however often its file is read.
type limitKey struct {
	id    string
	limit throttle.Limit
}

// A registryEntry is what a Registry has of one limit.
type registryEntry struct {
	stats *Stats
	alert *Alert // nil: none
}

// Decided implements rules.DecisionHook.
func (r *Registry) Decided(l *rules.Limit, c throttle.Claim, d throttle.Decision) {
	p := r.entry(l)
	p.stats.Decided(c, d)
	if p.alert != nil {
		p.alert.Decided(c, d)
	}
}

// Cancelled implements rules.DecisionHook.
func (r *Registry) Cancelled(l *rules.Limit, c throttle.Claim, _ throttle.Decision) {
	r.entry(l).stats.Cancelled(c)
}

// Observed implements rules.DecisionHook.
func (r *Registry) Observed(_ context.Context, l *rules.Limit, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if p := r.entry(l); p.alert != nil {
		p.alert.Observed(c, d, f)
	}
}

// Stats returns what counts the decisions of l.
func (r *Registry) Stats(l *rules.Limit) *Stats { return r.entry(l).stats }

// Recommend says what to do with l, given what was counted until now.
func (r *Registry) Recommend(l *rules.Limit) Recommendation {
	return Recommend(nominalLimit(l.Spec), r.entry(l).stats.Snapshot())
}

// Retain forgets all limits but those of s. Call it when a file has changed, so that what
// was in it once is not kept for ever.
func (r *Registry) Retain(s *rules.Set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := map[limitKey]*registryEntry{}
	for _, l := range s.All() {
		h := limitKeyOf(l)
		if p := r.entries[h]; p != nil {
			kept[h] = p
		}
	}
	r.entries = kept
	r.byLimit.Clear()
}

func (r *Registry) entry(l *rules.Limit) *registryEntry {
	if p, ok := r.byLimit.Load(l); ok {
		return p.(*registryEntry)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	h := limitKeyOf(l)
	p := r.entries[h]
	if p == nil {
		p = &registryEntry{stats: &Stats{Limit: h.limit, Shadow: l.Shadow, MaxSessions: r.MaxSessions, TopKeys: r.TopKeys, ReturnWithin: r.ReturnWithin}}
		if r.Alert != nil {
			p.alert = r.Alert(l)
		}
		if r.entries == nil {
			r.entries = map[limitKey]*registryEntry{}
		}
		r.entries[h] = p
	}
	r.byLimit.Store(l, p)
	return p
}

func limitKeyOf(l *rules.Limit) limitKey { return limitKey{l.ID, nominalLimit(l.Spec)} }

// nominalLimit returns what demand for s is measured against; zero: it limits no rate, or
// one that is too slow.
func nominalLimit(s rules.Spec) (l throttle.Limit) {
	switch s := s.(type) {
	case throttle.FixedWindowConfig:
		l = throttle.Limit{Name: s.Name, Count: s.Count, Per: windowLength(s)}
	case throttle.NginxConfig:
		l = throttle.Limit{Name: s.Name, Count: s.Rate, Per: s.Per, Burst: ticks.Add(s.Burst, 1)}
	case throttle.TickQueueConfig:
		l = s.Limit
	case throttle.Limit:
		l = s
	case throttle.RefillBucketConfig:
		l = s.Limit
	case throttle.LeakyBucketConfig:
		l = s.Limit
	case throttle.SlidingLogConfig:
		l = s.Limit
	case throttle.SlidingCounterConfig:
		l = s.Limit
	case throttle.SubWindowsConfig:
		l = s.Limit
	case warmup.Config:
		l = s.Limit
	}
	if l.Validate() != nil {
		return throttle.Limit{}
	}
	return l
}

// windowLength returns how long a window of q is, or is at least.
func windowLength(q throttle.FixedWindowConfig) time.Duration {
	switch q.Align {
	case throttle.EachMinute:
		return time.Minute
	case throttle.EachHour:
		return time.Hour
	case throttle.EachDay:
		return (24 * time.Hour)
	case throttle.EachMonth:
		return 28 * (24 * time.Hour)
	}
	return q.Per
}
