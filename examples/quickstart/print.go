package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"
)

// A result is the outcome of a job with one client.
type result struct {
	Client    string   `json:"client"`
	Calls     int      `json:"calls"`
	Sent      int64    `json:"sent"`      // requests sent, including retries
	Throttled int64    `json:"throttled"` // responses that reject because of a limit
	Failed    int64    `json:"failed"`    // calls without a successful response
	Elapsed   float64  `json:"elapsed_s"`
	Ideal     *float64 `json:"ideal_s"`
}

func write(out io.Writer, results []result, asJSON bool) error {
	if asJSON {
		lines := json.NewEncoder(out)
		for _, r := range results {
			if err := lines.Encode(r); err != nil {
				return err
			}
		}
		return nil
	}
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "client\tcalls\tsent\tthrottled\tfailed\ttime\tideal\t")
	for _, r := range results {
		ideal := "?"
		if r.Ideal != nil {
			ideal = fmt.Sprintf("%.2f s", *r.Ideal)
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%.2f s\t%s\t\n", r.Client, r.Calls, r.Sent, r.Throttled, r.Failed, r.Elapsed, ideal)
	}
	return t.Flush()
}

// showProgress shows the progress of a client on one line, until hide is called.
func showProgress(out io.Writer, wanted bool, client string, done *atomic.Int64, n int) (hide func()) {
	if !wanted {
		return func() {}
	}
	const clear = "\r\x1b[K"
	stop := make(chan struct{})
	var shown sync.WaitGroup
	shown.Go(func() {
		every := time.NewTicker(100 * time.Millisecond)
		defer every.Stop()
		for {
			fmt.Fprintf(out, "%s%s: %d of %d", clear, client, done.Load(), n)
			select {
			case <-every.C:
			case <-stop:
				fmt.Fprint(out, clear)
				return
			}
		}
	})
	return func() {
		close(stop)
		shown.Wait()
	}
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
