// Compare sends three workloads through every limiter that enforces "60 a minute", and shows
// what each admits: the number of requests in total and in the fullest minute, the longest
// wait that it stated, and the bytes that it keeps per client.
//
// Time is an argument, so the program ends immediately. Each request takes a second, and the
// server behind the limiter also grants 60 a minute: Adaptive and AdmissionControl learn from
// its responses.
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
	requestDuration = time.Second      // time from the start of a request to its response
)

func main() {
	table(os.Stdout, bytesPerClient)
	plots(os.Stdout)
}

// table prints what each limiter admits, and the result of measure for it.
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
