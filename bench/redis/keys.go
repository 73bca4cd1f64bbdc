package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis"
	"github.com/heed-go/heed/warmup"
)

// A kind makes limiters of n units in per.
type kind struct {
	name string
	make func(s *throttleredis.Store, n int64, per time.Duration) *throttleredis.Limiter
}

var kinds = []kind{
	{"TokenBucket", func(s *throttleredis.Store, n int64, per time.Duration) *throttleredis.Limiter {
		return s.TokenBucket(throttle.Limit{Count: n, Per: per})
	}},
	{"RefillBucket", func(s *throttleredis.Store, n int64, per time.Duration) *throttleredis.Limiter {
		return s.RefillBucket(throttle.Refill{Limit: throttle.Limit{Count: n, Per: per}})
	}},
	{"LeakyBucket", func(s *throttleredis.Store, n int64, per time.Duration) *throttleredis.Limiter {
		return s.LeakyBucket(throttle.Leak{Limit: throttle.Limit{Count: n, Per: per}})
	}},
	{"Nginx", func(s *throttleredis.Store, n int64, per time.Duration) *throttleredis.Limiter {
		return s.Nginx(throttle.LimitReq{Rate: n, Per: per, Burst: n})
	}},
	{"FixedWindow", func(s *throttleredis.Store, n int64, per time.Duration) *throttleredis.Limiter {
		return s.FixedWindow(throttle.Quota{Count: n, Anchor: throttle.AtFirst, Per: per})
	}},
	{"SlidingCounter", func(s *throttleredis.Store, n int64, per time.Duration) *throttleredis.Limiter {
		return s.SlidingCounter(throttle.Counter{Limit: throttle.Limit{Count: n, Per: per}})
	}},
	{"WarmUp", func(s *throttleredis.Store, n int64, per time.Duration) *throttleredis.Limiter {
		return s.WarmUp(warmup.Curve{Limit: throttle.Limit{Count: n, Per: per}, Over: per})
	}},
	{"SlidingLog", func(s *throttleredis.Store, n int64, per time.Duration) *throttleredis.Limiter {
		return s.SlidingLog(throttle.Log{Limit: throttle.Limit{Count: n, Per: per}})
	}},
	{"InFlight", func(s *throttleredis.Store, n int64, per time.Duration) *throttleredis.Limiter {
		return s.InFlight(throttle.Capacity{Count: n, MaxAge: per})
	}},
}

// A weight is what keys take that have granted one unit each.
type weight struct {
	Kind    string  `json:"kind"`
	Keys    int64   `json:"keys"`
	Mean    float64 `json:"bytes_mean"` // MEMORY USAGE of a sample
	Most    int64   `json:"bytes_most"` // of it
	All     float64 `json:"bytes_all"`  // used_memory / keys, the server's tables included
	Expire  int64   `json:"keys_with_expiry"`
	Longest float64 `json:"longest_pttl_s"` // of the sample; the limits are by the hour
}

func (w weight) String() string {
	return fmt.Sprintf("%-15s %d keys, %.1f bytes each (at most %d, with the server's tables %.1f), %d of them expire, within %.0f s",
		w.Kind, w.Keys, w.Mean, w.Most, w.All, w.Expire, w.Longest)
}

// A vanishing is how long keys of all kinds stay that nobody uses.
type vanishing struct {
	Keys    int64   `json:"keys"`
	Left    int64   `json:"left"`
	Seconds float64 `json:"seconds"` // after the last was used
}

func (v vanishing) String() string {
	return fmt.Sprintf("%d keys of limits by the second: %d left after %.1f s", v.Keys, v.Left, v.Seconds)
}

const sampled = 1000

// measureKeys uses each of many keys once, for each kind of limit alone.
func measureKeys(o options, tell func(any)) error {
	srv, err := startServer()
	if err != nil {
		return err
	}
	defer srv.stop()
	c := srv.client()
	defer c.Close()
	for _, k := range kinds {
		w, err := weigh(c, k, o.keys)
		if err != nil {
			return err
		}
		tell(w)
	}
	v, err := vanish(c, o.keys/len(kinds))
	tell(v)
	return err
}

func weigh(c *redis.Client, k kind, keys int) (w weight, err error) {
	ctx := context.Background()
	if err := c.FlushAll(ctx).Err(); err != nil {
		return w, err
	}
	empty := used(c)
	if err := fill(c, k, keys, time.Hour); err != nil {
		return w, err
	}
	w.Kind = k.name
	w.All = float64(used(c)-empty) / float64(keys)
	w.Keys, w.Expire = expiring(c)
	var sum int64
	for range sampled {
		key, err := c.RandomKey(ctx).Result()
		if err != nil {
			return w, err
		}
		bytes := c.MemoryUsage(ctx, key).Val()
		w.Most = max(w.Most, bytes)
		sum += bytes
		w.Longest = max(w.Longest, c.PTTL(ctx, key).Val().Seconds())
	}
	w.Mean = float64(sum) / sampled
	return w, nil
}

// vanish uses keys of all kinds, and waits for them to be gone, which Redis sees to itself.
func vanish(c *redis.Client, keys int) (v vanishing, err error) {
	ctx := context.Background()
	if err := c.FlushAll(ctx).Err(); err != nil {
		return v, err
	}
	for _, k := range kinds {
		if err := fill(c, k, keys, time.Second); err != nil {
			return v, err
		}
	}
	start := time.Now()
	v.Keys = int64(keys * len(kinds))
	for v.Left = 1; v.Left > 0 && err == nil && time.Since(start) < time.Minute; {
		time.Sleep(100 * time.Millisecond)
		v.Left, err = c.DBSize(ctx).Result()
	}
	v.Seconds = time.Since(start).Seconds()
	return v, err
}

// fill takes a unit of each key.
func fill(c *redis.Client, k kind, keys int, per time.Duration) (err error) {
	pipe, err := c.AutoPipeline()
	if err != nil {
		return err
	}
	store := &throttleredis.Store{Client: pipe}
	l := k.make(store, 10, per)
	const goroutines = 256
	var mu sync.Mutex
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := g; i < keys; i += goroutines {
				d, e := l.Reserve(context.Background(), throttle.Claim{Key: "user-" + strconv.Itoa(1_000_000+i)})
				if e == nil && !d.OK {
					e = fmt.Errorf("%s: key %d was refused", k.name, i)
				}
				if e != nil {
					mu.Lock()
					err = e
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	return err
}

// expiring returns how many keys there are, and how many of them expire.
func expiring(c *redis.Client) (keys, expire int64) {
	for line := range strings.Lines(c.Info(context.Background(), "keyspace").Val()) {
		_, _ = fmt.Sscanf(line, "db0:keys=%d,expires=%d", &keys, &expire)
	}
	return keys, expire
}

// used returns the bytes that the server has allocated.
func used(c *redis.Client) (bytes int64) {
	for line := range strings.Lines(c.Info(context.Background(), "memory").Val()) {
		_, _ = fmt.Sscanf(line, "used_memory:%d", &bytes)
	}
	return bytes
}
