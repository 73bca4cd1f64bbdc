package throttle

import (
	"context"
	"math"
	"reflect"
	"time"
)

// never is an instant that does not come.
const never = math.MaxInt64

// A seat is one caller in line.
type seat struct {
	ticket *Ticket
	line   *line
	called chan struct{} // has room for one, so that calling never blocks
	next   *seat         // in a callList
	ends   int64         // when its context ends, on the real clock; or never
	pos    int32         // in line.queue
	stay   int32         // in Waiter.stays, or -1
}

// A line is everybody who must pass the same gates.
type line struct {
	key    lineKey
	queue  pile[*seat, byTurn] // never empty while mu is free
	places [MaxDemands]place   // one for each of its gates
	n      int                 // how many of places there are
	parked *place              // the gate that must open for the first; nil: none refused yet
}

// A gate is one limit that somebody waits for, as seen by the Waiter.
type gate struct {
	key    gateKey
	id     uint64
	users  int                  // lines that must pass it
	queue  pile[*place, byHead] // those that wait for it; only the first is asked for
	opens  int64                // when to ask for it
	known  bool                 // that it will be granted then; else it is just time to ask again
	pos    int                  // in Waiter.due, or -1
	policy *string              // the limit's name, as of its last refusal
	broken int                  // promises in a row that it did not keep
}

// A place is where a line stands at a gate.
type place struct {
	line *line
	gate *gate
	pos  int // in gate.queue, or -1
}

type gateKey struct {
	limiter any
	key     string
}

// A lineKey names the gates of a line, in the order of their ids.
type lineKey [MaxDemands]uint64

// keyOf names the gate of a demand. Limiters that cannot be compared are told
// apart by type only: those of one type stand in one line.
func keyOf(m *Demand) gateKey {
	if v := reflect.ValueOf(m.Limiter); !v.Comparable() {
		return gateKey{v.Type(), m.Key}
	}
	return gateKey{m.Limiter, m.Key}
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

type byStay struct{}

func (byStay) before(a, b *seat) bool { return a.ticket.waited < b.ticket.waited }
func (byStay) moved(s *seat, i int)   { s.stay = int32(i) }

type byHead struct{}

func (byHead) before(a, b *place) bool {
	return a.line.queue.order.before(a.line.queue.first(), b.line.queue.first())
}
func (byHead) moved(p *place, i int) { p.pos = i }

type byOpening struct{}

func (byOpening) before(a, b *gate) bool { return a.opens < b.opens }
func (byOpening) moved(g *gate, i int)   { g.pos = i }

// stand lets t wait in line.
func (w *Waiter) stand(ctx context.Context, t *Ticket, retry bool) error {
	s := w.seat(ctx, t)
	w.lock()
	err := w.join(s, retry)
	w.unlock()
	if err == nil {
		err = w.wait(ctx, s)
	}
	s.ticket, s.line = nil, nil
	w.seats.Put(s)
	return err
}

func (w *Waiter) seat(ctx context.Context, t *Ticket) *seat {
	s, ok := w.seats.Get().(*seat)
	if !ok {
		s = &seat{called: make(chan struct{}, 1)}
	}
	s.ticket, s.ends, s.stay = t, never, -1
	if deadline, ok := ctx.Deadline(); ok {
		s.ends = int64(deadline.Sub(w.born))
	}
	return s
}

// wait returns when s was called, or when ctx ends.
func (w *Waiter) wait(ctx context.Context, s *seat) error {
	t := s.ticket
	select {
	case <-s.called:
		return t.outcome()
	case <-ctx.Done():
	}
	w.lock()
	inLine := t.held == nil
	if inLine {
		w.pull(s)
	}
	w.unlock()
	if !inLine {
		<-s.called // too late: the units are there, but nobody to use them
		if err := t.outcome(); err != nil {
			return err
		}
		w.Cancel(ctx, t)
	}
	return context.Cause(ctx)
}

// outcome returns nil if t was granted, else why not.
func (t *Ticket) outcome() error {
	err := t.held.err
	if err != nil {
		t.end()
	}
	return err
}

// join puts s into its line and, if it is the first there, asks for it.
func (w *Waiter) join(s *seat, retry bool) error {
	if w.crowd.Load() >= shut {
		return ErrClosed
	}
	w.serve()
	l := w.lineOf(s.ticket)
	if n := l.queue.len(); !retry && w.MaxLine > 0 && n >= w.MaxLine {
		return &LineError{Waiting: n, MaxLine: w.MaxLine}
	}
	s.line, s.ticket.waited = l, time.Duration(w.now)
	w.crowd.Add(1)
	if w.MaxWait > 0 {
		w.stays.push(s)
	}
	l.queue.push(s)
	if l.queue.first() == s {
		w.headChanged(l)
		w.ask(l)
	}
	if s.ticket.held == nil {
		w.foresee(s)
	}
	return nil
}

// pull takes s out of its line.
func (w *Waiter) pull(s *seat) {
	l, t := s.line, s.ticket
	first := s.pos == 0
	t.waited = time.Duration(w.now) - t.waited
	if l.parked != nil {
		t.blame = l.parked.gate.policy
	}
	if s.stay >= 0 {
		w.stays.remove(int(s.stay))
	}
	w.crowd.Add(-1)
	l.queue.remove(int(s.pos))
	switch {
	case l.queue.len() == 0:
		w.disband(l)
	case first:
		w.headChanged(l)
	}
}

// lineOf returns the line of t, a new one if there is none. A new line must get a
// member or be disbanded.
func (w *Waiter) lineOf(t *Ticket) *line {
	l := &line{queue: pile[*seat, byTurn]{order: byTurn{int64(orDefault(w.Ageing, 10*time.Second))}}}
	for i := range t.Demands {
		if t.Demands[i].Limiter != nil {
			l.add(w.makeGate(keyOf(&t.Demands[i])))
		}
	}
	if old := w.lines[l.key]; old != nil {
		return old
	}
	for i := range l.places[:l.n] {
		l.places[i].gate.users++
	}
	if w.lines == nil {
		w.lines = make(map[lineKey]*line)
	}
	w.lines[l.key] = l
	return l
}

// add adds a place at g, keeping places and key in the order of ids.
func (l *line) add(g *gate) {
	i := l.n
	for ; i > 0 && l.key[i-1] >= g.id; i-- {
		if l.key[i-1] == g.id {
			return
		}
	}
	copy(l.key[i+1:], l.key[i:l.n])
	copy(l.places[i+1:], l.places[i:l.n])
	l.key[i], l.places[i] = g.id, place{line: l, gate: g, pos: -1}
	l.n++
}

// gateOf returns the gate of a demand; nil if nobody waits for it.
func (w *Waiter) gateOf(m *Demand) *gate {
	if m.Limiter == nil || len(w.gates) == 0 {
		return nil
	}
	return w.gates[keyOf(m)]
}

func (w *Waiter) makeGate(k gateKey) *gate {
	g := w.gates[k]
	if g == nil {
		w.made++
		g = &gate{key: k, id: w.made, opens: never, pos: -1, policy: new(string)}
		if w.gates == nil {
			w.gates = make(map[gateKey]*gate)
		}
		w.gates[k] = g
	}
	return g
}

// disband forgets l, which is empty, and the gates that it alone waited for.
func (w *Waiter) disband(l *line) {
	delete(w.lines, l.key)
	if len(w.lines) == 0 {
		w.lines = nil // a map keeps the memory of its best days
	}
	for i := range l.places[:l.n] {
		p := &l.places[i]
		w.leave(p)
		if p.gate.users--; p.gate.users == 0 {
			delete(w.gates, p.gate.key)
		}
	}
	if len(w.gates) == 0 {
		w.gates = nil
	}
}

// enter puts p into the queue of its gate.
func (p *place) enter() {
	if p.pos < 0 {
		p.gate.queue.push(p)
	}
}

// leave takes p out of the queue of its gate. Who is first there now is asked for
// at once: it may want less.
func (w *Waiter) leave(p *place) {
	if p.pos < 0 {
		return
	}
	first := p.pos == 0
	p.gate.queue.remove(p.pos)
	switch {
	case p.gate.queue.len() == 0:
		w.schedule(p.gate, never, false)
	case first:
		w.schedule(p.gate, w.at, false)
	}
}

// headChanged puts l where its new first belongs.
func (w *Waiter) headChanged(l *line) {
	for i := range l.places[:l.n] {
		p := &l.places[i]
		if p.pos < 0 {
			continue
		}
		if p != l.parked {
			w.leave(p)
			continue
		}
		first := p.pos == 0
		p.gate.queue.fix(p.pos)
		if first || p.pos == 0 {
			w.schedule(p.gate, w.at, false)
		}
	}
}
