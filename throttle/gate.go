package throttle

import (
	"math"
	"reflect"
)

// never is an instant that does not come.
const never = math.MaxInt64

// A gate is one limit that somebody waits for, as seen by the Waiter.
//
// Lines queue at the gate that refused their first. Only the first line of the
// queue is asked for, so that a large claim is not starved by small ones that
// would fit earlier.
type gate struct {
	key     gateKey
	id      uint64
	users   int                   // lines that must pass it
	queue   pile[*share, byShare] // tenants that have lines here
	common  share                 // of those who name no tenant
	shares  map[string]*share     // of those who do
	sweep   int                   // how many shares there may be before idle ones are forgotten
	had     int64                 // by who was granted last, before that
	opens   int64                 // when to ask for the first
	known   bool                  // that it will be granted then; else it is just time to ask again
	pos     int                   // in Waiter.due, or -1
	bound   int64                 // one more than the units that may wait; 0: no bound is known
	waiting int64                 // units that wait here, saturating
	policy  *string               // the limit's name, as of its last refusal
	broken  int                   // promises in a row that it did not keep
	news    uint64                // how often there was news of it
	refusal uint64                // Waiter.refusals after its last refusal
	told    int64                 // the latest opening that the other side imposed and all who wait know of
}

// A share is what a tenant has had of a gate, and its lines there.
//
// Who has had least, by weight, goes first. A tenant that comes, or comes back,
// starts level with the others: to have been away earns nothing.
type share struct {
	had   int64 // units by weight, see charge
	queue pile[*place, byHead]
	pos   int // in gate.queue, or -1
}

// A place is where a line stands at a gate.
type place struct {
	line   *line
	gate   *gate
	share  *share // nil: not in the queue
	pos    int    // in share.queue
	spent  int64  // nanoseconds that the line waited for this gate, lately
	before int64  // and in the time before, see line.blame
}

type gateKey struct {
	limiter any
	key     string
}

// maxParts is the largest AllOf whose limits each have a gate. A larger one has a gate of
// its own, as any other limiter.
const (
	maxParts = 4
	maxGates = MaxDemands * maxParts
)

// limits returns how many limits m consists of: those of an AllOf count by themselves, so
// that they share their gates with demands for them alone.
func (m *Demand) limits() int {
	if m.Limiter == nil {
		return 0
	}
	if a, ok := m.Limiter.(*allOf); ok && len(a.ls) <= maxParts && len(a.ls) > 0 {
		return len(a.ls)
	}
	return 1
}

// gateKey names the gate of the i-th limit of m. Limiters that cannot be compared cannot
// be recognized: each demand for one has a gate of its own.
func (m *Demand) gateKey(i int) gateKey {
	l := m.Limiter
	if a, ok := l.(*allOf); ok && len(a.ls) <= maxParts && len(a.ls) > 0 {
		l = a.ls[min(i, len(a.ls)-1)]
	} else {
		i = 0
	}
	if !reflect.ValueOf(l).Comparable() {
		return gateKey{demandPart{m, i}, m.Key}
	}
	return gateKey{l, m.Key}
}

// A demandPart names a limiter that cannot be compared.
type demandPart struct {
	demand *Demand
	i      int
}

type byOpening struct{}

func (byOpening) before(a, b *gate) bool { return a.opens < b.opens }
func (byOpening) moved(g *gate, i int)   { g.pos = i }

type byShare struct{}

func (byShare) before(a, b *share) bool {
	return a.had < b.had || a.had == b.had && byHead{}.before(a.queue.first(), b.queue.first())
}
func (byShare) moved(s *share, i int) { s.pos = i }

type byHead struct{}

func (byHead) before(a, b *place) bool {
	return a.line.queue.order.before(a.line.queue.first(), b.line.queue.first())
}
func (byHead) moved(p *place, i int) { p.pos = i }

// first returns the place that is asked for; nil if nobody waits.
func (g *gate) first() *place {
	if g.queue.len() == 0 {
		return nil
	}
	return g.queue.first().queue.first()
}

// holdsUp reports whether somebody who waits at the gate of p goes before p.
func (p *place) holdsUp() bool {
	first := p.gate.first()
	if first == nil || first == p {
		return false
	}
	mine, had := p.gate.shareOf(p.line.key.tenant), p.gate.level()
	if mine != nil {
		had = max(had, mine.had)
	}
	if mine == first.share || had == first.share.had {
		return byHead{}.before(first, p)
	}
	return first.share.had < had
}

// level is what a tenant who comes anew counts as having had: as much as the one
// who goes next. Were it less, ever new tenants could starve one that is in line.
func (g *gate) level() int64 {
	if g.queue.len() == 0 {
		return g.had
	}
	return max(g.had, g.queue.first().had)
}

func (g *gate) shareOf(tenant string) *share {
	if tenant == "" {
		return &g.common
	}
	return g.shares[tenant]
}

func (g *gate) makeShare(tenant string) *share {
	if s := g.shareOf(tenant); s != nil {
		return s
	}
	if g.shares == nil {
		g.shares = make(map[string]*share)
	}
	if len(g.shares) >= max(g.sweep, 16) {
		g.forget()
	}
	s := &share{pos: -1}
	g.shares[tenant] = s
	return s
}

// forget drops the shares that equal no share: idle, and not ahead of the others.
func (g *gate) forget() {
	for tenant, s := range g.shares {
		if s.pos < 0 && s.had <= g.level() {
			delete(g.shares, tenant)
		}
	}
	g.sweep = 2 * len(g.shares)
}

// charge notes that tenant got units of g. Units are counted in 1/scale, so that
// weights can divide them.
func (w *Waiter) charge(p *place, units, weight int64) {
	const scale = 1 << 16
	g := p.gate
	s, was := g.makeShare(p.line.key.tenant), g.first()
	if s.pos < 0 {
		s.had = max(s.had, g.level())
	}
	g.had = max(g.had, s.had)
	s.had = addSat(s.had, max(mulSat(max(units, 1), scale)/max(weight, 1), 1))
	if s.pos >= 0 {
		g.queue.fix(s.pos)
	}
	if g.first() != was {
		w.schedule(g, w.at, false)
	}
}

// enter puts p into the queue of its gate.
func (p *place) enter() {
	if p.share != nil {
		return
	}
	g := p.gate
	s := g.makeShare(p.line.key.tenant)
	p.share = s
	if s.queue.push(p); s.pos >= 0 {
		g.queue.fix(s.pos)
		return
	}
	s.had = max(s.had, g.level())
	g.queue.push(s)
}

// leave takes p out of the queue of its gate. Who is first there now is asked for
// at once, as it may want less.
func (w *Waiter) leave(p *place) {
	if p.share == nil {
		return
	}
	g, s := p.gate, p.share
	first := g.first() == p
	p.share = nil
	if s.queue.remove(p.pos); s.queue.len() > 0 {
		g.queue.fix(s.pos)
	} else {
		g.queue.remove(s.pos)
	}
	switch {
	case g.queue.len() == 0:
		w.schedule(g, never, false)
	case first:
		w.schedule(g, w.at, false)
	}
}

// refit moves p to where it belongs now that its line has another first.
func (w *Waiter) refit(p *place) {
	g := p.gate
	first := g.first() == p
	p.share.queue.fix(p.pos)
	g.queue.fix(p.share.pos)
	if first || g.first() == p {
		w.schedule(g, w.at, false)
	}
}

// schedule says when to ask at g.
func (w *Waiter) schedule(g *gate, opens int64, known bool) {
	g.opens, g.known = opens, known
	switch {
	case opens < never && g.pos < 0:
		w.due.push(g)
	case opens < never:
		w.due.fix(g.pos)
	case g.pos >= 0:
		w.due.remove(g.pos)
	}
}

// ring asks at g at once, as there is news of it.
func (w *Waiter) ring(g *gate) {
	g.news++
	if g.queue.len() > 0 && g.opens > w.now {
		w.schedule(g, w.now, false)
	}
}

func (w *Waiter) makeGate(k gateKey) *gate {
	g := w.gates[k]
	if g == nil {
		w.made++
		g = &gate{key: k, id: w.made, opens: never, pos: -1, policy: new(string)}
		g.common.pos = -1
		if w.gates == nil {
			w.gates = make(map[gateKey]*gate)
		}
		w.gates[k] = g
	}
	return g
}

func (w *Waiter) dropGate(g *gate) {
	delete(w.gates, g.key)
	if len(w.gates) == 0 {
		w.gates = nil // a map keeps the memory of its best days
	}
}
