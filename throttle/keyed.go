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
	// New makes the limiter of a key, and so decides what its limit is. It must not
	// call the Keyed, and the limiter must answer from memory (see Local); what asks
	// a store needs no Keyed, for it is told Claim.Key. It should read Clock.
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
	born  int64        // readings before this count as this: what came before may be forgotten
}

func (s *keyState) berth() *berth { return &s.at }

// unused implements record. Who is being asked may be in use the next moment.
func (s *keyState) unused(line *timeline, now int64) int64 {
	if s.calls.Load() > 0 {
		return addSat(now, 1)
	}
	is, again := isIdle(s.way.to, s.at.key, line.at(now))
	if is {
		return now
	}
	return addSat(now, int64(again))
}

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
	d, err := s.way.to.Reserve(ctx, c)
	s.calls.Add(-1)
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
	if s == nil && k.makeRoom(t, c.Now) {
		s = &keyState{way: trail{home: &k.trails, to: k.make(c.Key)}, born: t.swept}
		t.keys.add(s, c.Key, t.swept)
	} else if s == nil {
		s = k.overflow(&k.shared[h&uint64(len(k.shared)-1)], c.Key)
	}
	s.calls.Add(1)
	t.mu.Unlock()
	return s
}

// makeRoom counts one limiter more, in t, if need be after one of t was forgotten.
//
// What is idle as of a reading that is ahead of the clock may still be needed, so
// that the clock has a say.
func (k *Keyed) makeRoom(t *shard, asOf time.Time) bool {
	for n := k.count.Load(); n < k.max(); n = k.count.Load() {
		if k.count.CompareAndSwap(n, n+1) {
			return true
		}
	}
	now := k.time.read(time.Time{})
	if !asOf.IsZero() {
		now = min(now, k.time.read(asOf))
	}
	if !t.keys.forget(&k.time, now) {
		return false
	}
	t.swept = max(t.swept, now)
	return true
}

// overflow returns what all keys share that have the hash of at.
func (k *Keyed) overflow(at **keyState, key string) *keyState {
	if *at == nil {
		l := k.Overflow
		if l == nil {
			l = k.make(key)
		}
		*at = &keyState{way: trail{home: &k.trails, to: l, degraded: true}, born: neverRead}
	}
	return *at
}

// Cancel implements Limiter.
func (k *Keyed) Cancel(ctx context.Context, c Claim, d Decision) { k.trails.cancel(ctx, c, d) }

// Observe implements Observer.
func (k *Keyed) Observe(ctx context.Context, c Claim, d Decision, f Feedback) {
	k.trails.observe(ctx, c, d, f)
}

// Local implements Local.
func (k *Keyed) Local() bool { return k.Overflow == nil || isLocal(k.Overflow) }
