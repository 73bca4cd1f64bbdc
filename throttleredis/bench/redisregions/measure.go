package main

import (
	"context"
	"log"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis"
	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

// A host is a process in a region, simulated by a Store.
type host struct {
	store *throttleredis.Store
	limit throttle.Limiter
	total throttle.Limiter // counts what all hosts take, without limiting it; nil in Mode Synchronous
	taken atomic.Int64     // units that this host took

	mu        sync.Mutex
	decisions []decision
}

// A decision is the result of one claim.
type decision struct {
	at   time.Time
	took time.Duration
	ok   bool
}

// totalCount is the limit of host.total.
const totalCount = 1 << 40

// A network has the Redis servers of the regions and the links between them.
type network struct {
	servers []*redistest.Server
	links   map[[2]int]*redistest.Proxy // from a region to the Redis of another
}

func newNetwork(t *redistest.Program) *network {
	n := &network{servers: redistest.StartN(t, regions), links: map[[2]int]*redistest.Proxy{}}
	for from := range regions {
		for to := range regions {
			if from != to {
				p := redistest.StartProxy(t, n.servers[to].Addr)
				p.Latency = distance
				p.Set(redistest.Slow)
				n.links[[2]int{from, to}] = p
			}
		}
	}
	return n
}

// client returns a client in the region from of the Redis in the region to.
func (n *network) client(from, to int) *redis.Client {
	addr := n.servers[to].Addr
	if from != to {
		addr = n.links[[2]int{from, to}].Addr
	}
	return redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, PoolSize: 300,
		DisableIdentity: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, // two round trips less per connection
	})
}

// cut lets the links of a region lose all data, or restores them.
func (n *network) cut(region int, cut bool) {
	f := redistest.Slow
	if cut {
		f = redistest.BlackHole
	}
	for link, p := range n.links {
		if link[0] == region || link[1] == region {
			p.Set(f)
		}
	}
}

// newHost returns a host in a region, and a function that ends it.
func (n *network) newHost(region int, p plan, trips *atomic.Int64) (h *host, end func()) {
	home := region
	if p.mode == throttleredis.Synchronous {
		home = 0
	}
	clients := []*redis.Client{n.client(region, home)}
	options := p.options
	for other := range regions {
		if other != home && p.mode == throttleredis.Eventual {
			c := n.client(region, other)
			clients, options.Regions = append(clients, c), append(options.Regions, c)
		}
	}
	s := &throttleredis.Store{Client: clients[0], Mode: p.mode, Eventual: options, OnOperation: func(string, time.Duration, error) { trips.Add(1) }}
	h = &host{store: s, limit: s.TokenBucket(limit)}
	if p.window {
		h.limit = s.FixedWindow(throttle.FixedWindowConfig{Name: limit.Name, Count: limit.Count, Per: limit.Per})
	}
	if p.mode == throttleredis.Eventual {
		h.total = s.FixedWindow(throttle.FixedWindowConfig{Name: "total", Count: totalCount, Per: 1000 * time.Hour})
	}
	return h, func() {
		if err := s.Close(context.Background()); err != nil {
			log.Print(err)
		}
		for _, c := range clients {
			_ = c.Close()
		}
	}
}

// claim makes one claim.
func (h *host) claim() {
	ctx := context.Background()
	start := time.Now()
	d, err := h.limit.Reserve(ctx, throttle.Claim{})
	took := time.Since(start)
	if err != nil {
		log.Print(err)
		return
	}
	if d.OK && h.total != nil {
		if _, err := h.total.Reserve(ctx, throttle.Claim{}); err == nil {
			h.taken.Add(1)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.decisions = append(h.decisions, decision{start, took, d.OK})
}

// knownTotal returns what all hosts have taken, as far as h knows.
func (h *host) knownTotal() int64 {
	d, err := h.total.Reserve(context.Background(), throttle.Claim{DryRun: true})
	if err != nil {
		log.Print(err)
	}
	return totalCount - d.Remaining
}

// load makes claims at random times until ctx is done. In Mode Synchronous a claim does not
// wait for the one before.
func (h *host) load(ctx context.Context, perSecond int, parallel bool) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for next := time.Now(); ctx.Err() == nil; {
		next = next.Add(time.Duration(rand.ExpFloat64() / float64(perSecond) * float64(time.Second)))
		if d := time.Until(next); d > 0 {
			time.Sleep(d)
		}
		if parallel {
			wg.Go(h.claim)
		} else {
			h.claim()
		}
	}
}

// measure runs a plan.
func measure(t *redistest.Program, p plan) result {
	n := newNetwork(t)
	var hosts []*host
	var trips atomic.Int64
	for region := range regions {
		h, end := n.newHost(region, p, &trips)
		defer end()
		hosts = append(hosts, h)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var wg sync.WaitGroup
	for _, h := range hosts {
		wg.Go(func() { h.load(ctx, p.offered, p.mode == throttleredis.Synchronous) })
	}
	time.Sleep(2 * time.Second) // hosts have found each other
	before, from := trips.Load(), time.Now()
	time.Sleep(p.length)
	r := result{Mode: "synchronous", Limit: "token bucket", Offered: regions * p.offered, Trips: trips.Load() - before}
	to := time.Now()
	if p.window {
		r.Limit = "fixed window"
	}
	if p.mode == throttleredis.Eventual {
		r.Mode = "eventual"
		r.partition(n, hosts, p.partition, func() {
			stop()
			wg.Wait()
		})
	}
	stop()
	wg.Wait()
	r.summarize(hosts, from, to, p)
	return r
}

// partition cuts off the last region for a time.
func (r *result) partition(n *network, hosts []*host, length time.Duration, endLoad func()) {
	taken, from := total(hosts), time.Now()
	n.cut(regions-1, true)
	time.Sleep(length)
	r.PartitionGranted = float64(total(hosts)-taken) / time.Since(from).Seconds()
	target, healed := total(hosts), time.Now()
	n.cut(regions-1, false)
	await(func() bool { return knowAll(hosts, target) && reachAll(hosts) })
	r.Agreed = milliseconds(time.Since(healed))
	endLoad()
	target, healed = total(hosts), time.Now()
	await(func() bool {
		return knowAll(hosts, target) && slices.MaxFunc(hosts, byKnownTotal).knownTotal() == target
	})
	r.Equal = milliseconds(time.Since(healed))
}

// knowAll reports whether all hosts know of target units.
func knowAll(hosts []*host, target int64) bool {
	return slices.MinFunc(hosts, byKnownTotal).knownTotal() >= target
}

// reachAll reports whether no host counts another one as unreachable: until then, what is left
// to it is its share.
func reachAll(hosts []*host) bool {
	return !slices.ContainsFunc(hosts, func(h *host) bool { return h.store.Stats().Reachable < len(hosts) })
}

func byKnownTotal(a, b *host) int { return int(a.knownTotal() - b.knownTotal()) }

// total returns the units that hosts took.
func total(hosts []*host) (units int64) {
	for _, h := range hosts {
		units += h.taken.Load()
	}
	return units
}

// await waits until condition holds, for half a minute at most.
func await(condition func() bool) {
	for start := time.Now(); !condition() && time.Since(start) < 30*time.Second; {
		time.Sleep(time.Millisecond)
	}
}

// summarize computes the figures of the decisions between from and to.
func (r *result) summarize(hosts []*host, from, to time.Time, p plan) {
	var took []time.Duration
	var grants []time.Time
	for _, h := range hosts {
		for _, d := range h.decisions {
			if d.at.Before(from) || d.at.After(to) {
				continue
			}
			took = append(took, d.took)
			if d.ok {
				grants = append(grants, d.at)
			}
		}
	}
	slices.Sort(took)
	slices.SortFunc(grants, time.Time.Compare)
	r.Decisions = len(took)
	r.PerTrip = float64(r.Trips) / float64(len(took))
	r.P50, r.P99, r.Max = microseconds(took[len(took)/2]), microseconds(took[len(took)*99/100]), microseconds(took[len(took)-1])
	r.Granted = float64(len(grants)) / to.Sub(from).Seconds()
	if p.mode == throttleredis.Eventual {
		r.Overshoot, r.Bound = overshoot(grants, p.window), bound(p)
	}
}

// overshoot returns the maximum number of units by which grants exceed the limit. The first
// and the last window may be incomplete, which lowers their count only.
func overshoot(grants []time.Time, window bool) (most int64) {
	level, inWindow := 0.0, int64(0)
	var last time.Time
	for i, at := range grants {
		if i > 0 {
			level = max(level-at.Sub(last).Seconds()*float64(limit.Count), 0)
		}
		if level++; at.Unix() != last.Unix() {
			inWindow = 0
		}
		inWindow++
		last = at
		if window {
			most = max(most, inWindow-limit.Count)
		} else {
			most = max(most, int64(level)-limit.Count)
		}
	}
	return most
}

// bound returns the bound of docs/regions.md: what other hosts claim within Interval and
// Delay, and at most (n-1)/n of what the limit permits within that time, plus a claim of each
// other host.
func bound(p plan) int64 {
	exchange := (p.options.Interval + p.options.Delay).Seconds()
	arrivals := float64((regions-1)*p.offered) * exchange
	permitted := float64(limit.Count)
	if !p.window {
		permitted += float64(limit.Count) / limit.Per.Seconds() * exchange
	}
	return int64(min(arrivals, permitted*(regions-1)/regions+regions-1))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
