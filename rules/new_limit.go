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

// maxParts is the maximum number of sub-windows of a limit. Each key stores one number for each.
const maxParts = 10_000

// An algorithm creates the Spec of a rate limit. Its argument name is the Policy of decisions.
type algorithm struct {
	fields []string // words that it accepts, besides those that all limits accept
	make   func(d *rateLimit, a amount, name string) Spec
}

// algorithms maps the names of algorithms in a file to algorithms.
var algorithms = map[string]*algorithm{
	"token_bucket": {[]string{"burst", "compact"}, func(_ *rateLimit, a amount, name string) Spec { return a.limit(name) }},
	"refill": {[]string{"burst"}, func(_ *rateLimit, a amount, name string) Spec {
		return throttle.RefillBucketConfig{Limit: a.limit(name)}
	}},
	"leaky_bucket":       {[]string{"burst", "queue"}, (*rateLimit).leakyBucket},
	"fixed_window":       {[]string{"calendar", "zone", "align"}, (*rateLimit).fixedWindow},
	"permits_per_period": {nil, (*rateLimit).permitsPerPeriod},
	"sliding_log":        {[]string{"min_gap", "count_rejected"}, (*rateLimit).slidingLog},
	"sliding_counter": {nil, func(_ *rateLimit, a amount, name string) Spec {
		return throttle.SlidingCounterConfig{Limit: a.limit(name)}
	}},
	"sub_windows": {[]string{"granularity"}, (*rateLimit).subWindows},
	"nginx":       {[]string{"burst", "delay", "nodelay"}, (*rateLimit).nginx},
	"warm_up":     {[]string{"warm_up"}, (*rateLimit).warmUpConfig},
	"concurrency": {[]string{"concurrency", "max_age"}, (*rateLimit).concurrencyConfig},
}

// impliedAlgorithms lists the words that imply an algorithm if none is named. The first entry that
// a limit contains wins.
var impliedAlgorithms = []struct{ word, algorithm string }{
	{"concurrency", "concurrency"}, {"warm_up", "warm_up"}, {"granularity", "sub_windows"}, {"queue", "leaky_bucket"},
	{"delay", "nginx"}, {"nodelay", "nginx"}, {"min_gap", "sliding_log"}, {"count_rejected", "sliding_log"},
	{"burst", "token_bucket"}, {"compact", "token_bucket"},
}

func oneOfKeys[V any](table map[string]V) string {
	return strings.Join(slices.Sorted(maps.Keys(table)), ", ")
}

func (a amount) limit(name string) throttle.Limit {
	return throttle.Limit{Name: name, Count: a.count, Per: a.length(), Burst: a.burst}
}

func (d *rateLimit) leakyBucket(a amount, name string) Spec {
	return throttle.LeakyBucketConfig{Limit: a.limit(name), Queue: d.queue}
}

func (d *rateLimit) fixedWindow(a amount, name string) Spec {
	q := throttle.FixedWindowConfig{Name: name, Count: a.count, Align: d.align, Per: a.length()}
	if d.calendar != 0 {
		q.Align, q.Per, q.Zone = d.calendar, 0, d.zone
	}
	return q
}

func (d *rateLimit) permitsPerPeriod(a amount, name string) Spec {
	return throttle.FixedWindowConfig{Name: name, Count: a.count, Align: throttle.AtCreation, Per: a.length()}
}

func (d *rateLimit) slidingLog(a amount, name string) Spec {
	return throttle.SlidingLogConfig{Limit: a.limit(name), MinGap: d.minGap, CountRejected: d.countRejected}
}

func (d *rateLimit) subWindows(a amount, name string) Spec {
	return throttle.SlidingCounterConfig{Limit: a.limit(name), Parts: clampInt(int64(a.length() / max(d.granularity, 1)))}
}

func (d *rateLimit) nginx(a amount, name string) Spec {
	return throttle.NginxConfig{Name: name, Rate: a.count, Per: a.length(), Burst: a.burst, Delay: d.delay, NoDelay: d.noDelay}
}

func (d *rateLimit) warmUpConfig(a amount, name string) Spec {
	return warmup.Config{Limit: a.limit(name), Period: d.warmUp.period, ColdFactor: d.warmUp.coldFactor, Outage: d.warmUp.outage}
}

func (d *rateLimit) concurrencyConfig(a amount, name string) Spec {
	return throttle.ConcurrencyConfig{Name: name, Count: a.count, MaxAge: d.maxAge}
}

// newLimit returns the limit that d describes, with the given ID. It returns nil if d is invalid.
func (r *reader) newLimit(d *rateLimit, place string) *Limit {
	faults := len(r.faults)
	l := &Limit{
		ID: place, Name: d.name, Line: d.node.Line, Column: d.node.Column,
		Borrow: d.borrow, Ban: d.ban, Cost: d.cost, MaxKeys: clampInt(d.maxKeys), Compact: d.compact, Replaces: d.replaces,
	}
	if slices.Contains(d.replaces, d.name) {
		r.fail(d.nodeOf("replaces"), "a limit cannot replace itself: leave %q out", d.name)
	}
	if d.maxKeys > maxKeys {
		r.fail(d.nodeOf("max_keys"), "max_keys is %d: no more than %d", d.maxKeys, maxKeys)
	}
	if d.unlimited {
		r.applyUnlimited(d, l)
	} else {
		r.applyLimited(d, l)
	}
	if len(r.faults) > faults {
		return nil
	}
	return l
}

// applyUnlimited makes l grant everything. Other words besides name and replaces are errors.
func (r *reader) applyUnlimited(d *rateLimit, l *Limit) {
	for word, n := range d.nodes {
		if !slices.Contains([]string{"unlimited", "name", "replaces"}, word) && (word != "requests_per_unit" || d.count > 0) {
			r.fail(n, "unlimited and %s: a limit has one or the other", word)
		}
	}
	l.Unlimited, l.Ban, l.Borrow = true, nil, ""
}

// applyLimited sets what l allows, at all times.
func (r *reader) applyLimited(d *rateLimit, l *Limit) {
	name, how := r.chooseAlgorithm(d)
	if how == nil || !r.checkAmount(d, name) {
		return
	}
	l.Spec, l.Hard = r.specs(d, how, d.amount, l.Policy(), d.node)
	l.Blocked = d.count == 0
	for _, a := range d.active {
		p := a.period
		p.Spec, p.Hard = r.specs(d, how, a.withDefaults(d.amount), l.Policy(), a.node)
		l.Active = append(l.Active, p)
	}
	if d.compact && (len(d.active) > 0 || d.soft > 0) {
		r.fail(d.nodeOf("compact"), "compact: such limits cannot change while in use, and have one number each: leave active and soft out, or compact")
	}
	if len(d.active) > 0 && (name == "concurrency" || name == "nginx") {
		r.fail(d.nodeOf("active"), "active: a limit by %s cannot change while it is in use: take another algorithm", name)
	}
}

// withDefaults returns the amount of a, with the fields that a does not set taken from usual.
func (a activeItem) withDefaults(usual amount) amount {
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

// chooseAlgorithm returns the algorithm of d and reports words of d that the algorithm does not
// accept.
func (r *reader) chooseAlgorithm(d *rateLimit) (string, *algorithm) {
	name := d.algorithm
	for _, i := range impliedAlgorithms {
		if name == "" && d.has(i.word) {
			name = i.algorithm
		}
	}
	if name == "" {
		name = "fixed_window"
	}
	how := algorithms[name]
	for _, other := range algorithms {
		for _, word := range other.fields {
			if n := d.nodes[word]; n != nil && !slices.Contains(how.fields, word) {
				r.fail(n, "%s has no %s: leave it out, or write another algorithm", name, word)
				delete(d.nodes, word) // report each word once
			}
		}
	}
	return name, how
}

// checkAmount reports whether d contains the words that its algorithm needs.
func (r *reader) checkAmount(d *rateLimit, name string) bool {
	faults := len(r.faults)
	switch {
	case name == "concurrency":
		r.checkConcurrency(d)
	case !d.has("requests_per_unit"):
		r.fail(d.node, "requests_per_unit is missing: write how many requests, 0 for none, or unlimited: true")
	case d.has("calendar"):
		r.checkCalendar(d)
		return d.calendar != 0 && len(r.faults) == faults
	case d.length() == 0 && (d.has("unit") || d.has("per")):
		return false // invalid, and already reported
	case d.length() == 0:
		r.fail(d.node, "unit is missing: write unit: second, minute and so on, or per: and a time")
	case d.unit > 0 && d.per > 0:
		r.fail(d.nodeOf("per"), "unit and per: leave one of them out")
	case d.has("zone"):
		r.fail(d.nodeOf("zone"), "zone: only calendar has one; active has one of its own")
	case name == "sub_windows":
		r.checkGranularity(d)
	case name == "warm_up" && d.soft > 0:
		r.fail(d.nodeOf("soft"), "soft: warm_up charges later and knows no soft limit: leave it out")
	}
	return len(r.faults) == faults
}

func (r *reader) checkConcurrency(d *rateLimit) {
	for _, word := range []string{"unit", "per", "requests_per_unit"} {
		if d.has(word) {
			r.fail(d.nodeOf(word), "%s: concurrency has none: it counts what is in use at a time", word)
		}
	}
	if !d.has("concurrency") {
		r.fail(d.node, "concurrency is missing: write how many may be in use at a time")
	}
	d.count = d.concurrency
}

// checkCalendar checks a limit with calendar windows. Such a window has a length of its own.
func (r *reader) checkCalendar(d *rateLimit) {
	for _, word := range []string{"unit", "per", "align"} {
		if d.has(word) {
			r.fail(d.nodeOf(word), "%s and calendar: a window of the calendar has its own length: leave %s out", word, word)
		}
	}
	for _, a := range d.active {
		if a.length() > 0 {
			r.fail(a.node, "active has a unit and calendar has its own length: leave it out")
		}
	}
}

// checkGranularity checks that sub-windows divide the window, and that their number is at most
// maxParts.
func (r *reader) checkGranularity(d *rateLimit) {
	lengths := []time.Duration{d.length()}
	for _, a := range d.active {
		lengths = append(lengths, a.withDefaults(d.amount).length())
	}
	for _, per := range lengths {
		switch {
		case d.granularity <= 0:
			r.fail(d.node, "granularity is missing: write how long a sub-window is, such as a tenth of the unit")
		case per%d.granularity != 0:
			r.fail(d.nodeOf("granularity"), "granularity %s: %s is no multiple of it", formatDuration(d.granularity), formatDuration(per))
		case per/d.granularity > maxParts:
			r.fail(d.nodeOf("granularity"), "granularity %s makes %d sub-windows for each key: no more than %d: write a longer one", formatDuration(d.granularity), per/d.granularity, maxParts)
		case per != d.length():
			r.fail(d.nodeOf("active"), "active: the unit of sub_windows cannot change: leave it out")
		}
	}
}

// specs returns the Spec of amount a and the Spec with the soft percentage added. hard is nil
// without a soft percentage. Both are nil if a.count is 0, or if the Spec is invalid.
func (r *reader) specs(d *rateLimit, how *algorithm, a amount, name string, n *yaml.Node) (spec, hard Spec) {
	if a.count == 0 {
		return nil, nil
	}
	spec = how.make(d, a, name)
	if err := spec.Validate(); err != nil {
		r.fail(n, "%s", withoutPackage(err))
		return nil, nil
	}
	if d.soft == 0 {
		return spec, nil
	}
	more := throttle.Limit{Count: a.count, Burst: a.burst}.PlusPercent(d.soft)
	a.count, a.burst = more.Count, more.Burst
	hard = how.make(d, a, name)
	if err := hard.Validate(); err != nil {
		r.fail(d.nodeOf("soft"), "soft: %s", withoutPackage(err))
	}
	return spec, hard
}

// withoutPackage returns the message of an error of another package without the name of that
// package.
func withoutPackage(err error) string {
	_, text, found := strings.Cut(err.Error(), ": ")
	if !found {
		return err.Error()
	}
	return text
}
