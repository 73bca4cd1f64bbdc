package throttle

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// ErrClosed is returned to those who stand in line of a Waiter when it is closed,
// and to those who come later.
var ErrClosed = errors.New("throttle: waiter closed: nobody is let through any more")

// A Waiter blocks callers until the limits of their tickets grant them. Share one
// wherever limits are shared. The zero Waiter is ready to use; its fields must not
// change after the first Wait, and it must not be copied.
//
// Callers that must pass the same limits stand in one line, and only the first of
// a line is asked for. When a limit refuses it, the line waits for that limit and
// no other: those who do not need the limit go on. The first of several lines that
// wait for one limit compete for it, by priority and then by who came first.
//
// A grant takes the units of all limits at one instant, and at the instant at
// which the caller is let go: units are never taken ahead of time, so a limit
// that closes stops everybody, and nobody runs off on old grants when it opens.
type Waiter struct {
	Clock   Clock         // nil: the system clock
	MaxWait time.Duration // longest stay in line; 0: as long as ctx allows
	MaxLine int           // most callers in one line, retries not counted; 0: no bound
	MaxAll  int           // most callers in all lines together, likewise; 0: see SetDefaultMaxTotal; below 0: no bound

	// Patience is for how long a ticket that needs several busy limits may keep
	// one of them closed to others while it waits for the next. 0: 1 s.
	Patience time.Duration

	// MaxLate bounds what is caught up when timers fire late, which they do by up
	// to some milliseconds: units are claimed as of the instant at which they were
	// due, but no longer ago than this. 0: 5 ms.
	MaxLate time.Duration

	// Ageing is the head start that a step of Ticket.Priority is worth. A ticket
	// goes before others of d steps less unless they came d*Ageing or more before
	// it. That is also the bound on starvation: who has waited d*Ageing is
	// overtaken by nobody of d steps more who comes from then on. 0: 10 s.
	Ageing time.Duration

	Trace *WaitTrace // nil: none

	once    sync.Once
	time    timeline
	born    time.Time    // time.start on the real clock
	last    atomic.Int64 // the newest turn
	crowd   atomic.Int64 // callers in line; shut is added when closed
	seats   sync.Pool
	most    atomic.Int64  // the default of MaxAll
	drained chan struct{} // closed once the Waiter is shut and nobody is in line any more

	patience, maxLate, ageing int64 // nanoseconds

	mu     sync.Mutex
	now    int64 // the reading that is decided on while mu is held
	at     int64 // the instant that claims are made as of: now, or a little before
	gates  map[gateKey]*gate
	lines  map[lineKey]*line
	made   uint64 // gates made so far
	alarm  alarm
	closed bool

	due       pile[*gate, byOpening]     // gates that open by themselves
	deadlines pile[deadline, byDeadline] // of waiters in all lines: MaxWait, or Ticket.Latency before the context ends
}

// shut is added to Waiter.crowd once the Waiter is closed.
const shut = 1 << 62

// A LineError says that a line is full, or that all of them together are. It matches
// ErrRefused.
type LineError struct {
	Waiting int // callers in the line, or in all lines
	MaxLine int // Waiter.MaxLine, MaxAll, or the default of SetDefaultMaxTotal
}

// Error says how long the line is.
func (e *LineError) Error() string {
	return "throttle: line is full: " + strconv.Itoa(e.Waiting) + " callers wait already and MaxLine is " +
		strconv.Itoa(e.MaxLine) + ": ask again later"
}

// Is reports whether target is ErrRefused.
func (e *LineError) Is(target error) bool { return target == ErrRefused }

// Wait returns nil when all demands of t are granted. The same Ticket again is a
// retry and keeps its turn.
//
// Wait returns a *RefusedError as soon as it is known that the wait cannot end before
// the deadline of ctx less Ticket.Latency, that it is longer than MaxWait or
// Ticket.MaxTold, or that a limit can never grant its demand. In the first case the
// error matches context.DeadlineExceeded. If ctx ends while t is in line, the error is
// the cause of ctx. Other errors are *LineError, ErrClosed, and those of the limiters.
// After an error t holds no units.
func (w *Waiter) Wait(ctx context.Context, t *Ticket) error {
	if w.Trace != nil {
		return w.traced(ctx, t)
	}
	return w.await(ctx, t)
}

func (w *Waiter) await(ctx context.Context, t *Ticket) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if t.granted() {
		return errHeld
	}
	w.once.Do(w.init)
	now, retry := w.time.read(time.Time{}), t.turn != 0
	t.held, t.waited, t.blame = nil, 0, nil
	if w.passes(t) {
		if err := w.pass(ctx, t, now); err != nil || t.held != nil {
			return err
		}
		w.news(t) // what it held for a moment may have been refused to others
	}
	if !retry {
		t.turn = w.turn(now)
	}
	return w.stand(ctx, t, retry)
}

// pass asks for t without standing in line.
func (w *Waiter) pass(ctx context.Context, t *Ticket, now int64) error {
	var refusal Decision
	_, err := t.reserve(ctx, w.time.at(now), &refusal)
	if t.held != nil && t.turn == 0 {
		t.turn = max(now, 1) // in case of a retry; who came at the same instant is its equal
	}
	return err
}

// Cancel gives back a granted ticket that was not used, and lets others have it.
func (w *Waiter) Cancel(ctx context.Context, t *Ticket) {
	w.once.Do(w.init)
	t.Cancel(ctx, w.time.at(w.time.read(time.Time{})))
	w.news(t)
}

// Observe tells the limits of t what came of it, and looks again at the lines
// that wait for them. A zero f.Now is read from Clock, or if that is nil by the
// limiters that need to know.
func (w *Waiter) Observe(ctx context.Context, t *Ticket, f Feedback) {
	w.once.Do(w.init)
	if f.Now.IsZero() && w.Clock != nil {
		f.Now = w.time.at(w.time.read(time.Time{}))
	}
	t.Observe(ctx, f)
	w.news(t)
}

// Wake looks at all lines again: call it when a limit was changed from elsewhere.
func (w *Waiter) Wake() {
	if w.crowd.Load() == 0 {
		return
	}
	w.lock()
	for _, g := range w.gates {
		w.ring(g)
	}
	w.unlock()
}

// Close sends everybody in line home with ErrClosed, and those who come later. It
// returns nil.
func (w *Waiter) Close() error {
	w.once.Do(w.init)
	w.lock()
	w.closed = true
	w.shut()
	for _, l := range w.lines {
		w.dismiss(l)
	}
	w.unlock()
	return nil
}

// Drain turns away those who come from now on with ErrClosed, and returns when
// those in line have been granted or have gone. If ctx ends before, it returns its
// cause; Close then sends the others home.
func (w *Waiter) Drain(ctx context.Context) error {
	w.once.Do(w.init)
	w.lock()
	w.shut()
	w.unlock()
	select {
	case <-w.drained:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// shut lets nobody join a line any more.
func (w *Waiter) shut() {
	if w.crowd.Load() < shut && w.crowd.Add(shut) == shut {
		close(w.drained)
	}
}

// dismiss sends everybody in l home, but who is asking: it learns of it after that.
func (w *Waiter) dismiss(l *line) {
	for i := 0; i < l.queue.len(); {
		if s := l.queue.members[i]; s != l.asking {
			w.refuse(s, ErrClosed)
		} else if i++; s.pos != 0 {
			i = 0
		}
	}
}

func (w *Waiter) init() {
	w.time, w.born = newTimeline(w.Clock), time.Now()
	if w.Clock == nil {
		w.born = w.time.start
	}
	w.patience = int64(orDefault(w.Patience, time.Second))
	w.maxLate = int64(orDefault(w.MaxLate, 5*time.Millisecond))
	w.ageing = int64(orDefault(w.Ageing, 10*time.Second))
	w.drained = make(chan struct{})
	w.alarm.at = never
}

func orDefault(d, or time.Duration) time.Duration {
	if d == 0 {
		return or
	}
	return d
}

// turn returns a place behind everybody who came before: now, or a nanosecond
// more than the last one. That it is a time is what makes ageing simple.
func (w *Waiter) turn(now int64) int64 {
	for {
		last := w.last.Load()
		if next := max(last+1, now); w.last.CompareAndSwap(last, next) {
			return next
		}
	}
}

// passes reports whether t need not stand in line, as nobody waits at its limits.
func (w *Waiter) passes(t *Ticket) bool {
	switch n := w.crowd.Load(); {
	case n == 0:
		return true
	case n >= shut:
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range t.Demands {
		if g := w.gateOf(&t.Demands[i]); g != nil && g.queue.len() > 0 {
			return false
		}
	}
	return true
}

// news looks again at the limits of t.
func (w *Waiter) news(t *Ticket) {
	if w.crowd.Load() == 0 {
		return
	}
	w.lock()
	for i := range t.Demands {
		if g := w.gateOf(&t.Demands[i]); g != nil {
			w.ring(g)
		}
	}
	w.unlock()
}
