package throttle

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// Keyed gives each key a limiter of its own, in bounded memory. It is for servers,
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
// Where all keys have token buckets of one limit, KeyedBuckets keeps them in a tenth
// of the memory.
//
// Invariant: there are never more than Max limiters and 64 for the overflow, and each
// key is bounded by its limiter alone, or by the overflow limiter. A key that moves
// from one to the other may use the limits of both.
//
// The odd case is an end that comes late. Cancel and Observe reach the limiter that
// granted, also if that was the overflow's, or has been forgotten since. To look the
// key up again looks right, and would give units back to whoever has its place: see
// TestKeyed_cancelReachesTheLimiterThatGranted.
//
// New must be set, and no field may change once it is in use. A Keyed must not be
// copied.
type Keyed struct {
	// New makes the limiter of a key, and so decides what its limit is. No lock is
	// held. It may be called for a key that another goroutine has just made a limiter
	// for, or that finds no room: the limiter is then dropped unused. The limiter
	// must answer from memory (see Local). It should read Clock.
	New func(key string) Limiter

	// Max is how many limiters there may be. 0: 65,536.
	Max int

	// Overflow decides for new keys when there is no room for them; its decisions
	// are Degraded. Nil: new keys then share 64 limiters by their hash, each made by
	// New for the first key that needs it.
	Overflow Limiter

	Clock Clock // nil: the system clock; says which limiters may go

	once   sync.Once
	time   timeline
	seed   maphash.Seed
	shards []shard
	count  atomic.Int64  // limiters, without the overflow's
	shared [64]*keyState // the overflow's, each held by the lock of its shard
	trails trails
	holds  atomic.Bool // New has returned a limiter that holds until the end
}

// manyKeys is how many keys get a table that is split.
const manyKeys = 4096

// A shard is the part of the keys that one lock is for.
type shard struct {
	mu    sync.Mutex
	keys  roster[*keyState]
	swept int64 // latest instant as of which a key was forgotten
	_     [64]byte
}

// A keyState is what a key has.
type keyState struct {
	at    berth
	way   trail        // to the limiter
	calls atomic.Int32 // how many Reserves are under way
	uses  uint64       // how many have begun; held by the lock of its shard
	born  int64        // readings before this count as this: what came before may be forgotten
}

func (s *keyState) berth() *berth { return &s.at }

func (k *Keyed) start() {
	k.time, k.seed = newTimeline(k.Clock), maphash.MakeSeed()
	n := 1
	if k.max() >= manyKeys {
		n = len(k.shared)
	}
	k.shards = make([]shard, n)
	for i := range k.shards {
		k.shards[i].swept = neverRead
	}
}

func (k *Keyed) max() int64 {
	if k.Max <= 0 {
		return 1 << 16
	}
	return int64(k.Max)
}

// Len returns how many limiters there are, without those of the overflow.
func (k *Keyed) Len() int { return int(k.count.Load()) }

// Reserve implements Limiter.
func (k *Keyed) Reserve(ctx context.Context, c Claim) (Decision, error) {
	if _, err := c.Units(); err != nil {
		return Decision{}, err
	}
	k.once.Do(k.start)
	s := k.state(c)
	if s.born != neverRead && !c.Now.IsZero() && k.time.read(c.Now) < s.born {
		c.Now = k.time.at(s.born)
	}
	defer s.calls.Add(-1) // also if the limiter panics
	d, err := s.way.to.Reserve(ctx, c)
	if err != nil {
		return Decision{}, err
	}
	return s.way.lead(d, c.DryRun), nil
}

// state returns what the key of c has, and counts the call that follows.
func (k *Keyed) state(c Claim) *keyState {
	h := maphash.String(k.seed, c.Key)
	t := &k.shards[h&uint64(len(k.shards)-1)]
	t.mu.Lock()
	s := t.keys.byKey[c.Key]
	if s == nil {
		t.mu.Unlock()
		return k.add(t, &k.shared[h&uint64(len(k.shared)-1)], c)
	}
	s.use()
	t.mu.Unlock()
	return s
}

// use counts a call of the limiter of s.
func (s *keyState) use() {
	s.uses++
	s.calls.Add(1)
}

// add returns what the key of c has in t, which is made if there is room for it, and
// otherwise what it shares at overflow. New and the limiters are called without a lock.
func (k *Keyed) add(t *shard, overflow **keyState, c Claim) *keyState {
	room := k.count.Load() < k.max() || k.makeRoom(t, c.Now)
	var l Limiter
	if room {
		l = k.make(c.Key)
	} else {
		l = k.newOverflow(t, overflow, c.Key)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.keys.byKey[c.Key] // another goroutine may have been faster
	if s == nil && room && k.takePlace() {
		s = &keyState{way: trail{home: &k.trails, to: l}, born: t.swept}
		t.keys.add(s, c.Key, t.swept)
	}
	if s == nil {
		if *overflow == nil {
			if k.Overflow != nil {
				l = k.Overflow
			}
			*overflow = &keyState{way: trail{home: &k.trails, to: l, degraded: true}, born: neverRead}
		}
		s = *overflow
	}
	s.use()
	return s
}

// newOverflow returns the limiter for overflow if it has none yet.
func (k *Keyed) newOverflow(t *shard, overflow **keyState, key string) Limiter {
	t.mu.Lock()
	made := *overflow != nil
	t.mu.Unlock()
	if made || k.Overflow != nil {
		return k.Overflow
	}
	return k.make(key)
}

// takePlace counts one limiter more. It reports false if there are Max.
func (k *Keyed) takePlace() bool {
	for n := k.count.Load(); n < k.max(); n = k.count.Load() {
		if k.count.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

// makeRoom forgets a limiter of t that is idle. It reports false if it found none among
// the few that it looked at.
//
// What is idle as of a reading that is ahead of the clock may still be needed, so
// that the clock has a say.
func (k *Keyed) makeRoom(t *shard, asOf time.Time) bool {
	now := k.time.read(time.Time{})
	if !asOf.IsZero() {
		now = min(now, k.time.read(asOf))
	}
	for range tries {
		s, uses := t.candidate(now)
		if s == nil {
			return false
		}
		from := addSat(now, 1)
		if s.calls.Load() == 0 {
			is, again := isIdle(s.way.to, s.at.key, k.time.at(now))
			if from = addSat(now, int64(again)); is {
				from = now
			}
		}
		if t.settle(s, uses, from, now) {
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
	if t.keys.len() == 0 || t.keys.pile.first().at.from > now {
		return nil, 0
	}
	s = t.keys.pile.first()
	return s, s.uses
}

// settle forgets s if it is idle, which from <= now says, and was not used since. If it
// is not, it is looked at again at from.
func (t *shard) settle(s *keyState, uses uint64, from, now int64) (forgotten bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case s.at.index < 0: // another goroutine has forgotten it
	case from > now || s.uses != uses:
		s.at.from = max(from, addSat(now, 1))
		t.keys.pile.fix(s.at.index)
	default:
		t.keys.drop(s)
		t.swept = max(t.swept, now)
		return true
	}
	return false
}

// Cancel implements Limiter.
func (k *Keyed) Cancel(ctx context.Context, c Claim, d Decision) { k.trails.cancel(ctx, c, d) }

// Observe implements Observer.
func (k *Keyed) Observe(ctx context.Context, c Claim, d Decision, f Feedback) {
	k.trails.observe(ctx, c, d, f)
}

// Local implements Local.
func (k *Keyed) Local() bool { return k.Overflow == nil || isLocal(k.Overflow) }
