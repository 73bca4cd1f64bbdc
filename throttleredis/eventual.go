package throttleredis

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// A Mode determines where the limiters of a Store decide. docs/redis-modes.md compares them.
type Mode uint8

const (
	// Grouped decides in Redis. Claims on a limiter that are made while a round trip is under way
	// travel together in the next one, and are decided in the order of their arrival as one by one:
	// at most 128 together, and a claim waits for at most 50 ms for the replies to others. A
	// claim that finds no round trip under way is sent immediately. If Store.Client is not a
	// *redis.Client, or its server is one of a cluster, only claims of the same key travel together.
	Grouped Mode = iota

	// Synchronous decides in Redis, in one round trip for each decision. Use it to see each
	// command in the hooks of a client, or to decide on claims of one limiter on several
	// connections at the same time.
	Synchronous

	// Leased takes units in Redis for some time, and grants claims in memory while it has some. A limit
	// is never exceeded, whatever number of processes holds units, crashes, pauses or loses replies. A
	// process takes as many units ahead as it uses in 50 ms, and at most a quarter of those that are
	// left; it returns them if it does not use them in about that time. They are valid until the end
	// of their window, or for the time in which a twentieth of a bucket is restored. That
	// twentieth is not granted: a TokenBucket of 100 units grants 95. FixedWindow other than
	// AtFirst and SlidingCounter without Parts are leased if their windows last 8 ms or longer, and
	// TokenBucket if its Burst is 20 units or more and a twentieth of it is restored in 4 ms or longer.
	// Other limits decide as in Mode Grouped. All processes that share a bucket must have the same Mode.
	//
	// A rejection is repeated for an equal claim for up to 50 ms without asking Redis, so that a claim
	// may be rejected so much longer after others have returned units. Decision.Remaining does not know
	// what others have taken since the latest round trip. About 8,000 keys of at most 512 bytes are
	// leased; claims of further ones decide as in Mode Grouped.
	Leased

	// Eventual decides in memory. What was taken is exchanged in the background.
	Eventual
)

// EventualOptions are the options of Mode Eventual. The hosts that share limits must have
// the same Interval, Delay and PeerTimeout.
type EventualOptions struct {
	// Regions are clients of the Redis of each other region, from which this host receives
	// what the hosts there have taken. It never writes to them. The clients must support
	// deadlines: set ContextTimeoutEnabled in their options. Nil means that all hosts use
	// Store.Client.
	Regions []Subscriber

	// Interval is the time between two publications of a host. Zero means 100 ms.
	Interval time.Duration

	// Delay is the longest time that a message takes from one host to another, without
	// Interval. The bound on what hosts take beyond a limit holds for messages that take no
	// longer. Zero means 200 ms.
	Delay time.Duration

	// PeerTimeout is the time after which a host from which no message has arrived counts as
	// unreachable: see Unreachable. It also bounds the debt of a TokenBucket, which is at most a
	// burst and the units restored within PeerTimeout for each other host that uses the key. It
	// must be at least twice the sum of Interval and Delay. Zero means 1 s, or that minimum if it
	// is longer.
	PeerTimeout time.Duration

	// Unreachable determines how a host decides while other hosts are unreachable. Zero means
	// UseShare.
	Unreachable UnreachablePolicy

	// MinHosts is the minimum number of hosts that run. While fewer are reachable, the others
	// count as unreachable, also those from which no message has arrived since this host
	// started. Zero means that the number is unknown.
	MinHosts int

	// MaxKeys is the maximum number of keys of all limits that are tracked, those of other
	// hosts included. A further key takes the place of one of a network (a /24 of IPv4, a /48 of
	// IPv6) that has brought more new keys, or else shares one counter with the other keys of its
	// network that have no place. That counter is not exchanged, and its decisions are Degraded. So a
	// client that invents keys of throttlehttp.IP denies only clients of its own network, and what
	// was taken stays taken. Keys without an address have no network: they replace each other. Zero
	// means 65,536.
	MaxKeys int

	// OnDegraded is called with each decision that is made while hosts are unreachable, for
	// metrics: with what decides, "share" or "open" (see Unreachable), and with ErrUnreachable. It must
	// not block, and may be called concurrently. Nil means no calls.
	OnDegraded func(mode string, err error)
}

// An UnreachablePolicy determines how a host decides while other hosts are unreachable.
type UnreachablePolicy uint8

const (
	UseShare UnreachablePolicy = iota // each host has its equal part of each limit, so that all together keep it
	UseAll                            // the hosts that are reachable have the whole limit
)

// ErrUnreachable is the reason of a decision in Mode Eventual that was made while other hosts
// were unreachable.
var ErrUnreachable = errors.New("throttleredis: no messages of other hosts arrive")

// EventualStats describes the exchange of a Store in Mode Eventual.
type EventualStats struct {
	// Hosts is the number of hosts that share the limits, with this one.
	Hosts int

	// Reachable is the number of hosts from which messages arrive, with this one.
	Reachable int

	// Regions is the number of Redis servers from which messages arrive.
	Regions int

	// Keys is the number of keys that are tracked.
	Keys int

	// DroppedKeys is the number of counters of other hosts that were ignored because there
	// were more than MaxKeys keys.
	DroppedKeys uint64

	// Err is the latest error. Nil means none since a publication succeeded, and that
	// Store.OnOperation has never panicked.
	Err error
}

// withDefaults returns o without zeros.
func (o EventualOptions) withDefaults() EventualOptions {
	o.Interval = cmp.Or(o.Interval, 100*time.Millisecond)
	o.Delay = cmp.Or(o.Delay, 200*time.Millisecond)
	o.PeerTimeout = cmp.Or(o.PeerTimeout, max(time.Second, 2*(o.Interval+o.Delay)))
	o.MaxKeys = cmp.Or(max(o.MaxKeys, 0), 1<<16)
	return o
}

// maxEventualTime bounds the times of EventualOptions.
const maxEventualTime = time.Hour

// validate returns an error that describes how to correct o, or nil if o is valid.
func (o EventualOptions) validate() error {
	for _, t := range []struct {
		name string
		d    time.Duration
	}{{"Interval", o.Interval}, {"Delay", o.Delay}, {"PeerTimeout", o.PeerTimeout}} {
		if t.d < 0 || t.d > maxEventualTime {
			return fmt.Errorf("%s is %v: it must be positive and at most %v, or 0 for the default", t.name, t.d, maxEventualTime)
		}
	}
	for i, r := range o.Regions {
		switch {
		case isNil(r):
			return fmt.Errorf("region %d is nil: leave it out", i)
		case ignoresDeadlines(r):
			return fmt.Errorf("the client of region %d does not look at deadlines: set ContextTimeoutEnabled in its options", i)
		}
	}
	if w := o.withDefaults(); w.PeerTimeout < 2*(w.Interval+w.Delay) {
		return fmt.Errorf("PeerTimeout is %v: it must be at least twice the sum of Interval and Delay, %v", o.PeerTimeout, 2*(w.Interval+w.Delay))
	}
	switch {
	case o.Unreachable > UseAll:
		return fmt.Errorf("policy Unreachable is %d: take one of the constants", o.Unreachable)
	case o.MinHosts < 0:
		return fmt.Errorf("MinHosts is %d: it must not be negative", o.MinHosts)
	}
	return nil
}

// validateEventual returns an error that describes how to correct s in Mode Eventual.
func (s *Store) validateEventual() error {
	_, subscribes := s.Client.(Subscriber)
	err := s.Eventual.validate()
	switch {
	case !subscribes:
		err = fmt.Errorf("a %T cannot subscribe to channels: take a Client, ClusterClient, Ring or failover client", s.Client)
	case ignoresDeadlines(s.Client):
		err = errors.New("the client does not look at deadlines: set ContextTimeoutEnabled in its options")
	}
	if err != nil {
		return fmt.Errorf("throttleredis: store %q: Mode Eventual: %w", s.Prefix, err)
	}
	return nil
}

// An eventualState is what a Store in Mode Eventual has besides its fields.
type eventualState struct {
	once     sync.Once
	exchange *usageExchange
	panicked atomic.Pointer[error] // the latest panic of Store.OnOperation; nil: none
}

// startExchange returns the exchange of s, which it starts in the first call.
func (s *Store) startExchange() *usageExchange {
	s.eventual.once.Do(func() {
		timeout := cmp.Or(s.Timeout, time.Second) // of one script
		o := s.Eventual.withDefaults()
		var links []regionLink
		for _, c := range append([]Subscriber{s.Client.(Subscriber)}, s.Eventual.Regions...) {
			links = append(links, &redisLink{link{c, "{" + s.prefix() + ":usage}", timeout, maxConnectPause, o.PeerTimeout / 2, s.reportOperation}})
		}
		s.eventual.exchange = newUsageExchange(o, links...)
	})
	return s.eventual.exchange
}

// reportOperation calls OnOperation on a goroutine without a caller. Stats reports its panic.
func (s *Store) reportOperation(name string, took time.Duration, err error) {
	if s.OnOperation == nil {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			panicked := fmt.Errorf("throttleredis: Store.OnOperation panicked: %v", v)
			s.eventual.panicked.Store(&panicked)
		}
	}()
	s.OnOperation(name, took, err)
}

// newUsage returns the usage of l, or an error if l cannot be used in Mode Eventual.
func (s *Store) newUsage(l limit) (*limitUsage, error) {
	o := s.Eventual.withDefaults()
	switch {
	case l.newRule == nil:
		return nil, fmt.Errorf("throttleredis: %s %q: Mode Eventual has the limits of TokenBucket, SlidingCounter without Parts, PermitsPerPeriod, and FixedWindow other than AtFirst: use a Store in Mode Grouped", l.algorithm, l.policy)
	case l.window > 0 && l.window < o.Interval+o.Delay:
		return nil, fmt.Errorf("throttleredis: %s %q: a window of %v is over before others know what was taken: in Mode Eventual it must be at least Interval plus Delay, %v", l.algorithm, l.policy, l.window, o.Interval+o.Delay)
	}
	x := s.startExchange()
	sum := sha256.Sum256([]byte(limitID(&l, l.numbers())))
	u := &limitUsage{id: binary.LittleEndian.Uint64(sum[:]), policy: l.policy, capacity: l.capacity, per: l.per, exchange: x, keys: new(atomic.Int64), seed: maphash.MakeSeed()}
	u.networks.Init(int64(x.options.MaxKeys), nil)
	u.rule, u.time = l.newRule(x.options), ticks.NewTimeline()
	if l.window > 0 || l.calendar != nil {
		u.time = ticks.NewWallTimeline()
	}
	if s.Clock != nil {
		u.time.SetClock(s.Clock)
	}
	return x.usageOf(u, max(l.per, l.window, u.rule.length(u.time.Read(time.Time{})))), nil
}

// Close ends the background work of a Store in Mode Eventual: it sends what was taken since
// the last publication and that this host has ended, as far as its Redis responds, and waits
// until all goroutines have ended. If ctx ends first, Close returns the cause of ctx. The limiters
// of the Store then decide as while no other host is reachable. In Mode Leased, Close returns the units
// that were not used, and limiters decide as in Mode Grouped afterwards. Close does not close the
// clients. In the other Modes it does nothing.
func (s *Store) Close(ctx context.Context) error {
	if s.Mode == Leased {
		return s.closeLeases(ctx)
	}
	if s.Mode != Eventual || s.Validate() != nil {
		return nil
	}
	return s.startExchange().close(ctx)
}

// Stats returns the state of the exchange in Mode Eventual. In the other Modes it returns
// the zero EventualStats.
func (s *Store) Stats() EventualStats {
	if s.Mode != Eventual || s.Validate() != nil {
		return EventualStats{}
	}
	stats := s.startExchange().stats()
	if panicked := s.eventual.panicked.Load(); panicked != nil && stats.Err == nil {
		stats.Err = *panicked
	}
	return stats
}
