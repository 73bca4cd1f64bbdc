package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// column is the time that one character of a plot represents.
const column = 3 * time.Second

// ramp has the characters for the number of requests in a column: the i-th character means
// steps[i] or more. The middle one is the number that the limit admits in 3 seconds.
var (
	ramp  = []byte(" .:+*#@")
	steps = []int{0, 1, 2, 3, 4, 11, 60}
)

// plots prints, for each workload, when the requests admitted by each limiter start.
func plots(out io.Writer) {
	fmt.Fprintf(out, "\nin %v:", column)
	for i, n := range steps[1:] {
		fmt.Fprintf(out, "  %c %d", ramp[i+1], n)
		if i+2 < len(steps) && steps[i+2] > n+1 {
			fmt.Fprintf(out, " to %d", steps[i+2]-1)
		}
	}
	fmt.Fprintln(out, " or more")
	for _, c := range workloads {
		fmt.Fprintf(out, "\n%s: %s\n", c.name, c.description)
		for _, a := range algorithms {
			acts, _ := simulate(a.one(newClock()), c.arrivals())
			fmt.Fprintf(out, "%34s |%s|\n", a.name, plot(acts))
		}
		fmt.Fprintf(out, "%34s  0:00                1:00                2:00                3:00\n", "")
	}
}

// plot returns one character for each column.
func plot(acts []time.Duration) string {
	counts := make([]int, duration/column)
	for _, at := range acts {
		if i := int(at / column); i < len(counts) {
			counts[i]++
		}
	}
	var line strings.Builder
	for _, n := range counts {
		line.WriteByte(ramp[level(n)])
	}
	return line.String()
}

// level returns the index of the last step that n reaches.
func level(n int) (i int) {
	for i+1 < len(steps) && n >= steps[i+1] {
		i++
	}
	return i
}
