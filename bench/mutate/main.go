// Mutate measures how many small changes to the code the tests detect (mutation testing).
// It makes a random sample of changes: negated conditions, swapped operators, constants
// that are off by one, and deleted statements. It applies them one at a time through an
// overlay, so that no file of the checkout changes, and runs the tests that execute the
// changed statements, until one fails, twice: those of the changed package, then those of the
// packages that import it. Slow tests of a package run last.
//
//	cd bench && go run ./mutate -n 100 -seed 1 -json
//	cd bench && go run ./mutate -tracker -n 50 -seed 1 -json
//
// With -tracker the changes are those of package quota and its internal packages, without headers
// and fleet, and only the tests of these packages run.
//
// The sample depends only on -seed, -pkg, -exclude, -tracker and the code. Changes that do not
// compile are replaced by others. Changes that cannot be observed by construction are not
// made: capacities of make, padding, assignments to _, values returned to a sync.Pool, and
// marks of test helpers. Files of the quota tracker and code that only tests and
// measurements use, such as internal/limitertest and internal/metricstest, which only test
// files import, are excluded unless -exclude states otherwise. Tests that run longer than
// -timeout, or than 30 seconds and ten times as long as without the change, count as failed.
// The checkout must not be edited during a run.
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
	"path"
	"regexp"
	"time"

	"github.com/heed-go/heed/bench/internal/source"
)

// A result is the outcome of one change.
type result struct {
	change
	Noticed  string  `json:"noticed_by,omitempty"` // import path of the package whose tests failed; "": none
	Hung     bool    `json:"timed_out,omitempty"`  // the tests failed because of the timeout
	Executed bool    `json:"executed"`             // a test executes the statements at the change
	Seconds  float64 `json:"seconds"`
}

// A report summarizes all results.
type report struct {
	Seed     uint64   `json:"seed"`
	Sites    int      `json:"sites"` // number of possible changes
	Made     int      `json:"made"`
	Noticed  int      `json:"noticed"`
	Share    float64  `json:"share"` // percentage of Made
	Survived []result `json:"survived"`
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("mutate: ")
	n := flag.Int("n", 100, "number of changes")
	seed := flag.Uint64("seed", 1, "seed of the sample")
	pkg := flag.String("pkg", "", "regular expression: only changes whose position matches, which is the path of the file from the root of the repository, a colon and the line")
	exclude := flag.String("exclude", `^(quota/(internal/.*|[^/]*)|(examples|bench|internal/(inventedkeys|limitertest|memhttp|metricstest|outagetest|replay|headercases|serverrules|turns)|throttle/throttletest)/.*)$`, "regular expression: no files whose path matches; empty: no file is excluded")
	tracker := flag.Bool("tracker", false, "only changes of package quota and its internal packages, instead of those that -exclude leaves; only their tests run")
	timeout := flag.Duration("timeout", 3*time.Minute, "maximum for tests that run together")
	own := flag.Bool("own", false, "run only the tests of the changed package: the share is a lower bound then")
	least := flag.Float64("least", 0, "exit with status 1 if less than so many percent were noticed")
	root := flag.String("root", "..", "root of the repository")
	asJSON := flag.Bool("json", false, "print a line of JSON for each change, and one for all")
	list := flag.Bool("list", false, "print all changes that could be made, and make none")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	wanted, err := selection(*pkg, *exclude, *tracker)
	check(err)
	packages, err := load(ctx, *root)
	check(err)
	sites, err := packages.changes(wanted)
	check(err)
	if *list {
		for _, c := range sites {
			fmt.Println(c)
		}
		return
	}
	rng := rand.New(rand.NewPCG(*seed, 0))
	rng.Shuffle(len(sites), func(i, j int) { sites[i], sites[j] = sites[j], sites[i] })
	r := report{Seed: *seed, Sites: len(sites), Survived: []result{}}
	testScope := importers
	switch {
	case *tracker:
		testScope = ownTracker
	case *own:
		testScope = ownPackage
	}
	err = run(ctx, packages, sites, *n, *timeout, testScope, func(one result) {
		r.add(one)
		print(one, *asJSON)
	})
	check(err)
	if r.Made > 0 {
		r.Share = 100 * float64(r.Noticed) / float64(r.Made)
	}
	if *asJSON {
		check(json.NewEncoder(os.Stdout).Encode(r))
		log.Print(&r)
	} else {
		r.print()
	}
	if r.Share < *least {
		os.Exit(1)
	}
}

// selection returns a function that reports whether a change is selected: its position
// matches pkg, and its file does not match exclude, unless that is empty. With tracker its file is one of
// package quota or of its internal packages instead.
func selection(pkg, exclude string, tracker bool) (func(change) bool, error) {
	only, err := regexp.Compile(pkg)
	if err != nil {
		return nil, fmt.Errorf("-pkg: %w", err)
	}
	not, err := regexp.Compile(exclude)
	if err != nil {
		return nil, fmt.Errorf("-exclude: %w", err)
	}
	return func(c change) bool {
		included := exclude == "" || !not.MatchString(c.File)
		if tracker {
			included = source.IsTracker(path.Dir(c.File))
		}
		return included && only.MatchString(c.at())
	}, nil
}

// run tries changes in order until n of them compile, one at a time.
func run(ctx context.Context, packages *packages, changes []change, n int, timeout time.Duration, s scope, done func(result)) error {
	t, err := newTester(packages, timeout, s)
	if err != nil {
		return err
	}
	defer t.close()
	for _, c := range changes {
		if n == 0 {
			return nil
		}
		one, compiles, err := t.try(ctx, c)
		if err != nil {
			return err
		}
		if compiles {
			done(one)
			n--
		}
	}
	return nil
}

func (r *report) add(one result) {
	r.Made++
	if one.Noticed != "" {
		r.Noticed++
		return
	}
	r.Survived = append(r.Survived, one)
}

func print(r result, asJSON bool) {
	if asJSON {
		check(json.NewEncoder(os.Stdout).Encode(r))
		return
	}
	by := "NOT NOTICED"
	if r.Noticed != "" {
		by = "noticed by " + r.Noticed
	}
	fmt.Printf("%s: %s (%.0f s)\n", r.change, by, r.Seconds)
}

// String returns a line with the numbers of changes.
func (r *report) String() string {
	return fmt.Sprintf("noticed %d of %d changes (%.0f %%), seed %d", r.Noticed, r.Made, r.Share, r.Seed)
}

func (r *report) print() {
	fmt.Printf("\n%v; not noticed:\n", r)
	for _, one := range r.Survived {
		fmt.Println("  " + one.change.String())
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
