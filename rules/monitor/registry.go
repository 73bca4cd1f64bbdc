package monitor

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/warmup"
)

// Registry keeps a Stats for each limit of a file:
//
//	registry := &monitor.Registry{}
//	f := &rules.File{Path: "limits.yaml", Config: rules.Config{DecisionHook: registry}}
//	…
//	for _, l := range f.Set().All() {
//		fmt.Println(l.Policy(), registry.Recommend(l))
//	}
//
// When the file is read again, a limit with the same ID keeps its Stats if it allows as much as
// before, and gets a new Stats otherwise, because counts of other limits are not comparable.
// Demand is measured against Limit.Spec, also in the periods of Limit.Active.
//
// The zero Registry is ready to use. Fields must not be changed after the first use, and a
// Registry must not be copied.
type Registry struct {
	// MaxSessions and TopKeys are the fields of that name of each Stats.
	MaxSessions, TopKeys int

	// ReturnWithin is Stats.ReturnWithin of each Stats.
	ReturnWithin time.Duration

	// Alert returns the Alert for rejections and failures of a limit. It is called once per limit,
	// without a lock held; decisions that are made until it returns are not reported to the Alert. A
	// nil function or a nil result means no alerts.
	Alert func(l *rules.Limit) *Alert

	// OnDecision is called with the name of the limit and the decision for each claim that is
	// not a dry run, for metrics. It must not block. Nil means no call.
	OnDecision func(limit string, d throttle.Decision)

	byLimit sync.Map // registryEntry by *rules.Limit, so that limits in force find theirs without a lock
	mu      sync.Mutex
	entries map[limitKey]*registryEntry
}

// A limitKey identifies a limit whose file may be read several times.
type limitKey struct {
	id    string
	limit throttle.Limit
}

// A registryEntry holds the Stats and the Alert of one limit.
type registryEntry struct {
	stats *Stats
	alert atomic.Pointer[Alert] // nil means none, or that Registry.Alert has not returned

	// limits are the latest limits that lead to the entry in Registry.byLimit, as a ring. A file
	// that is read again has new ones, and the old ones must not be kept.
	limits [maxLimitsPerEntry]*rules.Limit
	next   int // index in limits
}

// maxLimitsPerEntry is the number of Sets that can use an entry at the same time without a lock.
const maxLimitsPerEntry = 4

// Decided implements rules.DecisionHook.
func (r *Registry) Decided(l *rules.Limit, c throttle.Claim, d throttle.Decision) {
	p := r.entry(l)
	p.stats.Decided(c, d)
	if alert := p.alert.Load(); alert != nil {
		alert.Decided(c, d)
	}
	if r.OnDecision != nil && !c.DryRun {
		r.OnDecision(l.Policy(), d)
	}
}

// Cancelled implements rules.DecisionHook.
func (r *Registry) Cancelled(l *rules.Limit, c throttle.Claim, _ throttle.Decision) {
	r.entry(l).stats.Cancelled(c)
}

// Observed implements rules.DecisionHook.
func (r *Registry) Observed(_ context.Context, l *rules.Limit, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if alert := r.entry(l).alert.Load(); alert != nil {
		alert.Observed(c, d, f)
	}
}

// Stats returns the Stats of l.
func (r *Registry) Stats(l *rules.Limit) *Stats { return r.entry(l).stats }

// Recommend returns a recommendation for l, given the current counts.
func (r *Registry) Recommend(l *rules.Limit) Recommendation {
	return Recommend(nominalLimit(l.Spec), r.entry(l).stats.Snapshot())
}

// Retain removes the Stats of all limits that are not in s. Call it after a file has changed;
// otherwise the Stats of removed limits are kept indefinitely.
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
	for _, p := range kept {
		p.limits = [maxLimitsPerEntry]*rules.Limit{}
	}
}

func (r *Registry) entry(l *rules.Limit) *registryEntry {
	if p, ok := r.byLimit.Load(l); ok {
		return p.(*registryEntry)
	}
	p, isNew := r.add(l)
	if isNew && r.Alert != nil {
		p.alert.Store(r.Alert(l))
	}
	return p
}

// add returns the entry of l, and whether it is new.
func (r *Registry) add(l *rules.Limit) (p *registryEntry, isNew bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := limitKeyOf(l)
	p = r.entries[h]
	if isNew = p == nil; isNew {
		p = &registryEntry{stats: &Stats{Limit: h.limit, Shadow: l.Shadow, MaxSessions: r.MaxSessions, TopKeys: r.TopKeys, ReturnWithin: r.ReturnWithin}}
		if r.entries == nil {
			r.entries = map[limitKey]*registryEntry{}
		}
		r.entries[h] = p
	}
	if !slices.Contains(p.limits[:], l) { // another goroutine may have added it
		if old := p.limits[p.next]; old != nil {
			r.byLimit.Delete(old)
		}
		p.limits[p.next] = l
		p.next = (p.next + 1) % maxLimitsPerEntry
	}
	r.byLimit.Store(l, p)
	return p, isNew
}

func limitKeyOf(l *rules.Limit) limitKey { return limitKey{l.ID, nominalLimit(l.Spec)} }

// nominalLimit returns the limit against which demand for s is measured. It returns the zero Limit
// if s does not limit a rate, or if its rate is not a valid Limit.
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
	case warmup.Config:
		l = s.Limit
	}
	if l.Validate() != nil {
		return throttle.Limit{}
	}
	return l
}

// windowLength returns the minimum length of a window of q.
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
