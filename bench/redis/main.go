// Redis measures limits that processes share through a redis-server of its own, beside
// go-redis/redis_rate and a script that does nothing:
//
//	go run ./redis
//
// Turns of the three alternate, so that what else the machine does hits all alike. Then four
// processes with 16 goroutines each use up one limit for ten seconds.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis"
)

const (
	goroutines = 64
	keys       = 1000
)

func main() {
	log.SetFlags(0)
	turn := flag.Duration("turn", time.Second, "length of a turn")
	turns := flag.Int("turns", 5, "turns of each")
	fleet := flag.Duration("fleet", 10*time.Second, "how long the processes use up a limit")
	child := flag.String("child", "", "socket of the server: be one of the processes")
	flag.Parse()
	if *child != "" {
		fmt.Println(useUp(*child, *fleet))
		return
	}
	dir, err := os.MkdirTemp("", "heed")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "redis.sock")
	server := exec.Command("redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no", "--dir", dir)
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	c := dial(socket)
	defer c.Close()
	for c.Ping(context.Background()).Err() != nil {
		time.Sleep(10 * time.Millisecond)
	}
	compare(c, *turn, *turns)
	share(socket, *fleet)
}

func dial(socket string) *redis.Client {
	return redis.NewClient(&redis.Options{Network: "unix", Addr: socket, PoolSize: goroutines, MaxRetries: -1})
}

// A subject makes one decision about a key.
type subject struct {
	name   string
	decide func(ctx context.Context, key string) error
	rates  []float64
	allocs float64
	server []float64 // microseconds of the server's processor for each decision
}

func compare(c *redis.Client, turn time.Duration, turns int) {
	limit := (&throttleredis.Store{Client: c}).TokenBucket(throttle.PerSecond(1000))
	peer := redis_rate.NewLimiter(c)
	nothing := redis.NewScript("return 1")
	all := []*subject{
		{name: "throttleredis.TokenBucket", decide: func(ctx context.Context, key string) error {
			_, err := limit.Reserve(ctx, throttle.Claim{Key: key})
			return err
		}},
		{name: "redis_rate.Allow", decide: func(ctx context.Context, key string) error {
			_, err := peer.Allow(ctx, key, redis_rate.PerSecond(1000))
			return err
		}},
		{name: "EVALSHA return 1", decide: func(ctx context.Context, key string) error {
			return nothing.Run(ctx, c, []string{key}).Err()
		}},
	}
	for range turns {
		for _, s := range all {
			s.play(c, turn)
		}
	}
	for _, s := range all {
		fmt.Printf("%-26s %8.0f decisions/s  %4.1f us of the server each  %4.1f allocations\n", s.name, median(s.rates), median(s.server), s.allocs)
	}
	ours, theirs, none := median(all[0].rates), median(all[1].rates), median(all[2].rates)
	fmt.Printf("ours are %.2f x those of redis_rate, and %.2f x the empty script\n", ours/theirs, ours/none)
}

// play has all goroutines decide for one turn.
func (s *subject) play(c *redis.Client, turn time.Duration) {
	ctx := context.Background()
	var done atomic.Int64
	var wg sync.WaitGroup
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, start := processor(c), time.Now()
	for range goroutines {
		wg.Go(func() {
			for time.Since(start) < turn {
				if err := s.decide(ctx, "key"+strconv.Itoa(rand.IntN(keys))); err != nil {
					log.Fatal(err)
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	n := float64(done.Load())
	s.rates = append(s.rates, n/time.Since(start).Seconds())
	s.server = append(s.server, (processor(c)-cpu)*1e6/n)
	runtime.ReadMemStats(&after)
	s.allocs = float64(after.Mallocs-before.Mallocs)/n - 1 // the name of the key
}

// processor returns how many seconds of a processor the server has used.
func processor(c *redis.Client) (sum float64) {
	info := c.Info(context.Background(), "cpu").Val()
	for line := range strings.Lines(info) {
		for _, field := range []string{"used_cpu_sys:", "used_cpu_user:"} {
			if v, ok := strings.CutPrefix(strings.TrimSpace(line), field); ok {
				f, _ := strconv.ParseFloat(v, 64)
				sum += f
			}
		}
	}
	return sum
}

func median(fs []float64) float64 {
	sort.Float64s(fs)
	return fs[len(fs)/2]
}

// shared is the limit that the processes use up.
var shared = throttle.Limit{Count: 1000, Per: time.Second, Burst: 100}

// useUp takes what it can get of the shared limit with 16 goroutines.
func useUp(socket string, d time.Duration) (granted int64) {
	c := dial(socket)
	defer c.Close()
	l := (&throttleredis.Store{Client: c}).TokenBucket(shared)
	var n atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range 16 {
		wg.Go(func() {
			for time.Since(start) < d {
				decision, err := l.Reserve(context.Background(), throttle.Claim{})
				switch {
				case err != nil:
					log.Fatal(err)
				case decision.OK:
					n.Add(1)
				default:
					time.Sleep(decision.Wait)
				}
			}
		})
	}
	wg.Wait()
	return n.Load()
}

// share has four processes use up the limit. The span is that from the first start to the
// last end.
func share(socket string, d time.Duration) {
	var sum atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range 4 {
		wg.Go(func() {
			out, err := exec.Command(os.Args[0], "-child", socket, "-fleet", d.String()).Output()
			if err != nil {
				log.Fatal(err)
			}
			n, _ := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
			sum.Add(n)
		})
	}
	wg.Wait()
	took := time.Since(start)
	bound := float64(shared.Burst) + took.Seconds()*float64(shared.Count)/shared.Per.Seconds()
	fmt.Printf("4 processes x 16 goroutines, %v: %d granted in %.2f s, %.3f x limit and burst\n", shared, sum.Load(), took.Seconds(), float64(sum.Load())/bound)
}
