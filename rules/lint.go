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
	Place        string // of the limit, see Limit.Place; "": it concerns the file
	What         string // what is odd
	Do           string // what to do about it
}

// String returns the finding in one line.
func (f Finding) String() string {
	s := position{f.Line, f.Column}.String() + ": "
	if f.Place != "" {
		s += f.Place + ": "
	}
	return s + f.What + ": " + f.Do
}

// Lint returns what is odd in a file that Parse accepts, in its order: limits that
// never hold or never refuse, counts that are not exact and by how much, keys that
// clients can make up. The error is that of Parse.
func Lint(text []byte, s Setting) ([]Finding, error) {
	p, err := parse(text, &s)
	if err != nil {
		return nil, err
	}
	l := linter{policy: p, names: map[string]bool{}, replaced: map[string]bool{}, told: map[string]bool{}}
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
	l.unused()
	l.tree(p.root)
	l.stricter()
	slices.SortStableFunc(l.found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return l.found, nil
}

// A linter looks at one policy.
type linter struct {
	*policy
	names    map[string]bool // of limits
	replaced map[string]bool // names that some limit replaces
	told     map[string]bool // what is told once for the whole file
	found    []Finding
}

// checks look at one limit each.
var checks = []func(*linter, *rule){
	(*linter).tooDear, (*linter).edges, (*linter).coarse, (*linter).bursty, (*linter).madeUp,
	(*linter).nobody, (*linter).noRoom, (*linter).hours, (*linter).machine, (*linter).methods,
}

func (l *linter) tell(r *rule, what, do string) {
	l.found = append(l.found, Finding{r.limit.Line, r.limit.Column, r.limit.Place, what, do})
}

// once reports whether this is the first time that a subject comes up.
func (l *linter) once(subject string) bool {
	defer func() { l.told[subject] = true }()
	return !l.told[subject]
}

// tooDear finds limits that no request can ever pass.
func (l *linter) tooDear(r *rule) {
	if most := r.limit.most(); most > 0 && r.limit.Cost > most {
		l.tell(r, fmt.Sprintf("a request costs %d and no more than %d can be had at once: it refuses everything", r.limit.Cost, most), "lower cost, or allow more")
	}
}

// edges finds fixed windows. It is told once: files of envoyproxy/ratelimit have
// nothing else.
func (l *linter) edges(r *rule) {
	q, ok := r.limit.Spec.(throttle.Quota)
	if ok && q.Count > 1 && l.once("edges") {
		n := 0
		for _, r := range l.rules {
			if _, ok := r.limit.Spec.(throttle.Quota); ok {
				n++
			}
		}
		l.tell(r, fmt.Sprintf("at the edge of two windows twice as many may come at once: here %d (so in %d of %d limits)", 2*q.Count, n, len(l.rules)),
			"where that is too many, write algorithm: token_bucket, sliding_counter or sliding_log")
	}
}

// coarse states the error that sub-windows cost.
func (l *linter) coarse(r *rule) {
	if p, ok := r.limit.Spec.(throttle.Parts); ok {
		g := p.Per / time.Duration(p.Parts)
		what := fmt.Sprintf("a request counts up to %s too short, which is %.3g %% of %s", formatDuration(g), 100/float64(p.Parts), formatDuration(p.Per))
		l.tell(r, what, "where that is too much, write a finer granularity, or algorithm: sliding_log")
	}
}

// bursty finds buckets that hold more than their unit allows.
func (l *linter) bursty(r *rule) {
	switch r.limit.Spec.(type) {
	case throttle.Limit, throttle.Refill, throttle.Leak:
		rate, most := rateOf(r.limit.Spec), capacity(r.limit.Spec)
		if most > rate.Count {
			l.tell(r, fmt.Sprintf("%d may come at once, and %d within %s", most, saturated(most, rate.Count), formatDuration(rate.Per)), "lower burst, if that is more than meant")
		}
	}
}

func saturated(a, b int64) int64 {
	if s := a + b; s >= a {
		return s
	}
	return a
}

// madeUp finds keys that clients can make up: whoever does has a limit for each.
func (l *linter) madeUp(r *rule) {
	if !r.limit.Keyed || !l.once("key "+strings.Join(r.limit.keys, " ")) {
		return
	}
	for _, key := range r.limit.keys {
		s := l.source(key)
		if s == nil || !strings.HasPrefix(s.told, "header ") && !strings.HasPrefix(s.told, "cookie ") && !strings.HasPrefix(s.told, "query ") {
			return // an address, or what the program vouches for
		}
	}
	l.tell(r, fmt.Sprintf("its key is what clients write (%s): who makes up another has another limit, and beyond %d keys all share a few",
		strings.Join(r.limit.keys, ", "), r.limit.maxKeys()), "check it first and give it by Setting.Values, or limit remote_address as well")
}

func (l *linter) source(name string) *source {
	for _, s := range l.sources {
		if s.name == name {
			return s
		}
	}
	return nil
}

// nobody finds replaced names that no limit has.
func (l *linter) nobody(r *rule) {
	for _, name := range r.limit.Replaces {
		if !l.names[name] {
			l.tell(r, fmt.Sprintf("it replaces %q, and no limit of this file has that name", name), "write the name of another limit, or leave it out")
		}
	}
}

// noRoom finds soft limits of so little that the percentage is nothing.
func (l *linter) noRoom(r *rule) {
	if r.limit.Hard != nil && capacity(r.limit.Hard) == capacity(r.limit.Spec) {
		l.tell(r, fmt.Sprintf("soft is less than one of %d: nothing may come on top", capacity(r.limit.Spec)), "write a larger percentage, or leave it out")
	}
}

// hours finds periods that never hold, and those that change nothing.
func (l *linter) hours(r *rule) {
	for i := range r.limit.Active {
		p := &r.limit.Active[i]
		if amountOf(p.Spec, p.Hard) == amountOf(r.limit.Spec, r.limit.Hard) {
			l.tell(r, "active "+p.String()+" allows what holds anyway", "write another amount, or leave it out")
		}
		if !everHolds(r.limit, p) {
			l.tell(r, "active "+p.String()+" never holds, for those before it hold then", "put it before them, or leave it out")
		}
	}
}

// everHolds reports whether p is the one that holds at any time. What holds changes
// only at the edges of periods; a week without a change of the clocks has all of them.
func everHolds(l *Limit, p *Period) bool {
	var edges []time.Time
	for i := range l.Active {
		edges = l.Active[i].edges(edges, time.Date(2026, 1, 12, 0, 0, 0, 0, time.UTC))
	}
	return slices.ContainsFunc(edges, func(at time.Time) bool { return l.periodAt(at) == p })
}

// machine finds hours that depend on where the program runs.
func (l *linter) machine(r *rule) {
	q, _ := r.limit.Spec.(throttle.Quota)
	for _, p := range append([]Period{{Zone: q.Zone}}, r.limit.Active...) {
		if p.Zone == time.Local {
			l.tell(r, "its zone is that of the machine", "write the name of a zone, such as Europe/Berlin")
			return
		}
	}
}

// unused finds values that nothing has for a key.
func (l *linter) unused() {
	for _, s := range l.sources {
		if !s.used {
			l.found = append(l.found, Finding{s.at.line, s.at.column, "", fmt.Sprintf("nothing has the value %q for a key", s.name), "leave it out"})
		}
	}
}

// tree looks at the descriptors below n.
func (l *linter) tree(n *node) {
	for _, g := range n.groups {
		if g.source == nil && l.once("source "+g.key) {
			if r := firstRule(g); r != nil {
				l.tell(r, fmt.Sprintf("requests have no %q: only Set.Add finds what is below it", g.key), "say under values where it comes from, or set Setting.Values")
			}
		}
		l.values(g)
		g.each(func(_ string, below *node) { l.tree(below) })
	}
}

// each visits the nodes of g, in no order.
func (g *group) each(visit func(value string, n *node)) {
	for value, n := range g.exact {
		visit(value, n)
	}
	if g.any != nil {
		visit("", g.any)
	}
}

// firstRule returns the first limit of a file at or below g.
func firstRule(g *group) (first *rule) {
	g.each(func(_ string, n *node) {
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

// values finds values of g that are never found.
func (l *linter) values(g *group) {
	for value, n := range g.exact {
		switch {
		case n.rule == nil:
		case strings.Contains(value, "*"):
			if earlier, ok := g.wild.covers(value, n); ok {
				l.tell(n.rule, fmt.Sprintf("%q is never found, for %q stands before it", value, earlier), "put it first")
			}
		case g.source != nil:
			l.impossible(n.rule, g.source, value)
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
