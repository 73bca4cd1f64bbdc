// Bandwidth measures package bandwidth over TCP on loopback, beside the Reader and Writer of
// juju/ratelimit and a Reader and Writer that wait for a rate.Limiter of x/time, in one run.
//
//	go run ./bandwidth -json
//
// It makes three measurements:
//
//   - rate: what a limit of 10 MB/s passes within 5 s, in each direction, paced by the client
//     and by the server; the median of three runs. All contenders have a burst of 50 ms, which
//     is 1 % of what passes within 5 s.
//   - fair: how evenly eight streams share that limit, with equal reads of 32 KiB, and with
//     reads of 32 KiB and 1 KiB.
//   - speed: bytes per second with a limit that never binds, as a ratio of those without
//     this package, by turns. The work "server, file" sends a file, which net/http leaves to
//     the system.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"time"
)

// A row is one result.
type row struct {
	Measurement string  `json:"measurement"`
	Work        string  `json:"work"`
	Contender   string  `json:"contender"`
	MBPerSecond float64 `json:"mb_per_second"`
	Off         float64 `json:"off_percent,omitempty"` // of the limit
	Jain        float64 `json:"jain,omitempty"`
	Ratio       float64 `json:"ratio,omitempty"`     // of MBPerSecond to that of a plain client and server
	CPURatio    float64 `json:"cpu_ratio,omitempty"` // of bytes per second of processor time, which other programs do not change
}

// Goals of heed, which -check tests.
const (
	maxOff   = 2.0 // percent
	minJain  = 0.95
	minRatio = 0.8 // of processor time
)

func main() {
	length := flag.Duration("for", 5*time.Second, "how long each measurement of rate and fair takes")
	perSecond := flag.Int64("rate", 10_000_000, "bytes per second")
	rounds := flag.Int("rounds", 9, "rounds of speed")
	sample := flag.Duration("sample", 300*time.Millisecond, "how long a round of speed takes for each contender")
	asJSON := flag.Bool("json", false, "print lines of JSON")
	check := flag.Bool("check", false, "exit with code 1 if heed misses a goal")
	flag.Parse()
	if *rounds < 1 || *perSecond < 1000 {
		log.Fatal("bandwidth: -rounds must be positive, and -rate at least 1000")
	}
	missed := 0
	for _, measure := range []func(show func(row)) error{
		func(show func(row)) error { return measureRate(*perSecond, *length, show) },
		func(show func(row)) error { return measureFairness(*perSecond, *length, show) },
		func(show func(row)) error { return measureSpeed(*rounds, *sample, show) },
	} {
		err := measure(func(r row) {
			print(r, *asJSON)
			if r.Contender == "heed" && !r.meetsGoals() {
				missed++
			}
		})
		if err != nil {
			log.Fatal("bandwidth: ", err)
		}
	}
	if *check && missed > 0 {
		log.Fatalf("bandwidth: heed missed %d goals", missed)
	}
}

func (r row) meetsGoals() bool {
	switch r.Measurement {
	case "rate":
		return r.Off >= -maxOff && r.Off <= maxOff
	case "fair":
		return r.Jain >= minJain
	}
	return r.CPURatio >= minRatio
}

func print(r row, asJSON bool) {
	switch {
	case asJSON:
		_ = json.NewEncoder(os.Stdout).Encode(r)
	case r.Measurement == "rate":
		fmt.Printf("%-5s %-18s %-15s %7.2f MB/s, %+.2f %%\n", r.Measurement, r.Work, r.Contender, r.MBPerSecond, r.Off)
	case r.Measurement == "fair":
		fmt.Printf("%-5s %-18s %-15s %7.2f MB/s, Jain index %.3f\n", r.Measurement, r.Work, r.Contender, r.MBPerSecond, r.Jain)
	default:
		fmt.Printf("%-5s %-18s %-15s %7.0f MB/s, %.2f of plain, %.2f per processor second\n", r.Measurement, r.Work, r.Contender, r.MBPerSecond, r.Ratio, r.CPURatio)
	}
}
