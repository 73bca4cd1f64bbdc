package rules

import (
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/warmup"
)

// maxParts is how many sub-windows a limit may have: each key needs a number for each.
const maxParts = 10_000

// An algorithm puts a draft together. name is what decisions will show.
type algorithm struct {
	words []string // that it knows besides those of all limits
	make  func(d *draft, a amount, name string) Spec
}

// algorithms has all of them, by their names in a file.
var algorithms = map[string]*algorithm{
	"token_bucket":       {[]string{"burst", "compact"}, func(_ *draft, a amount, name string) Spec { return a.limit(name) }},
	"refill":             {[]string{"burst"}, func(_ *draft, a amount, name string) Spec { return throttle.Refill{Limit: a.limit(name)} }},
	"leaky_bucket":       {[]string{"burst", "queue"}, (*draft).leak},
	"fixed_window":       {[]string{"calendar", "zone", "anchor"}, (*draft).window},
	"permits_per_period": {nil, (*draft).permits},
	"sliding_log":        {[]string{"min_gap", "count_refused"}, (*draft).log},
	"sliding_counter":    {nil, func(_ *draft, a amount, name string) Spec { return throttle.Counter{Limit: a.limit(name)} }},
	"sub_windows":        {[]string{"granularity"}, (*draft).parts},
	"nginx":              {[]string{"burst", "delay", "nodelay"}, (*draft).nginx},
	"warm_up":            {[]string{"warm_up"}, (*draft).curve},
	"in_flight":          {[]string{"in_flight", "max_age"}, (*draft).capacity},
}

// implied says which words alone tell the algorithm. The first that a limit has counts.
var implied = []struct{ word, algorithm string }{
	{"in_flight", "in_flight"}, {"warm_up", "warm_up"}, {"granularity", "sub_windows"}, {"queue", "leaky_bucket"},
	{"delay", "nginx"}, {"nodelay", "nginx"}, {"min_gap", "sliding_log"}, {"count_refused", "sliding_log"},
	{"burst", "token_bucket"}, {"compact", "token_bucket"},
}

func oneOfKeys[V any](table map[string]V) string {
	return strings.Join(slices.Sorted(maps.Keys(table)), ", ")
}

func (a amount) limit(name string) throttle.Limit {
	return throttle.Limit{Name: name, Count: a.count, Per: a.length(), Burst: a.burst}
}

func (d *draft) leak(a amount, name string) Spec {
	return throttle.Leak{Limit: a.limit(name), Queue: d.queue}
}

func (d *draft) window(a amount, name string) Spec {
	q := throttle.Quota{Name: name, Count: a.count, Anchor: d.anchor, Per: a.length()}
	if d.calendar != 0 {
		q.Anchor, q.Per, q.Zone = d.calendar, 0, d.zone
	}
	return q
}

func (d *draft) permits(a amount, name string) Spec {
	return throttle.Quota{Name: name, Count: a.count, Anchor: throttle.AtCreation, Per: a.length()}
}

func (d *draft) log(a amount, name string) Spec {
	return throttle.Log{Limit: a.limit(name), MinGap: d.minGap, CountRefused: d.countRefused}
}

func (d *draft) parts(a amount, name string) Spec {
	return throttle.Parts{Limit: a.limit(name), Parts: clampInt(int64(a.length() / max(d.granularity, 1)))}
}

func (d *draft) nginx(a amount, name string) Spec {
	return throttle.LimitReq{Name: name, Rate: a.count, Per: a.length(), Burst: a.burst, Delay: d.delay, NoDelay: d.noDelay}
}

func (d *draft) curve(a amount, name string) Spec {
	return warmup.Curve{Limit: a.limit(name), Over: d.warmUp.over, Cold: d.warmUp.cold, Outage: d.warmUp.outage}
}

func (d *draft) capacity(a amount, name string) Spec {
	return throttle.Capacity{Name: name, Count: a.count, MaxAge: d.maxAge}
}

// assemble makes the limit that d says, at a place. It returns nil if d is wrong.
func (r *reader) assemble(d *draft, place string) *Limit {
	faults := len(r.faults)
	l := &Limit{
		Place: place, Name: d.name, Line: d.node.Line, Column: d.node.Column,
		Elastic: d.elastic, Penalty: d.penalty, Cost: d.cost, MaxKeys: clampInt(d.maxKeys), Compact: d.compact, Replaces: d.replaces,
	}
	if slices.Contains(d.replaces, d.name) {
		r.fail(d.where("replaces"), "a limit cannot replace itself: leave %q out", d.name)
	}
	if d.maxKeys > maxKeys {
		r.fail(d.where("max_keys"), "max_keys is %d: no more than %d", d.maxKeys, maxKeys)
	}
	if d.unlimited {
		r.unlimited(d, l)
	} else {
		r.limited(d, l)
	}
	if len(r.faults) > faults {
		return nil
	}
	return l
}

// unlimited makes l grant everything. It may say nothing else then.
func (r *reader) unlimited(d *draft, l *Limit) {
	for word, n := range d.at {
		if !slices.Contains([]string{"unlimited", "name", "replaces"}, word) && (word != "requests_per_unit" || d.count > 0) {
			r.fail(n, "unlimited and %s: a limit has one or the other", word)
		}
	}
	l.Unlimited, l.Penalty, l.Elastic = true, nil, ""
}

// limited gives l what it allows, at all times.
func (r *reader) limited(d *draft, l *Limit) {
	name, how := r.choose(d)
	if how == nil || !r.amounts(d, name) {
		return
	}
	l.Spec, l.Hard = r.specs(d, how, d.amount, l.Policy(), d.node)
	l.Blocked = d.count == 0
	for _, a := range d.active {
		p := a.period
		p.Spec, p.Hard = r.specs(d, how, a.instead(d.amount), l.Policy(), a.node)
		l.Active = append(l.Active, p)
	}
	if d.compact && (len(d.active) > 0 || d.soft > 0) {
		r.fail(d.where("compact"), "compact: such limits cannot change while in use, and have one number each: leave active and soft out, or compact")
	}
	if len(d.active) > 0 && (name == "in_flight" || name == "nginx") {
		r.fail(d.where("active"), "active: a limit by %s cannot change while it is in use: take another algorithm", name)
	}
}

// instead returns the amount that holds while a does, where a itself says nothing.
func (a activity) instead(usual amount) amount {
	if a.count < 0 {
		a.count = usual.count
	}
	if a.unit == 0 && a.per == 0 {
		a.unit, a.per = usual.unit, usual.per
	}
	if a.burst == 0 {
		a.burst = usual.burst
	}
	return a.amount
}

// choose returns the algorithm of d, which must know all of its words.
func (r *reader) choose(d *draft) (string, *algorithm) {
	name := d.algorithm
	for _, i := range implied {
		if name == "" && d.has(i.word) {
			name = i.algorithm
		}
	}
	if name == "" {
		name = "fixed_window"
	}
	how := algorithms[name]
	for _, other := range algorithms {
		for _, word := range other.words {
			if n := d.at[word]; n != nil && !slices.Contains(how.words, word) {
				r.fail(n, "%s has no %s: leave it out, or write another algorithm", name, word)
				delete(d.at, word) // told once
			}
		}
	}
	return name, how
}

// amounts reports whether d says what its algorithm needs.
func (r *reader) amounts(d *draft, name string) bool {
	faults := len(r.faults)
	switch {
	case name == "in_flight":
		r.inFlight(d)
	case !d.has("requests_per_unit"):
		r.fail(d.node, "requests_per_unit is missing: write how many requests, 0 for none, or unlimited: true")
	case d.has("calendar"):
		r.ofCalendar(d)
		return d.calendar != 0 && len(r.faults) == faults
	case d.length() == 0 && (d.has("unit") || d.has("per")):
		return false // what it says is wrong, and was told
	case d.length() == 0:
		r.fail(d.node, "unit is missing: write unit: second, minute and so on, or per: and a time")
	case d.unit > 0 && d.per > 0:
		r.fail(d.where("per"), "unit and per: leave one of them out")
	case d.has("zone"):
		r.fail(d.where("zone"), "zone: only calendar has one; active has one of its own")
	case name == "sub_windows":
		r.granular(d)
	case name == "warm_up" && d.soft > 0:
		r.fail(d.where("soft"), "soft: warm_up charges later and knows no soft limit: leave it out")
	}
	return len(r.faults) == faults
}

func (r *reader) inFlight(d *draft) {
	for _, word := range []string{"unit", "per", "requests_per_unit"} {
		if d.has(word) {
			r.fail(d.where(word), "%s: in_flight has none: it counts what is in use at a time", word)
		}
	}
	if !d.has("in_flight") {
		r.fail(d.node, "in_flight is missing: write how many may be in use at a time")
	}
	d.count = d.inFlight
}

// ofCalendar checks a window of the calendar: it has a length of its own.
func (r *reader) ofCalendar(d *draft) {
	for _, word := range []string{"unit", "per", "anchor"} {
		if d.has(word) {
			r.fail(d.where(word), "%s and calendar: a window of the calendar has its own length: leave %s out", word, word)
		}
	}
	for _, a := range d.active {
		if a.length() > 0 {
			r.fail(a.node, "active has a unit and calendar has its own length: leave it out")
		}
	}
}

// granular checks that sub-windows fill the window, and are not too many.
func (r *reader) granular(d *draft) {
	lengths := []time.Duration{d.length()}
	for _, a := range d.active {
		lengths = append(lengths, a.instead(d.amount).length())
	}
	for _, per := range lengths {
		switch {
		case d.granularity <= 0:
			r.fail(d.node, "granularity is missing: write how long a sub-window is, such as a tenth of the unit")
		case per%d.granularity != 0:
			r.fail(d.where("granularity"), "granularity %s: %s is no multiple of it", formatDuration(d.granularity), formatDuration(per))
		case per/d.granularity > maxParts:
			r.fail(d.where("granularity"), "granularity %s makes %d sub-windows for each key: no more than %d: write a longer one", formatDuration(d.granularity), per/d.granularity, maxParts)
		case per != d.length():
			r.fail(d.where("active"), "active: the unit of sub_windows cannot change: leave it out")
		}
	}
}

// specs returns what a says by an algorithm, and with the soft percentage on top.
// Both are nil if it says 0: no request.
func (r *reader) specs(d *draft, how *algorithm, a amount, name string, n *yaml.Node) (spec, hard Spec) {
	if a.count == 0 {
		return nil, nil
	}
	spec = how.make(d, a, name)
	if err := spec.Validate(); err != nil {
		r.fail(n, "%s", reason(err))
		return nil, nil
	}
	if d.soft == 0 {
		return spec, nil
	}
	more := throttle.Limit{Count: a.count, Burst: a.burst}.Plus(d.soft)
	a.count, a.burst = more.Count, more.Burst
	hard = how.make(d, a, name)
	if err := hard.Validate(); err != nil {
		r.fail(d.where("soft"), "soft: %s", reason(err))
	}
	return spec, hard
}

// reason returns what an error of another package says, without its name.
func reason(err error) string {
	_, text, found := strings.Cut(err.Error(), ": ")
	if !found {
		return err.Error()
	}
	return text
}
