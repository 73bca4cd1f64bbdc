package simulation

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Load is a number of calls by one client.
type Load struct {
	Calls    int
	Deadline time.Duration // of each call; zero means none
	Routes   int           // paths that the calls use in turn, at most 260; zero means 1

	// Path returns the path of call i. Nil means Route, with Routes paths in turn, followed by
	// the resource of the call if there are Resources.
	Path func(i int) string

	// Pause is the time between a failed call and the next one of its worker, in a closed
	// loop. Zero means none.
	Pause time.Duration

	// Burst is the number of further calls that an open loop makes at its start.
	Burst int

	// Interval is that between the calls of an open loop, Workers the number of workers of a
	// closed one. With neither Run makes all calls at the same moment.
	Interval time.Duration
	Workers  int

	After  time.Duration // Run begins that long after the other loads of a Scenario
	Method string        // of the requests; zero means GET. A POST has a body.

	// Resources and Tenants are numbers of resources and of tenants. A call is for a random
	// resource and on behalf of a random tenant, which the field TenantField of its requests
	// names. Zero means none.
	Resources, Tenants int
	TenantField        string // Authorization, Cookie, or another; zero means X-Tenant-Id

	// Right are further statuses that are the right response to a call, beside 200.
	Right []int

	// Latency replaces that of the Site for these calls. The zero Latency does not.
	Latency Latency

	// Seed decides what each call is for, and how late callers wake up: up to MaxLate. Zero means
	// that they are not late.
	Seed uint64

	First int // number of the first call, among those of all loads of a server
}

// MaxLate is the maximum by which timers are late.
const MaxLate = 2 * time.Millisecond

// An Outcome describes the calls of a Load. A call has failed if it ended with an error or
// a status that is not right.
type Outcome struct {
	Calls, Failed int
	Elapsed       time.Duration // until the last call has ended
	LastFailure   time.Duration // when the last of the failed calls was made, from the start of the load
	Mean          time.Duration // of the calls that have not failed
}

// A Target is what a call is for.
type Target struct{ Route, Resource, Tenant int }

// Run makes the calls in an open or a closed loop, or all at the same moment.
func (l Load) Run(client *http.Client, url string) Outcome {
	time.Sleep(l.After)
	switch {
	case l.Interval > 0:
		return l.Open(client, url, l.Interval)
	case l.Workers > 0:
		return l.Closed(client, url, l.Workers)
	}
	return l.Spike(client, url)
}

// Open makes a call per interval, whether or not earlier calls have ended.
func (l Load) Open(client *http.Client, url string, interval time.Duration) Outcome {
	r := l.start(client, url)
	for i := range l.Burst {
		r.running.Go(func() { r.call(l.Calls + i) })
	}
	for i := range l.Calls {
		time.Sleep(time.Until(r.start.Add(time.Duration(i+1)*interval + l.late(i))))
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
				time.Sleep(l.late(i))
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

// target returns what call i is for.
func (l Load) target(i int) Target {
	random := rand.New(rand.NewPCG(l.Seed, uint64(i)))
	return Target{Route: i % max(l.Routes, 1), Resource: random.IntN(max(l.Resources, 1)), Tenant: random.IntN(max(l.Tenants, 1))}
}

// late returns how late the caller of call i wakes up.
func (l Load) late(i int) time.Duration {
	if l.Seed == 0 {
		return 0
	}
	return time.Duration(rand.New(rand.NewPCG(^l.Seed, uint64(i))).Int64N(int64(MaxLate)))
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
	succeeded   time.Duration // sum of the times of the calls that have not failed
}

func (l Load) start(client *http.Client, url string) *run {
	return &run{load: l, client: client, url: url, start: time.Now()}
}

func (r *run) finish(calls int) Outcome {
	r.running.Wait()
	mean := r.succeeded / time.Duration(max(calls-r.failed, 1))
	return Outcome{Calls: calls, Failed: r.failed, Elapsed: time.Since(r.start), LastFailure: r.lastFailure, Mean: mean}
}

// call reports whether call i succeeds.
func (r *run) call(i int) bool {
	ctx, made := context.Background(), time.Since(r.start)
	if r.load.Deadline > 0 {
		limited, cancel := context.WithTimeout(ctx, r.load.Deadline)
		defer cancel()
		ctx = limited
	}
	req, err := r.load.request(ctx, r.url, i)
	ok := err == nil && do(r.client, req, r.load.Right)
	r.mu.Lock()
	defer r.mu.Unlock()
	if ok {
		r.succeeded += time.Since(r.start) - made
		return true
	}
	r.failed++
	r.lastFailure = max(r.lastFailure, made)
	return false
}

// request returns the request of call i. Its X-Request-Id is the number of the call.
func (l Load) request(ctx context.Context, url string, i int) (*http.Request, error) {
	var body io.Reader
	if l.Method == http.MethodPost {
		body = strings.NewReader(`{"input":"text"}`)
	}
	t := l.target(i)
	req, err := http.NewRequestWithContext(ctx, l.Method, url+l.path(i, t), body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Request-Id", strconv.Itoa(l.First+i))
	switch {
	case l.Tenants == 0:
	case l.TenantField == "Authorization":
		req.Header.Set("Authorization", fmt.Sprintf("Bearer token-%d", t.Tenant))
	case l.TenantField == "Cookie":
		req.Header.Set("Cookie", fmt.Sprintf("tenant=%d", t.Tenant))
	case l.TenantField != "":
		req.Header.Set(l.TenantField, strconv.Itoa(t.Tenant))
	default:
		req.Header.Set("X-Tenant-Id", strconv.Itoa(t.Tenant))
	}
	return req, nil
}

func (l Load) path(i int, t Target) string {
	switch {
	case l.Path != nil:
		return l.Path(i)
	case l.Resources > 0:
		return Route(t.Route) + "/" + strconv.Itoa(t.Resource)
	}
	return Route(t.Route)
}

// Route returns the path of route i, which is 0 to 259. Its segments have no digits and
// differ from those of other routes, so that they are not taken for identifiers.
func Route(i int) string {
	x, y := 'a'+rune(i/10), 'a'+rune(i%10)
	return fmt.Sprintf("/%c%ctype/%c%clist", x, y, y, x)
}

// Get reports whether a GET of url ends with status 200 and a complete body.
func Get(ctx context.Context, client *http.Client, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	return err == nil && do(client, req, nil)
}

// do reports whether req ends with status 200, or one of those that are right, and a complete
// body.
func do(client *http.Client, req *http.Request, right []int) bool {
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil && (resp.StatusCode == http.StatusOK || slices.Contains(right, resp.StatusCode))
}
