// Redisregions measures a limit of 1,000 per second that hosts in three regions share, whose
// Redis servers are real and 100 ms apart: in Mode Eventual, with a partition of 5 s, and in
// Mode Synchronous against the Redis of one region.
//
//	go run ./bench/redisregions -json
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis"
	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

// A result holds the figures of one run.
type result struct {
	Mode    string  `json:"mode"`
	Limit   string  `json:"limit"`
	Offered int     `json:"offered_per_second"` // in all regions together
	Granted float64 `json:"granted_per_second"` // before the partition

	// Before the partition: the units by which the grants exceed the limit, as a single limiter
	// counts them, and the bound of docs/regions.md. In Mode Synchronous they are 0, because
	// Redis decides.
	Overshoot int64   `json:"overshoot"`
	Bound     int64   `json:"bound"`
	Decisions int     `json:"decisions"`
	Trips     int64   `json:"trips"` // scripts that Redis ran for these decisions
	PerTrip   float64 `json:"trips_per_decision"`
	P50       float64 `json:"p50_us"` // duration of a decision
	P99       float64 `json:"p99_us"`
	Max       float64 `json:"max_us"`

	// The partition, in Mode Eventual: the rate of all regions together, the time after it
	// until all hosts know all that was taken until its end while the load continues, and until
	// their totals are equal after the load has ended.
	PartitionGranted float64 `json:"granted_per_second_in_partition,omitempty"`
	Agreed           float64 `json:"agreed_ms,omitempty"`
	Equal            float64 `json:"equal_ms,omitempty"`
}

// A plan configures a run.
type plan struct {
	mode      throttleredis.Mode
	window    bool // a fixed window instead of a token bucket
	offered   int  // claims per second in each region
	length    time.Duration
	partition time.Duration
	options   throttleredis.EventualOptions
}

// distance is how much later responses of the Redis of another region arrive.
const distance = 100 * time.Millisecond

const regions = 3

var limit = throttle.Limit{Name: "shared", Count: 1000, Per: time.Second}

func main() {
	log.SetFlags(0)
	length := flag.Duration("length", 10*time.Second, "how long to measure before the partition")
	partition := flag.Duration("partition", 5*time.Second, "how long a region is cut off")
	interval := flag.Duration("interval", 100*time.Millisecond, "EventualOptions.Interval")
	delay := flag.Duration("delay", 150*time.Millisecond, "EventualOptions.Delay")
	asJSON := flag.Bool("json", false, "print lines of JSON")
	flag.Parse()
	redistest.DiscardLog()
	t := new(redistest.Program)
	defer t.End()
	options := throttleredis.EventualOptions{Interval: *interval, Delay: *delay}
	for _, p := range []plan{
		{mode: throttleredis.Eventual, offered: 1000},
		{mode: throttleredis.Eventual, offered: 1000, window: true},
		{mode: throttleredis.Eventual, offered: 333},
		{mode: throttleredis.Synchronous, offered: 1000},
	} {
		p.length, p.partition, p.options = *length, *partition, options
		if err := print(os.Stdout, measure(t, p), *asJSON); err != nil {
			t.Fatalf("redisregions: %v", err)
		}
	}
}

func print(w io.Writer, r result, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	_, err := fmt.Fprintf(w, "%-11s %-13s  offered %d/s, granted %.0f/s, overshoot %d of at most %d, %d trips for %d decisions (%.4f), p50 %.1f µs, p99 %.1f µs, max %.0f µs",
		r.Mode, r.Limit, r.Offered, r.Granted, r.Overshoot, r.Bound, r.Trips, r.Decisions, r.PerTrip, r.P50, r.P99, r.Max)
	if err == nil && r.Agreed > 0 {
		_, err = fmt.Fprintf(w, "; partition: granted %.0f/s, agreed after %.0f ms, equal %.0f ms after the load", r.PartitionGranted, r.Agreed, r.Equal)
	}
	if err == nil {
		_, err = fmt.Fprintln(w)
	}
	return err
}
