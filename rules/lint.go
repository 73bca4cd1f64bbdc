package rules

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// Finding is a part of a valid file that probably has an unintended effect.
type Finding struct {
	// Line and Column are the position of the limit, both counted from 1.
	Line, Column int

	// LimitID is the Limit.ID of the limit. Empty means that the finding concerns the file.
	LimitID string

	// Problem describes what is wrong.
	Problem string

	// Suggestion describes how to change the file.
	Suggestion string
}

// String returns the finding in one line.
func (f Finding) String() string {
	s := position{f.Line, f.Column}.String() + ": "
	if f.LimitID != "" {
		s += f.LimitID + ": "
	}
	return s + f.Problem + ": " + f.Suggestion
}

// Lint returns the findings for a file that Parse accepts, in the order of the file: limits that
// never apply or never reject, counts that are not exact and by how much, and keys that clients
// can invent. The error is that of Parse.
func Lint(text []byte, s Config) ([]Finding, error) {
	p, err := parse(text, &s)
	if err != nil {
		return nil, err
	}
	l := linter{parsedFile: p, names: map[string]bool{}, replaced: map[string]bool{}, reported: map[string]bool{}}
	for _, r := range p.rules {
		l.names[r.limit.Name] = true
		for _, name := range r.limit.Replaces {
			l.replaced[name] = true
		}
	}
	for _, r := range p.rules {
		for _, check := range checks {
			check(&l, r)
		}
	}
	if len(p.rules) == 0 {
		l.findings = append(l.findings, Finding{1, 1, "", "the file has no limits, so no request is limited", "add limits, or check that it was written completely"})
	}
	l.unusedValues()
	l.descriptorTree(p.root)
	l.redundantLimits()
	slices.SortStableFunc(l.findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return l.findings, nil
}

// A linter collects the findings of one file.
type linter struct {
	*parsedFile
	names    map[string]bool // names of limits
	replaced map[string]bool // names that at least one limit replaces
	reported map[string]bool // subjects that have been reported for the whole file
	findings []Finding
}

// checks examine one limit each.
var checks = []func(*linter, *rule){
	(*linter).costTooHigh, (*linter).windowEdges, (*linter).coarseSubWindows, (*linter).largeBursts, (*linter).forgeableKeys,
	(*linter).unknownReplaced, (*linter).memory, (*linter).softTooSmall, (*linter).activePeriods, (*linter).localZone, (*linter).unknownMethods,
}

func (l *linter) report(r *rule, what, do string) {
	l.findings = append(l.findings, Finding{r.limit.Line, r.limit.Column, r.limit.ID, what, do})
}

// once reports whether this is its first call with subject.
func (l *linter) once(subject string) bool {
	defer func() { l.reported[subject] = true }()
	return !l.reported[subject]
}

// costTooHigh finds limits that reject every request, because of their cost.
func (l *linter) costTooHigh(r *rule) {
	if limit := r.limit.maxCapacity(); limit > 0 && r.limit.Cost > limit {
		l.report(r, fmt.Sprintf("a request costs %d and no more than %d are available at a time: it rejects everything", r.limit.Cost, limit), "lower cost, or allow more")
	}
}

// windowEdges finds fixed windows. It reports one finding per file, because files of
// envoyproxy/ratelimit have no other algorithm.
func (l *linter) windowEdges(r *rule) {
	q, ok := r.limit.Spec.(throttle.FixedWindowConfig)
	if ok && q.Count > 1 && l.once("edges") {
		n := 0
		for _, r := range l.rules {
			if _, ok := r.limit.Spec.(throttle.FixedWindowConfig); ok {
				n++
			}
		}
		l.report(r, fmt.Sprintf("at the edge of two windows twice as many are granted: here %d (so in %d of %d limits)", 2*q.Count, n, len(l.rules)),
			"where that is too many, write algorithm: token_bucket, sliding_counter or sliding_log")
	}
}

// coarseSubWindows reports by how much sub-windows shorten the window.
func (l *linter) coarseSubWindows(r *rule) {
	if p, ok := r.limit.Spec.(throttle.SlidingCounterConfig); ok && p.Parts > 0 {
		g := p.Limit.Per / time.Duration(p.Parts)
		what := fmt.Sprintf("a request counts up to %s too short, which is %.3g %% of %s", formatDuration(g), 100/float64(p.Parts), formatDuration(p.Limit.Per))
		l.report(r, what, "where that is too much, write a finer granularity, or algorithm: sliding_log")
	}
}

// largeBursts finds buckets whose burst is larger than their count per unit.
func (l *linter) largeBursts(r *rule) {
	switch r.limit.Spec.(type) {
	case throttle.Limit, throttle.RefillBucketConfig, throttle.LeakyBucketConfig:
		rate, burst := rateOf(r.limit.Spec), specCapacity(r.limit.Spec)
		if burst > rate.Count {
			l.report(r, fmt.Sprintf("%d are granted immediately, and %d within %s", burst, ticks.Add(burst, rate.Count), formatDuration(rate.Per)), "lower burst, if that is more than meant")
		}
	}
}

// forgeableKeys finds limits whose key consists only of values that clients choose: a client that
// invents a value gets a limit of its own.
func (l *linter) forgeableKeys(r *rule) {
	if !r.limit.Keyed || len(l.forgeable(r)) < len(r.limit.keys) || !l.once("key "+strings.Join(r.limit.keys, " ")) {
		return // for a part of the key see partlyForgeable
	}
	l.report(r, fmt.Sprintf("its key is chosen by clients (%s): a client that invents another gets another limit, and from %d keys in use on, new keys replace others",
		strings.Join(r.limit.keys, ", "), r.limit.maxKeys()), "check it first and give it by Config.Values, or limit remote_address as well")
}

// memory finds limits whose keys need much memory.
func (l *linter) memory(r *rule) {
	if !r.limit.Keyed || r.limit.Compact {
		return
	}
	each, keys := r.limit.bytesPerKey(), r.limit.maxKeys()
	switch {
	case r.limit.MaxKeys == 0 && keys < defaultMaxKeys:
		l.report(r, fmt.Sprintf("a key needs up to %s, so there is space for %d keys in %s instead of %d", formatBytes(each), keys, formatBytes(maxTableBytes), defaultMaxKeys),
			"write max_keys for the number of keys in use at the same time, or algorithm: sliding_counter or token_bucket")
	case float64(each)*float64(keys) > maxTableBytes:
		l.report(r, fmt.Sprintf("a key needs up to %s, so that %d keys need up to %s", formatBytes(each), keys, formatBytes(int64(min(float64(each)*float64(keys), math.MaxInt64/2)))),
			"lower max_keys, or write algorithm: sliding_counter or token_bucket, if that is too much")
	}
}

// formatBytes returns n in the largest unit of which it has at least one.
func formatBytes(n int64) string {
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if size := int64(1) << (30 - 10*i); n >= size {
			return fmt.Sprintf("%.3g %s", float64(n)/float64(size), unit)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// forgeable returns the parts of the key of r that clients choose: not an address, a part of the
// request that selects what is limited, or a value that the program supplies.
func (l *linter) forgeable(r *rule) (keys []string) {
	for _, key := range r.limit.keys {
		if s := l.byName[key]; s != nil && (strings.HasPrefix(s.origin, "header ") || strings.HasPrefix(s.origin, "cookie ") || strings.HasPrefix(s.origin, "query ")) {
			keys = append(keys, key)
		}
	}
	return keys
}

// partlyForgeable finds limits of which clients choose a part of the key, unless one of others limits
// all requests of a client together.
func (l *linter) partlyForgeable(r *rule, others []*rule) {
	keys := l.forgeable(r)
	if len(keys) == 0 || len(keys) == len(r.limit.keys) || r.limit.Shadow {
		return
	}
	for _, o := range others {
		if o != r && l.alwaysApplies(o, r) && len(l.forgeable(o)) == 0 {
			return
		}
	}
	if l.once("key " + strings.Join(r.limit.keys, " ")) {
		l.report(r, fmt.Sprintf("a part of its key is chosen by clients (%s): a client that invents another value gets another limit", strings.Join(keys, ", ")),
			"check it first and give it by Config.Values, or limit the other parts of the key alone as well")
	}
}

// unknownReplaced finds replaced names that no limit has.
func (l *linter) unknownReplaced(r *rule) {
	for _, name := range r.limit.Replaces {
		if !l.names[name] {
			l.report(r, fmt.Sprintf("it replaces %q, and no limit of this file has that name", name), "write the name of another limit, or leave it out")
		}
	}
}

// softTooSmall finds soft percentages of less than one unit.
func (l *linter) softTooSmall(r *rule) {
	if r.limit.Hard != nil && specCapacity(r.limit.Hard) == specCapacity(r.limit.Spec) {
		l.report(r, fmt.Sprintf("soft is less than one of %d: nothing may come on top", specCapacity(r.limit.Spec)), "write a larger percentage, or leave it out")
	}
}

// activePeriods finds periods that never apply, and periods that change nothing.
func (l *linter) activePeriods(r *rule) {
	for i := range r.limit.Active {
		p := &r.limit.Active[i]
		if amountOf(p.Spec, p.Hard) == amountOf(r.limit.Spec, r.limit.Hard) {
			l.report(r, "active "+p.String()+" allows what holds anyway", "write another amount, or leave it out")
		}
		if !everActive(r.limit, p) {
			l.report(r, "active "+p.String()+" never holds, for those before it hold then", "put it before them, or leave it out")
		}
	}
}

// everActive reports whether there is a time at which p applies. The period that applies changes
// only at the boundaries of periods, and a week without a clock change contains all of them.
func everActive(l *Limit, p *Period) bool {
	var edges []time.Time
	for i := range l.Active {
		edges = l.Active[i].boundaries(edges, time.Date(2026, 1, 12, 0, 0, 0, 0, time.UTC))
	}
	return slices.ContainsFunc(edges, func(at time.Time) bool { return l.periodAt(at) == p })
}

// localZone finds limits whose time zone is that of the machine.
func (l *linter) localZone(r *rule) {
	q, _ := r.limit.Spec.(throttle.FixedWindowConfig)
	for _, p := range append([]Period{{Zone: q.Zone}}, r.limit.Active...) {
		if p.Zone == time.Local {
			l.report(r, "its zone is that of the machine", "write the name of a zone, such as Europe/Berlin")
			return
		}
	}
}

// unusedValues finds values that no key uses.
func (l *linter) unusedValues() {
	for _, s := range l.sources {
		if !s.used {
			l.findings = append(l.findings, Finding{s.position.line, s.position.column, "", fmt.Sprintf("nothing has the value %q for a key", s.name), "leave it out"})
		}
	}
}

// descriptorTree examines the descriptors below n.
func (l *linter) descriptorTree(n *node) {
	for _, g := range n.groups {
		if g.source == nil && l.once("source "+g.key) {
			if r := firstRule(g); r != nil {
				l.report(r, fmt.Sprintf("requests have no %q: only Set.Add finds what is below it", g.key), "say under values where it comes from, or set Config.Values")
			}
		}
		l.unreachableValues(g)
		g.eachNode(func(_ string, below *node) { l.descriptorTree(below) })
	}
}

// eachNode calls visit for each node of g, in no particular order.
func (g *group) eachNode(visit func(value string, n *node)) {
	for value, n := range g.exact {
		visit(value, n)
	}
	if g.any != nil {
		visit("", g.any)
	}
}

// firstRule returns the limit at or below g that comes first in the file. It returns nil if there
// is none.
func firstRule(g *group) (first *rule) {
	g.eachNode(func(_ string, n *node) {
		found := n.rule
		for _, below := range n.groups {
			if r := firstRule(below); r != nil && (found == nil || r.index < found.index) {
				found = r
			}
		}
		if found != nil && (first == nil || found.index < first.index) {
			first = found
		}
	})
	return first
}

// unreachableValues finds values of g that no lookup returns.
func (l *linter) unreachableValues(g *group) {
	for value, n := range g.exact {
		switch {
		case n.rule == nil:
		case strings.Contains(value, "*"):
			if earlier, ok := g.wild.covers(value, n); ok {
				l.report(n.rule, fmt.Sprintf("%q is never found, for %q stands before it", value, earlier), "put it first")
			}
		case g.source != nil:
			l.impossibleValue(n.rule, g.source, value)
		}
	}
}

// covers returns a prefix pattern of p that precedes that of n in the file and matches every text
// that n matches.
func (p *patterns) covers(value string, n *node) (earlier string, ok bool) {
	prefix, _, _ := strings.Cut(value, "*")
	order := slices.IndexFunc(p.byPrefix[prefix], func(c pattern) bool { return c.node == n })
	order = p.byPrefix[prefix][order].order
	for _, length := range p.lengths {
		if length > len(prefix) {
			continue
		}
		for _, c := range p.byPrefix[prefix[:length]] {
			if c.order < order && len(c.parts) == 2 && c.parts[1] == "" {
				return c.parts[0] + "*", true
			}
		}
	}
	return "", false
}
