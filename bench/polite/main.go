// Polite runs a client against a server with a limit, and prints the cost: requests sent,
// rejected, wasted and failed, and the time. Wasted requests are those with a response of
// 429, 503 or 403, and those whose connection was closed without a response.
//
//	go run ./bench/polite -url http://127.0.0.1:18001/ -n 300 -c 30 -client heed -jobs 2 -json
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/heed-go/heed/bench/clients"
)

type result struct {
	Client    string  `json:"client"`
	Job       int     `json:"job"`
	Calls     int     `json:"calls"`
	Sent      int64   `json:"sent"`
	Throttled int64   `json:"throttled"`
	Wasted    int64   `json:"wasted"`
	Failed    int64   `json:"failed"`
	Elapsed   float64 `json:"elapsed_s"`
}

func main() {
	log.SetFlags(0)
	url := flag.String("url", "", "where to send GETs")
	n := flag.Int("n", 300, "calls in a job")
	c := flag.Int("c", 30, "goroutines that make them")
	name := flag.String("client", "heed", "one of "+strings.Join(clients.Names(), ", "))
	declared := flag.String("limit", "", "the limit that is declared to heed: 20/s,burst=20 or window=100/5s,from=first")
	margin := flag.Float64("margin", 0, "how far to stay below -limit, 0.02: two per cent")
	jobs := flag.Int("jobs", 1, "jobs with the same client, one after another")
	gap := flag.Duration("gap", 8*time.Second, "pause between jobs, for the server's limit to cool down")
	asJSON := flag.Bool("json", false, "print a line of JSON for each job")
	flag.Parse()
	if *url == "" || *n <= 0 || *c <= 0 {
		log.Fatal("polite: say -url, and positive -n and -c")
	}
	limit, err := clients.ParseLimit(*declared, *margin)
	if err != nil {
		log.Fatal("polite: ", err)
	}
	counter := clients.NewRequestCounter(*c)
	client, err := clients.New(*name, counter, limit)
	if err != nil {
		log.Fatal("polite: ", err)
	}
	for job := range *jobs {
		if job > 0 {
			time.Sleep(*gap)
		}
		sent, throttled, wasted := counter.Sent.Load(), counter.Throttled.Load(), counter.Wasted.Load()
		failed, took := clients.Run(client, *url, *n, *c)
		show(*asJSON, result{*name, job + 1, *n, counter.Sent.Load() - sent, counter.Throttled.Load() - throttled, counter.Wasted.Load() - wasted, failed, took.Seconds()})
	}
}

func show(asJSON bool, r result) {
	if asJSON {
		_ = json.NewEncoder(os.Stdout).Encode(r)
		return
	}
	fmt.Printf("%-16s job %d: %d calls, %d sent, %d throttled, %d wasted, %d failed, %.2f s\n", r.Client, r.Job, r.Calls, r.Sent, r.Throttled, r.Wasted, r.Failed, r.Elapsed)
}
