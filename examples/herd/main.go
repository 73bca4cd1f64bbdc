// Herd simulates thousands of clients that send requests at the same time: because all of
// them wake at noon, or because their server was down. It compares retry loops with different
// jitter and heed: how many requests arrive, how high the peaks are, and when all calls are
// served.
//
//	cd examples/herd
//	go run .            # the table
//	go run . -svg .     # and the plots of README.md
//
// Time is virtual, so that the program ends after a few seconds.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"testing"
	"text/tabwriter"
	"time"
)

func main() {
	clients := flag.Int("clients", 2000, "number of clients")
	svg := flag.String("svg", "", "write the plots to this `folder`")
	flag.Parse()
	if *clients < 1 {
		fmt.Fprintln(os.Stderr, "herd: -clients must be positive")
		os.Exit(2)
	}
	// Only tests have virtual time.
	matchAll := func(_, _ string) (bool, error) { return true, nil }
	test := testing.InternalTest{Name: "herd", F: func(t *testing.T) {
		if err := show(simulate(t, *clients), os.Stdout, *svg); err != nil {
			fmt.Fprintln(os.Stderr, "herd:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}}
	testing.Main(matchAll, []testing.InternalTest{test}, nil, nil)
}

// show writes the table of each scenario to out, and its plots to the folder svg unless that
// is empty.
func show(results []result, out io.Writer, svg string) error {
	for len(results) > 0 {
		same := results[:len(strategies)]
		results = results[len(strategies):]
		if err := table(out, same); err != nil {
			return err
		}
		if svg == "" {
			continue
		}
		if err := writePlots(svg, same); err != nil {
			return err
		}
	}
	return nil
}

// table writes the results of one scenario.
func table(out io.Writer, results []result) error {
	r := results[0]
	rate, burst := capacity(r.clients)
	fmt.Fprintf(out, "%s: %s.\n%d clients, %d calls; the server serves %d per second, %d at the same time.\n\n", r.scenario.name, r.scenario.description,
		r.clients, r.clients*callsPerClient, rate, burst)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "strategy\tsent\trejected\tfirst wave\tlater peak\thalf served\t99 %% served\tall served\tfailed\t\n")
	for _, r := range results {
		sent := len(r.arrivals)
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%d\t\n", r.strategy, sent, sent-len(r.served()),
			r.firstWave(), r.laterPeak(), r.after(0.5), r.after(0.99), r.after(1), r.failed)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out)
	return err
}

func (r result) after(part float64) string {
	d, ok := r.servedAfter(part)
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.1f s", d.Round(time.Second/10).Seconds())
}
