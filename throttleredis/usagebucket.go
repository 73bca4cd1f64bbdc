package throttleredis

import (
	"cmp"
	"time"

	"github.com/heed-go/heed/internal/gcra"
	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A bucketUsage is the usageRule of a token bucket. All hosts fill their copy of the bucket
// at the rate of the limit, and take from it what any host has taken. What others took is
// taken when it is known, if necessary from units that are not restored yet, so that the
// rate of all hosts together is that of the limit.
//
// While a bucket is not full, the order and the time of these events do not matter: all
// copies have the same level when they have received the same counters. Any difference ends
// when the bucket is full.
type bucketUsage struct {
	gcra.Params
	maxTaken int64 // that a host takes while others do not know it: see EventualOptions.PeerTimeout
}

// newBucketUsage returns the rule of l. The debt is, for each other host, at most a burst plus
// the units restored within debt.
func newBucketUsage(l throttle.Limit, debt time.Duration) *bucketUsage {
	b := &bucketUsage{Params: gcra.New(l.Count, l.Per, cmp.Or(l.Burst, l.Count), 0)}
	b.maxTaken = min(ticks.Add(b.Window, b.restored(debt)), gcra.MaxTicks)
	return b
}

func (b *bucketUsage) unit() int64 { return b.Interval }

func (b *bucketUsage) full() int64 { return b.Window }

func (b *bucketUsage) reading(r *usageRecord, given int64, _ time.Duration) int64 {
	return max(given, r.last)
}

func (b *bucketUsage) restored(d time.Duration) int64 { return ticks.Mul(int64(d), b.Scale) }

func (b *bucketUsage) paysBack() bool { return true }

// levelAt returns the ticks that are taken at now. Hosts that are unreachable are assumed to
// use their part of the rate and of the burst.
func (b *bucketUsage) levelAt(r *usageRecord, now int64, h hostCounts) int64 {
	if r.at == ticks.Never {
		return b.unusedLevel(h)
	}
	if now < r.at {
		return ticks.Add(r.level, ticks.Mul(r.at-now, b.Scale))
	}
	restored := h.part(ticks.Mul(ticks.Sub(now, r.at), b.Scale))
	return max(ticks.Sub(r.level, restored), min(b.unusedLevel(h), r.level))
}

// unusedLevel returns the level of an unused bucket: zero, or the part of the burst that is
// left to hosts that are unreachable.
func (b *bucketUsage) unusedLevel(h hostCounts) int64 {
	return b.Window - max(h.part(b.Window), b.Interval)
}

// commit stores the level at now, and what was assumed of hosts that are unreachable.
func (b *bucketUsage) commit(r *usageRecord, now int64, h hostCounts) {
	if now <= r.at {
		return
	}
	level := b.levelAt(r, now, h)
	if h.share && h.reachable < h.all && r.at != ticks.Never {
		assumed := min(ticks.Mul(now-r.at, b.Scale), gcra.MaxTicks) / h.all
		for i := range r.peers {
			if k := &r.peers[i]; !k.peer.gone.Load() && !h.reaches(k.peer) {
				k.assumed = min(ticks.Add(k.assumed, assumed), gcra.MaxTicks)
			}
		}
	}
	r.own.previous = b.ownLevel(r, level)
	r.level, r.at = level, now
}

// ownLevel returns the part of level, the level of r at some time, that this host has taken.
// What is restored is divided among the hosts in proportion to what they have taken, so that
// the parts of all hosts together are the level.
func (b *bucketUsage) ownLevel(r *usageRecord, level int64) int64 {
	if r.level <= 0 {
		return 0
	}
	return ticks.MulDivDown(min(r.own.previous, r.level), min(max(level, 0), r.level), r.level)
}

func (b *bucketUsage) state(r *usageRecord, now int64, h hostCounts) (c usageCounter, level int64) {
	c, level = r.own, b.levelAt(r, now, h)
	c.previous = b.ownLevel(r, level)
	return c, level
}

func (b *bucketUsage) left(r *usageRecord, now int64, h hostCounts) (left, used int64) {
	level := b.levelAt(r, now, h)
	return b.Window - level, level
}

func (b *bucketUsage) wait(r *usageRecord, now, amount int64, h hostCounts) time.Duration {
	return b.fall(b.levelAt(r, now, h)+amount-b.Window, h)
}

// fall returns the time in which the level decreases by n ticks.
func (b *bucketUsage) fall(n int64, h hostCounts) time.Duration {
	if h.share && h.reachable < h.all {
		n = ticks.MulDivUp(max(n, 0), h.all, h.reachable)
	}
	return b.Duration(min(n, gcra.MaxTicks))
}

func (b *bucketUsage) length(int64) time.Duration { return b.RefillTime }

func (b *bucketUsage) take(r *usageRecord, amount, now int64, h hostCounts) uint64 {
	b.commit(r, now, h)
	r.level += amount
	r.own.units += amount
	r.own.previous += amount
	return uint64(r.own.window)
}

// adjust returns the cost less what was restored since the grant, as the limiter in memory.
func (b *bucketUsage) adjust(r *usageRecord, grant uint64, extra, from, now int64, h hostCounts) bool {
	if extra < 0 {
		if grant != uint64(r.own.window) {
			return false
		}
		extra = min(ticks.Add(extra, ticks.Mul(max(now-from, 0), b.Scale)), 0)
	}
	if extra == 0 {
		return false
	}
	if extra > 0 {
		b.commit(r, now, h)
	}
	r.level = max(min(ticks.Add(r.level, extra), gcra.MaxTicks), 0)
	r.own.previous = min(max(ticks.Add(r.own.previous, extra), 0), r.level)
	r.own.units += extra
	return true
}

// merge takes the increase of a counter. If its previous value is not known, merge takes
// the part of the level that the host had taken and that is not restored yet.
func (b *bucketUsage) merge(r *usageRecord, p *peerUsage, i usageItem, now int64, h hostCounts) {
	b.commit(r, now, h)
	increase := i.counter.units - p.units
	if p.version == 0 || p.window != i.counter.window {
		increase = b.partOf(i)
	}
	most := min(ticks.Add(b.Window, ticks.Mul(b.maxTaken, int64(len(r.peers)))), gcra.MaxTicks)
	increase = max(min(ticks.Sub(increase, p.assumed), most), -most)
	r.level = max(min(ticks.Add(r.level, increase), most), 0)
	p.assumed = 0
}

// partOf returns what the host of i has taken of the level and is not restored yet.
func (b *bucketUsage) partOf(i usageItem) int64 {
	level := min(max(i.level, 1), gcra.MaxTicks)
	part := min(max(i.counter.previous, 0), level)
	return ticks.MulDivDown(part, max(ticks.Sub(level, b.restored(i.age)), 0), level)
}

func (b *bucketUsage) counts(i usageItem, _ int64) bool { return b.partOf(i) > 0 }

func (b *bucketUsage) unused(r *usageRecord, now int64, h hostCounts) bool {
	level := b.levelAt(r, now, h)
	return level <= 0 || level == b.unusedLevel(h)
}
