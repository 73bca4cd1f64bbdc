package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/internal/indexheap"
	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// ErrClosed is returned by Wait and Try after the Queue has been closed, and by Wait to
// the callers that wait when it is closed.
var ErrClosed = errors.New("queue: closed")

// A Queue blocks callers until the limits of their tickets grant them. Share one
// wherever limits are shared. The zero Queue is ready to use; its fields must not
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
type Queue struct {
	Clock       throttle.Clock // nil: the system clock
	MaxWait     time.Duration  // longest stay in line; 0: as long as ctx allows
	MaxPerClass int            // most callers in one line, retries not counted; 0: no bound
	MaxTotal    int            // most callers in all lines together, likewise; 0: see SetDefaultMaxTotal; below 0: no bound

	// MaxReservation is for how long a ticket that needs several busy limits may keep
	// one of them closed to others while it waits for the next. 0: 1 s.
	MaxReservation time.Duration

	// MaxCatchUp bounds what is caught up when timers fire late, which they do by up
	// to some milliseconds: units are claimed as of the instant at which they were
	// due, but no longer ago than this. 0: 5 ms.
	MaxCatchUp time.Duration

	// Aging is the head start that a step of Ticket.Priority is worth. A ticket
	// goes before others of d steps less unless they came d*Aging or more before
	// it. That is also the bound on starvation: who has waited d*Aging is
	// overtaken by nobody of d steps more who comes from then on. 0: 10 s.
	Aging time.Duration

	Trace *Trace // nil: none

	initOnce        sync.Once
	configErr       error // what Validate returns
	time            ticks.Timeline
	realStart       time.Time    // time.start on the real clock
	lastArrival     atomic.Int64 // the newest turn
	numWaiting      atomic.Int64 // callers in line; shut is added when closed
	waiterPool      sync.Pool
	defaultMaxTotal atomic.Int64  // the default of MaxTotal
	drained         chan struct{} // closed once the Queue is shut and nobody is in line any more

	closeCtx       context.Context // ends when the Queue is closed
	cancelCloseCtx func()          // ends closing

	maxReservation, maxCatchUp, aging int64 // nanoseconds

	mu               sync.Mutex
	now              int64 // the reading that is decided on while mu is held
	claimTime        int64 // the instant that claims are made as of: now, or a little before
	limitQueues      map[limitKey]*limitQueue
	classes          map[classKey]*class
	lastLimitQueueID uint64 // gates made so far
	timer            wakeTimer
	closed           bool

	numRefusals uint64 // of questions so far

	scheduled indexheap.Heap[*limitQueue, byRetryTime] // gates that open by themselves
	deadlines indexheap.Heap[deadline, byDeadline]     // of waiters in all lines: MaxWait, or Ticket.Latency before the context ends
}

// closedBit is added to Queue.numWaiting once the Queue is closed.
const closedBit = 1 << 62

// A FullError says that a line is full, or that all of them together are. It matches
// throttle.ErrRefused.
type FullError struct {
	Waiting int // callers in the line, or in all lines
	Max     int // Queue.MaxPerClass, MaxTotal, or the default of SetDefaultMaxTotal
}

// Error says how long the line is.
func (e *FullError) Error() string {
	return "queue: full: " + strconv.Itoa(e.Waiting) + " callers wait already and the limit is " +
		strconv.Itoa(e.Max) + ": ask again later"
}

// Is reports whether target is throttle.ErrRefused.
func (e *FullError) Is(target error) bool { return target == throttle.ErrRefused }

// Wait returns nil when all demands of t are granted. The same Ticket again is a
// retry and keeps its turn.
//
// Wait returns a *throttle.RefusedError as soon as it is known that the wait cannot end before
// the deadline of ctx less Ticket.Latency, that it is longer than MaxWait or
// Ticket.MaxServerWait, or that a limit can never grant its demand. In the first case the
// error matches context.DeadlineExceeded. If ctx ends while t is in line, the error is
// the cause of ctx. Other errors are *FullError, ErrClosed, and those of the limiters.
// After an error t holds no units.
func (q *Queue) Wait(ctx context.Context, t *Ticket) error {
	if q.Trace != nil {
		return q.waitTraced(ctx, t)
	}
	return q.wait(ctx, t)
}

func (q *Queue) wait(ctx context.Context, t *Ticket) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if t.isGranted() {
		return errAlreadyGranted
	}
	q.initOnce.Do(q.init)
	if q.configErr != nil {
		return q.configErr
	}
	now, retry := q.time.Read(time.Time{}), t.arrival != 0
	t.grant, t.waited, t.longestWait = nil, 0, nil
	if q.canBypass(t) {
		if err := q.reserveNow(ctx, t, now); err != nil || t.grant != nil {
			return err
		}
		q.wakeLimits(t) // what it held for a moment may have been refused to others
	}
	if !retry {
		t.arrival = q.nextArrival(now)
	}
	err := q.waitInQueue(ctx, t, retry)
	if _, refused := err.(*throttle.RefusedError); refused {
		q.countRefusal(ctx, t)
	}
	return err
}

// countRefusal lets the limits of t that count refusals count that its wait has failed.
// It is called without the lock, in the goroutine of the caller.
func (q *Queue) countRefusal(ctx context.Context, t *Ticket) {
	for i := range t.Demands {
		m := &t.Demands[i]
		if !throttle.CountsRefusals(m.Limiter) {
			continue
		}
		c := throttle.Claim{Key: m.Key, Cost: m.Cost, Now: q.time.At(q.time.Read(time.Time{}))}
		if d, err := m.Limiter.Reserve(ctx, c); err == nil && d.OK { // another limit refused
			m.Limiter.Cancel(withoutCancel(ctx, m.Limiter), c, d)
		}
	}
}

// reserveNow asks for t without standing in line.
func (q *Queue) reserveNow(ctx context.Context, t *Ticket, now int64) (err error) {
	var refusal throttle.Decision
	returned := false
	defer func() {
		if !returned { // a limiter panicked: what the others held for a moment is free again
			q.wakeLimits(t)
		}
	}()
	reserveCtx, c := ctx, throttle.Claim{Now: q.time.At(now), Waits: true}
	if !t.isNonBlocking() {
		t.waited = time.Duration(now)
		defer func() {
			if t.grant != nil || err != nil {
				t.waited = 0
			}
		}()
		remaining := int64(never)
		if q.MaxWait > 0 {
			remaining = int64(q.MaxWait)
		}
		var stop func()
		reserveCtx, stop = q.boundedContext(ctx, remaining)
		defer stop()
	}
	_, err = t.reserve(reserveCtx, c, &refusal)
	if err != nil && reserveCtx.Err() != nil && ctx.Err() == nil {
		if err = context.Cause(reserveCtx); err == errWaitExpired {
			err = &throttle.RefusedError{Decision: throttle.Decision{At: q.time.At(now)}}
		}
	}
	returned = true
	if t.grant != nil && t.arrival == 0 {
		t.arrival = max(now, 1) // in case of a retry; who came at the same instant is its equal
	}
	return err
}

// Cancel gives back a granted ticket that was not used, and lets others have it.
func (q *Queue) Cancel(ctx context.Context, t *Ticket) {
	q.initOnce.Do(q.init)
	defer q.wakeLimits(t)
	t.Cancel(ctx, q.time.At(q.time.Read(time.Time{})))
}

// Observe tells the limits of t what came of it, and looks again at the lines
// that wait for them. A zero f.Now is read from Clock, or if that is nil by the
// limiters that need to know.
func (q *Queue) Observe(ctx context.Context, t *Ticket, f throttle.Feedback) {
	q.initOnce.Do(q.init)
	if f.Now.IsZero() && q.Clock != nil {
		f.Now = q.time.At(q.time.Read(time.Time{}))
	}
	defer q.wakeLimits(t)
	t.Observe(ctx, f)
}

// Wake looks at all lines again: call it when a limit was changed from elsewhere.
func (q *Queue) Wake() {
	if q.numWaiting.Load() == 0 {
		return
	}
	q.lock()
	for _, lq := range q.limitQueues {
		q.wakeLimit(lq)
	}
	q.unlock()
}

// Close sends everybody in line home with ErrClosed, and those who come later. It
// returns nil.
func (q *Queue) Close() error {
	q.initOnce.Do(q.init)
	q.lock()
	q.closed = true
	q.rejectNew()
	for _, c := range q.classes {
		q.closeClass(c)
	}
	q.unlock()
	q.cancelCloseCtx()
	return nil
}

// Drain turns away those who come from now on with ErrClosed, and returns when
// those in line have been granted or have gone. If ctx ends before, it returns its
// cause; Close then sends the others home.
func (q *Queue) Drain(ctx context.Context) error {
	q.initOnce.Do(q.init)
	q.lock()
	q.rejectNew()
	q.unlock()
	select {
	case <-q.drained:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// rejectNew lets nobody join a line any more.
func (q *Queue) rejectNew() {
	if q.numWaiting.Load() < closedBit && q.numWaiting.Add(closedBit) == closedBit {
		close(q.drained)
	}
}

// closeClass sends everybody in l home, but who is asking: it learns of it after that.
func (q *Queue) closeClass(c *class) {
	for i := 0; i < c.waiters.Len(); {
		if w := c.waiters.Items[i]; w != c.reserving {
			q.reject(w, ErrClosed)
		} else if i++; w.classIndex != 0 {
			i = 0
		}
	}
}

// SetDefaultMaxTotal sets the number of callers that may be in all lines together while
// MaxTotal is zero. Zero, as before the first call, means no bound. It may be called at any
// time; callers that are in line already stay there.
func (q *Queue) SetDefaultMaxTotal(n int) { q.defaultMaxTotal.Store(int64(n)) }

// Validate returns an error that says which field of w can never work. Wait returns it,
// too.
func (q *Queue) Validate() error {
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"Aging", q.Aging}, {"MaxReservation", q.MaxReservation}, {"MaxCatchUp", q.MaxCatchUp}} {
		if f.d < 0 {
			return fmt.Errorf("queue: %s is %v: it must not be negative", f.name, f.d)
		}
	}
	return nil
}

func (q *Queue) init() {
	q.configErr = q.Validate()
	q.time, q.realStart = ticks.NewTimeline(q.Clock), time.Now()
	if q.Clock == nil {
		q.realStart = q.time.Start()
	}
	q.maxReservation = int64(durationOrDefault(q.MaxReservation, time.Second))
	q.maxCatchUp = int64(durationOrDefault(q.MaxCatchUp, 5*time.Millisecond))
	q.aging = int64(durationOrDefault(q.Aging, 10*time.Second))
	q.drained = make(chan struct{})
	q.closeCtx, q.cancelCloseCtx = context.WithCancel(context.Background())
	q.timer.at = never
}

func durationOrDefault(d, or time.Duration) time.Duration {
	if d == 0 {
		return or
	}
	return d
}

// nextArrival returns a place behind everybody who came before: now, or a nanosecond
// more than the last one. That it is a time is what makes ageing simple.
func (q *Queue) nextArrival(now int64) int64 {
	for {
		last := q.lastArrival.Load()
		if next := max(last+1, now); q.lastArrival.CompareAndSwap(last, next) {
			return next
		}
	}
}

// CanBypass reports whether no caller waits for l with the given key. It is false after
// Close and Drain. AllowN of package rate uses it.
func (q *Queue) CanBypass(l throttle.Limiter, key string) bool {
	if q.numWaiting.Load() == 0 {
		return true
	}
	return q.canBypass(&Ticket{Demands: [MaxDemands]throttle.Demand{{Limiter: l, Key: key}}})
}

// canBypass reports whether t need not wait in a queue, as no caller waits for its limits.
func (q *Queue) canBypass(t *Ticket) bool {
	switch n := q.numWaiting.Load(); {
	case n == 0:
		return true
	case n >= closedBit:
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range t.Demands {
		m := &t.Demands[i]
		for k := range numLimits(m) {
			if lq := q.limitQueues[limitKeyOf(m, k)]; lq != nil && lq.tenants.Len() > 0 {
				return false
			}
		}
	}
	return true
}

// wakeLimits looks again at the limits of t.
func (q *Queue) wakeLimits(t *Ticket) {
	if q.numWaiting.Load() == 0 {
		return
	}
	q.lock()
	for i := range t.Demands {
		m := &t.Demands[i]
		for k := range numLimits(m) {
			if lq := q.limitQueues[limitKeyOf(m, k)]; lq != nil {
				q.wakeLimit(lq)
			}
		}
	}
	q.unlock()
}

// maxTotal returns how many callers may be in all lines together; 0 or less: any number.
func (q *Queue) maxTotal() int {
	if q.MaxTotal == 0 {
		return int(q.defaultMaxTotal.Load())
	}
	return q.MaxTotal
}
