package keyed

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"time"

	"github.com/heed-go/heed/internal/gcra"
	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// BucketsConfig says what each key of a Buckets may do, and how many keys there are.
type BucketsConfig struct {
	throttle.Limit                  // of each key
	Max            int              // keys it has room for; 0: 65,536
	Exact          bool             // keep the keys themselves, not only their hashes
	Overflow       throttle.Limiter // decides for new keys when there is no room; nil: they share token buckets by their hash
}

// Validate returns an error that says what to change if b can never work.
func (b BucketsConfig) Validate() error {
	if b.Max < 0 {
		return fmt.Errorf("keyed: buckets %q: Max is %d: it must be positive, or 0 for 65,536", b.Name, b.Max)
	}
	return b.Limit.Validate()
}

// Buckets gives each key a token bucket of one limit, in 16 bytes: 8 say whose
// bucket it is and 8 what is in it. There are no pointers to follow, for a claim or
// for the garbage collector.
//
//	          hash of key       tat, see internal/gcra
//	         ├─────────────────┼─────────────────┤
//	bucket   │ 9f3a 06c1 … e2  │ 00 00 … 5d 2c   │
//
// The table has its size from the beginning: nothing grows, and nothing is swept. A
// bucket that is full again equals one that was never used, so that a new key may
// have its place. There is room for Max keys at once, and for 6 in 10 more as far as
// their hashes allow. New keys that find none share a bucket with others: their
// decisions are Degraded, and refuse sooner.
//
// Keys are told apart by a hash of 64 bits with a seed that nobody knows. The chance
// that two of a million keys have the same is one in ten million, and they would
// share a bucket; Exact excludes even that, for 30 bytes more a key and the key.
//
// Invariant: within any span W a key is granted no more than burst + rate*W units
// that are kept, to the unit, as with a throttle.TokenBucket of its own; while it shares a
// bucket, that many together with others.
//
// The odd case is an older reading of the clock: a word has no room for the latest
// one, so that each claim is decided as of its own reading. No unit is credited
// twice, for tat says what was taken, whenever that was. What is given back counts
// from the latest reading at which anything was granted nearby.
//
// Rates above a million a second are rounded down, by up to a fifth at a thousand
// million. The limit cannot change: its ticks are in all words. Use Limiter for limits
// that differ or change.
type Buckets struct {
	time      ticks.Timeline
	params    gcra.Params
	policy    string
	seed      maphash.Seed
	tables    []slotTable
	subGrants throttle.SubGrants
	overflow  throttle.Inner // around BucketsConfig.Overflow
}

const (
	maxTicksPerNano = 4                 // ticks per nanosecond, at most
	latestTick      = gcra.MaxTicks / 2 // the furthest that time reaches: 18 years from the creation, or more
	minKeysPerTable = 4096              // at least, where there are several
	maxTables       = 256
)

// NewBuckets returns a table without keys. A nil clk is the system clock. It
// panics if b is invalid.
func NewBuckets(b BucketsConfig, clk throttle.Clock) *Buckets {
	if err := b.Validate(); err != nil {
		panic(err.Error() + " (NewBuckets)")
	}
	if b.Max == 0 {
		b.Max = 1 << 16
	}
	burst := cmp.Or(b.Burst, b.Count)
	k := &Buckets{
		time:   ticks.NewTimeline(clk),
		params: gcra.New(b.Count, b.Per, burst, 0).WithMaxScale(maxTicksPerNano, burst),
		policy: cmp.Or(b.Name, b.String()),
		seed:   maphash.MakeSeed(),
	}
	k.overflow = k.subGrants.Inner(b.Overflow, true)
	n := 1 << max(bits.Len(uint(min(b.Max/minKeysPerTable, maxTables)))-1, 0)
	k.tables = make([]slotTable, n)
	buckets := (int64(b.Max)*8/5/slotsPerBucket + int64(n)) / int64(n)
	for i := range k.tables {
		k.tables[i].init(buckets, b.Exact)
	}
	return k
}

// tableOf returns where a key of hash h lives; see hash.
func (k *Buckets) tableOf(h uint64) *slotTable { return &k.tables[h&uint64(len(k.tables)-1)] }

// hash returns what a key is known by. 0 and shared mean something else.
func (k *Buckets) hash(key string) uint64 {
	h := maphash.String(k.seed, key)
	if h <= overflowID {
		return h + 1<<63
	}
	return h
}

// tick returns ns of the timeline in ticks, as far as they reach.
func (k *Buckets) tick(ns int64) int64 {
	return min(max(ticks.Mul(ns, k.params.Scale), -latestTick), latestTick)
}

// Reserve implements throttle.Limiter.
func (k *Buckets) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	n, err := c.Units()
	if err != nil {
		return throttle.Decision{}, err
	}
	h := k.hash(c.Key)
	r, given := k.tableOf(h), k.time.Read(c.Now)
	for {
		i := r.find(h, c.Key)
		if i < 0 {
			i = k.findOrInsert(r, h, c, given, !c.DryRun && n <= k.params.Burst)
		}
		if i == r.overflow() && k.overflow.Limiter() != nil {
			return k.overflow.Reserve(ctx, c)
		}
		if d, done := k.decide(r, i, h, c, n, given); done {
			return d, nil
		}
	}
}

// findOrInsert returns the slot of a key that has none yet: a new one, if it takes, or the
// one that all keys share which have found no room.
//
// What is full as of a reading that is ahead of the clock may still be needed, so
// that the clock has a say.
func (k *Buckets) findOrInsert(r *slotTable, h uint64, c throttle.Claim, given int64, takes bool) int {
	asOf := given
	if !c.Now.IsZero() {
		asOf = min(given, k.time.Read(time.Time{}))
	}
	if !takes {
		if r.findFree(h, k.tick(asOf)) >= 0 {
			return r.empty()
		}
		return r.overflow()
	}
	if i := r.insert(h, c.Key, k.tick(given), k.tick(asOf)); i >= 0 {
		return i
	}
	return r.overflow()
}

// decide decides by slot i. It reports false if that has changed meanwhile.
func (k *Buckets) decide(r *slotTable, i int, h uint64, c throttle.Claim, n, given int64) (throttle.Decision, bool) {
	e, s := &k.params, &r.slots[i]
	old := s.tat.Load()
	if old == gcra.Closed {
		r.waitInserted()
		return throttle.Decision{}, false
	}
	if !r.belongsTo(i, h, c.Key) {
		return throttle.Decision{}, false
	}
	tick := k.tick(given)
	d := throttle.Decision{Policy: k.policy, Limit: e.Burst, At: k.time.Stamp(given, given, c.Now), Degraded: i == r.overflow()}
	taken := max(old, tick) - tick
	if n > e.Burst {
		d.Wait = throttle.Forever
		return k.describe(d, taken), true
	}
	cost := n * e.Interval
	d.Wait = e.Duration(taken + cost - e.Window)
	if d.OK = d.Wait == 0; !d.OK || c.DryRun {
		return k.describe(d, taken), true
	}
	if !s.tat.CompareAndSwap(old, tick+taken+cost) {
		return throttle.Decision{}, false
	}
	r.recordGrant(given)
	return k.describe(d, taken+cost), true
}

// describe adds to d the state of a bucket from which so many ticks are taken.
func (k *Buckets) describe(d throttle.Decision, taken int64) throttle.Decision {
	d.Remaining, d.ResetAfter = k.params.State(taken)
	d.Per = k.params.RefillTime
	return d
}

// Cancel implements throttle.Limiter. A bucket that has been forgotten was full, so that there
// is nothing to give back.
func (k *Buckets) Cancel(ctx context.Context, c throttle.Claim, d throttle.Decision) {
	if k.subGrants.Owns(d) {
		k.subGrants.Cancel(ctx, c, d)
	} else if n, err := c.Units(); err == nil && d.OK {
		k.adjust(c.Key, -n, c.Now, d)
	}
}

// Observe implements throttle.Observer: it settles a cost that was known only afterwards.
// What the claim cost less comes back as in Cancel; what it cost more is taken, if
// need be from units that are still to flow in.
func (k *Buckets) Observe(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if k.subGrants.Owns(d) {
		k.subGrants.Observe(ctx, c, d, f)
	} else if extra := f.ExtraCost(c, d); extra != 0 {
		k.adjust(c.Key, extra, f.Now, d)
	}
}

// NonBlocking implements throttle.NonBlocking.
func (k *Buckets) NonBlocking() bool {
	return k.overflow.Limiter() == nil || throttle.IsNonBlocking(k.overflow.Limiter())
}

// adjust takes n more units for the claim that d granted, or gives back -n.
func (k *Buckets) adjust(key string, n int64, asOf time.Time, d throttle.Decision) {
	h := k.hash(key)
	r, from := k.tableOf(h), k.time.Read(d.At)
	now := max(k.time.Read(asOf), r.latest.Load(), from)
	back := ticks.Mul(-n, k.params.Interval)
	if n < 0 {
		if back = ticks.Sub(back, ticks.Mul(ticks.Sub(now, from), k.params.Scale)); back <= 0 {
			return // time has given back all of it
		}
	}
	for {
		i := r.find(h, key)
		switch {
		case d.Degraded:
			i = r.overflow()
		case i < 0 && n < 0:
			return
		case i < 0:
			i = k.findOrInsert(r, h, throttle.Claim{Key: key, Now: asOf}, now, true)
		}
		if k.adjustSlot(r, i, h, key, back, k.tick(now)) {
			return
		}
	}
}

// adjustSlot gives back so many ticks to slot i, or takes them if back is negative. It
// reports false if the slot has changed meanwhile.
func (k *Buckets) adjustSlot(r *slotTable, i int, h uint64, key string, back, tick int64) bool {
	s := &r.slots[i]
	old := s.tat.Load()
	if old == gcra.Closed {
		r.waitInserted()
		return false
	}
	if !r.belongsTo(i, h, key) {
		return false
	}
	next := ticks.Sub(old, back)
	if back < 0 {
		next = min(ticks.Sub(max(old, tick), back), gcra.MaxTicks)
	}
	return s.tat.CompareAndSwap(old, next)
}

// HoldsUntilEnd implements throttle.Holder.
func (k *Buckets) HoldsUntilEnd() bool { return throttle.HoldsUntilEnd(k.overflow.Limiter()) }
