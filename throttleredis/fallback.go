package throttleredis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A Fallback is a limit on Redis that goes on without it. While Redis is away, slow, out of
// memory or in the middle of a failover, another limiter decides, and says so by
// Decision.Degraded; when Redis is back, it decides again. Nothing has to be done for either.
//
//	claim ─▶ breaker closed? ─▶ Redis answers in time? ─▶ its decision
//	              │ no                  │ no
//	              └─────────────────────┴──▶ Secondary, Degraded
//
// In time is within Timeout, and within half of what is left until the deadline of the context.
// No decision takes longer than Timeout, whatever the client does about deadlines and
// retries, and while the Breaker is open none asks Redis. Claims that are on their way are
// on goroutines of their own, at most MaxCalls of them.
//
// # What is kept, and what is not
//
// Without Redis, N processes with shares let through no more than the limit together, as
// each has the N-th part of it. On the way there and back units are counted twice:
//
//   - When Redis goes, each process has a share that is full, but for what it took
//     itself lately: at most one burst more, in all processes together.
//   - When Redis comes back, its buckets are as full as time has made them, or all are
//     if it comes back empty: at most one burst more for each key.
//   - A claim that was given up (its error matches ErrUncertain) may have taken units of
//     Redis, which are then missing: not more than its cost, times the attempts of the
//     client. They are given back if the answer comes within a second, else by time. There
//     are never more such claims than MaxCalls at a time.
//
// A claim that is not answered in time is a small outage of its own. One that Redis granted
// ends at Redis, and never at Secondary, but for what it took of a share: Cancel and Observe
// take no longer than Timeout, or no time at all while Redis is away: they are then kept until
// it is back, up to MaxCalls of them.
//
// If the server's clock is set back, or the server is replaced by one whose clock is behind,
// units come back at most one window later; if it is set forward, they come back too early, at
// most a burst for each key.
//
// The odd case is the client that does more than it is told to. Clients of go-redis send
// again three times by default, also when a connection was lost after the script had been
// sent, which may take the units each time: set MaxRetries to -1. They need not look at
// deadlines: set ContextTimeoutEnabled, and Store.Timeout to a second, so that what was given
// up comes to an end. And after as many failed dials in a row as PoolSize they look for the
// server once a second only: let that be some hundreds.
//
// Limiter must be set. Fields must not change once it is in use, and a Fallback must not be
// copied.
type Fallback struct {
	Limiter throttle.Limiter // on Redis

	// Processes is how many share the limit, if that is known. 0: it is not.
	Processes int

	// Secondary decides while Redis does not. Nil: if Processes is given, the
	// process's share of the limit for each key, see Limiter.Share; else
	// throttle.AllowAll. With throttle.DenyAll nothing is let through.
	Secondary throttle.Limiter

	// Timeout is the longest that a call waits for Redis. Zero means 50 ms. A call whose
	// context has a deadline waits for at most half of the time until then, so that
	// Secondary can still decide.
	Timeout time.Duration

	MaxCalls int         // on their way to Redis at a time; 0: 256
	MaxKeys  int         // most keys with a share of their own, see keyed.Limiter; 0: 65,536
	Breaker  *Breaker    // nil: one of its own; of a cluster it keeps one state per node
	OnError  func(error) // told why Redis did not decide, but for ErrOpen; nil: nobody

	once  sync.Once
	inner throttle.Fallback
}

// A sharer can make a limiter in memory for one of several processes.
type sharer interface {
	Share(processes, maxKeys int) throttle.Limiter
}

// Validate returns an error that says what to change if f can never work.
func (f *Fallback) Validate() error {
	_, shares := f.Limiter.(sharer)
	switch {
	case f.Limiter == nil:
		return errors.New("throttleredis: Fallback: Limiter is nil: set it to one of a Store")
	case f.Processes < 0:
		return fmt.Errorf("throttleredis: Fallback: Processes is %d: it must be positive, or 0 if it is not known", f.Processes)
	case f.Processes > 0 && f.Secondary == nil && !shares:
		return fmt.Errorf("throttleredis: Fallback: a %T has no share for one of %d processes: set Secondary", f.Limiter, f.Processes)
	}
	return nil
}

// setup makes what f has to have of its own.
func (f *Fallback) setup() {
	if err := f.Validate(); err != nil {
		panic(err.Error())
	}
	breaker, timeout := f.Breaker, f.Timeout
	if breaker == nil {
		breaker = new(Breaker)
	}
	if timeout <= 0 {
		timeout = 50 * time.Millisecond
	}
	g := &guardedCaller{asyncCaller: asyncCaller{f.Limiter, timeout, make(chan struct{}, positiveOr(f.MaxCalls, 256))}, breaker: breaker}
	primary, secondary := throttle.Limiter(g), f.Secondary
	switch {
	case secondary != nil:
	case f.Processes == 0:
		secondary = throttle.AllowAll
	default:
		secondary = f.Limiter.(sharer).Share(f.Processes, f.MaxKeys)
		primary = &mirroredLimiter{guardedCaller: g, share: secondary}
	}
	f.inner = throttle.Fallback{Primary: primary, Secondary: &degraded{secondary, g}, OnError: f.reportError}
}

func (f *Fallback) reportError(err error) {
	if f.OnError != nil && !errors.Is(err, ErrOpen) {
		f.OnError(err)
	}
}

// Reserve implements throttle.Limiter. What is an error here is the caller's doing: a
// negative cost, or a ctx that is done.
func (f *Fallback) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	f.once.Do(f.setup)
	return f.inner.Reserve(ctx, c)
}

// Cancel implements throttle.Limiter: who granted gets the units back.
func (f *Fallback) Cancel(ctx context.Context, c throttle.Claim, d throttle.Decision) {
	f.once.Do(f.setup)
	f.inner.Cancel(ctx, c, d)
}

// Observe implements throttle.Observer: who granted hears of it.
func (f *Fallback) Observe(ctx context.Context, c throttle.Claim, d throttle.Decision, fb throttle.Feedback) {
	f.once.Do(f.setup)
	f.inner.Observe(ctx, c, d, fb)
}

// Local implements throttle.NonBlocking: it does I/O.
func (*Fallback) NonBlocking() bool { return false }

// A degraded decides while Redis does not. What it could never grant, Redis may grant
// when it is back: so it says to ask again when Redis will have been asked.
type degraded struct {
	throttle.Limiter
	redis *guardedCaller
}

// Reserve implements throttle.Limiter.
func (s *degraded) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	d, err := s.Limiter.Reserve(ctx, c)
	if !d.OK && d.Wait == throttle.Forever {
		d.Wait = s.redis.timeout + s.redis.breakerOf(c.Key).timeToProbe()
	}
	return d, err
}

// Observe implements throttle.Observer.
func (s *degraded) Observe(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	throttle.Observe(ctx, s.Limiter, c, d, f)
}
