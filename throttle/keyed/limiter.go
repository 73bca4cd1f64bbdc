// Package keyed limits each key, such as a client's address, in bounded memory.
//
// A [Limiter] has a limiter per key, of any kind, in about 500 bytes per key. [NewBuckets] has
// a token bucket with the same limit for every key, in about 36 bytes per key. [NewBan]
// rejects all claims of a key that keeps exceeding its limit, for longer each time.
//
//	limiter := &keyed.Limiter{New: func(key string) throttle.Limiter {
//		return throttle.NewTokenBucket(limitOf(key))
//	}}
//	d, err := limiter.Reserve(ctx, throttle.Claim{Key: "192.0.2.7"})
package keyed

import (
	"context"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/internal/networks"
	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// Limiter gives each key a limiter of its own, in bounded memory. It is intended for
// servers, where keys are untrusted input: addresses, tokens, names.
//
// If there are Max limiters, a new key evicts one whose state is that of a new limiter: see
// throttle.Decision.Fresh. If all that it checks are in use, it evicts one of a network that
// has brought more new keys than its own: the least used of a few. A network is a /24 of IPv4
// addresses or a /48 of IPv6 addresses: see Addr. A key of the network with the most new keys
// evicts none, but shares a limiter with the other new keys of its network; its decisions are
// Degraded. So invented keys compete with keys of the same network only.
//
// A limiter that is evicted in use becomes the one that its network shares, unless that is
// used more. A new key begins with as many units taken as the limiter that its network
// shares. So a client that is limited gains nothing by having its key evicted.
//
// Invariant: there are never more than Max limiters, and one for each of Max/8 networks. In
// any of its windows, a key that was evicted and returns is granted at most twice its limit
// by all of its limiters together, and no more than its limit if that is a token bucket or a
// fixed window. This does not apply to
//
//   - keys of unknown networks. They may always evict each other, the least used of 8 that are
//     selected at random, and return with a new limiter.
//   - keys of a network while more than Max/8 networks bring more new keys than it does.
//   - claims in progress while their key is evicted, and claims that are held until the end:
//     see throttle.Traits.EndsAtResponse.
//   - limiters composed of several limits, of which only the one that their Decision states
//     is considered.
//
// Limitations: if clients of one network bring many new keys while Max limiters are in use,
// they share one limiter, also with other clients of that network. Max should therefore be at
// least the number of keys that are used within the window of their limit. Invented keys of
// unknown networks each have a limit of their own; if clients can choose their keys, limit
// their addresses as well.
//
// No field may change after the first use. A Limiter must not be copied.
type Limiter struct {
	// New returns the limiter of a key. It must be set and must not return nil:
	// throttle.AllowAll is the limiter of a key without a limit. No lock is held meanwhile. New
	// may be called for a key that shares a limiter or for which another goroutine has just
	// created one; the result is then not used. The limiter should read Clock and have
	// throttle.Traits.NonBlocking: one that may block is also called for claims of other keys
	// that need its place, without their contexts.
	New func(key string) throttle.Limiter

	// Max is the maximum number of limiters. Zero or a negative value means 65,536.
	Max int

	// Addr returns the address of the client to which a key belongs, and so its network, or
	// the zero Addr if that is unknown. It must not return an address that clients can choose.
	// It is called for new keys only. Nil means the address in keys made by throttlehttp.IP,
	// alone or in a throttlehttp.Composite, and unknown for other keys.
	Addr func(key string) netip.Addr

	// Overflow decides for new keys while there are Max limiters in use, which are then not
	// evicted. Its decisions are Degraded. Nil means that new keys evict limiters in use.
	Overflow throttle.Limiter

	// Clock determines which limiters can be evicted. Nil means the system clock.
	Clock throttle.Clock

	once          sync.Once
	time          ticks.Timeline
	seed          maphash.Seed
	shards        []shard
	count         atomic.Int64 // number of limiters without those that are shared
	networks      networks.Table[keyState]
	overflow      *keyState // of Overflow
	subGrants     throttle.SubGrants
	holdsUntilEnd atomic.Bool // New has returned a limiter that holds until the end
	mayBlock      atomic.Bool // New has returned a limiter that may block
}

const (
	shardThreshold    = 4096 // value of Max from which on the table is divided into shards
	maxShards         = 64
	maxEvictionChecks = 8           // limiters that are checked when a new key needs a place
	recheckAfter      = time.Second // time until a limiter that states no time is checked again
)

// A shard is the part of the keys that one lock guards.
type shard struct {
	mu          sync.Mutex
	keys        keyTable[*keyState]
	lastEvicted int64 // latest instant as of which a key was evicted
	_           [64]byte
}

type keyState struct {
	tablePosition
	network     networks.ID
	limiter     throttle.Limiter // of New or Overflow
	inner       throttle.Limiter // asks limiter
	activeCalls atomic.Int32     // number of calls of Reserve in progress
	uses        uint64           // number of calls that have begun; guarded by the lock of its shard
	start       int64            // older readings count as this one: the state before it may have been evicted
}

func (k *Limiter) init() {
	k.time, k.seed = ticks.NewTimeline(), maphash.MakeSeed()
	k.time.SetClock(k.Clock)
	n := 1
	if k.maxLimiters() >= shardThreshold {
		n = maxShards
	}
	k.shards = make([]shard, n)
	for i := range k.shards {
		k.shards[i].lastEvicted = ticks.Never
	}
	k.networks.Init(k.maxLimiters(), k.Addr)
	if k.Overflow != nil {
		k.overflow = k.shared(k.Overflow)
	}
}

// shared returns the state of keys that share l.
func (k *Limiter) shared(l throttle.Limiter) *keyState {
	return &keyState{limiter: l, inner: k.subGrants.Inner(l, true), start: ticks.Never}
}

func (k *Limiter) maxLimiters() int64 {
	if k.Max <= 0 {
		return 1 << 16
	}
	return int64(k.Max)
}

// Len returns the number of limiters, without those that networks share.
func (k *Limiter) Len() int { return int(k.count.Load()) }

// SetClock sets Clock, and the clock of Overflow; see throttle.WithClock.
func (k *Limiter) SetClock(c throttle.Clock) {
	k.Clock = c
	setClock(k.Overflow, c)
}

// setClock sets the clock of l, which may be nil, as a limiter that is composed of others does.
func setClock(l throttle.Limiter, c throttle.Clock) {
	if l != nil {
		throttle.WithClock(throttle.AllOf(l), c)
	}
}

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

// stateOf returns the state of the key of c, and counts the call of Reserve that follows.
func (k *Limiter) stateOf(c throttle.Claim) *keyState {
	h := maphash.String(k.seed, c.Key)
	t := &k.shards[h&uint64(len(k.shards)-1)]
	t.mu.Lock()
	s := t.keys.byKey[c.Key]
	if s == nil {
		t.mu.Unlock()
		return k.add(t, c)
	}
	s.beginCall()
	t.mu.Unlock()
	return s
}

func (s *keyState) beginCall() {
	s.uses++
	s.activeCalls.Add(1)
}

// add returns the state of the key of c in t, creating it if the key gets a limiter, and
// otherwise the state that it shares. New and the limiters are called without a lock held.
func (k *Limiter) add(t *shard, c throttle.Claim) *keyState {
	network := k.networks.IDOf(c.Key)
	k.networks.Arrive(network)
	before := k.networks.Start(network)
	if before != nil && rejects(before.limiter, c) {
		return k.share(network, c.Key) // with a limiter of its own, the key would be rejected as well
	}
	if k.count.Load() >= k.maxLimiters() && !k.evict(t, c.Now) && (k.Overflow != nil || !k.evictInUse(t, c.Now, network)) {
		return k.share(network, c.Key)
	}
	l := k.newLimiter(c.Key)
	if before != nil {
		takeAs(before.limiter, l, c)
	}
	t.mu.Lock()
	s := t.keys.byKey[c.Key] // another goroutine may have added it
	if s == nil && k.countLimiter() {
		s = &keyState{network: network, limiter: l, inner: k.subGrants.Inner(l, false), start: t.lastEvicted}
		t.keys.add(s, c.Key, t.lastEvicted)
	}
	if s != nil {
		s.beginCall()
	}
	t.mu.Unlock()
	if s == nil {
		return k.share(network, c.Key)
	}
	return s
}

// share returns the state of the keys that have no limiter and are of the given network.
func (k *Limiter) share(network networks.ID, key string) *keyState {
	s := k.overflow
	if k.Overflow == nil {
		if s = k.networks.Share(network, nil); s == nil {
			s = k.networks.Share(network, k.shared(k.newLimiter(key)))
		}
	}
	s.activeCalls.Add(1)
	return s
}

func rejects(l throttle.Limiter, c throttle.Claim) bool {
	c.DryRun = true
	d, err := l.Reserve(context.Background(), c)
	return err == nil && !d.OK
}

// takeAs takes from l, a new limiter, the share of its units that is taken from old. It takes
// nothing that would have to be returned at the end of a claim.
func takeAs(old, l throttle.Limiter, c throttle.Claim) {
	used := usageOf(old, c.Key, c.Now).share
	if used == 0 || !l.Traits().EndsAtResponse {
		return
	}
	c = throttle.Claim{Key: c.Key, Now: c.Now, DryRun: true}
	d, err := l.Reserve(context.Background(), c)
	if err != nil {
		return
	}
	if c.Cost, c.DryRun = min(int64(math.Ceil(used*float64(d.Limit))), d.Remaining), false; c.Cost > 0 {
		_, _ = l.Reserve(context.Background(), c)
	}
}

type usage struct {
	share      float64       // of its units, between 0 and 1; parts of units count as units
	resetAfter time.Duration // time until it is unused
}

func (u usage) less(v usage) bool {
	return u.share < v.share || u.share == v.share && u.resetAfter < v.resetAfter
}

func usageOf(l throttle.Limiter, key string, now time.Time) usage {
	d, err := l.Reserve(context.Background(), throttle.Claim{Key: key, Now: now, DryRun: true})
	if err != nil || d.Limit <= 0 {
		return usage{}
	}
	return usage{1 - float64(d.Remaining)/float64(d.Limit), d.ResetAfter}
}

// countLimiter increments the number of limiters. It reports false if there are already Max.
func (k *Limiter) countLimiter() bool {
	for n := k.count.Load(); n < k.maxLimiters(); n = k.count.Load() {
		if k.count.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

// evict evicts an idle limiter of t. It reports false if none of the few that it checks is idle.
func (k *Limiter) evict(t *shard, asOf time.Time) bool {
	now := k.readEarlier(asOf)
	for range maxEvictionChecks {
		s, uses := t.candidate(now)
		if s == nil {
			return false
		}
		from := ticks.Add(now, 1)
		if s.activeCalls.Load() == 0 {
			from = ticks.Add(now, int64(freshAfter(s.limiter, s.key, k.time.At(now))))
		}
		if t.evictIfIdle(s, uses, from, now) {
			k.count.Add(-1)
			return true
		}
	}
	return false
}

// freshAfter returns 0 if a new limiter would decide as l does on key from now on, and otherwise
// the time after which to ask again.
func freshAfter(l throttle.Limiter, key string, now time.Time) time.Duration {
	d, err := l.Reserve(context.Background(), throttle.Claim{Key: key, Now: now, DryRun: true})
	switch {
	case err == nil && d.Fresh:
		return 0
	case err != nil || d.ResetAfter <= 0:
		return recheckAfter
	}
	return max(d.At.Add(d.ResetAfter).Sub(now), 1)
}

// readEarlier returns the earlier of the readings asOf and of the clock: a limiter that is idle
// as of a reading ahead of the clock may still be needed.
func (k *Limiter) readEarlier(asOf time.Time) int64 {
	now := k.time.Read(time.Time{})
	if !asOf.IsZero() {
		now = min(now, k.time.Read(asOf))
	}
	return now
}

// evictInUse evicts the least used of a few limiters of t whose keys lose their places first
// to a new key of the given network. It reports false if it found none.
func (k *Limiter) evictInUse(t *shard, asOf time.Time, network networks.ID) bool {
	var sample [maxEvictionChecks]*keyState
	var uses [maxEvictionChecks]uint64
	n := t.sample(&sample, &uses)
	now := k.readEarlier(asOf)
	best, most, least := -1, 1, usage{share: math.Inf(1)}
	for i, s := range sample[:n] {
		yield := k.networks.Yield(s.network, network)
		if yield < most || s.activeCalls.Load() > 0 {
			continue
		}
		if used := usageOf(s.limiter, s.key, k.time.At(now)); yield > most || used.less(least) {
			best, most, least = i, yield, used
		}
	}
	if best < 0 {
		return false
	}
	s := sample[best]
	old := k.networks.Start(s.network) // the limiter that its network shares
	leaves := s.network != networks.Unknown &&
		(old == nil || usageOf(old.limiter, s.key, k.time.At(now)).less(least))
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.index < 0 || s.uses != uses[best] {
		return false
	}
	if leaves {
		k.networks.Leave(s.network, k.shared(s.limiter))
	}
	t.keys.remove(s)
	t.lastEvicted = max(t.lastEvicted, now)
	k.count.Add(-1)
	return true
}

// sample returns a few limiters of t that it selects at random, and how often each was used.
func (t *shard) sample(s *[maxEvictionChecks]*keyState, uses *[maxEvictionChecks]uint64) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.keys.heap.Items
	if len(all) == 0 {
		return 0
	}
	for i := range s {
		s[i] = all[rand.IntN(len(all))]
		uses[i] = s[i].uses
	}
	return len(s)
}

// candidate returns the limiter of t to check next, nil if none can be idle at now, and its uses.
func (t *shard) candidate(now int64) (s *keyState, uses uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.keys.len() == 0 || t.keys.heap.First().evictableAt > now {
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
	if s.index < 0 { // another goroutine has evicted it
		return false
	}
	if from > now || s.uses != uses {
		t.keys.setEvictableAt(s, max(from, ticks.Add(now, 1)))
		return false
	}
	t.keys.remove(s)
	t.lastEvicted = max(t.lastEvicted, now)
	return true
}

// Report implements throttle.Limiter.
func (k *Limiter) Report(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	k.subGrants.Report(ctx, c, d, f)
}

// Traits implements throttle.Limiter. They change when New returns a limiter that may block or
// whose claims do not end at the response. Traits panics if there is no New.
func (k *Limiter) Traits() throttle.Traits {
	if k.New == nil {
		panic(missingNew)
	}
	overflow := traitsOf(k.Overflow)
	return throttle.Traits{
		NonBlocking:    overflow.NonBlocking && !k.mayBlock.Load(),
		EndsAtResponse: overflow.EndsAtResponse && !k.holdsUntilEnd.Load(),
		BooksAhead:     true,
		CountsRejected: true,
	}
}

// traitsOf returns the Traits of l, and those of throttle.AllowAll if l is nil.
func traitsOf(l throttle.Limiter) throttle.Traits {
	if l == nil {
		l = throttle.AllowAll
	}
	return l.Traits()
}

const missingNew = "keyed: Limiter: New is nil: set it"

// newLimiter returns the result of New. It panics if there is none.
func (k *Limiter) newLimiter(key string) throttle.Limiter {
	if k.New == nil {
		panic(missingNew)
	}
	l := k.New(key)
	if l == nil {
		panic("keyed: Limiter: New returned nil: return throttle.AllowAll for a key without a limit")
	}
	if !l.Traits().EndsAtResponse {
		k.holdsUntilEnd.Store(true)
	}
	if !l.Traits().NonBlocking {
		k.mayBlock.Store(true)
	}
	return l
}
