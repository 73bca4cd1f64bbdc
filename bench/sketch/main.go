// Sketch prints the errors of sketches with many keys in little memory: the stated bounds,
// and the measured errors.
//
//	go run ./sketch
//
// With -json it prints a line of JSON for each row; a measurement that has no stated bound has no "stated".
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/heed-go/heed/sketch"
	"github.com/heed-go/heed/throttle"
)

func main() {
	keys := flag.Int("keys", 10_000_000, "different keys")
	mib := flag.Int64("mib", 16, "memory of each sketch in MiB")
	seed := flag.Uint64("seed", 1, "of the hash and of what is added")
	asJSON := flag.Bool("json", false, "print a line of JSON for each row")
	flag.Parse()
	if *keys < 1000 || *mib < 1 || *seed == 0 {
		log.Fatal("sketch: it needs 1000 keys, 1 MiB and a seed other than 0")
	}
	e := experiment{keys: *keys, bytes: *mib << 20, seed: *seed}
	if *asJSON {
		show = row.printJSON
	} else {
		fmt.Printf("%d keys of 8 bytes\n\n", e.keys)
		fmt.Printf("%-42s %9s  %-34s %12s %12s\n", "sketch", "MiB", "error", "stated", "measured")
	}
	e.bloom()
	e.countMin()
	e.limiter(e.keys/10, e.bytes)
	e.limiter(e.keys, 0)
}

type experiment struct {
	keys  int
	bytes int64
	seed  uint64
}

// A row is an error of a sketch. A second measure of the same sketch has the same name and size.
type row struct {
	Sketch   string   `json:"sketch"`
	Bytes    int64    `json:"bytes"`
	Error    string   `json:"error"`
	Stated   *float64 `json:"stated,omitempty"`
	Measured float64  `json:"measured"`
}

var show = row.print

func (r row) print() {
	stated := ""
	if r.Stated != nil {
		stated = fmt.Sprintf("%.6g", *r.Stated)
	}
	fmt.Printf("%-42s %9.2f  %-34s %12s %12.6g\n", r.Sketch, float64(r.Bytes)/(1<<20), r.Error, stated, r.Measured)
}

func (r row) printJSON() {
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		log.Fatal("sketch: ", err)
	}
}

// key returns the i-th key.
func key(i int) string {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(i)*0x9e3779b97f4a7c15)
	return string(b[:])
}

// bloom looks up a million keys that were not added.
func (e experiment) bloom() {
	const trials = 1_000_000
	b := sketch.NewBloom(sketch.BloomConfig{Keys: int64(e.keys), Bytes: e.bytes, Seed: e.seed})
	for i := range e.keys {
		b.Add(key(i))
	}
	found := 0
	for i := range trials {
		if b.Test(key(e.keys + i)) {
			found++
		}
	}
	stated := sketch.NewBloom(sketch.BloomConfig{Keys: int64(e.keys), ErrorRate: 0.01})
	computed := b.ErrorRate(int64(e.keys))
	show(row{"Bloom", b.Bytes(), "false positives, computed exactly", &computed, float64(found) / trials})
	show(row{"Bloom with an error rate of 1 %", stated.Bytes(), "bits for each key", nil, float64(stated.Bytes()) * 8 / float64(e.keys)})
}

// countMin adds every key once, and the same number of keys by a Zipf distribution.
func (e experiment) countMin() {
	const delta = 0.01
	c := sketch.NewCountMin(sketch.CountMinConfig{Bytes: e.bytes, Seed: e.seed})
	zipf := rand.NewZipf(rand.New(rand.NewPCG(e.seed, 1)), 1.1, 1, uint64(e.keys-1))
	added := make([]int64, e.keys)
	for i := range added {
		added[i]++
		c.Add(key(i), 1)
		more := zipf.Uint64()
		added[more]++
		c.Add(key(int(more)), 1)
	}
	excess, sum := make([]int64, e.keys), 0.0
	for i, n := range added {
		excess[i] = c.Count(key(i)) - n
		sum += float64(excess[i])
	}
	slices.Sort(excess)
	if excess[0] < 0 {
		log.Fatal("sketch: a count is too low")
	}
	at := int(float64(e.keys) * (1 - delta))
	const name = "CountMin, twice as many additions"
	stated := c.Epsilon(delta) * 2 * float64(e.keys)
	show(row{name, c.Bytes(), "excess of 99 % of the keys, at most", &stated, float64(excess[at])})
	show(row{name, c.Bytes(), "mean excess", nil, sum / float64(e.keys)})
}

// limiter makes each client use one unit in each of two windows, and every tenth client two
// more. It then compares the estimated use of each client with the actual one.
func (e experiment) limiter(clients int, bytes int64) {
	ctx := context.Background()
	l := sketch.NewLimiter(sketch.LimiterConfig{Limit: throttle.PerMinute(10), Clients: int64(clients), Bytes: bytes, Seed: e.seed})
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rejected, wrong := 0, 0
	for window := range 2 {
		at := start.Add(time.Duration(window)*time.Minute + 30*time.Second)
		for i := range clients {
			for range uses(i) {
				if d, _ := l.Reserve(ctx, throttle.Claim{Key: key(i), Now: at}); !d.OK {
					rejected++
				}
			}
		}
	}
	end := start.Add(90 * time.Second) // half of the previous window still counts
	for i := range clients {
		d, _ := l.Reserve(ctx, throttle.Claim{Key: key(i), Now: end, DryRun: true})
		switch left := 10 - uses(i) - (uses(i)+1)/2; {
		case d.Remaining < left:
			wrong++
		case d.Remaining > left && rejected == 0:
			log.Fatal("sketch: a client is taken to have used too little")
		}
	}
	name, stated := fmt.Sprintf("Limiter, %d clients, a tenth returns", clients), l.ErrorRate(int64(clients), int64(clients/10))
	show(row{name, l.Bytes(), "clients taken to have used more", &stated, float64(wrong) / float64(clients)})
	show(row{name, l.Bytes(), "claims rejected that exact counts grant", nil, float64(rejected) / (2.4 * float64(clients))})
}

// uses returns the number of units that client i takes in each window.
func uses(i int) int64 {
	if i%10 == 0 {
		return 3
	}
	return 1
}
