package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/bench"
)

// A scenario is a way to use the limiters.
type scenario struct {
	name       string
	goroutines int
	keys       int
	perHour    int // units of each key
}

var scenarios = []scenario{
	{"64 goroutines, 1,000 keys", 64, 1000, 1_000_000_000},
	{"64 goroutines, 1,000 keys, all rejected", 64, 1000, 1},
	{"64 goroutines, one key", 64, 1, 1_000_000_000},
	{"1 goroutine, 1,000 keys", 1, 1000, 1_000_000_000},
}

// A sample holds the figures of one contender in one round, per decision.
type sample struct {
	wall, client, server float64 // microseconds; client and server are CPU time
	allocs               float64
	p99                  float64 // microseconds
	failed               int64
	granted              float64 // as a fraction of the decisions
}

// A speed holds the medians of the samples of a contender. The ratios are of consecutive
// samples.
type speed struct {
	Scenario   string  `json:"scenario"`
	Limiter    string  `json:"limiter"`
	PerSecond  float64 `json:"decisions_per_s"`
	P99        float64 `json:"p99_us"`
	Client     float64 `json:"client_cpu_us"`
	Server     float64 `json:"server_cpu_us"`
	Allocs     float64 `json:"client_allocs"`
	Granted    float64 `json:"granted_percent"`
	Failed     int64   `json:"failed"`  // in all rounds
	Speedup    float64 `json:"speedup"` // ratio of decisions per second
	SpeedupMin float64 `json:"speedup_min"`
	SpeedupMax float64 `json:"speedup_max"`
	// ratio of CPU time of client and server, which depends less on other load
	CPURatio    float64 `json:"cpu_ratio"`
	ServerRatio float64 `json:"server_cpu_ratio"`
	P99Ratio    float64 `json:"p99_ratio"`
}

func (s speed) String() string {
	return fmt.Sprintf("%-39s %-25s %8.0f/s, heed is %.2f x (%.2f to %.2f), by processor time %.2f x, by that of the server %.2f x, client %5.1f us, server %5.1f us, p99 %5.0f us (%.2f x), %5.1f allocations, %5.1f %% granted, %d failed",
		s.Scenario, s.Limiter, s.PerSecond, s.Speedup, s.SpeedupMin, s.SpeedupMax, s.CPURatio, s.ServerRatio, s.Client, s.Server, s.P99, s.P99Ratio, s.Allocs, s.Granted, s.Failed)
}

// measureSpeed measures all contenders in alternation, so that other load on the machine
// affects them equally. The order of each round is random.
func measureSpeed(o options, report func(any)) error {
	srv, err := startServer()
	if err != nil {
		return err
	}
	defer srv.stop()
	c := srv.client()
	if o.unix {
		c = connect("unix", srv.socket())
	}
	defer c.Close()
	contenders := slices.DeleteFunc(slices.Clone(contenders), func(c contender) bool { return o.limiters != nil && !o.limiters.MatchString(c.name) })
	for n, s := range scenarios {
		samples := make([][]sample, len(contenders))
		limits := make([]allow, len(contenders))
		for i, cont := range contenders {
			if limits[i], err = cont.make(c, s.perHour, strconv.Itoa(n)+cont.name+":"); err != nil {
				return err
			}
			run(c, limits[i], s, o.sample/10) // loads scripts, opens connections and creates keys
		}
		for range o.rounds {
			for _, i := range rand.Perm(len(contenders)) {
				samples[i] = append(samples[i], run(c, limits[i], s, o.sample))
			}
		}
		for i, cont := range contenders {
			report(summarize(s.name, cont.name, samples[i], samples[0]))
		}
	}
	return nil
}

// run makes decisions for the given time on the goroutines of a scenario.
func run(c *redis.Client, ask allow, s scenario, length time.Duration) sample {
	ctx := context.Background()
	var ops, granted, failed atomic.Int64
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	server, client, start := serverTime(c), bench.ProcessorTime(), time.Now()
	var wg sync.WaitGroup
	took := make([][]time.Duration, s.goroutines)
	for g := range s.goroutines {
		wg.Go(func() {
			for i, at := g*s.keys/s.goroutines, time.Duration(0); at < length; i++ {
				ok, err := ask(ctx, names[i%s.keys])
				ops.Add(1)
				end := time.Since(start)
				took[g], at = append(took[g], end-at), end
				if err != nil {
					failed.Add(1)
				} else if ok {
					granted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	wall := time.Since(start)
	client, server = bench.ProcessorTime()-client, serverTime(c)-server
	runtime.ReadMemStats(&after)
	n := float64(ops.Load())
	all := slices.Concat(took...)
	slices.Sort(all)
	return sample{
		wall: micros(wall) / n, client: micros(client) / n, server: micros(server) / n,
		allocs: float64(after.Mallocs-before.Mallocs) / n, p99: micros(all[len(all)*99/100]), failed: failed.Load(), granted: float64(granted.Load()) / n,
	}
}

// names are keys, created before the measurement.
var names = func() (all [1000]string) {
	for i := range all {
		all[i] = "user-" + strconv.Itoa(i)
	}
	return all
}()

// serverTime returns the CPU time used by the server.
func serverTime(c *redis.Client) (used time.Duration) {
	for line := range strings.Lines(c.Info(context.Background(), "cpu").Val()) {
		for _, name := range []string{"used_cpu_sys:", "used_cpu_user:"} {
			if text, ok := strings.CutPrefix(strings.TrimSpace(line), name); ok {
				s, _ := strconv.ParseFloat(text, 64)
				used += time.Duration(s * float64(time.Second))
			}
		}
	}
	return used
}

func summarize(scenario, name string, own, ours []sample) speed {
	var failed int64
	ratios, costs, servers, p99s := make([]float64, len(own)), make([]float64, len(own)), make([]float64, len(own)), make([]float64, len(own))
	for i, s := range own {
		ratios[i] = s.wall / ours[i].wall
		costs[i] = (s.client + s.server) / (ours[i].client + ours[i].server)
		servers[i], p99s[i] = s.server/ours[i].server, s.p99/ours[i].p99
		failed += s.failed
	}
	of := func(get func(sample) float64) float64 { return median(own, get) }
	for _, values := range [][]float64{ratios, costs, servers, p99s} {
		slices.Sort(values)
	}
	return speed{
		Scenario: scenario, Limiter: name,
		PerSecond: 1e6 / of(func(s sample) float64 { return s.wall }),
		Client:    of(func(s sample) float64 { return s.client }),
		Server:    of(func(s sample) float64 { return s.server }),
		Allocs:    of(func(s sample) float64 { return s.allocs }),
		Granted:   100 * of(func(s sample) float64 { return s.granted }),
		Failed:    failed,
		Speedup:   ratios[len(ratios)/2], SpeedupMin: ratios[0], SpeedupMax: ratios[len(ratios)-1],
		CPURatio: costs[len(costs)/2], ServerRatio: servers[len(servers)/2], P99Ratio: p99s[len(p99s)/2], P99: of(func(s sample) float64 { return s.p99 }),
	}
}

func median(all []sample, get func(sample) float64) float64 {
	values := make([]float64, len(all))
	for i, s := range all {
		values[i] = get(s)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
