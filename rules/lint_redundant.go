package rules

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/heed-go/heed/throttle"
)

// redundantLimits finds limits that have no effect, because another limit that applies whenever
// they do grants no more, is identical, or replaces them.
func (l *linter) redundantLimits() {
	var global, plain []*rule // plain are descriptors without values
	same, byPlace := map[string][]*rule{}, map[string]*rule{}
	for _, r := range l.rules {
		byPlace[r.limit.ID] = r
		if r.match == nil {
			if len(plain) < maxCompared && !slices.ContainsFunc(r.limit.metric.levels, func(at level) bool { return !at.keyed || at.value != "" }) {
				plain = append(plain, r)
			}
			continue
		}
		if r.limit.match == "/" {
			global = append(global, r)
		}
		same[r.limit.match] = append(same[r.limit.match], r)
	}
	for _, r := range l.rules {
		if l.onlyViaAdd(r) {
			continue // Set.Add finds one limit per descriptor
		}
		others := append(append([]*rule(nil), global...), l.ancestors(r, byPlace)...)
		if r.limit.match != "/" {
			others = append(others, same[r.limit.match]...)
		}
		if len(others) > maxCompared {
			others = others[:maxCompared]
		}
		l.compare(r, others)
		l.partlyForgeable(r, append(others, plain...))
	}
}

// onlyViaAdd reports whether requests never have the keys that lead to r, so that only Set.Add
// finds it.
func (l *linter) onlyViaAdd(r *rule) bool {
	return slices.ContainsFunc(r.limit.metric.levels, func(at level) bool { return l.source(at.key) == nil })
}

// maxCompared is the maximum number of limits that one limit is compared with.
const maxCompared = 100

// ancestors returns the limits of the descriptors on the path to that of r.
func (l *linter) ancestors(r *rule, byPlace map[string]*rule) (all []*rule) {
	place := l.domain
	for _, at := range r.limit.metric.levels {
		place += "/" + descriptorID(at.key, at.value)
		if o := byPlace[place]; o != nil && o != r {
			all = append(all, o)
		}
	}
	return all
}

// compare looks for a limit in others that leaves r without effect. Each of others matches all
// requests that r matches.
func (l *linter) compare(r *rule, others []*rule) {
	for _, o := range others {
		switch {
		case o == r:
		case !o.limit.skipUnidentified && slices.Contains(o.limit.Replaces, r.limit.Name):
			l.report(r, fmt.Sprintf("it never holds: %s in line %d replaces it whenever it would", o.limit.Policy(), o.limit.Line), "leave it out, or replace less")
			return
		case sameLimit(o.limit, r.limit) && o.index < r.index:
			l.report(r, fmt.Sprintf("%s in line %d says the same of the same requests", o.limit.Policy(), o.limit.Line), "leave one of them out")
			return
		case l.alwaysApplies(o, r) && allowsAtMost(o.limit, r.limit) && (!allowsAtMost(r.limit, o.limit) || o.index < r.index):
			l.report(r, fmt.Sprintf("it never rejects: %s in line %d lets no more than %s through", o.limit.Policy(), o.limit.Line, amountOf(o.limit.Spec, o.limit.Hard)),
				"leave it out, or allow less")
			return
		}
	}
}

// sameLimit reports whether two limits differ in their names only.
func sameLimit(a, b *Limit) bool {
	if a.match == "" || a.match != b.match || a.Cost != b.Cost || a.Algorithm() != b.Algorithm() {
		return false
	}
	one, two := *a, *b
	one.Name, two.Name = "", ""
	return one.definition() == two.definition()
}

// alwaysApplies reports whether o, which matches all requests that r matches, applies to all of
// them, and counts together all requests that r counts together.
func (l *linter) alwaysApplies(o, r *rule) bool {
	if o.limit.Shadow || o.limit.Borrow != "" || len(o.limit.Active)+len(r.limit.Active) > 0 || l.replaced[o.limit.Name] || o.limit.skipUnidentified {
		return false
	}
	return !slices.ContainsFunc(o.limit.keys, func(k string) bool { return !slices.Contains(r.limit.keys, k) })
}

// allowsAtMost reports whether o never grants more than l allows.
func allowsAtMost(o, l *Limit) bool {
	if l.Spec == nil || l.Unlimited {
		return false
	}
	if o.Blocked {
		return true
	}
	if o.Spec == nil {
		return false
	}
	upper := o.Spec
	if o.Hard != nil {
		upper = o.Hard
	}
	costRatio := float64(l.Cost) / float64(o.Cost) // units of l for each unit of o
	if n, ok := alignedUnits(upper, l.Spec); ok {
		return n*costRatio <= float64(specCapacity(l.Spec))
	}
	through, known := upperBound(upper)
	allowed, lasting, ok := rejectsAbove(l.Spec)
	if !known || !ok {
		return false
	}
	if lasting > 0 {
		return through.within(lasting)*costRatio <= allowed
	}
	return through.within(0)*costRatio <= allowed && through.rate*costRatio <= perNanosecond(rateOf(l.Spec))
}

// alignedUnits returns the maximum number of units that o grants in a window of l. ok is false
// unless both have windows whose boundaries coincide.
func alignedUnits(o, l Spec) (units float64, ok bool) {
	a, _ := o.(throttle.FixedWindowConfig)
	b, _ := l.(throttle.FixedWindowConfig)
	switch {
	case a.Per <= 0 || b.Per <= 0 || a.Align != throttle.AtEpoch || b.Align != throttle.AtEpoch:
		return 0, false
	case a.Per%b.Per == 0:
		return float64(a.Count), true
	case b.Per%a.Per == 0:
		return float64(a.Count) * float64(b.Per/a.Per), true
	}
	return 0, false
}

// A bound is the maximum number of units in any half-open span of length w: burst + rate*w or, for
// windows, count for each window that the span may touch.
type bound struct {
	burst, rate float64 // units per nanosecond
	count       float64 // 0 means that burst and rate apply
	per         time.Duration
	extra       float64 // windows that a span may touch in addition to its length in windows
}

func (b bound) within(w time.Duration) float64 {
	if b.count > 0 {
		return b.count * (max(math.Ceil(float64(w)/float64(b.per)), 1) + b.extra)
	}
	return b.burst + b.rate*float64(w)
}

// upperBound returns a bound on the units that s grants. The second result is false if none is
// known.
func upperBound(s Spec) (bound, bool) {
	switch s := s.(type) {
	case throttle.Limit:
		return bound{burst: float64(specCapacity(s)), rate: perNanosecond(s)}, true
	case throttle.SlidingLogConfig:
		return bound{count: float64(s.Limit.Count), per: s.Limit.Per, rate: perNanosecond(s.Limit)}, true
	case throttle.FixedWindowConfig:
		return bound{count: float64(s.Count), per: s.Per, rate: float64(s.Count) / float64(s.Per), extra: 1}, s.Per > 0
	}
	return bound{}, false
}

func perNanosecond(l throttle.Limit) float64 { return float64(l.Count) / float64(l.Per) }

// rejectsAbove returns the number of units that can be claimed within a duration before s rejects
// a claim. A duration of 0 means at the same time. ok is false if the number is not known.
func rejectsAbove(s Spec) (units float64, within time.Duration, ok bool) {
	switch s := s.(type) {
	case throttle.Limit:
		return float64(specCapacity(s)), 0, true
	case throttle.SlidingLogConfig:
		return float64(s.Limit.Count), s.Limit.Per, s.MinGap == 0
	case throttle.FixedWindowConfig:
		return float64(s.Count), s.Per, s.Per > 0
	}
	return 0, 0, false
}
