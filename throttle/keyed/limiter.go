// Package keyed limits each key, such as a client's address, separately and in bounded
// memory.
//
// A [Limiter] has a limiter per key, of any kind, in about 500 bytes per key. [Buckets] has
// a token bucket with the same limit for every key, in about 30 bytes per key. A [Ban]
// around either of them rejects all claims of a key that keeps exceeding its limit, for
// longer each time.
//
//	limiter := &keyed.Limiter{New: func(key string) throttle.Limiter {
//		return throttle.NewTokenBucket(limitOf(key))
//	}}
//	d, err := limiter.Reserve(ctx, throttle.Claim{Key: "192.0.2.7"})
package keyed

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// Limiter gives each key a limiter of its own, in bounded memory. It is intended for
// servers, where keys are untrusted input: addresses, tokens, names.
//
//	ann ──▶ limiter ┐
//	bob ──▶ limiter ├─ at most Max, each returned by New for the first claim of a key
//	eve ──▶ limiter ┘
//	dan ──▶ all of them in use: dan shares an overflow limiter with other keys
//
// If there are Max limiters, a new key evicts one whose state is that of a new limiter, so
// that the eviction changes no decision: see throttle.IsEvictable. Limiters in use are never
// evicted, so that a client that uses many keys can erase neither the state of other keys
// nor that of its own. There is no background goroutine: a new key checks a few limiters
// for eviction.
//
// If all keys have token buckets with the same limit, use Buckets, which needs less memory.
//
// Invariant: there are never more than Max limiters plus 64 for the overflow, and each key
// is bounded by its own limiter or by the overflow limiter. A key that moves from one to
// the other may use the limits of both.
//
// Cancel and Observe reach the limiter that granted the claim, also if that was an
// overflow limiter or has been evicted since.
//
// New must be set, and no field may change after the first use. A Limiter must not be
// copied.
type Limiter struct {
	// New returns the limiter of a key, and so determines the limit of that key. It is called
	// without a lock held. It may be called for a key for which another goroutine has just
	// created a limiter, or which is limited by the overflow; the returned limiter is then not
	// used. throttle.IsNonBlocking must be true for the limiter. It should read Clock. New must
	// be set and must not return nil: throttle.AllowAll is the limiter of a key without a limit.
	New func(key string) throttle.Limiter

	// Max is the maximum number of limiters. Zero or a negative value means 65,536.
	Max int

	// Overflow decides for new keys while there are Max limiters in use. Its decisions are
	// Degraded. Nil means that such keys share 64 limiters by their hash, each returned by New
	// for the first key that needs it.
	Overflow throttle.Limiter

	// Clock determines which limiters can be evicted. Nil means the system clock.
	Clock throttle.Clock

	once           sync.Once
	time           ticks.Timeline
	seed           maphash.Seed
	shards         []shard
	count          atomic.Int64  // number of limiters without those of the overflow
	overflowStates [64]*keyState // of the overflow, each guarded by the lock of its shard
	subGrants      throttle.SubGrants
	holdsUntilEnd  atomic.Bool // New has returned a limiter that holds until the end
}

// shardThreshold is the value of Max from which on the table is divided into shards.
const shardThreshold = 4096

// A shard is the part of the keys that one lock guards.
type shard struct {
	mu          sync.Mutex
	keys        keyTable[*keyState]
	lastEvicted int64 // latest instant as of which a key was evicted
	_           [64]byte
}

// A keyState is the state of a key.
type keyState struct {
	pos         tablePosition
	limiter     throttle.Limiter // of New or Overflow
	inner       throttle.Limiter // asks limiter
	activeCalls atomic.Int32     // number of calls of Reserve in progress
	uses        uint64           // number of calls that have begun; guarded by the lock of its shard
	start       int64            // older readings count as this one: the state before it may have been evicted
}

func (s *keyState) position() *tablePosition { return &s.pos }

func (k *Limiter) init() {
	k.time, k.seed = ticks.NewTimeline(), maphash.MakeSeed()
	k.time.SetClock(k.Clock)
	n := 1
	if k.maxLimiters() >= shardThreshold {
		n = len(k.overflowStates)
	}
	k.shards = make([]shard, n)
	for i := range k.shards {
		k.shards[i].lastEvicted = ticks.Never
	}
}

func (k *Limiter) maxLimiters() int64 {
	if k.Max <= 0 {
		return 1 << 16
	}
	return int64(k.Max)
}

// Len returns the number of limiters, without those of the overflow.
func (k *Limiter) Len() int { return int(k.count.Load()) }

// SetClock sets Clock, and the clock of Overflow; see throttle.WithClock.
func (k *Limiter) SetClock(c throttle.Clock) {
	k.Clock = c
	setClock(k.Overflow, c)
}

// setClock sets the clock of l if it reads one.
func setClock(l throttle.Limiter, c throttle.Clock) {
	if s, ok := l.(interface{ SetClock(throttle.Clock) }); ok {
		s.SetClock(c)
	}
}

// Reserve implements throttle.Limiter.
func (k *Limiter) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	return k.ReserveAhead(ctx, c, 0)
}

// ReserveAhead implements throttle.Booker. Keys whose limiter is not a Booker are granted
// only what may start now.
func (k *Limiter) ReserveAhead(ctx context.Context, c throttle.Claim, maxWait time.Duration) (throttle.Decision, error) {
	if _, err := c.Units(); err != nil {
		return throttle.Decision{}, err
	}
	k.once.Do(k.init)
	s := k.stateOf(c)
	if s.start != ticks.Never && !c.Now.IsZero() && k.time.Read(c.Now) < s.start {
		c.Now = k.time.At(s.start)
	}
	defer s.activeCalls.Add(-1) // also if the limiter panics
	return throttle.ReserveAhead(ctx, s.inner, c, maxWait)
}

// stateOf returns the state of the key of c, and counts the call of Reserve that follows.
func (k *Limiter) stateOf(c throttle.Claim) *keyState {
	h := maphash.String(k.seed, c.Key)
	t := &k.shards[h&uint64(len(k.shards)-1)]
	t.mu.Lock()
	s := t.keys.byKey[c.Key]
	if s == nil {
		t.mu.Unlock()
		return k.add(t, &k.overflowStates[h&uint64(len(k.overflowStates)-1)], c)
	}
	s.beginCall()
	t.mu.Unlock()
	return s
}

// beginCall counts a call of the limiter of s.
func (s *keyState) beginCall() {
	s.uses++
	s.activeCalls.Add(1)
}

// add returns the state of the key of c in t, creating it if the number of limiters
// allows, and otherwise the shared state at overflow. New and the limiters are called
// without a lock held.
func (k *Limiter) add(t *shard, overflow **keyState, c throttle.Claim) *keyState {
	hasRoom := k.count.Load() < k.maxLimiters() || k.evict(t, c.Now)
	var l throttle.Limiter
	if hasRoom {
		l = k.newLimiter(c.Key)
	} else {
		l = k.newOverflowLimiter(t, overflow, c.Key)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.keys.byKey[c.Key] // another goroutine may have added it
	if s == nil && hasRoom && k.countLimiter() {
		s = &keyState{limiter: l, inner: k.subGrants.Inner(l, false), start: t.lastEvicted}
		t.keys.add(s, c.Key, t.lastEvicted)
	}
	if s == nil {
		if *overflow == nil {
			if k.Overflow != nil {
				l = k.Overflow
			}
			*overflow = &keyState{limiter: l, inner: k.subGrants.Inner(l, true), start: ticks.Never}
		}
		s = *overflow
	}
	s.beginCall()
	return s
}

// newOverflowLimiter returns the limiter for overflow if overflow has no state yet.
func (k *Limiter) newOverflowLimiter(t *shard, overflow **keyState, key string) throttle.Limiter {
	t.mu.Lock()
	exists := *overflow != nil
	t.mu.Unlock()
	if exists || k.Overflow != nil {
		return k.Overflow
	}
	return k.newLimiter(key)
}

// countLimiter increments the number of limiters. It reports false if there are already
// Max.
func (k *Limiter) countLimiter() bool {
	for n := k.count.Load(); n < k.maxLimiters(); n = k.count.Load() {
		if k.count.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

// evict evicts an idle limiter of t. It reports false if none of the few limiters that it
// checked is idle.
//
// A limiter that is idle as of a reading ahead of the clock may still be needed, so evict
// uses the earlier of that reading and the clock's.
func (k *Limiter) evict(t *shard, asOf time.Time) bool {
	now := k.time.Read(time.Time{})
	if !asOf.IsZero() {
		now = min(now, k.time.Read(asOf))
	}
	for range maxEvictionChecks {
		s, uses := t.candidate(now)
		if s == nil {
			return false
		}
		from := ticks.Add(now, 1)
		if s.activeCalls.Load() == 0 {
			evictable, recheckAfter := throttle.IsEvictable(s.limiter, s.pos.key, k.time.At(now))
			if from = ticks.Add(now, int64(recheckAfter)); evictable {
				from = now
			}
		}
		if t.evictIfIdle(s, uses, from, now) {
			k.count.Add(-1)
			return true
		}
	}
	return false
}

// candidate returns the limiter of t to check next, and how often it was used. It returns
// nil if no limiter can be idle at now.
func (t *shard) candidate(now int64) (s *keyState, uses uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.keys.len() == 0 || t.keys.heap.First().pos.evictableAt > now {
		return nil, 0
	}
	s = t.keys.heap.First()
	return s, s.uses
}

// evictIfIdle evicts s if it is idle, that is, if from <= now, and if s was not used since
// candidate returned it. Otherwise s is checked again at from.
func (t *shard) evictIfIdle(s *keyState, uses uint64, from, now int64) (evicted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case s.pos.index < 0: // another goroutine has evicted it
	case from > now || s.uses != uses:
		s.pos.evictableAt = max(from, ticks.Add(now, 1))
		t.keys.heap.Fix(s.pos.index)
	default:
		t.keys.remove(s)
		t.lastEvicted = max(t.lastEvicted, now)
		return true
	}
	return false
}

// Cancel implements throttle.Limiter.
func (k *Limiter) Cancel(ctx context.Context, c throttle.Claim, d throttle.Decision) {
	k.subGrants.Cancel(ctx, c, d)
}

// Observe implements throttle.Observer.
func (k *Limiter) Observe(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	k.subGrants.Observe(ctx, c, d, f)
}

// NonBlocking is the method that throttle.IsNonBlocking calls.
func (k *Limiter) NonBlocking() bool { return k.Overflow == nil || throttle.IsNonBlocking(k.Overflow) }

// HoldsUntilEnd implements throttle.Holder. It returns true once New has returned a
// limiter whose claims last until the end.
func (k *Limiter) HoldsUntilEnd() bool {
	return k.holdsUntilEnd.Load() || throttle.HoldsUntilEnd(k.Overflow)
}

// newLimiter returns the result of New. It panics if there is none.
func (k *Limiter) newLimiter(key string) throttle.Limiter {
	if k.New == nil {
		panic("keyed: Limiter: New is nil: set it")
	}
	l := k.New(key)
	if l == nil {
		panic("keyed: Limiter: New returned nil: return throttle.AllowAll for a key without a limit")
	}
	if throttle.HoldsUntilEnd(l) {
		k.holdsUntilEnd.Store(true)
	}
	return l
}

// CountsRefusals is the method that throttle.CountsRefusals calls. It returns true because the limiters
// that New returns may count rejections.
func (*Limiter) CountsRefusals() bool { return true }
