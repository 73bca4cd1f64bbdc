package keyed

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/internal/gcra"
	"github.com/heed-go/heed/internal/networks"
	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A BucketsConfig configures NewBuckets.
type BucketsConfig struct {
	// Limit is the limit of each key.
	Limit throttle.Limit

	// Max is the number of keys in use at the same time for which the table has space, at most
	// 2^32. Zero means 65,536.
	Max int

	// Exact stores the keys themselves, not only their hashes.
	Exact bool

	// Addr returns the address of the client to which a key belongs: see Limiter.Addr.
	Addr func(key string) netip.Addr

	// Overflow decides for new keys if the table is full of keys in use, which then keep their
	// places. Nil means that new keys take places: see Limiter.
	Overflow throttle.Limiter
}

// Validate returns an error that states the invalid field if b is invalid.
func (b BucketsConfig) Validate() error {
	switch {
	case b.Max < 0:
		return fmt.Errorf("keyed: buckets %q: Max is %d: it must be positive, or 0 for 65,536", b.Limit.Name, b.Max)
	case int64(b.Max) > maxBuckets:
		return fmt.Errorf("keyed: buckets %q: Max is %d: it must be at most %d, because the space is allocated in full", b.Limit.Name, b.Max, int64(maxBuckets))
	}
	return b.Limit.Validate()
}

// A bucketTable is the limiter of NewBuckets.
type bucketTable struct {
	time       ticks.Timeline
	params     gcra.Params
	policy     string
	seed       maphash.Seed
	tables     []slotTable
	readsClock atomic.Bool // a claim had no Now; no grant of such a claim changes slotTable.latest
	networks   networks.Table[bucketSlot]
	subGrants  throttle.SubGrants
	overflow   throttle.Limiter // BucketsConfig.Overflow
	inner      throttle.Limiter // asks overflow
}

const (
	maxTicksPerNano = 4                 // maximum of ticks per nanosecond
	latestTick      = gcra.MaxTicks / 2 // latest tick that time reaches: at least 18 years after the creation
	minKeysPerTable = 4096              // minimum if there are several tables
	maxTables       = 256
	maxBuckets      = 1 << 32
)

// NewBuckets returns a limiter that gives each key a token bucket with the same limit, in a slot of
// 16 bytes without pointers: 8 identify the key and 8 are the state of its bucket.
//
// The table is allocated in full by NewBuckets, with about 36 bytes for each of Max keys: 1.6 slots and 10 bytes
// for networks. It never grows, and no goroutine sweeps it. A bucket that is full again equals an unused one, so
// that a new key may replace its key. The table holds Max keys that are in use at the same time, and up to 60 %
// more as far as their hashes allow; of Max keys, one in a hundred million finds all of its slots in use. If they
// are, a new key takes one of these 16 as in a Limiter, or shares a bucket.
//
// Keys are distinguished by a 64-bit hash with a random seed. The probability that any two
// of a million keys have the same hash, and so share a bucket, is one in ten million.
// Exact excludes this; it costs 30 bytes per key plus the key.
//
// Invariant: within any span W a key is granted no more than burst + rate*W units that are
// kept, as by a token bucket of its own; while it shares a bucket, that many together with the
// other keys. This includes keys that lose their place and return, with the exceptions that
// Limiter states.
//
// Limitations: a slot does not store the latest reading of the clock, so each claim is
// decided as of its own reading. Units of Unused claims are calculated as of the latest
// Claim.Now of a grant in the same part of the table, and of the clock if any claim had no Now.
// Rates above a million per second are rounded down, by up to a fifth at 1e9 per second. The
// limit cannot change: use Limiter for limits that differ or change.
//
// It panics if b is invalid.
func NewBuckets(b BucketsConfig) throttle.Limiter {
	if err := b.Validate(); err != nil {
		panic(err.Error() + " (NewBuckets)")
	}
	if b.Max == 0 {
		b.Max = 1 << 16
	}
	burst := cmp.Or(b.Limit.Burst, b.Limit.Count)
	k := &bucketTable{
		time:   ticks.NewTimeline(),
		params: gcra.New(b.Limit.Count, b.Limit.Per, burst, 0).WithMaxScale(maxTicksPerNano, burst),
		policy: cmp.Or(b.Limit.Name, b.Limit.String()),
		seed:   maphash.MakeSeed(),
	}
	k.overflow, k.inner = b.Overflow, k.subGrants.Inner(b.Overflow, true)
	n := 1 << max(bits.Len(uint(min(b.Max/minKeysPerTable, maxTables)))-1, 0)
	k.tables = make([]slotTable, n)
	buckets := (int64(b.Max)*8/5/slotsPerBucket + int64(n)) / int64(n)
	for i := range k.tables {
		k.tables[i].init(buckets, b.Exact)
	}
	if k.networks.Init(int64(b.Max), b.Addr); b.Overflow == nil {
		k.networks.Allocate()
	}
	return k
}

// tableOf returns the table of a key with hash h; see hash.
func (k *bucketTable) tableOf(h uint64) *slotTable { return &k.tables[h&uint64(len(k.tables)-1)] }

// hash returns the hash that identifies a key. The values 0 and noKeyID are reserved.
func (k *bucketTable) hash(key string) uint64 {
	return max(maphash.String(k.seed, key), noKeyID+1)
}

// tick returns ns of the timeline in ticks, limited to ±latestTick.
func (k *bucketTable) tick(ns int64) int64 {
	return min(max(ticks.Mul(ns, k.params.Scale), -latestTick), latestTick)
}

// SetClock replaces the clock, also that of Overflow; see throttle.WithClock.
func (k *bucketTable) SetClock(c throttle.Clock) {
	k.time.SetClock(c)
	setClock(k.overflow, c)
}

func (k *bucketTable) Reserve(ctx context.Context, c throttle.Claim) (d throttle.Decision, err error) {
	n := cmp.Or(c.Cost, 1) // not Claim.Units, which copies c
	if n < 0 {
		return d, throttle.ErrCost
	}
	if c.Now.IsZero() && !k.readsClock.Load() {
		k.readsClock.Store(true)
	}
	h, given := k.hash(c.Key), k.time.Read(c.Now)
	r := k.tableOf(h)
	for {
		var s *bucketSlot
		i := r.find(h, c.Key)
		if i >= 0 {
			s = &r.slots[i]
		} else {
			s, i = k.findOrInsert(r, h, c, given, n)
		}
		if s == nil {
			return k.inner.Reserve(ctx, c)
		}
		if wait, taken, done := k.decide(r, s, i, h, c, n, given); done {
			// Writes to the caller's Decision: copying a Decision takes as long as deciding.
			d.OK, d.Wait, d.Policy, d.Degraded = wait == 0, wait, k.policy, i == shared
			d.At = k.time.Stamp(given, given, c.Now)
			d.Limit, d.Per = k.params.Burst, k.params.RefillTime
			d.Remaining, d.ResetAfter = k.params.State(taken)
			d.Fresh = c.DryRun && taken == 0 && i != shared
			return d, nil
		}
	}
}

// findOrInsert returns slot i for a key that has none: a new one if the claim of n units
// takes any, or else the empty slot, with the bucket with which the key would begin. If the
// key has to share a bucket, i is shared, and s is the bucket of its network, or nil if
// BucketsConfig.Overflow decides instead.
//
// A bucket that is full as of a reading ahead of the clock may still be needed, so the
// earlier of that reading and the clock's is used.
func (k *bucketTable) findOrInsert(r *slotTable, h uint64, c throttle.Claim, given, n int64) (s *bucketSlot, i int) {
	asOf := given
	if !c.Now.IsZero() {
		asOf = min(given, k.time.Read(time.Time{}))
	}
	a := newKey{hash: h, key: c.Key, now: k.tick(given), asOf: k.tick(asOf)}
	if k.overflow == nil {
		a.networks, a.network = &k.networks, k.networks.IDOf(c.Key)
	}
	if n <= k.params.Burst {
		a.latest = a.now + k.params.Window - n*k.params.Interval
	}
	if n <= k.params.Burst && !c.DryRun {
		if i = r.insert(a); i != shared {
			return &r.slots[i], i
		}
	} else if r.hasPlace(a) {
		if s = a.start(); s == nil {
			return &r.slots[r.empty()], r.empty()
		}
		if !a.isRejected(s) {
			return s, r.empty()
		}
	}
	if k.overflow != nil {
		return nil, shared
	}
	return sharedSlot(&k.networks, a.network), shared
}

// decide decides on c by s, which is slot i. It returns Decision.Wait, 0 if c is granted, and the
// ticks that are then taken from the window. It reports false if s has changed meanwhile.
func (k *bucketTable) decide(r *slotTable, s *bucketSlot, i int, h uint64, c throttle.Claim, n, given int64) (wait time.Duration, taken int64, done bool) {
	e := &k.params
	old, ok := r.load(s, i, h, c.Key)
	if !ok {
		return 0, 0, false
	}
	tick := k.tick(given)
	taken = max(old, tick) - tick
	if n > e.Burst {
		return throttle.Forever, taken, true
	}
	cost := n * e.Interval
	if wait = e.Duration(taken + cost - e.Window); wait > 0 || c.DryRun {
		return wait, taken, true
	}
	if !s.tat.CompareAndSwap(old, tick+taken+cost) {
		return 0, 0, false
	}
	if !c.Now.IsZero() {
		ticks.StoreMax(&r.latest, given)
	}
	return 0, taken + cost, true
}

// Report implements throttle.Limiter: it corrects the cost of the claim as a token bucket does.
// Nothing is returned to a key that has been evicted: its bucket was full, or what was taken
// from it is part of the bucket of its network.
func (k *bucketTable) Report(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if k.subGrants.Owns(d) {
		k.subGrants.Report(ctx, c, d, f)
	} else if extra := f.ExtraCost(c, d); extra != 0 {
		k.adjust(c.Key, extra, f.Now, d)
	}
}

func (k *bucketTable) Traits() throttle.Traits {
	overflow := traitsOf(k.overflow)
	return throttle.Traits{NonBlocking: overflow.NonBlocking, EndsAtResponse: overflow.EndsAtResponse, CountsRejected: overflow.CountsRejected}
}

// adjust takes n more units for the claim that d granted, or returns -n.
func (k *bucketTable) adjust(key string, n int64, asOf time.Time, d throttle.Decision) {
	h := k.hash(key)
	r, from := k.tableOf(h), k.time.Read(d.At)
	now := max(k.time.Read(asOf), r.latest.Load(), from)
	if k.readsClock.Load() { // claims may have been granted at any reading of the clock up to now
		now = max(now, k.time.Read(time.Time{}))
	}
	back := ticks.Mul(-n, k.params.Interval)
	if n < 0 {
		if back = ticks.Sub(back, ticks.Mul(ticks.Sub(now, from), k.params.Scale)); back <= 0 {
			return // all of it has been restored
		}
	}
	for {
		var s *bucketSlot
		i := r.find(h, key)
		switch {
		case d.Degraded:
			s, i = sharedSlot(&k.networks, k.networks.IDOf(key)), shared
		case i >= 0:
			s = &r.slots[i]
		case n < 0:
			return
		default:
			s, i = k.findOrInsert(r, h, throttle.Claim{Key: key, Now: asOf}, now, 1)
		}
		if s == nil || k.adjustSlot(r, s, i, h, key, back, k.tick(now)) {
			return
		}
	}
}

// adjustSlot returns back ticks to s, which is slot i, or takes them if back is negative. It
// reports false if s has changed in the meantime.
func (k *bucketTable) adjustSlot(r *slotTable, s *bucketSlot, i int, h uint64, key string, back, tick int64) bool {
	old, ok := r.load(s, i, h, key)
	if !ok {
		return false
	}
	next := ticks.Sub(old, back)
	if back < 0 {
		next = min(ticks.Sub(max(old, tick), back), gcra.MaxTicks)
	}
	return s.tat.CompareAndSwap(old, next)
}
