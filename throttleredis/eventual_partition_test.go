package throttleredis

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// networkSeeds is the number of simulated networks, each with other delays and losses.
func networkSeeds() uint64 {
	if testing.Short() {
		return 3
	}
	return 10
}

// After a partition all hosts have the same totals within a second, also of what was taken
// during the partition.
func TestEventual_totalsAgreeAfterAPartition(t *testing.T) {
	for seed := range networkSeeds() {
		synctest.Test(t, func(t *testing.T) {
			network := newSimNetwork(t, 3, seed, 100*time.Millisecond)
			var stores []*Store
			for region := range 3 {
				stores = append(stores, network.host(t, region, EventualOptions{}))
			}
			hosts := window(9000, stores...)
			total := int64(0)
			use := func(n int) {
				for _, l := range hosts {
					total += int64(granted(t, l, "k", n))
				}
				time.Sleep(500 * time.Millisecond)
			}
			for range 4 {
				use(100)
			}
			network.setCut(2, true)
			for range 10 {
				use(50)
			}
			network.setCut(2, false)
			time.Sleep(time.Second)
			requireRemaining(t, 9000-total, hosts)
			for _, s := range stores {
				require.Equal(t, EventualStats{Hosts: 3, Reachable: 3, Regions: 3, Keys: 1}, s.Stats())
			}
		})
	}
}

// Messages that are lost, arrive twice or in another order have no lasting effect.
func TestEventual_totalsAgreeAfterLostMessages(t *testing.T) {
	for kind, newLimit := range eventualKinds(1000, 1000*time.Hour) {
		for seed := range networkSeeds() {
			synctest.Test(t, func(t *testing.T) {
				network := newSimNetwork(t, 2, seed, 400*time.Millisecond)
				network.lossless = false
				var hosts []*Limiter
				for i := range 4 {
					hosts = append(hosts, newLimit(network.host(t, i%2, EventualOptions{Delay: 400 * time.Millisecond})))
				}
				total := int64(0)
				for range 30 {
					for _, l := range hosts {
						total += int64(granted(t, l, "k", 2))
						time.Sleep(30 * time.Millisecond)
					}
				}
				network.mu.Lock()
				network.lossless = true
				network.mu.Unlock()
				time.Sleep(2 * time.Second) // a later message shows that one is missing
				for i, l := range hosts {
					require.InDelta(t, 1000-total, remaining(t, l, "k"), 1, "%s, seed %d, host %d", kind, seed, i)
				}
			})
		}
	}
}

// While hosts are unreachable, each has its share of the limit, so that all together keep it.
func TestEventual_unreachableHostsKeepTheLimit(t *testing.T) {
	windows := 3
	if testing.Short() {
		windows = 2
	}
	for kind, newLimit := range eventualKinds(300, 10*time.Second) {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var degraded atomic.Int64
				o := EventualOptions{OnDegraded: func(mode string, err error) {
					if mode == "share" && err == ErrUnreachable {
						degraded.Add(1)
					}
				}}
				network := newSimNetwork(t, 3, 1, 100*time.Millisecond)
				var hosts []*Limiter
				for region := range 3 {
					hosts = append(hosts, newLimit(network.host(t, region, o)))
				}
				use := func(seconds int) (total int) {
					for range 20 * seconds {
						for _, l := range hosts {
							total += granted(t, l, "k", 10)
						}
						time.Sleep(50 * time.Millisecond)
					}
					return total
				}
				time.Sleep(time.Until(time.Now().Truncate(10 * time.Second).Add(10 * time.Second)))
				use(10)
				require.Zero(t, degraded.Load())
				network.setCut(0, true)
				network.setCut(1, true)
				use(10) // in which they notice it
				total := use(10 * windows)
				require.NotZero(t, degraded.Load())
				require.LessOrEqual(t, total, windows*300+3)
				require.GreaterOrEqual(t, total, windows*(300-10))
				for _, l := range hosts {
					d, err := l.Reserve(t.Context(), throttle.Claim{Key: "k", DryRun: true})
					require.NoError(t, err)
					require.True(t, d.Degraded)
				}
			})
		})
	}
}

// With UseAll each side of a partition has the whole limit.
func TestEventual_useAllIgnoresUnreachableHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newSimNetwork(t, 2, 1, 100*time.Millisecond)
		o := EventualOptions{Unreachable: UseAll}
		hosts := window(100, network.host(t, 0, o), network.host(t, 1, o))
		time.Sleep(time.Second)
		network.setCut(0, true)
		time.Sleep(5 * time.Second)
		for _, l := range hosts {
			require.Equal(t, 100, granted(t, l, "k", 200))
			d, err := l.Reserve(t.Context(), throttle.Claim{Key: "k"})
			require.NoError(t, err)
			require.True(t, d.Degraded)
		}
		network.setCut(0, false)
		time.Sleep(time.Second)
		requireRemaining(t, 0, hosts)
	})
}

// A host that crashes counts as unreachable, and then as ended: its units stay taken, and the
// others have the whole limit again. A process that is started in its place knows what it
// took.
func TestEventual_hostsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newSimNetwork(t, 2, 1, 100*time.Millisecond)
		stays, crashes := network.host(t, 0, EventualOptions{}), network.host(t, 1, EventualOptions{})
		hosts := window(90, stays, crashes)
		time.Sleep(time.Second)
		require.Equal(t, 30, granted(t, hosts[1], "k", 30))
		time.Sleep(time.Second)
		require.Equal(t, 2, stays.Stats().Reachable)
		crashes.crash()
		time.Sleep(2 * time.Second)
		require.Equal(t, EventualStats{Hosts: 2, Reachable: 1, Regions: 2, Keys: 1}, stays.Stats())
		require.Equal(t, 45, granted(t, hosts[0], "k", 100), "its share")
		time.Sleep(5 * time.Second)
		require.Equal(t, EventualStats{Hosts: 1, Reachable: 1, Regions: 2, Keys: 1}, stays.Stats())
		requireRemaining(t, 15, hosts[:1])
		restarted := network.host(t, 1, EventualOptions{})
		again := window(90, restarted)
		time.Sleep(time.Second)
		requireRemaining(t, 15, again)
		require.Equal(t, 2, stays.Stats().Hosts)
		require.NoError(t, restarted.Close(context.Background()))
		time.Sleep(time.Second)
		require.Equal(t, 1, stays.Stats().Hosts, "it has reported its end")
	})
}

// A Redis that loses its data gets it again.
func TestEventual_storesAgainWhatRedisLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newSimNetwork(t, 1, 1, 10*time.Millisecond)
		hosts := window(90, network.host(t, 0, EventualOptions{}), network.host(t, 0, EventualOptions{}))
		for _, l := range hosts {
			require.Equal(t, 10, granted(t, l, "k", 10))
		}
		time.Sleep(time.Second)
		network.loseData(0)
		time.Sleep(time.Second)
		late := window(90, network.host(t, 0, EventualOptions{}))
		time.Sleep(time.Second)
		requireRemaining(t, 70, append(hosts, late...))
	})
}

// A host whose Redis is down is unreachable for others, and uses its share like them. What it
// took is published later.
func TestEventual_hostWithoutItsRedisHasItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newSimNetwork(t, 2, 1, 10*time.Millisecond)
		stores := []*Store{network.host(t, 0, EventualOptions{}), network.host(t, 1, EventualOptions{})}
		hosts := window(90, stores...)
		time.Sleep(time.Second)
		network.mu.Lock()
		network.regions[0].down = true
		network.mu.Unlock()
		time.Sleep(3 * time.Second)
		require.ErrorIs(t, stores[0].Stats().Err, errCut)
		require.Equal(t, 45, granted(t, hosts[0], "k", 100))
		require.Equal(t, 20, granted(t, hosts[1], "k", 20))
		time.Sleep(3 * time.Second)
		network.mu.Lock()
		network.regions[0].down = false
		network.mu.Unlock()
		time.Sleep(time.Second)
		requireRemaining(t, 25, hosts)
	})
}

// MinHosts divides a limit before other hosts are reached for the first time.
func TestEventual_minHostsBeforeTheFirstMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newSimNetwork(t, 2, 1, 100*time.Millisecond)
		o := EventualOptions{MinHosts: 2}
		hosts := window(90, network.host(t, 0, o), network.host(t, 1, o))
		for _, l := range hosts {
			require.Equal(t, 45, granted(t, l, "k", 100))
		}
		time.Sleep(time.Second)
		requireRemaining(t, 0, hosts)
	})
}

// A bucket pays back what was taken during a partition, but no more than a burst and the
// units of PeerTimeout.
func TestEventual_debtAfterAPartitionIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newSimNetwork(t, 2, 1, 10*time.Millisecond)
		o := EventualOptions{Unreachable: UseAll}
		var hosts []*Limiter
		for region := range 2 {
			hosts = append(hosts, network.host(t, region, o).TokenBucket(throttle.PerSecond(100)))
			require.Equal(t, 49, granted(t, hosts[region], "k", 49))
		}
		time.Sleep(300 * time.Millisecond)
		network.setCut(0, true)
		for range 600 { // a minute
			for _, l := range hosts {
				granted(t, l, "k", 20)
			}
			time.Sleep(100 * time.Millisecond)
		}
		network.setCut(0, false)
		time.Sleep(time.Second)
		for _, l := range hosts {
			d, err := l.Reserve(t.Context(), throttle.Claim{Key: "k"})
			require.NoError(t, err)
			require.False(t, d.OK)
			require.LessOrEqual(t, d.Wait, 2*time.Second)
		}
	})
}
