// Over makes 32 goroutines take units from one bucket as fast as possible, each with its
// own reading of the clock, and counts the units beyond rate x time + burst.
//
//	go run ./bench/over -json
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/heed-go/heed/throttle"
)

const (
	perSecond  = 1_000_000
	burst      = 100_000
	goroutines = 32
)

type result struct {
	Limiter string  `json:"limiter"`
	Granted int64   `json:"granted"`
	Allowed int64   `json:"allowed"` // burst + rate x time
	Over    float64 `json:"over_percent"`
}

func main() {
	length := flag.Duration("for", time.Second, "how long")
	procs := flag.Int("procs", 8, "GOMAXPROCS")
	asJSON := flag.Bool("json", false, "print lines of JSON")
	flag.Parse()
	runtime.GOMAXPROCS(*procs)
	ctx := context.Background()
	ours := func() func() bool {
		b := throttle.NewTokenBucket(throttle.Limit{Count: perSecond, Per: time.Second, Burst: burst})
		return func() bool {
			d, err := b.Reserve(ctx, throttle.Claim{})
			return err == nil && d.OK
		}
	}
	theirs := func() func() bool { return rate.NewLimiter(perSecond, burst).Allow }
	for _, r := range []result{take("heed", ours, *length), take("x/time/rate", theirs, *length)} {
		if *asJSON {
			_ = json.NewEncoder(os.Stdout).Encode(r)
			continue
		}
		fmt.Printf("%-12s %d granted of %d: %.2f %% over\n", r.Limiter, r.Granted, r.Allowed, r.Over)
	}
}

func take(name string, limiter func() func() bool, length time.Duration) result {
	start := time.Now()
	allow := limiter()
	var granted atomic.Int64
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for time.Since(start) < length {
				if allow() {
					granted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	allowed := burst + int64(time.Since(start).Seconds()*perSecond)
	r := result{Limiter: name, Granted: granted.Load(), Allowed: allowed}
	r.Over = 100 * float64(max(r.Granted-allowed, 0)) / float64(allowed)
	return r
}
