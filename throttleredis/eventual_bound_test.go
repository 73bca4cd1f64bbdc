package throttleredis

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A usageGrant is a granted claim of a host.
type usageGrant struct {
	at    time.Time
	host  int
	units int64
}

// elsewhere returns the maximum number of units that hosts other than one took within any
// time as long as span.
func elsewhere(all []usageGrant, hosts int, span time.Duration) (most int64) {
	for host := range hosts {
		from, sum := 0, int64(0)
		for _, g := range all {
			if g.host == host {
				continue
			}
			sum += g.units
			for ; all[from].host == host || g.at.Sub(all[from].at) > span; from++ {
				if all[from].host != host {
					sum -= all[from].units
				}
			}
			most = max(most, sum)
		}
	}
	return most
}

// overshoot returns the maximum number of units by which the grants exceed a limit, as a
// single limiter counts them.
func overshoot(kind string, all []usageGrant, l throttle.Limit) (most int64) {
	per := int64(l.Per)
	var window, current, previous int64
	var level, at float64 // of a bucket, in units
	for _, g := range all {
		now := g.at.UnixNano()
		level = max(level-(float64(now)-at)*float64(l.Count)/float64(per), 0) + float64(g.units)
		at = float64(now)
		if w := now / per; w != window {
			if previous = 0; w == window+1 {
				previous = current
			}
			window, current = w, 0
		}
		current += g.units
		switch kind {
		case "FixedWindow":
			most = max(most, current-l.Count)
		case "SlidingCounter":
			most = max(most, current+previous*(per-now%per)/per-l.Count)
		default:
			most = max(most, int64(level+1e-6)-l.Count)
		}
	}
	return most
}

// An eventualLoad is a random load on hosts of several regions that share a limit.
type eventualLoad struct {
	kind    string
	limit   throttle.Limit
	options EventualOptions
	hosts   []*Limiter
	largest int64 // units of a claim

	mu     sync.Mutex
	grants []usageGrant
}

// newEventualLoad returns hosts that have used the key before.
func newEventualLoad(t *testing.T, kind string, seed uint64) *eventualLoad {
	random := rand.New(rand.NewPCG(seed, 2))
	count, per := 20+random.Int64N(500), time.Second*time.Duration(1+random.IntN(4))
	l := &eventualLoad{kind: kind, limit: throttle.Limit{Count: count, Per: per}, largest: 1 + random.Int64N(3)}
	l.options = EventualOptions{Interval: time.Millisecond * time.Duration(20+random.IntN(180)), Delay: time.Millisecond * time.Duration(20+random.IntN(200))}
	regions := 2 + random.IntN(3)
	network := newSimNetwork(t, regions, seed, min(l.options.Delay, l.options.Interval))
	for i := range regions * (1 + random.IntN(2)) {
		l.hosts = append(l.hosts, eventualKinds(count, per)[kind](network.host(t, i%regions, l.options)))
	}
	for _, host := range l.hosts {
		require.Equal(t, 1, granted(t, host, "k", 1))
	}
	time.Sleep(time.Until(time.Now().Truncate(per).Add(3 * per))) // a new window, and full buckets
	return l
}

// run makes hosts claim units at random intervals, each at a rate of its own, which changes.
func (l *eventualLoad) run(t *testing.T, seed uint64, length time.Duration) {
	var wg sync.WaitGroup
	for i, host := range l.hosts {
		random := rand.New(rand.NewPCG(seed, uint64(i)+3))
		wg.Go(func() {
			rate := 0.0 // claims per nanosecond
			for start, next := time.Now(), time.Now(); time.Since(start) < length; {
				if !time.Now().Before(next) {
					rate = float64(l.limit.Count) / float64(l.limit.Per) * 3 * random.Float64() * random.Float64()
					next = time.Now().Add(time.Duration(random.Int64N(int64(l.limit.Per))))
				}
				units := 1 + random.Int64N(l.largest)
				d, err := host.Reserve(t.Context(), throttle.Claim{Key: "k", Cost: units})
				if err == nil && d.OK {
					l.mu.Lock()
					l.grants = append(l.grants, usageGrant{time.Now(), i, units})
					l.mu.Unlock()
				}
				time.Sleep(time.Duration(min(random.ExpFloat64()/(rate+1e-12), float64(time.Second))) + 1)
			}
		})
	}
	wg.Wait()
	slices.SortStableFunc(l.grants, func(a, b usageGrant) int { return a.at.Compare(b.at) })
}

// The bounds of docs/regions.md: n hosts that know each other exceed a limit by at most what
// the others take within D = Interval + Delay, and by at most (n-1)/n of the units that can
// be taken within D, plus a claim of each other host.
func TestEventual_overshootIsBounded(t *testing.T) {
	seeds := uint64(30)
	if testing.Short() {
		seeds = 4
	}
	for kind := range eventualKinds(1, time.Second) {
		t.Run(kind, func(t *testing.T) {
			highest := 0.0 // overshoot as a part of the bound
			for seed := range seeds {
				synctest.Test(t, func(t *testing.T) {
					l := newEventualLoad(t, kind, seed)
					l.run(t, seed, 10*l.limit.Per)
					n, exchange := int64(len(l.hosts)), l.options.Interval+l.options.Delay
					within := l.limit.Count
					if kind != "FixedWindow" {
						within += l.limit.Count * int64(exchange) / int64(l.limit.Per)
					}
					bound := min(elsewhere(l.grants, len(l.hosts), exchange), (n-1)*within/n+(n-1)*l.largest)
					over := overshoot(kind, l.grants, l.limit)
					require.LessOrEqual(t, over, bound, "seed %d: %v, %d hosts, %+v", seed, l.limit, n, l.options)
					highest = max(highest, float64(over)/float64(bound))
				})
			}
			t.Logf("at most %.2f of the bound", highest)
		})
	}
}

// Hosts that do not know each other, because they use a key for the first time, may each
// take the whole limit until they have exchanged messages.
func TestEventual_firstUseIsBounded(t *testing.T) {
	for kind, newLimit := range eventualKinds(50, 10*time.Second) {
		synctest.Test(t, func(t *testing.T) {
			network := newSimNetwork(t, 3, 1, 100*time.Millisecond)
			var hosts []*Limiter
			for region := range 3 {
				hosts = append(hosts, newLimit(network.host(t, region, EventualOptions{})))
			}
			time.Sleep(time.Second)
			for _, l := range hosts {
				require.Equal(t, 50, granted(t, l, "k", 100), kind)
			}
			time.Sleep(300 * time.Millisecond)
			for _, l := range hosts {
				require.Zero(t, granted(t, l, "k", 10), kind)
			}
		})
	}
}

// Hosts that claim more than a limit get all of it, whether the load is equal or that of one
// host only.
func TestEventual_limitIsUsed(t *testing.T) {
	for kind, newLimit := range eventualKinds(2500, 5*time.Second) {
		for name, rates := range map[string][]int{"equal": {5, 5, 5}, "uneven": {1, 2, 12}, "one host": {0, 0, 15}} {
			t.Run(kind+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					network := newSimNetwork(t, 3, 1, 100*time.Millisecond)
					var hosts []*Limiter
					for region := range rates {
						hosts = append(hosts, newLimit(network.host(t, region, EventualOptions{Delay: 100 * time.Millisecond})))
						granted(t, hosts[region], "k", 1)
					}
					time.Sleep(time.Until(time.Now().Truncate(5 * time.Second).Add(15 * time.Second)))
					total := 0
					for range 2000 { // 20 s
						for i, l := range hosts {
							total += granted(t, l, "k", rates[i])
						}
						time.Sleep(10 * time.Millisecond)
					}
					require.GreaterOrEqual(t, total, 20*500*95/100)
					require.LessOrEqual(t, total, 20*500+2500+100, "a bucket begins with a burst")
				})
			})
		}
	}
}

// Of 100 units two hosts have taken 40, which both know. Each may take half of the 60 others
// before it knows what the other one takes, and then half of what is left.
func TestEventual_sharesWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newSimNetwork(t, 2, 1, 10*time.Millisecond)
		o := EventualOptions{Interval: 100 * time.Millisecond, Delay: 20 * time.Millisecond, PeerTimeout: time.Minute}
		hosts := window(100, network.host(t, 0, o), network.host(t, 1, o))
		for _, l := range hosts {
			require.Equal(t, 20, granted(t, l, "k", 20))
		}
		time.Sleep(time.Second)
		require.Equal(t, 30, granted(t, hosts[0], "k", 100))
		d, err := hosts[0].Reserve(t.Context(), throttle.Claim{Key: "k"})
		require.NoError(t, err)
		require.False(t, d.OK)
		require.EqualValues(t, 30, d.Remaining)
		require.Greater(t, d.Wait, 120*time.Millisecond)
		require.LessOrEqual(t, d.Wait, 140*time.Millisecond)
		time.Sleep(d.Wait)
		require.Equal(t, 15, granted(t, hosts[0], "k", 100))
		require.Equal(t, 15, granted(t, hosts[1], "k", 100), "of 30 that are left as far as it knows: the latest 15 have not arrived")
		time.Sleep(time.Second)
		requireRemaining(t, 0, hosts)
	})
}
