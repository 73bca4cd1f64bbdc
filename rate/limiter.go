package rate

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/internal/queuelink"
	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// A Limiter grants units at a rate, with the methods of the Limiter of
// golang.org/x/time/rate. NewLimiter returns one with a token bucket of its own, New one for
// any throttle.Limiter. The zero Limiter has a limit and a burst of 0 and grants nothing.
//
// It is safe for concurrent use. Its fields must not change after the first call of a
// method, and it must not be copied. The package comment lists the differences from
// x/time/rate.
//
// Limitations: a claim ends when it is granted, with the outcome throttle.Accepted. Limiters that
// depend on the real outcome, such as adaptive.Limiter, or on when the work ends, such as
// throttle.NewConcurrency, need a queue.Ticket.
type Limiter struct {
	// Key is the throttle.Claim.Key of all claims. Limiters with one limit ignore it.
	Key string

	// Queue is where Wait waits. Nil means a Queue of its own.
	Queue *queue.Queue

	// Clock is the current time for methods without a time, and the clock of the Limiter's own
	// Queue. Nil means the system clock, or that of the throttle.Limiter if it has another.
	Clock throttle.Clock

	once       sync.Once
	limiter    throttle.Limiter
	bucket     *bucket // equal to limiter, unless New made the Limiter
	waiters    *queue.Queue
	numWaiting *atomic.Int64 // in waiters, or more than that
	setMu      sync.Mutex    // held while a limit of New changes
}

// NewLimiter returns a Limiter with a token bucket that restores limit units per second and
// holds up to burst units. It starts full. A burst of 0 or less allows nothing, except with
// the limit Inf, which allows everything. A burst that takes more than 36 years to be restored
// is lowered to what 36 years restore.
func NewLimiter(limit Limit, burst int) *Limiter {
	b := newBucket(limit, burst)
	return &Limiter{limiter: b, bucket: b}
}

// New returns a Limiter that makes its claims to l. The state of l is shared: others may use l
// at the same time.
//
// Units that are not available yet can be reserved only if Traits.BooksAhead of l is set, as by
// the token bucket and the leaky bucket of package throttle, and those of package warmup. With other limiters
// ReserveN grants only what may be used immediately; WaitN works with all. A call with n = 0
// is always granted.
//
// SetLimit and SetBurst change l if it is a token bucket or a leaky bucket of package throttle.
// For these, a burst below 1 counts as 1, a limit of 0 restores one burst in 36 years, and
// Inf restores 16 units per nanosecond. They do nothing to other limiters: change l by
// its own methods, and then call Wake of Queue.
//
// New panics if l is nil.
func New(l throttle.Limiter) *Limiter {
	if l == nil {
		panic("rate: New: the limiter is nil: use throttle.AllowAll for no limit")
	}
	return &Limiter{limiter: l}
}

// init sets the fields that are not set. It is called once, before everything else.
func (v *Limiter) init() {
	if v.limiter == nil {
		v.bucket = newBucket(0, 0)
		v.limiter = v.bucket
	}
	if v.waiters = v.Queue; v.waiters == nil {
		v.waiters = &queue.Queue{Clock: v.Clock}
	}
	v.numWaiting = queuelink.NumWaiting(v.waiters)
}

// time returns now. If it is zero and the Limiter has a Clock, time reads it.
func (v *Limiter) time(now time.Time) time.Time {
	if v.Clock != nil && now.IsZero() {
		return v.Clock.Now()
	}
	return now
}

func (v *Limiter) claim(now time.Time, n int) throttle.Claim {
	return throttle.Claim{Key: v.Key, Cost: int64(n), Now: v.time(now)}
}

// decider returns the limiter that decides: that of a bucket if nothing else does, which saves copies of
// the Decision.
func (v *Limiter) decider() throttle.Limiter {
	if v.bucket != nil && v.bucket.plain.Load() {
		return v.bucket.units
	}
	return v.limiter
}

// Allow reports whether one unit may be used now, and takes it.
func (v *Limiter) Allow() bool { return v.AllowN(time.Time{}, 1) }

// AllowN reports whether n units may be used as of now, and takes them. A zero now means the
// current time. AllowN returns false for a negative n, and if the limiter returns an error;
// ReserveN returns that error. An n of 0 takes nothing; it is allowed unless units are
// reserved that are not restored yet.
func (v *Limiter) AllowN(now time.Time, n int) bool {
	v.once.Do(v.init)
	switch {
	case n < 0:
		return false
	case n == 0:
		return v.bucket == nil || v.bucket.debt(v.time(now)) == 0
	case !v.canBypass():
		return false
	}
	return v.take(now, n)
}

// canBypass reports whether no caller waits for units, and the Queue is not closed.
func (v *Limiter) canBypass() bool {
	return v.numWaiting.Load() == 0 || queuelink.CanBypass(v.waiters, v.limiter, v.Key)
}

// take takes n units if they may be used as of now.
func (v *Limiter) take(now time.Time, n int) bool {
	if v.bucket != nil {
		return v.bucket.take(v.time(now), n)
	}
	ctx, c := context.Background(), v.claim(now, n)
	d, err := v.limiter.Reserve(ctx, c)
	if err != nil || !d.OK {
		return false
	}
	v.limiter.Report(ctx, c, d, throttle.Feedback{Now: c.Now})
	return true
}

// Wait blocks until one unit may be used, and takes it.
func (v *Limiter) Wait(ctx context.Context) error { return v.WaitN(ctx, 1) }

// WaitN blocks until n units may be used, and takes them. With an n of 0 it waits until no
// units are reserved that are not restored yet, and takes none.
//
// It fails immediately with a *throttle.RejectedError if n units can never be granted, and if
// the deadline of ctx is earlier than the wait would end, with the units of the callers ahead;
// the error then matches context.DeadlineExceeded. A limiter of New that does not state its
// rate lets it wait for the deadline. If ctx ends while WaitN waits, the error is the cause of ctx.
// A negative n is throttle.ErrCost. Other errors are those of queue.Queue.Wait. After an
// error no units are taken.
func (v *Limiter) WaitN(ctx context.Context, n int) error {
	v.once.Do(v.init)
	limiter := v.limiter
	switch {
	case n < 0:
		return throttle.ErrCost
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case n == 0 && v.bucket == nil:
		return nil
	case n == 0:
		limiter = noUnits{v.bucket}
	case v.bucket != nil && v.canBypass() && v.take(time.Time{}, n):
		return nil
	}
	t := ticketPool.Get().(*queue.Ticket)
	t.Add(throttle.Demand{Limiter: limiter, Key: v.Key, Cost: int64(n)})
	err := v.waiters.Wait(ctx, t)
	if err == nil {
		v.waiters.Report(ctx, t, throttle.Feedback{})
	}
	clear(t.Demands)
	*t = queue.Ticket{Demands: t.Demands[:0]}
	ticketPool.Put(t)
	return err
}

var ticketPool = sync.Pool{New: func() any { return new(queue.Ticket) }}

// Limit returns the limit in force. For a limiter of New other than a token bucket and a
// leaky bucket, it is computed from throttle.Decision.Limit and Per, and Inf if these
// are unknown.
func (v *Limiter) Limit() Limit {
	v.once.Do(v.init)
	if v.bucket != nil {
		limit, _ := v.bucket.values()
		return limit
	}
	if b, ok := v.limiter.(changeable); ok {
		l := b.Limit()
		return Limit(float64(l.Count) / l.Per.Seconds())
	}
	d := v.dryRun(time.Time{})
	if d.Limit <= 0 || d.Per <= 0 {
		return Inf
	}
	return Limit(float64(d.Limit) / d.Per.Seconds())
}

// Burst returns the maximum number of units that one call can be granted: for a limiter of
// New, throttle.Decision.Limit.
func (v *Limiter) Burst() int {
	v.once.Do(v.init)
	if v.bucket != nil {
		_, burst := v.bucket.values()
		return burst
	}
	return asInt(v.dryRun(time.Time{}).Limit)
}

// Tokens returns the number of units that are available now.
func (v *Limiter) Tokens() float64 { return v.TokensAt(time.Time{}) }

// TokensAt returns the number of units that are available as of now. A zero now means the
// current time. It is negative while units are reserved that are not restored yet. For a
// limiter of New it is throttle.Decision.Remaining, which has no fractions, unless it is a leaky bucket.
func (v *Limiter) TokensAt(now time.Time) float64 {
	v.once.Do(v.init)
	now = v.time(now)
	if v.bucket != nil {
		return v.bucket.tokens(now)
	}
	if b, ok := v.limiter.(leakyBucket); ok {
		return b.Available(now)
	}
	return float64(v.dryRun(now).Remaining)
}

// SetLimit changes the limit. The units in the bucket are kept, and callers of Wait are
// granted by the new limit. See New for limiters of package throttle.
func (v *Limiter) SetLimit(limit Limit) { v.SetLimitAt(time.Time{}, limit) }

// SetLimitAt is SetLimit as of now. A zero now means the current time.
func (v *Limiter) SetLimitAt(now time.Time, limit Limit) {
	v.set(now, func(_ Limit, burst int) (Limit, int) { return limit, burst })
}

// SetBurst changes the burst. Units above the new burst are lost; a higher burst adds none.
// See New for limiters of package throttle.
func (v *Limiter) SetBurst(burst int) { v.SetBurstAt(time.Time{}, burst) }

// SetBurstAt is SetBurst as of now. A zero now means the current time.
func (v *Limiter) SetBurstAt(now time.Time, burst int) {
	v.set(now, func(limit Limit, _ int) (Limit, int) { return limit, burst })
}

// set changes the limit and the burst to those that change returns.
func (v *Limiter) set(now time.Time, change func(Limit, int) (Limit, int)) {
	v.once.Do(v.init)
	now = v.time(now)
	if v.bucket != nil {
		v.bucket.set(now, change)
	} else if b, ok := v.limiter.(changeable); ok {
		v.replaceLimit(b, now, change)
	}
	v.waiters.Wake()
}

// A changeable is a token bucket or leaky bucket of package throttle, whose limit SetLimit can change. Its methods are called with
// setMu held, so those of other modules are none.
type changeable interface {
	Timeline() *ticks.Timeline
	Limit() throttle.Limit
	SetLimitAt(now time.Time, l throttle.Limit) error
}

// replaceLimit changes the limit of b.
func (v *Limiter) replaceLimit(b changeable, now time.Time, change func(Limit, int) (Limit, int)) {
	v.setMu.Lock()
	defer v.setMu.Unlock()
	l := b.Limit()
	burst := l.Burst
	if burst == 0 {
		burst = l.Count
	}
	limit := Limit(float64(l.Count) / l.Per.Seconds())
	newLimit, newBurst := change(limit, asInt(burst))
	next := newLimit.withBurst(int64(newBurst))
	if newLimit == limit && newBurst > 0 { // keeps a fraction that a float64 cannot express
		exact := throttle.Limit{Count: l.Count, Per: l.Per, Burst: int64(newBurst)}
		if exact.Validate() == nil {
			next = exact
		}
	}
	next.Name = l.Name
	if err := b.SetLimitAt(now, next); err != nil {
		panic(err) // withBurst returns valid limits
	}
}

// dryRun returns the state of a limiter of New as of now, or the zero Decision if it returns
// an error.
func (v *Limiter) dryRun(now time.Time) throttle.Decision {
	c := v.claim(now, 1)
	c.DryRun = true
	d, err := v.limiter.Reserve(context.Background(), c)
	if err != nil {
		return throttle.Decision{}
	}
	return d
}

// asInt returns n, or the largest int if n is larger.
func asInt(n int64) int { return int(min(n, int64(^uint(0)>>1))) }
