package throttleredis

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/internal/networks"
	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A limitUsage decides on the claims of a limit in Mode Eventual. It keeps, for each key,
// what this host has taken and what other hosts are known to have taken.
//
// Each host is the only writer of its own counter of a key. A counter is sent as its current
// value with a version, and a receiver keeps the value with the highest version. Messages
// that arrive twice, in another order or not at all therefore have no lasting effect, and
// all hosts that have received the latest values have the same totals.
//
// # Shares
//
// What others took within the last exchangeTime is not known yet. If other hosts use a key
// too, a host assumes that each of them has taken as much in that time as itself: the units
// that it took within exchangeTime must be no more than the n-th part of the units that
// were left before, where n is the number of hosts that use the key. A host that has taken
// nothing within exchangeTime may make any claim that fits.
type limitUsage struct {
	id       uint64
	rule     usageRule
	policy   string
	capacity int64         // units
	per      time.Duration // Decision.Per; zero: that of the window
	time     ticks.Timeline
	exchange *usageExchange
	keys     *atomic.Int64 // number of records that reserveKey has counted

	seed   maphash.Seed
	shards [usageShards]usageShard

	// newKeys guards networks and the records that networks share. It is locked after a shard.
	newKeys  sync.Mutex
	networks networks.Table[usageRecord] // see there: which keys have a record if there are too many
}

// usageShards is the number of locks among which the keys of a limit are divided.
const usageShards = 64

// A usageShard is a part of the keys of a limit.
type usageShard struct {
	mu      sync.Mutex
	records map[string]*usageRecord // by hash tag
	dirty   []*usageRecord          // records whose own counter has to be sent
	dropped []string                // tags of records that were sent and are no longer needed
}

// A usageCounter is what one host has taken of a key: units of a window, or ticks of a bucket.
type usageCounter struct {
	window   int64 // start of the window in nanoseconds; for a bucket a number that is new whenever counting begins at zero
	units    int64 // taken in the window; for a bucket since counting began
	previous int64 // taken in the window before; for a bucket, the part of the level that this host has taken
}

// A peerUsage is the counter of another host, as far as it is known.
type peerUsage struct {
	usageCounter
	peer    *usagePeer
	version uint64
	sentAt  time.Duration // on the timeline of the exchange
	level   int64         // of a bucket, as the host sent it
	assumed int64         // of a bucket: taken on behalf of the host while it was unreachable
}

// A usageRecord is the state of one key. The lock of its shard guards it.
type usageRecord struct {
	tag     string
	network networks.ID
	dirty   bool
	sent    bool          // peers may have the counter
	sentAt  time.Duration // on the timeline of the exchange
	own     usageCounter
	peers   []peerUsage
	recent  recentUsage

	last      int64         // latest reading at which a claim was granted
	grantedAt time.Duration // the same on the timeline of the exchange

	level, at int64 // of a bucket: ticks taken, as of a reading
}

// A usageRule computes with the counters of a key. Amounts are units for windows and ticks
// for buckets. The lock of the record is held when its methods are called.
type usageRule interface {
	// unit returns the amount of one unit.
	unit() int64

	// reading returns the reading at which a claim with the given reading is decided. elapsed
	// is the time on the timeline of the exchange.
	reading(r *usageRecord, given int64, elapsed time.Duration) int64

	// left returns the amount that may be taken at now, and the amount that is in use.
	left(r *usageRecord, now int64, h hostCounts) (left, used int64)

	// restored returns the amount that is restored within d.
	restored(d time.Duration) int64

	// paysBack reports whether what hosts take too much is left out later.
	paysBack() bool

	// full returns the amount of all units.
	full() int64

	// wait returns the time after now at which the amount is left if nothing more is taken. Some
	// of it must be in use.
	wait(r *usageRecord, now, amount int64, h hostCounts) time.Duration

	// length returns the time in which all units are restored.
	length(now int64) time.Duration

	// take adds an amount at now and returns the Decision.Grant with which it can be adjusted.
	take(r *usageRecord, amount, now int64, h hostCounts) (grant uint64)

	// adjust changes an amount that was taken at from with grant, as of now, by extra. It
	// reports whether the own counter has changed.
	adjust(r *usageRecord, grant uint64, extra, from, now int64, h hostCounts) bool

	// merge applies the counter of another host, which replaces p.usageCounter, as of now.
	merge(r *usageRecord, p *peerUsage, i usageItem, now int64, h hostCounts)

	// counts reports whether a stored counter has an effect at now.
	counts(i usageItem, now int64) bool

	// state returns the own counter as of now, and for a bucket its level.
	state(r *usageRecord, now int64, h hostCounts) (c usageCounter, level int64)

	// unused reports whether r decides at now as a new record would.
	unused(r *usageRecord, now int64, h hostCounts) bool
}

// newRecord returns the record of an unused key.
func (u *limitUsage) newRecord(tag string) *usageRecord {
	return &usageRecord{tag: tag, own: usageCounter{window: u.exchange.generation.Add(1)}, last: ticks.Never, at: ticks.Never}
}

func (u *limitUsage) shardOf(tag string) *usageShard {
	return &u.shards[maphash.String(u.seed, tag)%usageShards]
}

// reserve decides on a claim of n units.
func (u *limitUsage) reserve(c throttle.Claim, n int64) throttle.Decision {
	tag := hashTag(c.Key)
	h, elapsed := u.exchange.counts(), u.exchange.elapsed()
	given := u.time.Read(c.Now)
	s := u.shardOf(tag)
	s.mu.Lock()
	defer s.mu.Unlock()
	r, shared := s.records[tag], false
	if r == nil {
		u.newKeys.Lock()
		defer u.newKeys.Unlock()
		r, shared = u.record(s, tag, c, n, given, h)
	}
	if shared {
		h = alone
	}
	now := u.rule.reading(r, given, elapsed)
	d := u.decide(r, n, now, elapsed, h)
	d.At = u.time.Stamp(now, given, c.Now)
	if d.OK && !c.DryRun {
		amount := n * u.rule.unit()
		d.Grant = u.rule.take(r, amount, now, h)
		r.last, r.grantedAt = now, elapsed
		r.recent.add(amount, u.exchange.slot(elapsed))
		if !shared {
			s.markDirty(r)
		}
		left, _ := u.rule.left(r, now, h)
		d.Remaining = max(left, 0) / u.rule.unit()
		d.ResetAfter = u.rule.wait(r, now, u.rule.full(), h)
	}
	if !d.OK && !c.DryRun && !shared && (!r.sent || elapsed-r.sentAt >= u.length(now)/2) {
		s.markDirty(r) // the others have to know that this host uses the key
	}
	if d.Degraded = shared || h.reachable < h.all; h.reachable < h.all {
		u.exchange.reportDegraded()
	}
	return d
}

// decide returns the decision on n units at now, without Decision.At.
func (u *limitUsage) decide(r *usageRecord, n, now int64, elapsed time.Duration, h hostCounts) throttle.Decision {
	left, used := u.rule.left(r, now, h)
	d := throttle.Decision{Policy: u.policy, Limit: u.capacity, Per: u.per, Remaining: max(left, 0) / u.rule.unit()}
	if d.Per == 0 {
		d.Per = u.rule.length(now)
	}
	if used > 0 {
		d.ResetAfter = u.rule.wait(r, now, u.rule.full(), h)
	}
	if n > u.capacity {
		d.Wait = throttle.Forever
		return d
	}
	amount := n * u.rule.unit()
	if amount > left {
		d.Wait = u.rule.wait(r, now, amount, h)
		return d
	}
	if users := u.usersOf(r, elapsed-u.activeFor(now), h); users.hosts > 1 {
		d.Wait = u.waitForShare(r, amount, left, now, users, elapsed)
	}
	d.OK = d.Wait == 0
	return d
}

// alone are the counts for a record that is not exchanged.
var alone = hostCounts{all: 1, reachable: 1}

// record returns the record of the key of c, which has none: a new one with as much taken as from
// those of its network that have lost theirs, or if there is no place, or that record rejects n units,
// the one that the keys of its network share. u.newKeys must be held.
func (u *limitUsage) record(s *usageShard, tag string, c throttle.Claim, n, given int64, h hostCounts) (r *usageRecord, shared bool) {
	network, taken := u.networks.IDOf(c.Key), int64(0)
	if !c.DryRun {
		u.networks.Arrive(network)
	}
	state := u.networks.Start(network)
	if state != nil {
		now := u.rule.reading(state, given, u.exchange.elapsed())
		left, used := u.rule.left(state, now, alone)
		if n*u.rule.unit() > left {
			return state, true // with a record of its own, the key would be rejected as well
		}
		taken = used
	}
	if c.DryRun {
		r = u.newRecord(tag)
	} else if r = u.add(s, tag, network, given, h); r == nil {
		if state == nil {
			state = u.networks.Share(network, u.newRecord(""))
		}
		return state, true
	}
	if taken > 0 {
		now := u.rule.reading(r, given, u.exchange.elapsed())
		u.rule.take(r, taken, now, h)
		r.last = now
	}
	return r, false
}

// add adds the record of a tag in a place of s: a free one, that of an unused record, or that of a key
// of a network that has brought more new keys. It returns nil if there is none. u.newKeys must be held.
func (u *limitUsage) add(s *usageShard, tag string, network networks.ID, now int64, h hostCounts) *usageRecord {
	found := u.reserveKey() || u.sweep(s, now, h, sweepForSpace, true) > 0 && u.reserveKey()
	if !found && !(u.evictInUse(s, network, now, h) && u.reserveKey()) {
		return nil
	}
	if s.records == nil {
		s.records = make(map[string]*usageRecord)
	}
	r := u.newRecord(tag)
	r.network = network
	s.records[tag] = r
	return r
}

// evictInUse removes the least used of a few records of s whose keys lose their places first to a new
// key of a network, and leaves what was taken to its own network. Other hosts know all of it: a
// record with changes that were not sent stays.
func (u *limitUsage) evictInUse(s *usageShard, network networks.ID, given int64, h hostCounts) bool {
	elapsed := u.exchange.elapsed()
	var victim *usageRecord
	most, least, n := 1, int64(0), 0
	for _, r := range s.records {
		if n++; n > sweepForSpace {
			break
		}
		yield := u.networks.Yield(r.network, network)
		if r.dirty || yield < most {
			continue
		}
		if _, used := u.rule.left(r, u.rule.reading(r, given, elapsed), h); victim == nil || yield > most || used < least {
			victim, most, least = r, yield, used
		}
	}
	if victim == nil {
		return false
	}
	u.remove(s, victim)
	if victim.network != networks.Unknown {
		state := u.networks.Start(victim.network)
		if state == nil || u.usedBy(state, given) < u.usedBy(victim, given) {
			u.networks.Leave(victim.network, victim)
		}
	}
	return true
}

// usedBy returns the amount in use of a record that networks share.
func (u *limitUsage) usedBy(r *usageRecord, given int64) int64 {
	_, used := u.rule.left(r, u.rule.reading(r, given, u.exchange.elapsed()), alone)
	return used
}

func (u *limitUsage) remove(s *usageShard, r *usageRecord) {
	delete(s.records, r.tag)
	u.exchange.keys.Add(-1)
	u.keys.Add(-1)
	if r.sent {
		s.dropped = append(s.dropped, r.tag)
	}
	if len(s.dropped) > maxDropped { // the exchange fails, or keys are invented: later it replaces all that it has stored
		s.dropped = nil
		u.exchange.rewrite.Store(true)
	}
}

// reserveKey counts a key. It returns false if there are too many.
func (u *limitUsage) reserveKey() bool {
	x := u.exchange
	for n := x.keys.Load(); n < int64(x.options.MaxKeys); n = x.keys.Load() {
		if x.keys.CompareAndSwap(n, n+1) {
			u.keys.Add(1)
			return true
		}
	}
	return false
}

// sweepForSpace is the number of records that are checked when a new key needs space.
const sweepForSpace = 32

// sweep removes unused records among most records of s. Only if there is no space for other keys
// it also removes those that show which other hosts use a key.
func (u *limitUsage) sweep(s *usageShard, now int64, h hostCounts, most int, forSpace bool) (removed int) {
	elapsed := u.exchange.elapsed()
	for _, r := range s.records {
		if most--; most < 0 {
			break
		}
		if r.dirty || !u.rule.unused(r, u.rule.reading(r, now, elapsed), h) || !forSpace && r.usedByOthers(elapsed-u.activeFor(now)) {
			continue
		}
		u.remove(s, r)
		removed++
	}
	return removed
}

// maxDropped is the maximum number of tags in a shard that are kept for removal from Redis.
const maxDropped = 256

// markDirty adds r to the records whose counter has to be sent.
func (s *usageShard) markDirty(r *usageRecord) {
	if !r.dirty {
		r.dirty = true
		s.dirty = append(s.dirty, r)
	}
}

// adjust changes what the claim c, granted by d, has taken by extra units.
func (u *limitUsage) adjust(c throttle.Claim, d throttle.Decision, extra int64, asOf time.Time) {
	if extra == 0 {
		return
	}
	tag := hashTag(c.Key)
	h, elapsed := u.exchange.counts(), u.exchange.elapsed()
	given, from := u.time.Read(asOf), u.time.Read(d.At)
	amount := ticks.Mul(extra, u.rule.unit())
	s := u.shardOf(tag)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[tag]
	exchanged := r != nil
	if !exchanged {
		u.newKeys.Lock()
		defer u.newKeys.Unlock()
		if r = u.networks.Share(u.networks.IDOf(c.Key), nil); r == nil || !d.Degraded {
			return
		}
	}
	now := max(u.rule.reading(r, given, elapsed), from)
	if u.rule.adjust(r, d.Grant, amount, from, now, h) {
		r.recent.add(amount, u.exchange.slot(elapsed))
		if exchanged {
			s.markDirty(r)
		}
	}
}

// merge stores the counters that a host has sent for a key.
func (u *limitUsage) merge(p *usagePeer, i usageItem) {
	h, elapsed := u.exchange.counts(), u.exchange.elapsed()
	now := u.time.Read(time.Time{})
	s := u.shardOf(i.tag)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[i.tag]
	if r == nil {
		if !u.rule.counts(i, now) {
			return
		}
		if r = u.addReceived(s, i.tag, now, h); r == nil {
			u.exchange.droppedKeys.Add(1)
			return
		}
	}
	k := u.peer(r, p, now, elapsed)
	if i.version <= k.version {
		return
	}
	u.rule.merge(r, k, i, now, h)
	k.usageCounter, k.level, k.version, k.sentAt = i.counter, i.level, i.version, elapsed-i.age
}

// addReceived adds the record of a key that another host uses. It returns nil if there is no place.
func (u *limitUsage) addReceived(s *usageShard, tag string, now int64, h hostCounts) *usageRecord {
	u.newKeys.Lock()
	defer u.newKeys.Unlock()
	network := u.networks.IDOf(tag)
	u.networks.Arrive(network)
	return u.add(s, tag, network, now, h)
}

// peer returns the counter of p, adding it if necessary. If so it removes counters without effect
// of hosts that have ended.
func (u *limitUsage) peer(r *usageRecord, p *usagePeer, now int64, elapsed time.Duration) *peerUsage {
	for i := range r.peers {
		if k := &r.peers[i]; k.peer.id == p.id {
			k.peer = p
			return k
		}
	}
	r.peers = slices.DeleteFunc(r.peers, func(k peerUsage) bool {
		return k.peer.gone.Load() && !u.rule.counts(usageItem{counter: k.usageCounter, level: k.level, age: elapsed - k.sentAt}, now)
	})
	r.peers = append(r.peers, peerUsage{peer: p})
	return &r.peers[len(r.peers)-1]
}

// length returns the length of a window, or the time to restore a bucket, within bounds.
func (u *limitUsage) length(now int64) time.Duration {
	return max(min(u.rule.length(now), maxKeep), u.exchange.exchangeTime())
}

// activeFor returns the time for which a host counts as a user of a key after its latest
// message about it: two windows, and half of one because a host whose claims are rejected sends
// one message in that time.
func (u *limitUsage) activeFor(now int64) time.Duration { return u.length(now) / 2 * 5 }

// usedByOthers reports whether a host that has not ended has sent the counter since a time.
func (r *usageRecord) usedByOthers(since time.Duration) bool {
	return slices.ContainsFunc(r.peers, func(k peerUsage) bool { return !k.peer.gone.Load() && k.sentAt >= since })
}

// keyUsers are the hosts that use a key.
type keyUsers struct {
	hosts int64 // with this one
	rank  int64 // number of those before this one, in an order that is the same for all
}

// usersOf returns the reachable hosts that sent the counter of r since a time, and this one.
func (u *limitUsage) usersOf(r *usageRecord, since time.Duration, h hostCounts) keyUsers {
	users := keyUsers{hosts: 1}
	for i := range r.peers {
		if k := &r.peers[i]; h.reaches(k.peer) && k.sentAt >= since {
			users.hosts++
			if k.peer.id < u.exchange.host {
				users.rank++
			}
		}
	}
	return users
}

// waitForShare returns the time until a host that shares r with others may take an amount, given
// the amount that is left. Zero means now.
func (u *limitUsage) waitForShare(r *usageRecord, amount, left, now int64, users keyUsers, elapsed time.Duration) time.Duration {
	restored := u.rule.restored(u.exchange.exchangeTime())
	if u.rule.paysBack() {
		return r.recent.waitForPart(amount, left, restored, users.hosts, true, u.exchange, elapsed)
	}
	isTurn, next := u.exchange.turn(now, users)
	if isTurn && r.recent.waitForPart(amount, left, restored, users.hosts, true, u.exchange, elapsed) == 0 {
		return 0
	}
	wait := r.recent.waitForPart(amount, left, restored, users.hosts, false, u.exchange, elapsed)
	return min(wait, next, u.rule.length(now))
}

// recentSlots is the number of slots of a recentUsage. Those before the latest cover exchangeTime.
const recentSlots = 7

// A recentUsage is what this host took in the latest slots of time. Others may not know of it yet.
type recentUsage struct {
	latest  int64 // number of the latest slot
	amounts [recentSlots]int64
}

// advance forgets slots that are too old at slot.
func (q *recentUsage) advance(slot int64) {
	for n := min(slot-q.latest, recentSlots); n > 0; n-- {
		q.amounts[(slot-n+1)%recentSlots] = 0
	}
	q.latest = max(q.latest, slot)
}

// add adds an amount, which may be negative if units were returned.
func (q *recentUsage) add(amount, slot int64) {
	q.advance(slot)
	a := &q.amounts[q.latest%recentSlots]
	*a = max(ticks.Add(*a, amount), 0)
}

// waitForPart returns the time until a host may take an amount as its part of what is left and of
// what is restored within exchangeTime: Forever if that is too little, unless it is its turn.
func (q *recentUsage) waitForPart(amount, left, restored, hosts int64, isTurn bool, x *usageExchange, elapsed time.Duration) time.Duration {
	q.advance(x.slot(elapsed))
	taken := int64(0)
	for _, a := range q.amounts {
		taken = ticks.Add(taken, a)
	}
	for n := int64(recentSlots); ; n-- {
		all := max(ticks.Add(left, taken), restored)
		part := all / hosts
		if isTurn {
			part = all - (hosts-1)*part
		}
		if isTurn && taken == 0 || ticks.Add(taken, amount) <= part {
			if n == recentSlots {
				return 0
			}
			return time.Duration(q.latest-n+recentSlots)*x.slotLength - elapsed
		}
		if taken == 0 {
			return throttle.Forever
		}
		taken -= q.amounts[(q.latest-n+1+recentSlots)%recentSlots]
	}
}

// hostCounts are the numbers of hosts that share the limits of a Store.
type hostCounts struct {
	all       int64 // hosts that are running, as far as is known, with this one
	reachable int64 // those of them from which messages arrive, with this one
	share     bool  // the shares of unreachable hosts are not used by others
	isolated  bool  // the messages of this host do not arrive
}

// part returns the part of n that the hosts that are reachable may use.
func (h hostCounts) part(n int64) int64 {
	if !h.share || h.reachable >= h.all {
		return n
	}
	return ticks.MulDivDown(n, h.reachable, h.all)
}

// reaches reports whether messages of p arrive.
func (h hostCounts) reaches(p *usagePeer) bool { return !h.isolated && p.isReachable() }

// A usagePeer is another host.
type usagePeer struct {
	id          uint64
	region      *usageRegion
	lastMessage atomic.Int64 // on the timeline of the exchange
	sequence    atomic.Uint64
	silent      atomic.Bool // no message arrived for PeerTimeout
	gone        atomic.Bool // it has ended
}

func (p *usagePeer) isReachable() bool { return !p.silent.Load() && !p.gone.Load() }
