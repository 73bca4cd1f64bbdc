// Compare sends three crowds through every limiter that keeps "60 a minute", and shows
// what each lets through: how many in all, how many in the fullest minute, how long
// somebody was told to wait, and what it remembers of a client.
//
// Time is data here, so that it ends at once. Each request takes a second, and the
// server that it is for grants 60 a minute as well: Adaptive and AcceptRatio learn from
// its answers.
package main

import (
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/heed-go/heed/throttle"
)

var limit = throttle.Limit{Name: "60 a minute", Count: 60, Per: time.Minute}

const (
	maxWait         = 10 * time.Second // longest wait that a request accepts
	requestDuration = time.Second      // from act to answer
)

func main() {
	table(os.Stdout, bytesPerClient)
	plots(os.Stdout)
}

// table prints what each limiter lets through, and what weigh says of it.
func table(out io.Writer, measure func(algorithm) string) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "granted, and most in a minute:\t")
	for _, c := range workloads {
		fmt.Fprintf(w, "%s\tmost\t", c.name)
	}
	fmt.Fprint(w, "waits\tbytes a client\t\n")
	for _, a := range algorithms {
		fmt.Fprintf(w, "%s\t", a.name)
		var longest time.Duration
		for _, c := range workloads {
			acts, wait := simulate(a.one(newClock()), c.arrivals())
			longest = max(longest, wait)
			fmt.Fprintf(w, "%d\t%d\t", len(acts), maxInWindow(acts, limit.Per))
		}
		fmt.Fprintf(w, "%v\t%s\t\n", longest, measure(a))
	}
	w.Flush()
}
