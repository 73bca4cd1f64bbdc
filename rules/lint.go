package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A Finding is something in a file that works, but perhaps not as it was meant.
type Finding struct {
	Line, Column int    // of the limit, as editors count
	LimitID      string // of the limit, see Limit.ID; "": it concerns the file
	Problem      string // what is odd
	Suggestion   string // what to do about it
}

// String returns the finding in one line.
func (f Finding) String() string {
	s := position{f.Line, f.Column}.String() + ": "
	if f.LimitID != "" {
		s += f.LimitID + ": "
	}
	return s + f.Problem + ": " + f.Suggestion
}

// Lint returns what is odd in a file that Parse accepts, in its order: limits that
// never hold or never refuse, counts that are not exact and by how much, keys that
// clients can make up. The error is that of Parse.
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
	l.unusedValues()
	l.descriptorTree(p.root)
	l.redundantLimits()
	slices.SortStableFunc(l.findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return l.findings, nil
}

// A linter looks at one policy.
type linter struct {
	*parsedFile
	names    map[string]bool // of limits
	replaced map[string]bool // names that some limit replaces
	reported map[string]bool // what is told once for the whole file
	findings []Finding
}

// checks look at one limit each.
var checks = []func(*linter, *rule){
	(*linter).costTooHigh, (*linter).windowEdges, (*linter).coarseSubWindows, (*linter).largeBursts, (*linter).forgeableKeys,
	(*linter).unknownReplaced, (*linter).softTooSmall, (*linter).activePeriods, (*linter).localZone, (*linter).unknownMethods,
}

func (l *linter) report(r *rule, what, do string) {
	l.findings = append(l.findings, Finding{r.limit.Line, r.limit.Column, r.limit.ID, what, do})
}

// once reports whether this is the first time that a subject comes up.
func (l *linter) once(subject string) bool {
	defer func() { l.reported[subject] = true }()
	return !l.reported[subject]
}

// costTooHigh finds limits that no request can ever pass.
func (l *linter) costTooHigh(r *rule) {
	if limit := r.limit.maxCapacity(); limit > 0 && r.limit.Cost > limit {
		l.report(r, fmt.Sprintf("a request costs %d and no more than %d are available at a time: it refuses everything", r.limit.Cost, limit), "lower cost, or allow more")
	}
}

// windowEdges finds fixed windows. It is told once: files of envoyproxy/ratelimit have
// nothing else.
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

// coarseSubWindows states the error that sub-windows cost.
func (l *linter) coarseSubWindows(r *rule) {
	if p, ok := r.limit.Spec.(throttle.SubWindowsConfig); ok {
		g := p.Per / time.Duration(p.Parts)
		what := fmt.Sprintf("a request counts up to %s too short, which is %.3g %% of %s", formatDuration(g), 100/float64(p.Parts), formatDuration(p.Per))
		l.report(r, what, "where that is too much, write a finer granularity, or algorithm: sliding_log")
	}
}

// largeBursts finds buckets that hold more than their unit allows.
func (l *linter) largeBursts(r *rule) {
	switch r.limit.Spec.(type) {
	case throttle.Limit, throttle.RefillBucketConfig, throttle.LeakyBucketConfig:
		rate, burst := rateOf(r.limit.Spec), specCapacity(r.limit.Spec)
		if burst > rate.Count {
			l.report(r, fmt.Sprintf("%d are granted immediately, and %d within %s", burst, addOrFirst(burst, rate.Count), formatDuration(rate.Per)), "lower burst, if that is more than meant")
		}
	}
}

func addOrFirst(a, b int64) int64 {
	if s := a + b; s >= a {
		return s
	}
	return a
}

// forgeableKeys finds keys that clients can make up: whoever does has a limit for each.
func (l *linter) forgeableKeys(r *rule) {
	if !r.limit.Keyed || !l.once("key "+strings.Join(r.limit.keys, " ")) {
		return
	}
	for _, key := range r.limit.keys {
		s := l.source(key)
		if s == nil || !strings.HasPrefix(s.origin, "header ") && !strings.HasPrefix(s.origin, "cookie ") && !strings.HasPrefix(s.origin, "query ") {
			return // an address, or what the program vouches for
		}
	}
	l.report(r, fmt.Sprintf("its key is chosen by clients (%s): a client that invents another gets another limit, and beyond %d keys all share a few",
		strings.Join(r.limit.keys, ", "), r.limit.maxKeys()), "check it first and give it by Config.Values, or limit remote_address as well")
}

func (l *linter) source(name string) *valueSource {
	for _, s := range l.sources {
		if s.name == name {
			return s
		}
	}
	return nil
}

// unknownReplaced finds replaced names that no limit has.
func (l *linter) unknownReplaced(r *rule) {
	for _, name := range r.limit.Replaces {
		if !l.names[name] {
			l.report(r, fmt.Sprintf("it replaces %q, and no limit of this file has that name", name), "write the name of another limit, or leave it out")
		}
	}
}

// softTooSmall finds soft limits of so little that the percentage is nothing.
func (l *linter) softTooSmall(r *rule) {
	if r.limit.Hard != nil && specCapacity(r.limit.Hard) == specCapacity(r.limit.Spec) {
		l.report(r, fmt.Sprintf("soft is less than one of %d: nothing may come on top", specCapacity(r.limit.Spec)), "write a larger percentage, or leave it out")
	}
}

// activePeriods finds periods that never hold, and those that change nothing.
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

// everActive reports whether p is the one that holds at any time. What holds changes
// only at the edges of periods; a week without a change of the clocks has all of them.
func everActive(l *Limit, p *Period) bool {
	var edges []time.Time
	for i := range l.Active {
		edges = l.Active[i].boundaries(edges, time.Date(2026, 1, 12, 0, 0, 0, 0, time.UTC))
	}
	return slices.ContainsFunc(edges, func(at time.Time) bool { return l.periodAt(at) == p })
}

// localZone finds hours that depend on where the program runs.
func (l *linter) localZone(r *rule) {
	q, _ := r.limit.Spec.(throttle.FixedWindowConfig)
	for _, p := range append([]Period{{Zone: q.Zone}}, r.limit.Active...) {
		if p.Zone == time.Local {
			l.report(r, "its zone is that of the machine", "write the name of a zone, such as Europe/Berlin")
			return
		}
	}
}

// unusedValues finds values that nothing has for a key.
func (l *linter) unusedValues() {
	for _, s := range l.sources {
		if !s.used {
			l.findings = append(l.findings, Finding{s.position.line, s.position.column, "", fmt.Sprintf("nothing has the value %q for a key", s.name), "leave it out"})
		}
	}
}

// descriptorTree looks at the descriptors below n.
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

// eachNode visits the nodes of g, in no order.
func (g *group) eachNode(visit func(value string, n *node)) {
	for value, n := range g.exact {
		visit(value, n)
	}
	if g.any != nil {
		visit("", g.any)
	}
}

// firstRule returns the first limit of a file at or below g.
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

// unreachableValues finds values of g that are never found.
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

// covers returns a pattern of p that stands before n's, and fits whatever that does.
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
