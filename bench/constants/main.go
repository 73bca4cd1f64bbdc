// Constants halves and doubles each numeric constant of the quota tracker, one at a time and through an overlay,
// so that no file of the checkout changes, and runs a command with it. The command builds the repository. If goals are
// missed it exits with another code than 0 and prints them as the programs of bench do with -check, or go test. A constant
// whose change adds a missed goal, beyond those that are missed without a change, was tuned for what the command measures.
//
//	go run ./constants
//	go run ./constants -run 'go run ./regret -seeds 60 -check' -only 'hold/'
//
// The overlay is in GOFLAGS, so that the command may be go run, go test, or a script of them. The tracker
// is package quota and its internal packages, without headers and fleet.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"time"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("constants: ")
	command := flag.String("run", "go run ./regret -seeds 60 -check", "the command: its exit code and the lines with \"missed\" tell which goals are missed")
	root := flag.String("root", "..", "root of the repository")
	only := flag.String("only", "", "only constants whose line of -list matches this regular `expression`")
	n := flag.Int("n", 0, "number of changes, a random sample; 0: all")
	seed := flag.Uint64("seed", 1, "seed of the sample")
	timeout := flag.Duration("timeout", 10*time.Minute, "maximum of a run, which misses a goal if it takes longer")
	check := flag.Bool("check", false, "exit with code 1 if a change adds a missed goal")
	asJSON := flag.Bool("json", false, "print a line of JSON for each change")
	list := flag.Bool("list", false, "print the constants, and run nothing")
	flag.Parse()
	matching, err := regexp.Compile(*only)
	fatal(err)
	numbers, err := find(*root)
	fatal(err)
	var changes []change
	for _, x := range numbers {
		if !matching.MatchString(x.String()) {
			continue
		}
		if *list {
			fmt.Println(x)
		}
		changes = append(changes, x.changes()...)
	}
	if *list {
		return
	}
	if *n > 0 {
		random := rand.New(rand.NewPCG(*seed, 0))
		random.Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
		changes = changes[:min(*n, len(changes))]
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir, err := os.MkdirTemp("", "constants")
	fatal(err)
	defer os.RemoveAll(dir)
	r := runner{command: *command, timeout: *timeout, dir: dir}
	results, err := r.all(ctx, changes, func(x result) { show(x, *asJSON) })
	if err != nil {
		_ = os.RemoveAll(dir)
		log.Fatal(err)
	}
	missed := summarize(results, *asJSON)
	if *check && missed > 0 {
		_ = os.RemoveAll(dir)
		os.Exit(1)
	}
}

func show(x result, asJSON bool) {
	if asJSON {
		_ = json.NewEncoder(os.Stdout).Encode(x)
		return
	}
	fmt.Printf("%v: %s (%.0f s)\n", x.change, x.Outcome, x.Seconds)
}

// summarize prints the changes that add a missed goal, and returns their number.
func summarize(results []result, asJSON bool) (missed int) {
	for _, x := range results {
		if x.Outcome == missesGoals {
			missed++
		}
	}
	if asJSON {
		return missed
	}
	fmt.Printf("\n%d of %d changes miss goals that are met without them\n", missed, len(results))
	for _, x := range results {
		if x.Outcome == missesGoals {
			fmt.Printf("%v\n    only with it: %s\n%s\n", x.change, strings.Join(x.Missed, "; "), x.Output)
		}
	}
	return missed
}

func fatal(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
