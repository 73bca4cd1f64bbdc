// Redis measures limits that processes share through Redis, with its own servers: their
// speed compared with peers, whether several processes together keep the limit, the memory
// per key, and the effect of a ring that grows and shrinks.
//
//	go run ./redis -json
//	go run ./redis -only speed
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"regexp"
	"strconv"
	"time"
)

type options struct {
	rounds int
	sample time.Duration
	length time.Duration
	keys   int
	unix   bool

	limiters *regexp.Regexp // nil: all
}

var experiments = []struct {
	name    string
	measure func(o options, report func(any)) error
}{
	{"processes", measureProcesses},
	{"ring", measureRing},
	{"speed", measureSpeed},
	{"keys", measureKeys},
}

func main() {
	log.SetFlags(0)
	var o options
	flag.IntVar(&o.rounds, "rounds", 21, "of speed: by turns")
	flag.DurationVar(&o.sample, "sample", 200*time.Millisecond, "of speed: for each limiter in each round")
	flag.DurationVar(&o.length, "for", 10*time.Second, "of processes: how long")
	flag.IntVar(&o.keys, "keys", 1_000_000, "of keys: for each kind of limit")
	flag.BoolVar(&o.unix, "unix", false, "of speed: through a socket of the system instead of TCP")
	flag.Func("limiters", "of speed: a regular expression of the names of those to measure; the first one is compared with the others", func(text string) (err error) {
		o.limiters, err = regexp.Compile(text)
		return err
	})
	only := flag.String("only", "", "processes, ring, speed or keys; empty: all of them")
	asJSON := flag.Bool("json", false, "print lines of JSON")
	flag.Parse()
	if flag.NArg() == 3 { // this is a worker process
		number, err := strconv.Atoi(flag.Arg(1))
		check(err)
		process, err := strconv.Atoi(flag.Arg(2))
		check(err)
		work(flag.Arg(0), o.length, sharings[number], process)
		return
	}
	report := func(result any) {
		if *asJSON {
			check(json.NewEncoder(os.Stdout).Encode(result))
			return
		}
		fmt.Println(result)
	}
	for _, e := range experiments {
		if *only == "" || *only == e.name {
			check(e.measure(o, report))
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatalf("redis: %v", err)
	}
}
