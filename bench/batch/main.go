// Batch measures package batch with processes that are killed (SIGKILL): a job of
// batch.Run that is killed twice, jobs that are killed many times at random moments in five modes
// (kills), a job that is stopped by interrupts (stops), and a batch.Outbox on disk that is killed
// many times. A server in this process counts what was done.
//
//	go run ./batch -json
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("batch: ")
	what := flag.String("what", "job,outbox", "what to measure: job, outbox, kills, stops, or several of them")
	seed := flag.Uint64("seed", 1, "decides when processes are killed and which requests fail")
	asJSON := flag.Bool("json", false, "print a line of JSON for each measurement")
	check := flag.Bool("check", false, "exit with code 1 if a goal is missed")
	var job jobConfig
	flag.IntVar(&job.Items, "items", 2000, "items of the job")
	flag.IntVar(&job.Workers, "workers", 50, "workers of the job")
	flag.IntVar(&job.Kills, "kills", 2, "how often the job is killed")
	flag.Int64Var(&job.Rate, "rate", 200, "requests a second that the server allows the job")
	var outbox outboxConfig
	flag.IntVar(&outbox.Kills, "n", 100, "how often the process with the Outbox, and those of kills and stops, are ended")
	mode := flag.String("mode", "", "internal: how the child sends")
	child := flag.String("child", "", "internal: run as the process that is killed")
	url := flag.String("url", "", "internal: the server of the parent")
	path := flag.String("path", "", "internal: the file of the child")
	first := flag.Int("first", 0, "internal: number of the first request that the child submits, or -1 to submit none")
	flag.Parse()
	switch *child {
	case "job":
		runJobChild(*url, *path, job)
		return
	case "outbox":
		runOutboxChild(*url, *path, *first)
		return
	case "ends":
		runEndsChild(*url, *path, *mode, job.Items)
		return
	}
	dir, err := os.MkdirTemp("", "heed-batch")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	random := rand.New(rand.NewPCG(*seed, 0))
	missed := false
	type measurement struct {
		name    string
		measure func() (result, error)
	}
	measurements := []measurement{
		{"job", func() (result, error) { return measureJob(job, filepath.Join(dir, "job"), random) }},
		{"outbox", func() (result, error) { return measureOutbox(outbox, filepath.Join(dir, "outbox"), random) }},
		{"stops", func() (result, error) {
			return measureEnds(endsConfig{"unkeyed", outbox.Kills, true}, filepath.Join(dir, "stops"), random)
		}},
	}
	for _, mode := range modes {
		measurements = append(measurements, measurement{"kills", func() (result, error) {
			return measureEnds(endsConfig{mode, outbox.Kills, false}, filepath.Join(dir, mode), random)
		}})
	}
	for _, m := range measurements {
		if !slices.Contains(strings.Split(*what, ","), m.name) {
			continue
		}
		r, err := m.measure()
		if err != nil {
			os.RemoveAll(dir)
			log.Fatal(err)
		}
		if *asJSON {
			_ = json.NewEncoder(os.Stdout).Encode(r)
		} else {
			fmt.Println(r)
		}
		missed = missed || r.missed()
	}
	if *check && missed {
		os.RemoveAll(dir)
		log.Fatal("a goal is missed")
	}
}

// A result is the result of a measurement.
type result interface {
	fmt.Stringer
	missed() bool
}
