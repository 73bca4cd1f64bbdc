package throttle

import (
	"cmp"
	"slices"
	"time"
)

// A seat is one caller in line.
type seat struct {
	ticket *Ticket
	line   *line
	called chan struct{} // has room for one, so that calling never blocks
	ends   int64         // deadline of its context less Ticket.Latency, on the real clock; or never
	pos    int32         // in line.queue
	stay   int32         // in Waiter.deadlines, or -1
}

// A line is everybody of one tenant who must pass the same gates. Its first stands
// for all: it is parked at the gate that refused it, and the line moves from gate
// to gate with it.
type line struct {
	key    lineKey
	queue  pile[*seat, byTurn] // never empty while Waiter.mu is free
	places [maxGates]place     // one for each of its gates
	n      int                 // how many of places there are
	parked *place              // the gate that must open for the first; nil: not asked yet
	since  int64               // when it was parked there
	epoch  int64               // when place.spent began to be counted

	// There is one question at a time, asked without the lock: by the caller itself
	// where limits may do I/O, else by the goroutine that brings news. asking is the waiter: its
	// ticket then belongs to the goroutine that asks.
	local  bool
	asking *seat
	asOf   int64  // the instant that is asked for
	news   uint64 // of its gates when it was asked
	asked  uint64 // Waiter.refusals when it was asked
	gaveUp bool   // the context of asking has ended while it is asked for

	// The first can be sent from one gate to the next and back, see patient.
	estimated bool // it waits because of an estimate
	newHead   bool // its first has not been refused yet
	bounces   int
	lastWait  int64
	holdUntil int64 // 0: it holds no places but where it is parked
}

// A lineKey names the gates of a line, in the order of their ids, and the tenant.
type lineKey struct {
	gates  [maxGates]uint64
	tenant string
}

// byTurn orders tickets by when they came, less the head start of their priority.
type byTurn struct{ ageing int64 }

func (o byTurn) before(a, b *seat) bool {
	x, y := a.ticket, b.ticket
	if x.Priority == y.Priority {
		return x.turn < y.turn
	}
	return o.rank(x) < o.rank(y)
}

func (o byTurn) rank(t *Ticket) int64 {
	return subSat(t.turn, mulSat(int64(t.Priority), o.ageing))
}

func (byTurn) moved(s *seat, i int) { s.pos = int32(i) }

// join puts s into its line and, if it is the first there, asks for it.
func (w *Waiter) join(s *seat, retry bool) error {
	if w.crowd.Load() >= shut {
		return ErrClosed
	}
	w.serve()
	if n, most := int(w.crowd.Load()), w.maxTotal(); !retry && most > 0 && n >= most {
		return &LineError{Waiting: n, MaxLine: most}
	}
	l := w.lineOf(s.ticket)
	if n := l.queue.len(); !retry && w.MaxLine > 0 && n >= w.MaxLine {
		return &LineError{Waiting: n, MaxLine: w.MaxLine}
	}
	if s.line = l; s.ticket.waited == 0 {
		s.ticket.waited = time.Duration(w.now)
	}
	w.crowd.Add(1)
	w.limitStay(s)
	w.countWaiting(s.ticket, 1)
	l.queue.push(s)
	if s.pos == 0 {
		w.headChanged(l)
		w.ask(l)
	}
	if !retry && s.waits() {
		if err := w.noRoom(s); err != nil {
			w.refuse(s, err)
		}
	}
	return nil
}

// pull takes s out of its line.
func (w *Waiter) pull(s *seat) {
	l, t := s.line, s.ticket
	first := s.pos == 0
	t.blame = l.blame(int64(t.waited), w.now)
	t.waited = time.Duration(w.now) - t.waited
	w.unlimitStay(s)
	w.countWaiting(t, -1)
	l.queue.remove(int(s.pos))
	if w.crowd.Add(-1) == shut {
		close(w.drained)
	}
	switch {
	case l.queue.len() == 0:
		w.disband(l)
	case first:
		w.headChanged(l)
	}
}

// headChanged puts l where its new first belongs. What the old one kept closed
// for itself is open again.
func (w *Waiter) headChanged(l *line) {
	l.bounces, l.lastWait, l.holdUntil, l.newHead = 0, 0, 0, true
	for i := range l.places[:l.n] {
		switch p := &l.places[i]; {
		case p.share == nil:
		case p == l.parked:
			w.refit(p)
		default:
			w.leave(p)
		}
	}
}

// park lets l wait at p, and nowhere else unless it holds its places.
func (w *Waiter) park(l *line, p *place) {
	l.account(w.now)
	l.parked = p
	p.enter()
	for i := range l.places[:l.n] {
		switch q := &l.places[i]; {
		case q == p:
		case l.holdUntil == 0:
			w.leave(q)
		case q.share == nil:
			if q.enter(); q.gate.first() == q {
				w.schedule(q.gate, never, false)
			}
		}
	}
}

// account adds the time since l was parked to its gate's.
func (l *line) account(now int64) {
	if l.parked != nil {
		l.parked.spent += now - l.since
	}
	l.since = now
}

// blame returns the name of the limit that l waited for longest while somebody who
// joined at the given time was in it; nil if it was never parked. A time a little
// longer is looked at, since nobody keeps a history: at most from when the first
// came who was in line together with it.
func (l *line) blame(joined, now int64) *string {
	if l.account(now); joined >= l.epoch {
		for i := range l.places[:l.n] {
			l.places[i].before, l.places[i].spent = l.places[i].spent, 0
		}
		l.epoch = now
	}
	if l.parked == nil {
		return nil
	}
	worst := l.parked
	for i := range l.places[:l.n] {
		if p := &l.places[i]; p.spent+p.before > worst.spent+worst.before {
			worst = p
		}
	}
	return worst.gate.policy
}

// lineOf returns the line of t, a new one if there is none. A new line must get a
// member or be disbanded.
func (w *Waiter) lineOf(t *Ticket) *line {
	gates, n := w.gatesOf(t)
	key := lineKey{tenant: t.Tenant}
	for i, g := range gates[:n] {
		key.gates[i] = g.id
	}
	l := w.lines[key]
	if l != nil {
		return l
	}
	l = &line{key: key, n: n, since: w.now, epoch: w.now, local: t.isLocal()}
	l.queue.order.ageing = w.ageing
	for i, g := range gates[:n] {
		l.places[i] = place{line: l, gate: g}
		g.users++
	}
	if w.lines == nil {
		w.lines = make(map[lineKey]*line)
	}
	w.lines[key] = l
	return l
}

// gatesOf returns the n gates that t must pass, in the order of their ids.
func (w *Waiter) gatesOf(t *Ticket) (gates [maxGates]*gate, n int) {
	for i := range t.Demands {
		m := &t.Demands[i]
		for k := range m.limits() {
			g := w.makeGate(m.gateKey(k))
			at, found := slices.BinarySearchFunc(gates[:n], g, func(a, b *gate) int { return cmp.Compare(a.id, b.id) })
			if !found {
				copy(gates[at+1:], gates[at:n])
				gates[at] = g
				n++
			}
		}
	}
	return gates, n
}

// disband forgets l, which is empty, and the gates that it alone waited for.
func (w *Waiter) disband(l *line) {
	if delete(w.lines, l.key); len(w.lines) == 0 {
		w.lines = nil // a map keeps the memory of its best days
	}
	for i := range l.places[:l.n] {
		p := &l.places[i]
		w.leave(p)
		if p.gate.users--; p.gate.users == 0 {
			w.dropGate(p.gate)
		}
	}
}

// placeAt returns the place of l at the gate k.
func (l *line) placeAt(k gateKey) *place {
	for i := range l.places[:l.n] {
		if l.places[i].gate.key == k {
			return &l.places[i]
		}
	}
	panic("throttle: Waiter: the demands of a ticket were changed while it was in line")
}
