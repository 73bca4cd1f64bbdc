// Keyed measures limiters for a million keys: it makes a million decisions per second for
// ten seconds, most of them for few keys. Then all keys expire at the same time while new
// ones are added.
//
//	go run ./keyed
//
// With -json it prints its figures as a line of JSON, durations in nanoseconds.
//
// It prints whether the load was sustained, the duration of decisions (99th percentile and
// maximum), the memory used, and the longest stall while keys expire, together with the
// longest stall of a loop that only reads the clock, which is caused by the machine.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math/bits"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/heed-go/heed/bench"
	"github.com/heed-go/heed/bench/internal/heap"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// A result is what the program prints.
type result struct {
	Keys        int     `json:"keys"`
	BytesPerKey float64 `json:"bytes_per_key"`

	Sustained bool          `json:"sustained"`
	Decisions int           `json:"decisions"`
	Rejected  int           `json:"rejected"`
	Took      time.Duration `json:"took_ns"`
	P99       time.Duration `json:"p99_ns"`
	Longest   time.Duration `json:"longest_ns"`

	NewKeys       int           `json:"new_keys"`
	ExpiryP99     time.Duration `json:"expiry_p99_ns"`
	ExpiryLongest time.Duration `json:"expiry_longest_ns"`
	IdleLongest   time.Duration `json:"idle_longest_ns"`
}

func (r result) print() {
	fmt.Printf("keys         %d, %.1f bytes each, %.1f MiB in all\n", r.Keys, r.BytesPerKey, r.BytesPerKey*float64(r.Keys)/(1<<20))
	verdict := "sustained"
	if !r.Sustained {
		verdict = "NOT sustained"
	}
	fmt.Printf("load         %s: %d decisions in %v, %.0f a second; %d rejected\n",
		verdict, r.Decisions, r.Took.Round(time.Millisecond), float64(r.Decisions)/r.Took.Seconds(), r.Rejected)
	fmt.Printf("a decision   99 of 100 within %v, the longest %v\n", r.P99, r.Longest)
	fmt.Printf("expiry       %d new keys while all others expire: the longest stall %v, 99 of 100 within %v; of a loop that does nothing %v\n",
		r.NewKeys, r.ExpiryLongest, r.ExpiryP99, r.IdleLongest)
}

func main() {
	rate := flag.Int("rate", 1_000_000, "decisions a second")
	length := flag.Duration("for", 10*time.Second, "how long they are offered")
	workers := flag.Int("workers", runtime.GOMAXPROCS(0), "goroutines that ask")
	exact := flag.Bool("exact", false, "keep the keys, not only their hashes")
	asJSON := flag.Bool("json", false, "print a line of JSON")
	flag.Parse()

	keys := bench.NewKeys()
	before := heap.InUse()
	l := keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.Limit{Count: 10, Per: time.Second}, Max: keys.Len(), Exact: *exact})
	for i := range keys.Len() {
		_, _ = l.Reserve(context.Background(), throttle.Claim{Key: keys.Key(i)})
	}
	resident := heap.InUse() - before
	r := result{Keys: keys.Len(), BytesPerKey: float64(resident) / float64(keys.Len())}
	r.measureLoad(l, keys, *rate, *length, *workers)
	r.expire(l, keys)
	if !*asJSON {
		r.print()
	} else if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		log.Fatal("keyed: ", err)
	}
}

// measureLoad makes decisions at a constant rate, regardless of their duration.
func (r *result) measureLoad(l throttle.Limiter, keys bench.Keys, rate int, length time.Duration, workers int) {
	all := make([]latencies, workers)
	start := time.Now()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() { all[w].run(l, keys, w<<20, float64(rate)/float64(workers), start, length) })
	}
	wg.Wait()
	r.Took = time.Since(start)
	sum := latencies{}
	for i := range all {
		sum.add(&all[i])
	}
	r.Sustained = float64(sum.n) >= 0.999*float64(rate)*length.Seconds() && r.Took <= length+length/100
	r.Decisions, r.Rejected, r.P99, r.Longest = sum.n, sum.rejected, sum.quantile(0.99), sum.longest
}

// latencies is a histogram of the durations of decisions, with 16 buckets per power of two.
type latencies struct {
	buckets     [64 * 16]int
	n, rejected int
	longest     time.Duration
}

func (t *latencies) run(l throttle.Limiter, keys bench.Keys, from int, rate float64, start time.Time, length time.Duration) {
	ctx := context.Background()
	for now := time.Since(start); now < length; now = time.Since(start) {
		due := int(now.Seconds() * rate)
		if t.n >= due {
			time.Sleep(50 * time.Microsecond)
			continue
		}
		for t.n < due {
			d, _ := l.Reserve(ctx, throttle.Claim{Key: keys.Next(from + t.n)})
			then := now
			now = time.Since(start)
			t.observe(now - then)
			if !d.OK {
				t.rejected++
			}
		}
	}
}

func (t *latencies) observe(d time.Duration) {
	n := uint64(max(d, 16))
	octave := bits.Len64(n) - 5
	t.buckets[octave*16+int(n>>octave)&15]++
	t.longest = max(t.longest, d)
	t.n++
}

func (t *latencies) add(u *latencies) {
	for i, n := range u.buckets {
		t.buckets[i] += n
	}
	t.n, t.rejected, t.longest = t.n+u.n, t.rejected+u.rejected, max(t.longest, u.longest)
}

// quantile returns the duration that a fraction q of all decisions did not exceed.
func (t *latencies) quantile(q float64) time.Duration {
	left := int(q * float64(t.n))
	for i, n := range t.buckets {
		if left -= n; left < 0 {
			return time.Duration((i%16+17)<<(i/16) - 1)
		}
	}
	return t.longest
}

// expire makes decisions for new keys only, in the second in which all known keys become
// equivalent to unused ones.
func (r *result) expire(l throttle.Limiter, keys bench.Keys) {
	ctx := context.Background()
	for i := range keys.Len() {
		_, _ = l.Reserve(ctx, throttle.Claim{Key: keys.Key(i)})
	}
	var busy, idle latencies
	name := []byte("stranger 0000000")
	run(&busy, func(i int) {
		for j := len(name) - 1; j > len(name)-8; j-- {
			name[j], i = '0'+byte(i%10), i/10
		}
		_, _ = l.Reserve(ctx, throttle.Claim{Key: string(name)})
	})
	run(&idle, func(int) {})
	r.NewKeys, r.ExpiryP99, r.ExpiryLongest, r.IdleLongest = busy.n, busy.quantile(0.99), busy.longest, idle.longest
}

// run calls do for a second and records the duration of each call.
func run(t *latencies, do func(int)) {
	start := time.Now()
	for now := time.Duration(0); now < time.Second; {
		do(t.n)
		then := now
		now = time.Since(start)
		t.observe(now - then)
	}
}
