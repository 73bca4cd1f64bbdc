package rules

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/heed-go/heed/throttle"
)

// stricter finds limits that have nothing to do: because another one that holds whenever
// they do, for as many requests or more, lets less through, says the same, or replaces
// them.
func (l *linter) stricter() {
	var global []*rule
	same, byPlace := map[string][]*rule{}, map[string]*rule{}
	for _, r := range l.rules {
		byPlace[r.limit.Place] = r
		if r.match == nil {
			continue
		}
		if r.limit.match == "/" {
			global = append(global, r)
		}
		same[r.limit.match] = append(same[r.limit.match], r)
	}
	for _, r := range l.rules {
		if l.onlyAdded(r) {
			continue // whoever calls Set.Add asks for one limit at a time
		}
		others := append(append([]*rule(nil), global...), l.above(r, byPlace)...)
		if r.limit.match != "/" && r.limit.match != "" {
			others = append(others, same[r.limit.match]...)
		}
		if len(others) > maxOthers {
			others = others[:maxOthers]
		}
		l.compare(r, others)
	}
}

// onlyAdded reports whether no request has the keys that lead to r.
func (l *linter) onlyAdded(r *rule) bool {
	return slices.ContainsFunc(r.limit.metric.levels, func(at level) bool { return l.source(at.key) == nil })
}

// maxOthers is how many limits one is compared with.
const maxOthers = 100

// above returns the limits of the descriptors on the way to that of r.
func (l *linter) above(r *rule, byPlace map[string]*rule) (all []*rule) {
	place := l.domain
	for _, at := range r.limit.metric.levels {
		place += "/" + step(at.key, at.value)
		if o := byPlace[place]; o != nil && o != r {
			all = append(all, o)
		}
	}
	return all
}

// compare looks for one of others that leaves r nothing to do. All of them match
// whatever r matches.
func (l *linter) compare(r *rule, others []*rule) {
	for _, o := range others {
		switch {
		case o == r:
		case r.limit.Name != "" && !o.limit.skips && slices.Contains(o.limit.Replaces, r.limit.Name):
			l.tell(r, fmt.Sprintf("it never holds: %s in line %d replaces it whenever it would", o.limit.Policy(), o.limit.Line), "leave it out, or replace less")
			return
		case twins(o.limit, r.limit) && o.index < r.index:
			l.tell(r, fmt.Sprintf("%s in line %d says the same of the same requests", o.limit.Policy(), o.limit.Line), "leave one of them out")
			return
		case l.alwaysWith(o, r) && lessThan(o.limit, r.limit) && (!lessThan(r.limit, o.limit) || o.index < r.index):
			l.tell(r, fmt.Sprintf("it never refuses: %s in line %d lets no more than %s through", o.limit.Policy(), o.limit.Line, amountOf(o.limit.Spec, o.limit.Hard)),
				"leave it out, or allow less")
			return
		}
	}
}

// twins reports whether two limits differ in their names only.
func twins(a, b *Limit) bool {
	if a.match == "" || a.match != b.match || a.Cost != b.Cost || a.Algorithm() != b.Algorithm() {
		return false
	}
	one, two := *a, *b
	one.Name, two.Name = "", ""
	return one.definition() == two.definition()
}

// alwaysWith reports whether o, which matches whatever r matches, holds for all of that
// and counts together what r counts together.
func (l *linter) alwaysWith(o, r *rule) bool {
	if o.limit.Shadow || o.limit.Elastic != "" || len(o.limit.Active)+len(r.limit.Active) > 0 || l.replaced[o.limit.Name] || o.limit.skips {
		return false
	}
	return !slices.ContainsFunc(o.limit.keys, func(k string) bool { return !slices.Contains(r.limit.keys, k) })
}

// lessThan reports whether what o lets through never exceeds what l allows.
func lessThan(o, l *Limit) bool {
	if l.Spec == nil || l.Unlimited {
		return false
	}
	if o.Blocked {
		return true
	}
	if o.Spec == nil {
		return false
	}
	most := o.Spec
	if o.Hard != nil {
		most = o.Hard
	}
	dear := float64(l.Cost) / float64(o.Cost) // units of l for each unit of o
	if n, ok := aligned(most, l.Spec); ok {
		return n*dear <= float64(capacity(l.Spec))
	}
	through, known := boundOf(most)
	allowed, lasting, ok := refusesOver(l.Spec)
	if !known || !ok {
		return false
	}
	if lasting > 0 {
		return through.within(lasting)*dear <= allowed
	}
	return through.within(0)*dear <= allowed && through.rate*dear <= perNanosecond(rateOf(l.Spec))
}

// aligned returns how many units o lets through in a window of l, if both have windows
// that begin together.
func aligned(o, l Spec) (units float64, ok bool) {
	a, _ := o.(throttle.Quota)
	b, _ := l.(throttle.Quota)
	switch {
	case a.Per <= 0 || b.Per <= 0 || a.Anchor != throttle.AtEpoch || b.Anchor != throttle.AtEpoch:
		return 0, false
	case a.Per%b.Per == 0:
		return float64(a.Count), true
	case b.Per%a.Per == 0:
		return float64(a.Count) * float64(b.Per/a.Per), true
	}
	return 0, false
}

// A bound is the most units in any span w, without its end: once + rate*w or, where
// there are windows, count for each of the windows that it may touch.
type bound struct {
	once, rate float64 // rate is per nanosecond
	count      float64 // 0: units flow
	per        time.Duration
	extra      float64 // windows that a span may touch besides those that it is long
}

func (b bound) within(w time.Duration) float64 {
	if b.count > 0 {
		return b.count * (max(math.Ceil(float64(w)/float64(b.per)), 1) + b.extra)
	}
	return b.once + b.rate*float64(w)
}

// boundOf returns how much s lets through.
func boundOf(s Spec) (bound, bool) {
	switch s := s.(type) {
	case throttle.Limit:
		return bound{once: float64(capacity(s)), rate: perNanosecond(s)}, true
	case throttle.Log:
		return bound{count: float64(s.Count), per: s.Per, rate: perNanosecond(s.Limit)}, true
	case throttle.Quota:
		return bound{count: float64(s.Count), per: s.Per, rate: float64(s.Count) / float64(s.Per), extra: 1}, s.Per > 0
	}
	return bound{}, false
}

func perNanosecond(l throttle.Limit) float64 { return float64(l.Count) / float64(l.Per) }

// refusesOver returns how many units must come within a time, at once if that is 0,
// before s refuses any.
func refusesOver(s Spec) (units float64, within time.Duration, ok bool) {
	switch s := s.(type) {
	case throttle.Limit:
		return float64(capacity(s)), 0, true
	case throttle.Log:
		return float64(s.Count), s.Per, s.MinGap == 0
	case throttle.Quota:
		return float64(s.Count), s.Per, s.Per > 0
	}
	return 0, 0, false
}
