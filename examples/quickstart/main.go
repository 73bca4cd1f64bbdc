// Quickstart shows the purpose of heed: 30 goroutines fetch 300 pages from an API that
// admits 30 requests per second, first with a plain http.Client, then with heed. Most
// requests of the plain client are rejected with 429; heed reads the limits from the
// responses and keeps them. With -page a web page shows what heed does meanwhile.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/debugpage"
)

// A job is n calls from c goroutines with one client.
type job struct {
	url         string // "": an API in this process
	n, c        int
	rate, burst int64           // of the API in this process
	page        *debugpage.Page // shows the client of heed; nil: none
}

func main() {
	var j job
	flag.StringVar(&j.url, "url", "", "fetch from this server instead of the embedded API")
	flag.IntVar(&j.n, "n", 300, "how many pages to fetch")
	flag.IntVar(&j.c, "c", 30, "how many goroutines fetch them")
	flag.Int64Var(&j.rate, "rate", 30, "pages a second that the embedded API grants")
	flag.Int64Var(&j.burst, "burst", 30, "pages at once that the embedded API grants")
	asJSON := flag.Bool("json", false, "print a line of JSON for each client instead of a table")
	showPage := flag.Bool("page", false, "serve a page about heed, until the program is interrupted")
	flag.Parse()
	if *showPage {
		j.page = &debugpage.Page{Title: "quickstart"}
		url, err := servePage(j.page)
		if err != nil {
			fmt.Fprintln(os.Stderr, "quickstart:", err)
			os.Exit(1)
		}
		fmt.Fprintln(os.Stderr, "page:", url)
	}
	if err := j.run(os.Stdout, *asJSON, isTerminal(os.Stdout)); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
	if *showPage {
		fmt.Fprintln(os.Stderr, "The page is served until you press Ctrl+C.")
		interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		<-interrupted.Done()
	}
}

// run runs the job with each client and prints the results.
func (j job) run(out io.Writer, asJSON, progress bool) error {
	if j.n < 1 || j.c < 1 {
		return fmt.Errorf("-n %d -c %d: both must be positive", j.n, j.c)
	}
	var results []result
	for _, name := range []string{"plain", "heed"} {
		url, ideal, stop, err := j.server() // a new one for each client
		if err != nil {
			return err
		}
		w, client := new(countingTransport), new(http.Client)
		if client.Transport = w; name == "heed" {
			client = heed.NewClient(j.transport(w)) // the only change
		}
		r := result{Client: name, Calls: j.n, Ideal: ideal}
		var done atomic.Int64
		hide := showProgress(out, progress, name, &done, j.n)
		start := time.Now()
		r.Failed = j.fetchAll(client, url, &done)
		r.Elapsed = time.Since(start).Seconds()
		hide()
		stop()
		r.Sent, r.Throttled = w.sent.Load(), w.throttled.Load()
		results = append(results, r)
	}
	return write(out, results, asJSON)
}

// transport returns a Transport above base, which the page shows if there is one.
func (j job) transport(base http.RoundTripper) *heed.Transport {
	t := &heed.Transport{Base: base}
	if j.page != nil {
		t.Trace = j.page.Trace()
		j.page.Add("quickstart", t)
	}
	return t
}

// fetchAll fetches n pages and returns the number of calls that failed.
func (j job) fetchAll(client *http.Client, url string, done *atomic.Int64) int64 {
	var failed, next atomic.Int64
	var all sync.WaitGroup
	for range j.c {
		all.Go(func() {
			for next.Add(1) <= int64(j.n) {
				if fetch(client, url) != nil {
					failed.Add(1)
				}
				done.Add(1)
			}
		})
	}
	all.Wait()
	return failed.Load()
}

func fetch(client *http.Client, url string) error {
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %s", resp.Status)
	}
	return cmp.Or(err, resp.Body.Close())
}
