// Package keyed limits each key, such as a client's address, separately and in bounded memory.
//
// A [Limiter] has a limiter per key, of any kind. [Buckets] has a token bucket of the same
// limit for every key and needs a tenth of the memory. A [Ban] around either of them rejects
// all claims of a key that keeps exceeding its limit, for longer each time.
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

// Limiter gives each key a limiter of its own, in bounded memory. It is for servers,
// where keys are what strangers send: addresses, tokens, names.
//
//	ann ──▶ limiter ┐
//	bob ──▶ limiter ├─ at most Max, each made by New when its key is first seen
//	eve ──▶ limiter ┘
//	dan ──▶ all of them in use: dan shares an overflow limiter with others
//
// When there is no room for a new key, a limiter that is as it was made goes first,
// by what it says itself: nobody can notice, for a new one would answer the same.
// Limiters in use never go, so that an attacker with many keys cannot wash away what
// is known of others, nor of himself. Nothing is swept: room is made when it is
// needed, by looking at a few limiters, and no goroutine runs.
//
// Where all keys have token buckets of one limit, Buckets keeps them in a tenth
// of the memory.
//
// Invariant: there are never more than Max limiters and 64 for the overflow, and each
// key is bounded by its limiter alone, or by the overflow limiter. A key that moves
// from one to the other may use the limits of both.
//
// The odd case is an end that comes late. Cancel and Observe reach the limiter that
// granted, also if that was the overflow's, or has been forgotten since. To look the
// key up again looks right, and would give units back to whoever has its place: see
// TestLimiter_cancelReachesTheLimiterThatGranted.
//
// New must be set, and no field may change once it is in use. A Limiter must not be
// copied.
type Limiter struct {
	// New makes the limiter of a key, and so decides what its limit is. No lock is
	// held. It may be called for a key that another goroutine has just made a limiter
	// for, or that finds no room: the limiter is then dropped unused. The limiter
	// must answer from memory (see throttle.NonBlocking). It should read Clock.
	New func(key string) throttle.Limiter

	// Max is how many limiters there may be. 0: 65,536.
	Max int

	// Overflow decides for new keys when there is no room for them; its decisions
	// are Degraded. Nil: new keys then share 64 limiters by their hash, each made by
	// New for the first key that needs it.
	Overflow throttle.Limiter

	Clock throttle.Clock // nil: the system clock; says which limiters may go

	once           sync.Once
	time           ticks.Timeline
	seed           maphash.Seed
	shards         []shard
	count          atomic.Int64  // limiters, without the overflow's
	overflowStates [64]*keyState // the overflow's, each held by the lock of its shard
	subGrants      throttle.SubGrants
	holdsUntilEnd  atomic.Bool // New has returned a limiter that holds until the end
}

// shardThreshold is how many keys get a table that is split.
const shardThreshold = 4096

// A shard is the part of the keys that one lock is for.
type shard struct {
	mu          sync.Mutex
	keys        keyTable[*keyState]
	lastEvicted int64 // latest instant as of which a key was forgotten
	_           [64]byte
}

// A keyState is what a key has.
type keyState struct {
	pos         tablePosition
	inner       throttle.Inner
	activeCalls atomic.Int32 // how many Reserves are under way
	uses        uint64       // how many have begun; held by the lock of its shard
	start       int64        // readings before this count as this: what came before may be forgotten
}

func (s *keyState) position() *tablePosition { return &s.pos }

func (k *Limiter) init() {
	k.time, k.seed = ticks.NewTimeline(k.Clock), maphash.MakeSeed()
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

// Len returns how many limiters there are, without those of the overflow.
func (k *Limiter) Len() int { return int(k.count.Load()) }

// Reserve implements throttle.Limiter.
func (k *Limiter) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	if _, err := c.Units(); err != nil {
		return throttle.Decision{}, err
	}
	k.once.Do(k.init)
	s := k.stateOf(c)
	if s.start != ticks.Never && !c.Now.IsZero() && k.time.Read(c.Now) < s.start {
		c.Now = k.time.At(s.start)
	}
	defer s.activeCalls.Add(-1) // also if the limiter panics
	return s.inner.Reserve(ctx, c)
}

// stateOf returns what the key of c has, and counts the call that follows.
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

// add returns what the key of c has in t, which is made if there is room for it, and
// otherwise what it shares at overflow. New and the limiters are called without a lock.
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
	s := t.keys.byKey[c.Key] // another goroutine may have been faster
	if s == nil && hasRoom && k.countLimiter() {
		s = &keyState{inner: k.subGrants.Inner(l, false), start: t.lastEvicted}
		t.keys.add(s, c.Key, t.lastEvicted)
	}
	if s == nil {
		if *overflow == nil {
			if k.Overflow != nil {
				l = k.Overflow
			}
			*overflow = &keyState{inner: k.subGrants.Inner(l, true), start: ticks.Never}
		}
		s = *overflow
	}
	s.beginCall()
	return s
}

// newOverflowLimiter returns the limiter for overflow if it has none yet.
func (k *Limiter) newOverflowLimiter(t *shard, overflow **keyState, key string) throttle.Limiter {
	t.mu.Lock()
	exists := *overflow != nil
	t.mu.Unlock()
	if exists || k.Overflow != nil {
		return k.Overflow
	}
	return k.newLimiter(key)
}

// countLimiter counts one limiter more. It reports false if there are Max.
func (k *Limiter) countLimiter() bool {
	for n := k.count.Load(); n < k.maxLimiters(); n = k.count.Load() {
		if k.count.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

// evict forgets a limiter of t that is idle. It reports false if it found none among
// the few that it looked at.
//
// What is idle as of a reading that is ahead of the clock may still be needed, so
// that the clock has a say.
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
			evictable, recheckAfter := throttle.IsEvictable(s.inner.Limiter(), s.pos.key, k.time.At(now))
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

// candidate returns the limiter of t that is looked at next, and how often it was used.
// It is nil if none can be idle by now.
func (t *shard) candidate(now int64) (s *keyState, uses uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.keys.len() == 0 || t.keys.heap.First().pos.evictableAt > now {
		return nil, 0
	}
	s = t.keys.heap.First()
	return s, s.uses
}

// evictIfIdle forgets s if it is idle, which from <= now says, and was not used since. If it
// is not, it is looked at again at from.
func (t *shard) evictIfIdle(s *keyState, uses uint64, from, now int64) (evicted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case s.pos.index < 0: // another goroutine has forgotten it
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

// NonBlocking implements throttle.NonBlocking.
func (k *Limiter) NonBlocking() bool { return k.Overflow == nil || throttle.IsNonBlocking(k.Overflow) }

// HoldsUntilEnd implements throttle.Holder. It is true once New has returned a limiter whose
// claims last until the end.
func (k *Limiter) HoldsUntilEnd() bool {
	return k.holdsUntilEnd.Load() || throttle.HoldsUntilEnd(k.Overflow)
}

// newLimiter returns a limiter of New.
func (k *Limiter) newLimiter(key string) throttle.Limiter {
	l := k.New(key)
	if throttle.HoldsUntilEnd(l) {
		k.holdsUntilEnd.Store(true)
	}
	return l
}

// CountsRefusals implements throttle.RefusalCounter. The limiters that New makes may count them.
func (*Limiter) CountsRefusals() bool { return true }
