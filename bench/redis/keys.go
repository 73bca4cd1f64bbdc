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

// A kind creates limiters of n units in per.
type kind struct {
	name string
	make func(s *throttleredis.Store, n int64, per time.Duration) *throttleredis.Limiter
}

var kinds = []kind{
	{"TokenBucket", func(s *throttleredis.Store, n int64, per time.Duration) *throttleredis.Limiter {
		return s.TokenBucket(throttle.Limit{Count: n, Per: per})
	}},
	{"RefillBucket", func(s *throttleredis.Store, n int64, per time.Duration) *throttleredis.Limiter {
		return s.RefillBucket(throttle.RefillBucketConfig{Limit: throttle.Limit{Count: n, Per: per}})
	}},
	{"LeakyBucket", func(s *throttleredis.Store, n int64, per time.Duration) *throttleredis.Limiter {
		return s.LeakyBucket(throttle.LeakyBucketConfig{Limit: throttle.Limit{Count: n, Per: per}})
	}},
	{"Nginx", func(s *throttleredis.Store, n int64, per time.Duration) *throttleredis.Limiter {
		return s.Nginx(throttle.NginxConfig{Rate: n, Per: per, Burst: n})
	}},
	{"FixedWindow", func(s *throttleredis.Store, n int64, per time.Duration) *throttleredis.Limiter {
		return s.FixedWindow(throttle.FixedWindowConfig{Count: n, Align: throttle.AtFirst, Per: per})
	}},
	{"SlidingCounter", func(s *throttleredis.Store, n int64, per time.Duration) *throttleredis.Limiter {
		return s.SlidingCounter(throttle.SlidingCounterConfig{Limit: throttle.Limit{Count: n, Per: per}})
	}},
	{"WarmUp", func(s *throttleredis.Store, n int64, per time.Duration) *throttleredis.Limiter {
		return s.WarmUp(warmup.Config{Limit: throttle.Limit{Count: n, Per: per}, Period: per})
	}},
	{"SlidingLog", func(s *throttleredis.Store, n int64, per time.Duration) *throttleredis.Limiter {
		return s.SlidingLog(throttle.SlidingLogConfig{Limit: throttle.Limit{Count: n, Per: per}})
	}},
	{"Concurrency", func(s *throttleredis.Store, n int64, per time.Duration) *throttleredis.Limiter {
		return s.Concurrency(throttle.ConcurrencyConfig{Count: n, MaxAge: per})
	}},
}

// A memoryUse is the memory of keys that have each granted one unit.
type memoryUse struct {
	Kind       string  `json:"kind"`
	Keys       int64   `json:"keys"`
	Mean       float64 `json:"bytes_mean"`        // mean of MEMORY USAGE of a sample
	Max        int64   `json:"bytes_max"`         // maximum of the sample
	WithTables float64 `json:"bytes_with_tables"` // used_memory / keys, which includes the server's tables
	Expire     int64   `json:"keys_with_expiry"`
	MaxTTL     float64 `json:"max_ttl_s"` // maximum of the sample; the limits are per hour
}

func (w memoryUse) String() string {
	return fmt.Sprintf("%-15s %d keys, %.1f bytes each (at most %d, with the server's tables %.1f), %d of them expire, within %.0f s",
		w.Kind, w.Keys, w.Mean, w.Max, w.WithTables, w.Expire, w.MaxTTL)
}

// An expiry is the time after which unused keys of all kinds are deleted.
type expiry struct {
	Keys    int64   `json:"keys"`
	Left    int64   `json:"left"`
	Seconds float64 `json:"seconds"` // from the last use of a key
}

func (v expiry) String() string {
	return fmt.Sprintf("%d keys of limits by the second: %d left after %.1f s", v.Keys, v.Left, v.Seconds)
}

const sampleSize = 1000

// measureKeys uses each of many keys once, separately for each kind of limit.
func measureKeys(o options, report func(any)) error {
	srv, err := startServer()
	if err != nil {
		return err
	}
	defer srv.stop()
	c := srv.client()
	defer c.Close()
	for _, k := range kinds {
		w, err := measureMemory(c, k, o.keys)
		if err != nil {
			return err
		}
		report(w)
	}
	v, err := measureExpiry(c, o.keys/len(kinds))
	report(v)
	return err
}

func measureMemory(c *redis.Client, k kind, keys int) (w memoryUse, err error) {
	ctx := context.Background()
	if err := c.FlushAll(ctx).Err(); err != nil {
		return w, err
	}
	empty := used(c)
	if err := fill(c, k, keys, time.Hour); err != nil {
		return w, err
	}
	w.Kind = k.name
	w.WithTables = float64(used(c)-empty) / float64(keys)
	w.Keys, w.Expire = expiring(c)
	var sum int64
	for range sampleSize {
		key, err := c.RandomKey(ctx).Result()
		if err != nil {
			return w, err
		}
		bytes := c.MemoryUsage(ctx, key).Val()
		w.Max = max(w.Max, bytes)
		sum += bytes
		w.MaxTTL = max(w.MaxTTL, c.PTTL(ctx, key).Val().Seconds())
	}
	w.Mean = float64(sum) / sampleSize
	return w, nil
}

// measureExpiry uses keys of all kinds, and waits until Redis has deleted them.
func measureExpiry(c *redis.Client, keys int) (v expiry, err error) {
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

// fill takes one unit of each key.
func fill(c *redis.Client, k kind, keys int, per time.Duration) error {
	pipe, err := c.AutoPipeline()
	if err != nil {
		return err
	}
	store := &throttleredis.Store{Client: pipe}
	l := k.make(store, 10, per)
	return forEach(keys, 256, func(i int) error {
		d, err := l.Reserve(context.Background(), throttle.Claim{Key: "user-" + strconv.Itoa(1_000_000+i)})
		if err == nil && !d.OK {
			err = fmt.Errorf("%s: key %d was rejected", k.name, i)
		}
		return err
	})
}

// forEach calls f for 0 to n-1 from goroutines. It returns an error of f; the goroutine that
// got it makes no further calls.
func forEach(n, goroutines int, f func(i int) error) (err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := g; i < n; i += goroutines {
				if e := f(i); e != nil {
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

// expiring returns the number of keys, and the number of keys with an expiry.
func expiring(c *redis.Client) (keys, expire int64) {
	for line := range strings.Lines(c.Info(context.Background(), "keyspace").Val()) {
		_, _ = fmt.Sscanf(line, "db0:keys=%d,expires=%d", &keys, &expire)
	}
	return keys, expire
}

// used returns the number of bytes that the server has allocated.
func used(c *redis.Client) (bytes int64) {
	for line := range strings.Lines(c.Info(context.Background(), "memory").Val()) {
		_, _ = fmt.Sscanf(line, "used_memory:%d", &bytes)
	}
	return bytes
}
