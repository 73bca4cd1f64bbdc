package throttleredis

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/heed-go/heed/internal/httpbody"
)

// A usageExchange sends what this host has taken to all other hosts, and receives what they
// have taken. Each host writes to the Redis of its own region only, once per Interval, and
// receives the messages of all regions:
//
//	host ── publish, one script ──▶ Redis of the region ── messages ──▶ hosts of all regions
//	                                stored counters      ── fetch ─────▶ hosts that missed messages
//
// A host that has connected, or notices that a message is missing, fetches what is stored.
type usageExchange struct {
	options    EventualOptions // without zeros
	slotLength time.Duration   // of recentUsage
	start      time.Time
	host       uint64 // random, so that a process that was restarted is another host
	regions    []*usageRegion

	generation  atomic.Int64 // number of counters that began
	keys        atomic.Int64
	droppedKeys atomic.Uint64
	rewrite     atomic.Bool  // all counters are to be stored again, instead of what is stored
	keep        atomic.Int64 // time for which stored counters are kept, in nanoseconds
	published   atomic.Int64 // when the latest publication succeeded, on the timeline
	current     atomic.Pointer[hostCounts]

	// of the goroutine that publishes
	sequence  uint64
	hasStored bool

	tasks   background
	closing sync.Once
	closed  chan struct{} // closed when the last message was sent

	mu     sync.Mutex
	limits []limitReference // the slice is replaced, never changed
	peers  map[uint64]*usagePeer
	err    error // latest failure, until a publication succeeds
}

// A limitReference leads to the usage of a limit as long as a Limiter uses it.
type limitReference struct {
	usage weak.Pointer[limitUsage]
	keys  *atomic.Int64 // limitUsage.keys
}

// errTooManyHosts is the error if messages of a host are ignored.
var errTooManyHosts = fmt.Errorf("throttleredis: messages of further hosts are ignored: there are %d", maxPeers)

// A usageRegion is the Redis of a region. The first one is that of this host.
type usageRegion struct {
	link        regionLink
	connected   atomic.Bool
	connectedAt atomic.Int64 // on the timeline of the exchange
	missing     signal       // messages were missed
}

const (
	maxRemoved     = 1024 // names of counters in a publication that are removed
	maxPeers       = 1024 // hosts whose counters are received
	maxFetchPause  = 250 * time.Millisecond
	endingTimeout  = time.Second // of the last publication
	forgetTimeouts = 5           // a host of a connected region has ended after so many times PeerTimeout
)

// newUsageExchange starts an exchange over links, the first of which is that of this region.
func newUsageExchange(o EventualOptions, links ...regionLink) *usageExchange {
	x := &usageExchange{options: o, start: time.Now(), peers: map[uint64]*usagePeer{}, closed: make(chan struct{})}
	x.host = rand.Uint64() | 1 // not zero
	x.slotLength = (x.exchangeTime()-1)/(recentSlots-1) + 1
	for _, l := range links {
		x.regions = append(x.regions, &usageRegion{link: l, missing: newSignal()})
	}
	x.keep.Store(int64(time.Minute))
	x.recount(0)
	tasks := []func(context.Context){x.publishAll, x.maintain}
	for _, r := range x.regions {
		tasks = append(tasks, func(ctx context.Context) { x.receiveAll(ctx, r) }, func(ctx context.Context) {
			r.missing.work(ctx, maxFetchPause, func(ctx context.Context) error { return x.fetch(ctx, r) })
		})
	}
	x.tasks.start(tasks...)
	return x
}

// elapsed returns the time since the exchange began. It does not depend on the wall clock.
func (x *usageExchange) elapsed() time.Duration { return time.Since(x.start) }

// exchangeTime is the time after which all hosts know what a host has taken.
func (x *usageExchange) exchangeTime() time.Duration { return x.options.Interval + x.options.Delay }

// slot returns the number of the slot of recentUsage at elapsed.
func (x *usageExchange) slot(elapsed time.Duration) int64 { return int64(elapsed / x.slotLength) }

// turn reports whether it is the turn of this host at now, and in what time its next one begins. A turn
// lasts for exchangeTime, and then all pause until they know what was taken in it.
func (x *usageExchange) turn(now int64, users keyUsers) (isTurn bool, next time.Duration) {
	lasts := int64(x.exchangeTime())
	round := 2 * lasts * users.hosts
	begun := ((now-2*lasts*users.rank)%round + round) % round
	return begun < lasts, time.Duration(round - begun)
}

func (x *usageExchange) counts() hostCounts { return *x.current.Load() }

// reportDegraded reports a decision that was made while some hosts were unreachable.
func (x *usageExchange) reportDegraded() {
	switch {
	case x.options.OnDegraded == nil:
	case x.options.Unreachable == UseShare:
		x.options.OnDegraded("share", ErrUnreachable)
	default:
		x.options.OnDegraded("open", ErrUnreachable)
	}
}

// usageOf returns the usage of a limit. Limits with the same id have the same usage.
func (x *usageExchange) usageOf(u *limitUsage, per time.Duration) *limitUsage {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, other := range x.limits {
		if v := other.usage.Value(); v != nil && v.id == u.id {
			return v
		}
	}
	x.limits = append(slices.Clone(x.limits), limitReference{weak.Make(u), u.keys})
	x.keep.Store(max(x.keep.Load(), int64(2*min(per, maxKeep)+time.Minute)))
	for _, r := range x.regions {
		r.missing.send() // others may have used the limit before
	}
	return u
}

// maxKeep is the maximum time for which stored counters are needed: two months.
const maxKeep = 62 * 24 * time.Hour

func (x *usageExchange) allLimits() iter.Seq[*limitUsage] {
	x.mu.Lock()
	limits := x.limits
	x.mu.Unlock()
	return func(yield func(*limitUsage) bool) {
		for _, l := range limits {
			if u := l.usage.Value(); u != nil && !yield(u) {
				return
			}
		}
	}
}

// forgetLimits removes limits that are not in use, their keys, and what is stored of them.
func (x *usageExchange) forgetLimits() {
	x.mu.Lock()
	defer x.mu.Unlock()
	used := slices.DeleteFunc(slices.Clone(x.limits), func(l limitReference) bool {
		ended := l.usage.Value() == nil
		if ended {
			x.keys.Add(-l.keys.Load())
		}
		return ended
	})
	if len(used) < len(x.limits) {
		x.limits = used
		x.rewrite.Store(true)
	}
}

// publishAll publishes once per Interval until ctx is done. Hosts that start at the same
// time publish at different times.
func (x *usageExchange) publishAll(ctx context.Context) {
	if httpbody.Sleep(ctx, nil, rand.N(x.options.Interval)) != nil {
		return
	}
	ticker := time.NewTicker(x.options.Interval)
	defer ticker.Stop()
	for {
		x.publishDirty(ctx, false)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// maintain counts reachable hosts and removes what is not needed any more, until ctx is done.
func (x *usageExchange) maintain(ctx context.Context) {
	for shard := 0; httpbody.Sleep(ctx, nil, x.options.Interval) == nil; shard++ {
		x.recount(x.elapsed())
		x.sweep(shard % usageShards)
		x.forgetLimits()
	}
}

// publishDirty publishes all counters that have changed, and a message without counters if
// none was sent for a quarter of PeerTimeout.
func (x *usageExchange) publishDirty(ctx context.Context, ending bool) {
	for ctx.Err() == nil {
		b := x.nextBatch(ending)
		quiet := x.elapsed() - time.Duration(x.published.Load())
		if len(b.items) == 0 && !b.replace && x.hasStored && !ending && quiet < x.options.PeerTimeout/4 {
			x.sequence-- // it was not used
			return
		}
		existed, err := x.regions[0].link.publish(ctx, &b.usagePublication)
		x.recordError(err)
		if err != nil {
			x.requeue(b)
			return
		}
		x.published.Store(int64(x.elapsed()))
		if !existed && x.hasStored && !b.replace {
			x.rewrite.Store(true) // the data was lost
		}
		if x.hasStored = true; b.complete && !x.rewrite.Load() {
			return
		}
	}
}

// recordError stores the result of an operation for Stats.
func (x *usageExchange) recordError(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.err = err
}

// A usageBatch is a publication and the records in it.
type usageBatch struct {
	usagePublication
	items    []batchItem
	complete bool // nothing else has changed
}

// A batchItem is a record in a batch, or the tag of one that was removed.
type batchItem struct {
	shard  *usageShard
	tag    string
	record *usageRecord // nil: it was removed
}

// nextBatch returns the next batch of counters that have changed, of bounded size.
func (x *usageExchange) nextBatch(ending bool) *usageBatch {
	replace := x.rewrite.Swap(false)
	if replace {
		x.markAllDirty()
	}
	x.sequence++
	m := usageMessage{host: x.host, sequence: x.sequence, ending: ending}
	b := &usageBatch{complete: true}
	b.host, b.replace, b.keep = x.host, replace, time.Duration(x.keep.Load())
	latest := storedField{value: strconv.FormatUint(x.sequence, 10)}
	if ending {
		latest.value = storedEnd
	}
	b.stored = append(b.stored, latest)
	text, h := m.appendHeader(nil), x.counts()
	for u := range x.allLimits() {
		for i := range u.shards {
			text = u.collect(&u.shards[i], b, m.sequence, text, h)
		}
	}
	b.message = string(text)
	return b
}

// collect adds the changed counters of s to b and its text, until that is long enough.
func (u *limitUsage) collect(s *usageShard, b *usageBatch, version uint64, text []byte, h hostCounts) []byte {
	now, elapsed := u.time.Read(time.Time{}), u.exchange.elapsed()
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; len(s.dropped) > 0; s.dropped = s.dropped[1:] {
		if len(b.removed) >= maxRemoved {
			b.complete = false
			return text
		}
		name := usageItem{limit: u.id, tag: s.dropped[0]}
		b.removed = append(b.removed, string(name.appendName(nil)))
		b.items = append(b.items, batchItem{s, s.dropped[0], nil})
	}
	s.dropped = nil
	for len(s.dirty) > 0 {
		if len(text) >= maxUsageBytes {
			b.complete = false
			return text
		}
		r := s.dirty[len(s.dirty)-1]
		s.dirty = s.dirty[:len(s.dirty)-1]
		r.dirty, r.sent, r.sentAt = false, true, elapsed
		i := usageItem{limit: u.id, tag: r.tag, version: version}
		i.counter, i.level = u.rule.state(r, u.rule.reading(r, now, elapsed), h)
		name := i.appendName(nil)
		text = i.appendCounter(append(text, name...))
		b.stored = append(b.stored, storedField{name: string(name), value: i.storedValue()})
		b.items = append(b.items, batchItem{s, r.tag, r})
	}
	s.dirty = nil
	return text
}

// requeue makes the next batch contain what b contained.
func (x *usageExchange) requeue(b *usageBatch) {
	for _, i := range b.items {
		i.shard.mu.Lock()
		switch i.record {
		case nil:
			i.shard.dropped = append(i.shard.dropped, i.tag)
		case i.shard.records[i.tag]:
			i.shard.markDirty(i.record)
		}
		i.shard.mu.Unlock()
	}
	if b.replace {
		x.rewrite.Store(true)
	}
}

// markAllDirty marks all records of which this host has taken units.
func (x *usageExchange) markAllDirty() {
	for u := range x.allLimits() {
		for i := range u.shards {
			s := &u.shards[i]
			s.mu.Lock()
			s.dropped = nil
			for _, r := range s.records {
				if r.sent || r.own.units != 0 {
					s.markDirty(r)
				}
			}
			s.mu.Unlock()
		}
	}
}

// sweepEach is the number of records of a limit that are checked per Interval.
const sweepEach = 1024

// sweep removes unused records of one shard of each limit.
func (x *usageExchange) sweep(shard int) {
	h := x.counts()
	for u := range x.allLimits() {
		s, now := &u.shards[shard], u.time.Read(time.Time{})
		s.mu.Lock()
		u.sweep(s, now, h, sweepEach, false)
		s.mu.Unlock()
	}
}

// receiveAll receives the messages of a region until ctx is done.
func (x *usageExchange) receiveAll(ctx context.Context, r *usageRegion) {
	r.link.subscribe(ctx, linkEvents{
		connected: func() {
			r.connectedAt.Store(int64(x.elapsed()))
			r.connected.Store(true)
			r.missing.send()
		},
		lost: func(err error) {
			r.connected.Store(false)
			if err != nil {
				x.recordError(err)
			}
		},
		receive: func(message string) { x.receive(r, message) },
	})
}

// receive processes a message. It ignores malformed ones, and those of this host.
func (x *usageExchange) receive(r *usageRegion, message string) {
	m, ok := parseUsage(message)
	if !ok || m.host == x.host {
		return
	}
	p, isNew := x.peer(m.host, r)
	if p == nil {
		return
	}
	if m.sequence > p.sequence.Load()+1 {
		r.missing.send()
	}
	p.sequence.Store(max(p.sequence.Load(), m.sequence))
	now := x.elapsed()
	p.lastMessage.Store(int64(now))
	if isNew || p.silent.Load() || p.gone.Load() != m.ending {
		p.gone.Store(m.ending)
		x.recount(now)
	}
	x.merge(p, m.items)
}

// merge stores the counters of a host, except those of limits that this host does not have.
func (x *usageExchange) merge(p *usagePeer, items []usageItem) {
	limits := x.allLimits()
	for _, i := range items {
		for u := range limits {
			if u.id == i.limit {
				u.merge(p, i)
				break
			}
		}
	}
}

// peer returns the host with an id, which it adds if necessary; nil: there are too many.
func (x *usageExchange) peer(id uint64, r *usageRegion) (p *usagePeer, isNew bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if p := x.peers[id]; p != nil {
		return p, false
	}
	if len(x.peers) >= maxPeers {
		for id, p := range x.peers {
			if p.gone.Load() {
				delete(x.peers, id)
			}
		}
		if len(x.peers) >= maxPeers {
			x.err = errTooManyHosts
			return nil, false
		}
	}
	p = &usagePeer{id: id, region: r}
	p.lastMessage.Store(int64(x.elapsed()))
	x.peers[id] = p
	return p, true
}

// fetch fetches what is stored in a region. While no messages arrive it does not return the error,
// because connecting sends the signal again.
func (x *usageExchange) fetch(ctx context.Context, r *usageRegion) error {
	err := r.link.fetchHosts(ctx, func(host uint64, counters []storedField) { x.receiveStored(r, host, counters) })
	if err != nil {
		x.recordError(err)
	}
	if !r.connected.Load() {
		return nil
	}
	return err
}

// receiveStored processes stored counters of a host.
func (x *usageExchange) receiveStored(r *usageRegion, host uint64, counters []storedField) {
	if host == x.host {
		return
	}
	p, isNew := x.peer(host, r)
	if p == nil {
		return
	}
	var items []usageItem
	now := x.elapsed()
	for _, f := range counters {
		if f.name == "" {
			found := int64(now - f.age)
			if !isNew {
				found = max(found, p.lastMessage.Load())
			}
			p.lastMessage.Store(found)
			p.gone.Store(f.value == storedEnd || now-time.Duration(p.lastMessage.Load()) > x.forgetAfter())
			continue
		}
		if i, ok := parseStoredItem(f); ok {
			items = append(items, i)
		}
	}
	x.recount(now)
	x.merge(p, items)
}

// forgetAfter returns the time after which a silent host of a connected region has ended.
func (x *usageExchange) forgetAfter() time.Duration { return forgetTimeouts * x.options.PeerTimeout }

// recount determines which hosts are reachable.
func (x *usageExchange) recount(now time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := hostCounts{all: 1, reachable: 1, share: x.options.Unreachable == UseShare}
	for _, p := range x.peers {
		if p.gone.Load() {
			continue
		}
		quiet := now - time.Duration(p.lastMessage.Load())
		p.silent.Store(quiet > x.options.PeerTimeout)
		switch {
		case quiet <= x.options.PeerTimeout:
			c.reachable++
		case quiet > x.forgetAfter() && p.region.connected.Load() && now-time.Duration(p.region.connectedAt.Load()) > x.options.PeerTimeout:
			p.gone.Store(true)
			continue
		}
		c.all++
	}
	c.all = max(c.all, int64(x.options.MinHosts))
	if now-time.Duration(x.published.Load()) > x.options.PeerTimeout {
		c.isolated, c.reachable = true, 1
	}
	x.current.Store(&c)
}

// close stops the exchange, waits until its goroutines have ended, and tells the other hosts
// that this one has ended. If ctx ends first, it returns the cause of ctx.
func (x *usageExchange) close(ctx context.Context) error {
	x.tasks.cancel()
	x.closing.Do(func() {
		go func() {
			<-x.tasks.ended
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endingTimeout)
			defer cancel()
			x.publishDirty(ending, true)
			c := x.counts()
			c.isolated, c.reachable = true, 1
			x.current.Store(&c)
			close(x.closed)
		}()
	})
	return awaitClosed(ctx, x.closed)
}

func (x *usageExchange) stats() EventualStats {
	c := x.counts()
	x.mu.Lock()
	defer x.mu.Unlock()
	s := EventualStats{Hosts: int(c.all), Reachable: int(c.reachable), Keys: int(x.keys.Load()), DroppedKeys: x.droppedKeys.Load(), Err: x.err}
	for _, r := range x.regions {
		if r.connected.Load() {
			s.Regions++
		}
	}
	return s
}
