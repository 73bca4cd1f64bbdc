package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis"
)

const (
	ringKeys  = 10_000
	ringBurst = 5
)

// A change is the cost of a change of a ring: keys that move begin unused.
type change struct {
	Change  string  `json:"change"`
	Shards  int     `json:"shards"` // after the change
	Keys    int     `json:"keys"`
	Moved   float64 `json:"moved_percent"`
	Ideal   float64 `json:"moved_at_least_percent"` // for a ring that is balanced afterwards
	MaxOver int64   `json:"max_over"`               // maximum number of units beyond the limit, over all keys
	Burst   int64   `json:"burst"`
}

func (c change) String() string {
	return fmt.Sprintf("%s: %d shards, %.1f %% of %d keys moved (at best %.1f %%), at most %d units over for each, of a burst of %d",
		c.Change, c.Shards, c.Moved, c.Keys, c.Ideal, c.MaxOver, c.Burst)
}

// measureRing adds a shard to a ring of three and removes one, each time after the limits
// of all keys were exhausted for a long time.
func measureRing(_ options, report func(any)) error {
	servers, err := startServers(4)
	if err != nil {
		return err
	}
	defer stop(servers)
	addrs := map[string]string{}
	for i, s := range servers[:3] {
		addrs["shard"+strconv.Itoa(i)] = s.addr
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: addrs, HeartbeatFrequency: 50 * time.Millisecond, PoolSize: 64})
	defer ring.Close()
	store := &throttleredis.Store{Client: ring}
	l := store.TokenBucket(throttle.Limit{Count: 1, Per: 24 * time.Hour, Burst: ringBurst})
	if _, err := drain(l); err != nil {
		return err
	}
	observe := func(what string, ideal float64) error {
		c := change{Change: what, Shards: ring.Len(), Keys: ringKeys, Ideal: ideal, Burst: ringBurst}
		over, err := drain(l)
		moved := 0
		for _, n := range over {
			c.MaxOver = max(c.MaxOver, n)
			if n > 0 {
				moved++
			}
		}
		c.Moved = 100 * float64(moved) / ringKeys
		report(c)
		return err
	}
	addrs["shard3"] = servers[3].addr
	ring.SetAddrs(addrs)
	if err := observe("one added", 100./4); err != nil {
		return err
	}
	servers[0].stop()
	for ring.Len() != 3 {
		time.Sleep(10 * time.Millisecond)
	}
	return observe("one lost", 100./4)
}

// drain takes all available units of all keys, and returns their numbers.
func drain(l throttle.Limiter) (taken [ringKeys]int64, err error) {
	err = forEach(ringKeys, 32, func(i int) error {
		for {
			d, err := l.Reserve(context.Background(), throttle.Claim{Key: strconv.Itoa(i)})
			if err != nil || !d.OK {
				return err
			}
			taken[i]++
		}
	})
	return taken, err
}
