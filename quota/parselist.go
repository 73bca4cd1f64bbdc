package quota

import (
	"strings"
	"time"
)

// Some values hold several numbers: a limit with the policies behind it, one
// number per window, or what is used and what is allowed.

// A listed is one header of a bucket, taken apart.
type listed struct {
	entries [maxEntries]entry
	n       int
}

func (l *listed) read(s *slot) {
	if s.value == "" {
		return
	}
	n, ok := splitEntries(s.value, &l.entries)
	if !ok {
		return
	}
	l.n = n
}

// at returns entry i, or one that says nothing.
func (l *listed) at(i int) entry {
	if i < l.n {
		return l.entries[i]
	}
	return entry{}
}

// over returns the entry for a window, else entry i.
func (l *listed) over(window time.Duration, i int) entry {
	for j := range l.n {
		if window > 0 && l.entries[j].window == window {
			return l.entries[j]
		}
	}
	return l.at(i)
}

// readLists reads a group some of whose values hold more than one number. d is
// what the others say.
func (p *parser) readLists(g *group, d draft, l *ledger) {
	var limit, remaining, used, reset listed
	if window, ok := parseDuration(g.slots[FieldLimit].value); ok {
		d.Window = window // AspNetCoreRateLimit names the period there
	}
	limit.read(&g.slots[FieldLimit])
	for i := range min(limit.n, len(g.windows)) {
		limit.entries[i].window = g.windows[i]
	}
	if v := g.slots[FieldLimit].value; limit.n == 0 && strings.Contains(v, "=") && p.readPairs(g, v, l) {
		return
	}
	remaining.read(&g.slots[FieldRemaining])
	used.read(&g.slots[FieldUsed])
	if limit.policies() {
		d.count(count{}, remaining.at(0).count(), used.at(0).count())
		p.readForce(&limit, d, l)
		return
	}
	n := max(limit.n, remaining.n, used.n)
	if reset.read(&g.slots[FieldReset]); reset.n != n || n < 2 {
		reset.n = 0
	}
	for i := range max(n, 1) {
		e := d
		if i > 0 {
			e.HasReset, e.ResetAfter, e.ResetForm = false, 0, NoForm
		}
		e.entries(limit.at(i), remaining.at(i), used.over(limit.at(i).window, i))
		if reset.n > 0 {
			e.ResetAfter, e.HasReset, e.ResetForm = reset.at(i).n.times(time.Second), true, DeltaSeconds
		}
		if (g.marked || e.trusted()) && (e.counted() || e.HasReset || e.Window > 0) {
			l.add(e)
		}
	}
}

// entries sets what one place of each list says.
func (d *draft) entries(limit, remaining, used entry) {
	switch {
	case limit.pair: // used/limit
		d.count(count{limit.second, true}, count{}, count{limit.n, true})
	case remaining.pair: // remaining/limit
		d.count(count{remaining.second, true}, count{remaining.n, true}, count{})
	default:
		d.count(limit.count(), remaining.count(), used.count())
	}
	for _, e := range [...]entry{used, remaining, limit} {
		if e.window > 0 {
			d.Window = e.window
		}
		if e.name != "" {
			d.Name = e.name
		}
	}
}

func (e entry) count() count { return count{e.n, e.has && !e.n.negative} }

// policies reports whether l is the form of the IETF drafts up to 03: the limit
// in force, and behind it, each with its window, all the limits there are.
func (l *listed) policies() bool {
	return l.n > 1 && l.entries[0].window == 0 && !l.entries[0].pair && l.entries[1].window > 0
}

// readForce reads such a list. The policies are comments, save the one that says
// the window of the limit in force. If more remains than the limit in force
// allows, the state is that of a larger policy.
func (p *parser) readForce(limit *listed, d draft, l *ledger) {
	first := limit.at(0).n.whole
	in := limit.policy(func(n int64) bool { return n == first })
	if d.HasRemaining && d.Remaining > first {
		if larger := limit.policy(func(n int64) bool { return n >= d.Remaining }); larger.has {
			alone := draft{header: d.header, bucket: d.bucket}
			alone.entries(in, entry{}, entry{})
			alone.Unit, alone.Window = d.Unit, in.window
			l.add(alone)
			in, first = larger, larger.n.whole
		}
	}
	d.Limit.Limit, d.HasLimit = first, true
	if in.window > 0 {
		d.Window = in.window
	}
	if in.name != "" {
		d.Name = in.name
	}
	l.add(d)
}

// policy returns the first policy whose count fits.
func (l *listed) policy(fits func(int64) bool) entry {
	for _, e := range l.entries[1:max(l.n, 1)] {
		if fits(e.n.whole) {
			return e
		}
	}
	return entry{}
}
