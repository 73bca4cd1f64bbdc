package simulation

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A Load is a number of calls by one client.
type Load struct {
	Calls    int
	Deadline time.Duration // of each call; zero means none
	Routes   int           // paths that the calls use in turn, at most 260; zero means 1

	// Path returns the path of call i. Nil means Route, with Routes paths in turn.
	Path func(i int) string

	// Pause is the time between a failed call and the next one of its worker, in a closed
	// loop. Zero means none.
	Pause time.Duration

	// Burst is the number of further calls that an open loop makes at its start.
	Burst int
}

// An Outcome describes the calls of a Load. A call has failed if it ended with an error or
// a status other than 200.
type Outcome struct {
	Calls, Failed int
	Elapsed       time.Duration // until the last call has ended
	LastFailure   time.Duration // when the last of the failed calls was made, from the start of the load
}

// Open makes a call per interval, whether or not earlier calls have ended.
func (l Load) Open(client *http.Client, url string, interval time.Duration) Outcome {
	r := l.start(client, url)
	for i := range l.Burst {
		r.running.Go(func() { r.call(l.Calls + i) })
	}
	for i := range l.Calls {
		time.Sleep(interval)
		r.running.Go(func() { r.call(i) })
	}
	return r.finish(l.Calls + l.Burst)
}

// Closed makes the calls from workers, each of which makes one call after another.
func (l Load) Closed(client *http.Client, url string, workers int) Outcome {
	r := l.start(client, url)
	var next atomic.Int64
	for range workers {
		r.running.Go(func() {
			for i := int(next.Add(1)) - 1; i < l.Calls; i = int(next.Add(1)) - 1 {
				if !r.call(i) {
					time.Sleep(l.Pause)
				}
			}
		})
	}
	return r.finish(l.Calls)
}

// Spike makes all calls at the same moment.
func (l Load) Spike(client *http.Client, url string) Outcome {
	return l.Closed(client, url, l.Calls)
}

// A run is a Load that a client is making.
type run struct {
	load    Load
	client  *http.Client
	url     string
	start   time.Time
	running sync.WaitGroup

	mu          sync.Mutex
	failed      int
	lastFailure time.Duration
}

func (l Load) start(client *http.Client, url string) *run {
	return &run{load: l, client: client, url: url, start: time.Now()}
}

func (r *run) finish(calls int) Outcome {
	r.running.Wait()
	return Outcome{Calls: calls, Failed: r.failed, Elapsed: time.Since(r.start), LastFailure: r.lastFailure}
}

// call reports whether call i succeeds.
func (r *run) call(i int) bool {
	ctx, made := context.Background(), time.Since(r.start)
	if r.load.Deadline > 0 {
		limited, cancel := context.WithTimeout(ctx, r.load.Deadline)
		defer cancel()
		ctx = limited
	}
	ok := Get(ctx, r.client, r.url+r.load.path(i))
	if !ok {
		r.fail(made)
	}
	return ok
}

func (l Load) path(i int) string {
	if l.Path != nil {
		return l.Path(i)
	}
	return Route(i % max(l.Routes, 1))
}

// Route returns the path of route i, which is 0 to 259. Its segments have no digits and
// differ from those of other routes, so that they are not taken for identifiers.
func Route(i int) string {
	x, y := 'a'+rune(i/10), 'a'+rune(i%10)
	return fmt.Sprintf("/%c%ctype/%c%clist", x, y, y, x)
}

func (r *run) fail(made time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed++
	r.lastFailure = max(r.lastFailure, made)
}

// Get reports whether a GET of url ends with status 200 and a complete body.
func Get(ctx context.Context, client *http.Client, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil && resp.StatusCode == http.StatusOK
}
