package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/internal/indexheap"
	"github.com/heed-go/heed/internal/queuelink"
	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// ErrClosed is returned by Wait and Try after Close or Drain has been called. Close also ends
// blocked calls of Wait with this error.
var ErrClosed = errors.New("queue: closed")

// A Queue blocks callers until the limits of their tickets grant them. Share one Queue
// wherever limits are shared. The zero Queue is ready to use and safe for concurrent use. Its
// fields must not change after the first Wait, and it must not be copied.
//
// A grant takes the units of all limits at one instant, immediately before the caller continues:
// there is no burst on older grants when a limit opens.
type Queue struct {
	// Clock is the source of time. Nil means the system clock.
	Clock throttle.Clock

	// MaxWait is the longest time that a call of Wait may wait; a longer wait ends with a *throttle.RejectedError. Zero
	// means no maximum, unless a throttlehttp.Middleware with the Queue sets one; a negative value always means none.
	MaxWait time.Duration

	// MaxPerClass is the maximum number of waiters in a class. Further callers are rejected
	// with a *FullError, except retries. Zero or less means no maximum.
	MaxPerClass int

	// MaxTotal is the same for all classes together. Zero means no maximum, unless a throttlehttp.Middleware
	// with the Queue sets one; a negative value always means none.
	MaxTotal int

	// Aging is the time by which one step of Ticket.Priority moves a ticket ahead: a ticket goes before one whose
	// priority is d steps lower unless the other arrived d*Aging or more earlier. With throttle.Forever a higher
	// priority always goes first, and a lower one may never be granted. Zero means 10 seconds.
	Aging time.Duration

	// Trace holds functions that are called for each ticket. Nil means none.
	Trace *Trace

	initOnce        sync.Once
	time            ticks.Timeline
	realStart       time.Time    // the start of time on the real clock
	lastArrival     atomic.Int64 // the arrival of the newest ticket
	numWaiting      atomic.Int64 // waiters; closedBit is added when closed
	renewals        atomic.Int64 // calls of Renew
	waiterPool      sync.Pool
	defaultMaxTotal atomic.Int64  // MaxTotal where it is zero
	defaultMaxWait  atomic.Int64  // MaxWait where it is zero, in nanoseconds
	numRejected     atomic.Uint64 // calls that returned a rejection
	numFailed       atomic.Uint64 // calls that returned another error
	drained         chan struct{} // closed once no more callers can join and no waiter is left

	closeCtx       context.Context // done once the Queue is closed
	cancelCloseCtx func()          // ends closeCtx

	// mu guards the fields below. It is released while limiters are asked.
	mu               sync.Mutex
	now              int64 // reading of the clock by lock
	claimTime        int64 // Claim.Now of claims: now, or at most maxCatchUp before
	limitQueues      map[limitKey]*limitQueue
	classes          map[classKey]*class
	round            uint64 // calls of dispatch
	lastLimitQueueID uint64 // the id of the newest limitQueue
	timer            wakeTimer

	numEvents  uint64 // calls of countEvent
	numGranted uint64 // tickets granted after they had joined a class

	scheduled indexheap.Heap[*limitQueue, byRetryTime] // limits with a retry time
	deadlines indexheap.Heap[deadline, byDeadline]     // of all waiters, see setDeadline
}

// closedBit is added to Queue.numWaiting by Close and Drain.
const closedBit = 1 << 62

// A FullError is returned by Wait when a class has MaxPerClass waiters, or the Queue has
// MaxTotal. It matches throttle.ErrRejected.
type FullError struct {
	// Waiting is the number of waiters in the class, or in the Queue.
	Waiting int

	// Max is the limit that was reached: Queue.MaxPerClass, MaxTotal, or its default.
	Max int
}

// Error returns a message with both numbers.
func (e *FullError) Error() string {
	return fmt.Sprintf("queue: full: %d callers wait already and the limit is %d: ask again later", e.Waiting, e.Max)
}

// Is reports whether target is throttle.ErrRejected.
func (e *FullError) Is(target error) bool { return target == throttle.ErrRejected }

// Wait blocks until all demands of t are granted, and returns nil. A Ticket that is passed to
// Wait again is a retry and keeps its time of arrival.
//
// Wait returns a *throttle.RejectedError as soon as it is known that the wait would not end Ticket.Latency before the
// deadline of ctx, that it would exceed MaxWait or Ticket.MaxServerWait, or that a limit can never grant its demand. In
// the first case the error matches context.DeadlineExceeded. If ctx ends while t waits, the error is the cause of ctx.
// Other errors are *FullError, ErrClosed, that of Validate, and those of the limiters. After an error t holds no units.
//
// If the server imposed the wait, and t is not a retry, Wait repeats the claims once without
// Claim.Waits before it returns a RejectedError, and returns nil if the limits grant them.
func (q *Queue) Wait(ctx context.Context, t *Ticket) error { return q.WaitHooks(ctx, t, Hooks{}) }

// Hooks are functions, or nil, that WaitHooks calls on the goroutine of its caller.
type Hooks struct {
	// Queued is called when the ticket begins to wait, at most once. An error ends the wait.
	Queued func(Position) error

	// Renew is called before the ticket begins to wait, and again after Queue.Renew was called for a limiter that it
	// waits for. It may change Ticket.Demands; the time that the ticket has waited counts. An error ends the wait.
	Renew func() error
}

// WaitHooks is like Wait, and calls h.
func (q *Queue) WaitHooks(ctx context.Context, t *Ticket, h Hooks) error {
	retry := t.arrival != 0
	now, asked, err := q.tryNow(ctx, t, true)
	if err == nil && t.grant == nil {
		j := join{again: retry, queued: h.Queued}
		if asked && !t.isNonBlocking() {
			j.since = now // limiters that may block may have taken some time
		}
		if !retry {
			t.arrival = q.nextArrival(now)
		}
		w := q.newWaiter(ctx, t)
		err = q.waitRenewable(ctx, w, j, h.Renew)
		stopped := w.stopped
		*w = waiter{wake: w.wake}
		q.waiterPool.Put(w)
		if !stopped {
			err = q.lastTry(ctx, t, err, retry, time.Duration(now))
		}
	}
	q.finish(ctx, t, err)
	return err
}

// errRenewed ends a wait that begins again, see Queue.Renew.
var errRenewed = errors.New("queue: the demands of the ticket may have changed")

// maxRenewals is how often Hooks.Renew is called before a ticket waits with the demands it has.
const maxRenewals = 100

// waitRenewable waits for the ticket of w, which joins with j. renew is Hooks.Renew.
func (q *Queue) waitRenewable(ctx context.Context, w *waiter, j join, renew func() error) (err error) {
	t := w.ticket
	defer func() {
		if w.renewed {
			q.lock()
			q.uncount()
			q.unlock()
		}
	}()
	for n := 0; ; n++ {
		j.renewals = never
		if renew != nil {
			if n < maxRenewals {
				j.renewals = q.renewals.Load()
			}
			if err = renew(); err != nil {
				return err
			}
		}
		if t.isEmpty() {
			return q.ask(ctx, t, throttle.Claim{Now: q.time.At(q.time.Read(time.Time{}))})
		}
		if n > 0 {
			j.since = max(q.time.Read(time.Time{})-int64(t.waited), 1)
		}
		if err = q.waitInQueue(ctx, w, j); err != errRenewed {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		j.again, j.queued = true, nil
	}
}

// Renew calls Hooks.Renew of all callers that wait for l with an empty key, so that they can ask for another limiter in
// its place. A call to the limiters that is under way is not interrupted: its caller asks again if it is rejected.
func (q *Queue) Renew(l throttle.Limiter) {
	q.renewals.Add(1) // before waiters are looked for: callers that join later see it
	if q.numWaiting.Load() == 0 || l == nil {
		return
	}
	q.lock()
	for _, lq := range q.limitQueuesOf(&Ticket{Demands: []throttle.Demand{{Limiter: l}}}) {
		for _, w := range q.waitersOf(lq) {
			q.rejectSoon(w, errRenewed)
		}
	}
	q.unlock()
}

// Report tells the limits of a granted ticket what became of the grant, see Ticket.Report, and wakes the waiters that
// may be granted after it. A zero f.Now is read from Clock, or by the limiters that need the time if Clock is nil.
func (q *Queue) Report(ctx context.Context, t *Ticket, f throttle.Feedback) {
	q.initOnce.Do(q.init)
	if f.Now.IsZero() && (q.Clock != nil || f.State == throttle.Unused) {
		f.Now = q.time.At(q.time.Read(time.Time{}))
	}
	defer q.wakeLimits(t) // also if a limiter panics
	t.Report(ctx, f)
}

// Wake checks all waiters again. Call it after a limit was changed by other means.
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

// Close rejects all waiters and later callers with ErrClosed. It returns nil.
func (q *Queue) Close() error {
	q.initOnce.Do(q.init)
	q.lock()
	q.cancelCloseCtx()
	q.rejectNew()
	for _, c := range q.classes {
		for _, w := range slices.Clone(c.waiters.Items) {
			q.rejectSoon(w, ErrClosed)
		}
	}
	q.unlock()
	return nil
}

// Drain rejects later callers with ErrClosed, and returns nil when all waiters have been granted or have left. If ctx
// ends first, Drain returns its cause and the waiters stay; Close rejects them.
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

// rejectNew prevents callers from joining a class.
func (q *Queue) rejectNew() {
	if q.numWaiting.Load() < closedBit && q.numWaiting.Add(closedBit) == closedBit {
		close(q.drained)
	}
}

func init() {
	queuelink.NumWaiting = func(q any) *atomic.Int64 { return &q.(*Queue).numWaiting }
	queuelink.CanBypass = func(q any, l throttle.Limiter, key string) bool {
		return q.(*Queue).canBypass(&Ticket{Demands: []throttle.Demand{{Limiter: l, Key: key}}})
	}
	queuelink.SetDefaults = func(q any, maxTotal int, maxWait time.Duration) {
		q.(*Queue).defaultMaxTotal.Store(int64(maxTotal))
		q.(*Queue).defaultMaxWait.Store(int64(maxWait))
	}
	queuelink.GrantedAt = func(t any) time.Time { return t.(*Ticket).grantedAt() }
}

// Validate returns an error if Aging is negative. Wait and Try return the same error.
func (q *Queue) Validate() error {
	if q.Aging < 0 {
		return fmt.Errorf("queue: Aging is %v: it must not be negative", q.Aging)
	}
	return nil
}

func (q *Queue) init() {
	q.time = ticks.NewTimeline()
	q.realStart = q.time.At(0)
	if q.Clock != nil {
		q.time.SetClock(q.Clock)
	}
	q.drained = make(chan struct{})
	q.closeCtx, q.cancelCloseCtx = context.WithCancel(context.Background())
	q.timer.at = never
}

// nextArrival returns the arrival of a new ticket: now, or one nanosecond after the newest
// ticket if that is later.
func (q *Queue) nextArrival(now int64) int64 {
	for {
		last := q.lastArrival.Load()
		if next := max(last+1, now); q.lastArrival.CompareAndSwap(last, next) {
			return next
		}
	}
}

// canBypass reports whether no caller waits for a limit of t, and q is not closed.
func (q *Queue) canBypass(t *Ticket) bool {
	if q.numWaiting.Load() >= closedBit {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, lq := range q.limitQueuesOf(t) {
		if lq.tenants.Len() > 0 {
			return false
		}
	}
	return true
}

// wakeLimits schedules the limits of t immediately, for the callers that wait for them.
func (q *Queue) wakeLimits(t *Ticket) {
	if q.numWaiting.Load() == 0 {
		return
	}
	q.lock()
	for _, lq := range q.limitQueuesOf(t) {
		q.wakeLimit(lq)
	}
	q.unlock()
}

// maxWait returns the longest time that a call of Wait may wait, in nanoseconds; never if there is no maximum.
func (q *Queue) maxWait() int64 {
	if d := cmp.Or(int64(q.MaxWait), q.defaultMaxWait.Load()); d > 0 {
		return d
	}
	return never
}
