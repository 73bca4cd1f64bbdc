package throttleredis

import (
	"flag"
	"math"
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
	hold    int   // windows from one moment at which all hosts claim until the next one

	mu     sync.Mutex
	grants []usageGrant
}

// newEventualLoad returns hosts that have used the key in the window before. The window is
// between a second and a day.
func newEventualLoad(t *testing.T, kind string, seed uint64) *eventualLoad {
	random := rand.New(rand.NewPCG(seed, 2))
	upTo := func(d time.Duration) time.Duration { return 1 + time.Duration(random.Int64N(int64(d))) }
	number := []int{2, 10}[seed%2]
	count := int64(5 * math.Exp(random.Float64()*math.Log(100)))
	per := time.Second * time.Duration(math.Exp(random.Float64()*math.Log(24*3600)))
	l := &eventualLoad{kind: kind, limit: throttle.Limit{Count: count, Per: per}, largest: 1 + random.Int64N(3), hold: 1 + random.IntN(3)}
	exchange := min(per/time.Duration(3+random.IntN(60)), time.Hour)
	l.options = EventualOptions{Interval: exchange/10 + upTo(exchange/2), Delay: exchange/10 + upTo(exchange/2)}
	regions := 1 + random.IntN(3)
	network := newSimNetwork(t, regions, seed, min(l.options.Delay, l.options.Interval))
	network.poll = per
	for i := range number {
		l.hosts = append(l.hosts, eventualKinds(count, per)[kind](network.host(t, i%regions, l.options)))
	}
	time.Sleep(time.Until(time.Now().Truncate(per).Add(per)))
	for _, host := range l.hosts {
		granted(t, host, "k", 1)
	}
	time.Sleep(time.Until(time.Now().Truncate(per).Add(2*per - 1)))
	return l
}

// run makes hosts claim units at random intervals, at least four times in a window, each at a
// rate of its own, which changes. In the first of every l.hold windows all hosts claim, at the
// same moment, until they are rejected.
func (l *eventualLoad) run(t *testing.T, seed uint64, length time.Duration) {
	var wg sync.WaitGroup
	start, per := time.Now(), l.limit.Per
	for i, host := range l.hosts {
		random := rand.New(rand.NewPCG(seed, uint64(i)+3))
		claim := func() bool {
			units := 1 + random.Int64N(min(l.largest, l.limit.Count))
			d, err := host.Reserve(t.Context(), throttle.Claim{Key: "k", Cost: units})
			if err != nil || !d.OK {
				return false
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.grants = append(l.grants, usageGrant{time.Now(), i, units})
			return true
		}
		wg.Go(func() {
			rate := 0.0 // claims per nanosecond
			burst, next := start, start
			for time.Since(start) < length {
				if !time.Now().Before(burst) {
					for burst = burst.Add(per * time.Duration(l.hold)); claim(); {
					}
				}
				if !time.Now().Before(next) {
					rate = float64(l.limit.Count) / float64(per) * 3 * random.Float64() * random.Float64()
					next = time.Now().Add(time.Duration(random.Int64N(int64(per))))
				}
				claim()
				time.Sleep(min(time.Duration(min(random.ExpFloat64()/(rate+1e-18), float64(per/4)))+1, time.Until(burst)))
			}
		})
	}
	wg.Wait()
	slices.SortStableFunc(l.grants, func(a, b usageGrant) int { return a.at.Compare(b.at) })
}

var eventualLoads = flag.Uint64("eventual.loads", 20, "random loads of each kind of limit in TestEventual_overshootIsBounded")

// The bounds of docs/regions.md, in windows of a second to a day: n hosts that know each other
// exceed a limit by at most what the others take within D = Interval + Delay, and by at most
// (n-1)/n of the units that can be taken within D, plus a claim; in a bucket, plus a claim of each
// other host.
func TestEventual_overshootIsBounded(t *testing.T) {
	first, loads := uint64(0), *eventualLoads
	if testing.Short() { // one load of 10 hosts and two of 2, in which a window has few intervals, which take the time
		first, loads = 2, min(loads, 3)
	}
	for kind := range eventualKinds(1, time.Second) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			highest := map[int]float64{} // overshoot as a part of the bound, by number of hosts
			for seed := first; seed < first+loads; seed++ {
				synctest.Test(t, func(t *testing.T) {
					l := newEventualLoad(t, kind, seed)
					l.run(t, seed, 8*l.limit.Per)
					hosts := len(l.hosts)
					n, exchange := int64(hosts), l.options.Interval+l.options.Delay
					within, claims := l.limit.Count, int64(1)
					if kind == "TokenBucket" {
						within, claims = within+l.limit.Count*int64(exchange)/int64(l.limit.Per), n-1
					}
					bound := min(elsewhere(l.grants, hosts, exchange), (n-1)*within/n+claims*l.largest)
					over := overshoot(kind, l.grants, l.limit)
					require.LessOrEqual(t, over, bound, "seed %d: %v, %d hosts, %+v", seed, l.limit, n, l.options)
					highest[hosts] = max(highest[hosts], float64(over)/float64(bound))
				})
			}
			t.Logf("%d loads: at most %.2f of the bound with 2 hosts, %.2f with 10", loads, highest[2], highest[10])
		})
	}
}

// quiet returns a PeerTimeout: with -short one with which hosts that take nothing for hours send few messages. By
// default they send one per Interval, which takes most of the time of a test.
func quiet() time.Duration {
	if testing.Short() {
		return 10 * time.Minute
	}
	return 0
}

// Hosts that all get as much as they grant at the beginning of each hour exceed a limit of 5
// per hour by what the first use allows once. Then they know each other.
func TestEventual_burstsOfAllHostsExceedALimitOnce(t *testing.T) {
	const limit = 5
	hours := 8
	if testing.Short() {
		hours = 3
	}
	for _, hosts := range []int{2, 10} {
		for kind, newLimit := range eventualKinds(limit, time.Hour) {
			synctest.Test(t, func(t *testing.T) {
				network := newSimNetwork(t, 3, 1, 100*time.Millisecond)
				network.poll = time.Hour
				var all []*Limiter
				for i := range hosts {
					all = append(all, newLimit(network.host(t, i%3, EventualOptions{Interval: 20 * time.Second, PeerTimeout: quiet()})))
				}
				var each []int
				total := 0
				next := time.Now().Truncate(time.Hour).Add(time.Second) // the simulated clock begins at midnight
				for range hours {
					time.Sleep(time.Until(next))
					next = next.Add(time.Hour)
					n := 0
					for range 5 { // and again later in the hour
						for _, l := range all {
							n += granted(t, l, "login:ann", limit)
						}
						time.Sleep(10 * time.Minute)
					}
					each, total = append(each, n), total+n
				}
				t.Logf("%d hosts, %s, 5 per hour: %v, %d in %d hours", hosts, kind, each, total, hours)
				if kind == "TokenBucket" {
					require.LessOrEqual(t, total, limit*hours+(hosts-1)*limit+limit)
				}
				if kind != "TokenBucket" {
					for _, n := range each[1:] {
						require.LessOrEqual(t, n, limit)
					}
				}
			})
		}
	}
}

// Ten hosts use a limit of 5 per 20 minutes, of which a bucket restores one in 4 minutes. The claims of
// one are not denied because the others might use their parts: it gets all units in its turn.
func TestEventual_oneOfManyHostsGetsAllUnitsInItsTurn(t *testing.T) {
	const per = 20 * time.Minute
	for kind, newLimit := range eventualKinds(5, per) {
		synctest.Test(t, func(t *testing.T) {
			network := newSimNetwork(t, 3, 1, 100*time.Millisecond)
			network.poll = time.Hour
			o := EventualOptions{Interval: 9 * time.Second, Delay: time.Second, PeerTimeout: quiet()}
			var all []*Limiter
			for i := range 10 {
				all = append(all, newLimit(network.host(t, i%3, o)))
			}
			time.Sleep(time.Until(time.Now().Truncate(per).Add(per)))
			require.Equal(t, 5, granted(t, all[0], "k", 5))
			time.Sleep(time.Minute)
			for _, l := range all[1:] {
				require.Zero(t, granted(t, l, "k", 1), "it takes nothing, but uses the key")
			}
			time.Sleep(2 * per) // all units are restored
			start, units := time.Now(), 0
			for units < 5 {
				d, err := all[0].Reserve(t.Context(), throttle.Claim{Key: "k"})
				require.NoError(t, err)
				if d.OK {
					units++
					continue
				}
				require.Positive(t, d.Wait, kind)
				require.LessOrEqual(t, time.Since(start)+d.Wait, 10*2*10*time.Second, kind)
				time.Sleep(d.Wait)
			}
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
	seconds := 20
	if testing.Short() {
		seconds = 10
	}
	for kind, newLimit := range eventualKinds(2500, 5*time.Second) {
		for name, rates := range map[string][]int{"equal": {5, 5, 5}, "uneven": {1, 2, 12}, "one host": {0, 0, 15}} {
			if testing.Short() && name == "equal" {
				continue
			}
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
					for range 100 * seconds {
						for i, l := range hosts {
							total += granted(t, l, "k", rates[i])
						}
						time.Sleep(10 * time.Millisecond)
					}
					require.GreaterOrEqual(t, total, seconds*500*95/100)
					require.LessOrEqual(t, total, seconds*500+2500+100, "a bucket begins with a burst")
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

// Hosts whose claims are all rejected, because another host takes the whole limit in each hour,
// are known to each other. So they do not each take all units at the beginning of a later hour.
func TestEventual_hostsWhoseClaimsAreRejectedAreKnown(t *testing.T) {
	for kind, newLimit := range eventualKinds(100, time.Hour) {
		synctest.Test(t, func(t *testing.T) {
			network := newSimNetwork(t, 3, 1, 100*time.Millisecond)
			network.poll = time.Hour
			var all []*Limiter
			for i := range 10 {
				all = append(all, newLimit(network.host(t, i%3, EventualOptions{Interval: 20 * time.Second, PeerTimeout: quiet()})))
			}
			hours := 4
			if testing.Short() {
				hours = 2
			}
			next := time.Now().Truncate(time.Hour).Add(time.Second)
			for range hours {
				time.Sleep(time.Until(next))
				next = next.Add(time.Hour)
				for range 50 {
					granted(t, all[0], "k", 100)
					time.Sleep(30 * time.Second)
				}
				for _, l := range all[1:] {
					for granted(t, l, "k", 1) > 0 {
					}
				}
			}
			time.Sleep(4 * time.Hour / 3)
			total := 0
			for _, l := range all {
				total += granted(t, l, "k", 200)
			}
			require.LessOrEqual(t, total, 100+90+9, kind)
		})
	}
}
