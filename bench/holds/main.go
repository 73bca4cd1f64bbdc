// Holds measures what a client does when a server stops it for a time that is long,
// implausibly long, or extended by every request, in virtual time.
//
//	go run ./bench/holds -json
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heed-go/heed/bench/clients"
	"github.com/heed-go/heed/bench/internal/simulation"
)

func main() {
	log.SetFlags(0)
	client := flag.String("client", "heed", "one of "+strings.Join(clients.Names(), ", "))
	check := flag.Bool("check", false, "exit with code 1 if a goal is missed")
	asJSON := flag.Bool("json", false, "print lines of JSON instead of a table")
	flag.Parse()
	if !slices.Contains(clients.Names(), *client) {
		log.Fatalf("holds: no client %q", *client)
	}
	simulation.Main(func(t *testing.T) int {
		code := 0
		simulation.Each(t, len(holds), func(i int) result { return holds[i].run(*client) }, func(r result) {
			show(r, *asJSON)
			if *check && len(r.misses()) > 0 {
				code = 1
			}
		})
		return code
	})
}

func show(r result, asJSON bool) {
	if asJSON {
		_ = json.NewEncoder(os.Stdout).Encode(r)
		return
	}
	verdict := "met"
	if missed := r.misses(); len(missed) > 0 {
		slices.Sort(missed)
		verdict = "missed: " + strings.Join(missed, ", ")
	}
	fmt.Printf("%-50s first request %14s, %d rejected, first success after %14s, full speed after %8s: %s\n",
		r.Hold, after(r.First), r.Rejected, after(r.FirstSuccess), after(r.Recovery), verdict)
}

func after(seconds float64) string {
	if seconds < 0 {
		return "never"
	}
	return time.Duration(seconds * float64(time.Second)).Round(time.Millisecond).String()
}
