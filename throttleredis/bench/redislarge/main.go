// Redislarge measures the duration of single calls of limiters whose state in Redis is
// large: a SlidingLog with a million entries, and a Concurrency limiter most of whose
// claims were never ended. All state is created by ordinary claims on a separate
// redis-server.
//
//	go run ./bench/redislarge -json
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis"
	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

// A result holds the duration of calls of one kind, measured by the client and by the
// server.
type result struct {
	State  string  `json:"state"`
	Call   string  `json:"call"`
	Calls  int     `json:"calls"`
	P50    float64 `json:"p50_ms"`
	Max    float64 `json:"max_ms"`
	Server float64 `json:"server_mean_ms"` // of one script, from INFO commandstats
	Bytes  int64   `json:"bytes"`          // MEMORY USAGE of the key before the calls
}

// A bench holds a server, its client, and the output format.
type bench struct {
	t         *redistest.Program
	client    *redis.Client
	pipelined redis.Scripter // sends claims together
	calls     int
	asJSON    bool
}

func main() {
	log.SetFlags(0)
	entries := flag.Int("entries", 1_000_000, "entries of the SlidingLog")
	leases := flag.Int("leases", 50_000, "claims of the Concurrency that are never ended")
	calls := flag.Int("calls", 500, "calls of each kind")
	asJSON := flag.Bool("json", false, "print lines of JSON")
	flag.Parse()
	if *calls <= 0 || *entries < 2**calls {
		log.Fatalf("redislarge: -calls is %d: it must be positive, and at most half of -entries", *calls)
	}
	t := new(redistest.Program)
	defer t.End()
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr, ContextTimeoutEnabled: true, MaxRetries: -1, ReadTimeout: time.Minute})
	defer client.Close()
	pipelined, err := client.AutoPipeline()
	if err != nil {
		t.Fatalf("redislarge: %v", err)
	}
	defer pipelined.Close()
	b := &bench{t: t, client: client, pipelined: pipelined, calls: *calls, asJSON: *asJSON}
	b.slidingLog(*entries)
	b.concurrency(*leases)
}

// slidingLog fills a log, then settles, grants and rejects claims.
func (b *bench) slidingLog(entries int) {
	configuration := throttle.SlidingLogConfig{Limit: throttle.Limit{Count: int64(entries + 2*b.calls), Per: time.Hour}}
	l := b.store().SlidingLog(configuration)
	claims := b.fill((&throttleredis.Store{Client: b.pipelined}).SlidingLog(configuration), entries)
	state := fmt.Sprintf("SlidingLog, %d entries", entries)
	settle := func(i int, cost int64) {
		l.Report(context.Background(), throttle.Claim{}, claims[i], throttle.Feedback{Cost: cost})
	}
	b.measure(state, "settle the oldest, +1", func(i int) { settle(i, 2) })
	b.measure(state, "settle the oldest, -1", func(i int) {
		l.Report(context.Background(), throttle.Claim{Cost: 1}, claims[i], throttle.Feedback{State: throttle.Unused})
	})
	b.measure(state, "settle in the middle", func(i int) { settle(len(claims)/2+i, 2) })
	b.measure(state, "settle the newest", func(i int) { settle(len(claims)-1-i, 2) })
	b.measure(state, "grant", func(int) { b.reserve(l, throttle.Claim{}) })
	b.measure(state, "reject", func(int) { b.reserve(l, throttle.Claim{Cost: configuration.Limit.Count / 2}) })
}

// concurrency claims units that are never returned, waits until the claims are lost, and
// makes further claims.
func (b *bench) concurrency(leases int) {
	configuration := throttle.ConcurrencyConfig{Count: int64(leases), MaxAge: 20 * time.Second}
	b.client.FlushAll(context.Background())
	l := b.store().Concurrency(configuration)
	b.fill((&throttleredis.Store{Client: b.pipelined}).Concurrency(configuration), leases)
	state := fmt.Sprintf("Concurrency, %d claims that were never ended", leases)
	b.measure(state, "reject while they hold", func(int) { b.reserve(l, throttle.Claim{Cost: int64(leases)}) })
	time.Sleep(configuration.MaxAge)
	b.measure(state, "dry run when all are lost", func(int) { b.reserve(l, throttle.Claim{DryRun: true}) })
	b.measure(state, "grant when all are lost", func(int) { b.reserve(l, throttle.Claim{}) })
}

func (b *bench) store() *throttleredis.Store { return &throttleredis.Store{Client: b.client} }

// fill makes n claims, and returns their decisions in order of time.
func (b *bench) fill(l *throttleredis.Limiter, n int) []throttle.Decision {
	const callers = 256
	var all [callers][]throttle.Decision
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			for k := i; k < n; k += callers {
				all[i] = append(all[i], b.reserve(l, throttle.Claim{}))
			}
		})
	}
	wg.Wait()
	claims := slices.Concat(all[:]...)
	slices.SortFunc(claims, func(x, y throttle.Decision) int { return x.At.Compare(y.At) })
	return claims
}

func (b *bench) reserve(l throttle.Limiter, c throttle.Claim) throttle.Decision {
	d, err := l.Reserve(context.Background(), c)
	if err != nil {
		log.Printf("redislarge: %v", err)
	}
	return d
}

// measure makes calls one after the other, and prints how long they took.
func (b *bench) measure(state, name string, call func(i int)) {
	r := result{State: state, Call: name, Calls: b.calls}
	ctx := context.Background()
	if keys := b.client.Keys(ctx, "*").Val(); len(keys) > 0 {
		r.Bytes = b.client.MemoryUsage(ctx, keys[0], 0).Val()
	}
	b.client.ConfigResetStat(ctx)
	took := make([]time.Duration, b.calls)
	for i := range took {
		start := time.Now()
		call(i)
		took[i] = time.Since(start)
	}
	r.Server = b.serverTime()
	slices.Sort(took)
	r.P50, r.Max = milliseconds(took[len(took)/2]), milliseconds(took[len(took)-1])
	if b.asJSON {
		if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
			b.t.Fatalf("redislarge: %v", err)
		}
		return
	}
	fmt.Printf("%-50s %-24s p50 %7.3f ms, max %8.3f ms, %7.3f ms in the server, %d bytes\n", r.State, r.Call, r.P50, r.Max, r.Server, r.Bytes)
}

// serverTime returns the mean duration of a script since the last reset, in milliseconds.
func (b *bench) serverTime() float64 {
	stats := b.client.InfoMap(context.Background(), "commandstats").Val()["Commandstats"]["cmdstat_evalsha"]
	var calls, us int64
	var mean float64
	if _, err := fmt.Sscanf(stats, "calls=%d,usec=%d,usec_per_call=%f", &calls, &us, &mean); err != nil {
		b.t.Fatalf("redislarge: INFO commandstats: %q: %v", stats, err)
	}
	return mean / 1000
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
