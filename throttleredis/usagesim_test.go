package throttleredis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/httpbody"
	"github.com/heed-go/heed/throttle"
)

// A simNetwork simulates the Redis servers of regions, and the links to them, in virtual
// time. Each message is delayed, and links can be cut.
type simNetwork struct {
	delay func() time.Duration // of one step: from a host to its Redis, or from a Redis to a host
	poll  time.Duration        // after which a host notices that a link is cut

	mu       sync.Mutex
	regions  []*simRegion
	cut      map[[2]int]bool // links from a region to another that are cut
	lossless bool            // false: messages are lost and repeated at random
	random   *rand.Rand

	deliveries sync.WaitGroup
}

// A simRegion is the Redis of a region.
type simRegion struct {
	number      int
	down        bool
	stored      map[uint64]map[string]simStored
	subscribers []*simSubscriber
}

type simStored struct {
	value string
	at    time.Time
}

type simSubscriber struct {
	ctx    context.Context
	from   int // region of the host
	events linkEvents
}

func newSimNetwork(t *testing.T, regions int, seed uint64, delay time.Duration) *simNetwork {
	n := &simNetwork{poll: 10 * time.Millisecond, cut: map[[2]int]bool{}, lossless: true, random: rand.New(rand.NewPCG(seed, 1))}
	t.Cleanup(n.deliveries.Wait) // after the hosts have ended
	n.delay = func() time.Duration {
		n.mu.Lock()
		defer n.mu.Unlock()
		return time.Duration(n.random.Int64N(int64(delay)/2 + 1))
	}
	for i := range regions {
		n.regions = append(n.regions, &simRegion{number: i, stored: map[uint64]map[string]simStored{}})
	}
	return n
}

// A simLink is the link of a host in the region from to the Redis of the region to.
type simLink struct {
	network  *simNetwork
	from, to int
}

var errCut = errors.New("the link is cut")

// up reports whether the link works. n.mu must be held.
func (n *simNetwork) up(from, to int) bool { return !n.cut[[2]int{from, to}] && !n.regions[to].down }

func (l *simLink) publish(_ context.Context, p *usagePublication) (existed bool, err error) {
	n := l.network
	time.Sleep(n.delay())
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.up(l.from, l.to) {
		return false, errCut
	}
	r := n.regions[l.to]
	if _, existed = r.stored[p.host]; p.replace || !existed {
		r.stored[p.host] = map[string]simStored{}
	}
	for _, name := range p.removed {
		delete(r.stored[p.host], name)
	}
	for _, f := range p.stored {
		r.stored[p.host][f.name] = simStored{f.value, time.Now()}
	}
	for _, s := range r.subscribers {
		copies := 1
		if !n.lossless {
			copies = n.random.IntN(3)
		}
		for range copies {
			n.deliveries.Go(func() { n.deliver(s, l.to, p.message) })
		}
	}
	return existed, nil
}

// deliver passes a message to a subscriber after a delay, unless the link is cut by then.
func (n *simNetwork) deliver(s *simSubscriber, from int, message string) {
	time.Sleep(n.delay())
	n.mu.Lock()
	up := n.up(s.from, from)
	n.mu.Unlock()
	if up && s.ctx.Err() == nil {
		s.events.receive(message)
	}
}

func (l *simLink) fetchHosts(_ context.Context, receive func(uint64, []storedField)) error {
	n := l.network
	time.Sleep(n.delay())
	n.mu.Lock()
	if !n.up(l.from, l.to) {
		n.mu.Unlock()
		return errCut
	}
	all := map[uint64][]storedField{}
	for host, fields := range n.regions[l.to].stored {
		for name, f := range fields {
			all[host] = append(all[host], storedField{name, f.value, time.Since(f.at)})
		}
	}
	n.mu.Unlock()
	time.Sleep(n.delay())
	for host, counters := range all {
		receive(host, counters)
	}
	return nil
}

func (l *simLink) subscribe(ctx context.Context, e linkEvents) {
	n := l.network
	for ctx.Err() == nil {
		if n.isUp(l.from, l.to) {
			time.Sleep(n.delay())
			s := &simSubscriber{ctx, l.from, e}
			n.mu.Lock()
			n.regions[l.to].subscribers = append(n.regions[l.to].subscribers, s)
			n.mu.Unlock()
			e.connected()
			for n.isUp(l.from, l.to) && httpbody.Sleep(ctx, nil, n.poll) == nil {
			}
			n.mu.Lock()
			r := n.regions[l.to]
			r.subscribers = slices.DeleteFunc(slices.Clone(r.subscribers), func(o *simSubscriber) bool { return o == s })
			n.mu.Unlock()
			e.lost(errCut)
		}
		_ = httpbody.Sleep(ctx, nil, 50*time.Millisecond)
	}
}

func (n *simNetwork) isUp(from, to int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.up(from, to)
}

// setCut cuts or restores the links between a region and all others.
func (n *simNetwork) setCut(region int, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for other := range n.regions {
		if other != region {
			n.cut[[2]int{region, other}], n.cut[[2]int{other, region}] = cut, cut
		}
	}
}

// loseData makes the Redis of a region forget everything.
func (n *simNetwork) loseData(region int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.regions[region].stored = map[uint64]map[string]simStored{}
}

// host returns the Store of a new host in a region. Its exchange ends with the test.
func (n *simNetwork) host(t *testing.T, region int, o EventualOptions) *Store {
	s := &Store{Client: client(t), Mode: Eventual, Eventual: o}
	links := []regionLink{&simLink{n, region, region}}
	for other := range n.regions {
		if other != region {
			links = append(links, &simLink{n, region, other})
		}
	}
	s.eventual.once.Do(func() { s.eventual.exchange = newUsageExchange(o.withDefaults(), links...) })
	t.Cleanup(func() { require.NoError(t, s.Close(context.Background())) })
	return s
}

// crash ends a host without a message to the others.
func (s *Store) crash() {
	s.eventual.exchange.tasks.cancel()
	<-s.eventual.exchange.tasks.ended
}

// window returns a limit of count units per hour in each of the stores.
func window(count int64, stores ...*Store) (all []*Limiter) {
	for _, s := range stores {
		all = append(all, s.PermitsPerPeriod(count, time.Hour))
	}
	return all
}

// requireRemaining requires that all hosts have want units left.
func requireRemaining(t *testing.T, want int64, hosts []*Limiter) {
	t.Helper()
	for i, l := range hosts {
		require.Equal(t, want, remaining(t, l, "k"), "host %d", i)
	}
}

// granted claims n times one unit and returns how many were granted.
func granted(t *testing.T, l throttle.Limiter, key string, n int) (units int) {
	t.Helper()
	ctx := t.Context()
	for range n {
		d, err := l.Reserve(ctx, throttle.Claim{Key: key})
		if err != nil {
			require.NoError(t, err) // only then: with the race detector it takes longer than the claim
		}
		if d.OK {
			units++
		}
	}
	return units
}

// remaining returns the units that are left according to a host.
func remaining(t *testing.T, l throttle.Limiter, key string) int64 {
	t.Helper()
	d, err := l.Reserve(t.Context(), throttle.Claim{Key: key, DryRun: true})
	require.NoError(t, err)
	return d.Remaining
}

// eventualKinds are the limits that Mode Eventual supports, with count units per time.
func eventualKinds(count int64, per time.Duration) map[string]func(*Store) *Limiter {
	limit := throttle.Limit{Name: fmt.Sprint(count, per), Count: count, Per: per}
	return map[string]func(*Store) *Limiter{
		"TokenBucket": func(s *Store) *Limiter { return s.TokenBucket(limit) },
		"FixedWindow": func(s *Store) *Limiter {
			return s.FixedWindow(throttle.FixedWindowConfig{Name: limit.Name, Count: count, Per: per})
		},
		"SlidingCounter": func(s *Store) *Limiter {
			return s.SlidingCounter(throttle.SlidingCounterConfig{Limit: limit})
		},
	}
}
