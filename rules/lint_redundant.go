package rules

import (
	"fmt"
	"slices"

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
	return slices.ContainsFunc(r.limit.metric.levels, func(at level) bool { return l.byName[at.key] == nil })
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

// allowsAtMost reports whether o never grants more than l allows. It compares limits with the same algorithm
// and, except for buckets, the same window; for others it returns false, unless o is blocked.
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
	cost := float64(l.Cost) / float64(o.Cost) // units of l for each unit of o
	switch a := upper.(type) {
	case throttle.Limit:
		b, ok := l.Spec.(throttle.Limit)
		return ok && float64(a.Count)*float64(b.Per)*cost <= float64(b.Count)*float64(a.Per) && float64(specCapacity(a))*cost <= float64(specCapacity(b))
	case throttle.FixedWindowConfig:
		b, ok := l.Spec.(throttle.FixedWindowConfig)
		return ok && a.Align == throttle.AtEpoch && b.Align == throttle.AtEpoch && a.Per == b.Per && float64(a.Count)*cost <= float64(b.Count)
	case throttle.SlidingLogConfig:
		b, ok := l.Spec.(throttle.SlidingLogConfig)
		return ok && b.MinGap == 0 && a.Limit.Per == b.Limit.Per && float64(a.Limit.Count)*cost <= float64(b.Limit.Count)
	}
	return false
}
