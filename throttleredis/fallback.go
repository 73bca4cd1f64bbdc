package throttleredis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A Fallback is a limit on Redis that continues without Redis. While Redis is unreachable,
// slow, out of memory or failing over, a second limiter decides and sets Decision.Degraded.
// When Redis has recovered, it decides again. Neither change requires an action.
//
//	claim ─▶ breaker closed? ─▶ Redis responds in time? ─▶ its decision
//	              │ no                  │ no
//	              └─────────────────────┴──▶ Secondary, Degraded
//
// In time means within Timeout, and within half of the time until the deadline of the
// context. No decision takes longer than Timeout, regardless of the client's deadlines and
// retries, and while the Breaker is open only probes are sent to Redis. Claims in flight
// run on separate goroutines, at most MaxCalls of them.
//
// # Guarantees
//
// Without Redis, N processes with shares together grant no more than the limit, because
// each has the N-th part of it. Around an outage units can be granted twice:
//
//   - When Redis fails, the share of each process is full, except for the units that the
//     process took recently: at most one burst more, in all processes together.
//   - When Redis recovers, its buckets have been refilled by time, or are full if its data
//     was lost: at most one burst more per key.
//   - A claim that timed out (its error matches ErrUncertain) may have taken units in Redis:
//     at most its cost times the number of attempts of the client. The units are returned if
//     the response arrives within a second, otherwise they are restored by time. At most
//     MaxCalls claims are in this state at a time.
//
// A claim without a response in time is handled like a short outage. A claim that Redis
// granted is ended in Redis and never at Secondary, except for the units that it took of a
// share. Report takes at most Timeout. While Redis is known to be unreachable
// it returns immediately and is kept until it is reachable, up to MaxCalls of them.
//
// If the server's clock is set back, or the server is replaced by one whose clock is
// behind, units are restored at most one window later. If the clock is set forward, units
// are restored too early, at most one burst per key.
//
// # Limitations
//
// By default a client of go-redis retries three times, even if a connection was lost after
// the script had been sent, which may take the units in each attempt: set MaxRetries to -1.
// By default it ignores the deadlines of contexts: set ContextTimeoutEnabled, and
// Store.Timeout to one second, so that abandoned calls end. After PoolSize consecutive
// failed dials it dials only once per second: set PoolSize to several hundred.
//
// Limiter must be set. The fields must not be changed after the first use, and a Fallback
// must not be copied.
type Fallback struct {
	// Limiter is the limiter on Redis. It must be set.
	Limiter throttle.Limiter

	// Processes is the number of processes that share the limit. Zero means that it is
	// unknown.
	Processes int

	// Secondary decides while Redis does not. Nil means, for each key, the process's share
	// of the limit if Processes is set (see Limiter.Share), and throttle.AllowAll
	// otherwise. throttle.DenyAll rejects all claims. AllowAll does not apply while Redis is out
	// of memory: claims are then rejected, because clients can fill it with keys.
	Secondary throttle.Limiter

	// Timeout is the longest that a call waits for Redis. Zero means 50 ms. A call whose
	// context has a deadline waits for at most half of the time until then, so that
	// Secondary can still decide.
	Timeout time.Duration

	// MaxCalls is the maximum number of calls to Redis in flight. Zero means 256.
	MaxCalls int

	// MaxKeys is the maximum number of keys with separate shares: see keyed.Limiter. Zero
	// means 65,536.
	MaxKeys int

	// Breaker detects outages; for a cluster it keeps one state per node. Nil means a
	// separate Breaker.
	Breaker *Breaker

	// OnError is called with the reason why Redis did not decide, except for ErrOpen. A panic
	// of Limiter, or of a hook of a Store or Breaker, is raised by the method of the Fallback
	// that was called; if that does not wait for it any longer, OnError is called with it,
	// on another goroutine. Nil means no calls.
	OnError func(error)

	// OnDegraded is called with each decision that Redis did not make, for metrics: with what
	// decides instead, and the reason, which may be ErrOpen. The mode is "share", "open"
	// (throttle.AllowAll), "closed" (throttle.DenyAll) or "secondary". It must not block, and
	// may be called concurrently. Nil means no calls.
	OnDegraded func(mode string, err error)

	once  sync.Once
	mode  string // for OnDegraded
	inner throttle.Limiter
}

// A sharer returns a limiter in memory with the share of one of several processes.
type sharer interface {
	Share(processes, maxKeys int) throttle.Limiter
}

// Validate returns an error that describes how to correct f, or nil if f is valid.
func (f *Fallback) Validate() error {
	_, shares := f.Limiter.(sharer)
	l, _ := f.Limiter.(*Limiter)
	switch {
	case l != nil && l.usage != nil:
		return errors.New("throttleredis: Fallback: Limiter decides in memory (Mode Eventual), also without Redis: use it without a Fallback")
	case f.Limiter == nil:
		return errors.New("throttleredis: Fallback: Limiter is nil: set it to one of a Store")
	case f.Processes < 0:
		return fmt.Errorf("throttleredis: Fallback: Processes is %d: it must be positive, or 0 if it is not known", f.Processes)
	case f.Processes > 0 && f.Secondary == nil && !shares:
		return fmt.Errorf("throttleredis: Fallback: a %T has no share for one of %d processes: set Secondary", f.Limiter, f.Processes)
	}
	return nil
}

func (f *Fallback) setup() {
	if err := f.Validate(); err != nil {
		panic(err.Error())
	}
	timeout := cmp.Or(max(f.Timeout, 0), 50*time.Millisecond)
	calls := make(chan struct{}, cmp.Or(max(f.MaxCalls, 0), 256))
	g := &guardedCaller{asyncCaller: asyncCaller{f.Limiter, timeout, calls, f.reportPanic}, breaker: cmp.Or(f.Breaker, new(Breaker))}
	primary, secondary := throttle.Limiter(g), f.Secondary
	switch {
	case secondary == throttle.DenyAll:
		f.mode = "closed"
	case secondary == throttle.AllowAll, secondary == nil && f.Processes == 0:
		f.mode, secondary = "open", throttle.AllowAll
		g.onOutOfMemory = func(err error) { f.report("closed", err) }
	case secondary == nil:
		f.mode, secondary = "share", f.Limiter.(sharer).Share(f.Processes, f.MaxKeys)
		primary = &mirroredLimiter{guardedCaller: g, share: secondary}
	default:
		f.mode = "secondary"
	}
	f.inner = throttle.NewFallback(throttle.FallbackConfig{Primary: primary, Secondary: &degraded{secondary, g}, OnError: func(err error) { f.report(f.mode, err) }})
}

func (f *Fallback) report(mode string, err error) {
	if f.OnDegraded != nil {
		f.OnDegraded(mode, err)
	}
	if f.OnError != nil && !errors.Is(err, ErrOpen) {
		f.OnError(err)
	}
}

// reportPanic reports a panic on a goroutine without a caller. One of OnError itself is ignored.
func (f *Fallback) reportPanic(value any) {
	defer func() { _ = recover() }()
	if f.OnError != nil {
		f.OnError(fmt.Errorf("throttleredis: a limiter or hook panicked: %v", value))
	}
}

// Reserve implements throttle.Limiter. It returns an error only if the cost is negative or
// ctx is done, or if Secondary fails.
func (f *Fallback) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	f.once.Do(f.setup)
	return f.inner.Reserve(ctx, c)
}

// Report implements throttle.Limiter. It reports to the limiter that granted the claim.
func (f *Fallback) Report(ctx context.Context, c throttle.Claim, d throttle.Decision, fb throttle.Feedback) {
	f.once.Do(f.setup)
	f.inner.Report(ctx, c, d, fb)
}

// Traits implements throttle.Limiter.
func (f *Fallback) Traits() throttle.Traits {
	f.once.Do(f.setup)
	return f.inner.Traits()
}

// A degraded limiter decides while Redis does not. Redis may be able to grant a claim that
// this limiter can never grant, so such a rejection has a Wait until Redis has been probed.
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

// A mirroredLimiter takes the units that a limit on Redis grants from a share in memory as
// well, as far as the share has them, and returns them to the share when they are returned
// to Redis. When Redis fails, the share of a busy process is therefore as empty as if the
// process had never used Redis.
//
// If the share were left full until it is needed, each outage would begin with a burst, no
// matter how short the time between outages is: see
// TestFallback_outageAddsAtMostABurstEachWay.
type mirroredLimiter struct {
	*guardedCaller
	share     throttle.Limiter
	subGrants throttle.SubGrants
}

// Reserve implements throttle.Limiter.
func (t *mirroredLimiter) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	d, err := t.guardedCaller.Reserve(ctx, c)
	if err != nil || !d.OK || c.DryRun {
		return d, err
	}
	shared, _ := t.share.Reserve(ctx, c) // a rejection of the share is ignored
	return t.subGrants.Wrap(d, []throttle.Decision{d, shared}), nil
}

// Report implements throttle.Limiter.
func (t *mirroredLimiter) Report(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	t.subGrants.Unwrap(d, f.State, func(parts []throttle.Decision) {
		t.share.Report(ctx, c, parts[1], f)
		t.guardedCaller.Report(ctx, c, parts[0], f)
	})
}

// Traits implements throttle.Limiter.
func (t *mirroredLimiter) Traits() throttle.Traits {
	redis, share := t.guardedCaller.Traits(), t.share.Traits()
	redis.EndsAtResponse = redis.EndsAtResponse && share.EndsAtResponse
	redis.CountsRejected = redis.CountsRejected || share.CountsRejected
	return redis
}
