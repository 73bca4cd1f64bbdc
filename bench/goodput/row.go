package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"golang.org/x/time/rate"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/bench/internal/simulation"
	"github.com/heed-go/heed/internal/serverrules"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
)

const (
	perSecond = 10 // admitted by each limit, with a burst or a window of 10
	deadline  = time.Second
	maxLate   = 2 * time.Millisecond // by how much a request is sent later than its client wants

	rejection = 5 * time.Millisecond // in which the server rejects a request
)

// A row is a limit, what is asked of it, how the server responds, and a client.
type row struct {
	limit   string
	demand  int           // calls per second
	latency time.Duration // median of the server's
	noise   float64       // standard deviation of its logarithm
	client  string
}

// A result is what became of the calls of a row.
type result struct {
	Limit    string  `json:"limit"`
	Demand   int     `json:"calls_per_second"`
	Latency  float64 `json:"latency_s"`
	Noise    float64 `json:"noise"`
	Client   string  `json:"client"`
	Calls    int     `json:"calls"`
	Sent     int     `json:"sent"`
	Rejected int     `json:"rejected"`         // requests that the server rejected
	Failed   int     `json:"failed"`           // calls without a response in time
	Share    float64 `json:"in_time_share"`    // responses in time, of those possible
	Early    float64 `json:"failed_early"`     // calls that failed within a tenth of their deadline, of those that failed
	Possible float64 `json:"possible_in_time"` // units of the limit, times the share of responses that take less than the deadline
}

// goal is the share of the possible responses that heed must get in time.
const goal = .95

func (r result) meetsGoal() bool { return r.Share >= goal }

// clientsOf are the clients for each limit. Only a client that has the limit can obey an own one.
var clientsOf = map[string][]string{
	"own":     {"heed", "x/time/rate"},
	"stated":  {"heed", "plain", "retryablehttp"},
	"learned": {"heed", "plain", "retryablehttp"},
}

// rows returns all rows, in the order in which they are printed.
func rows() (all []row) {
	for _, limit := range []string{"own", "stated", "learned"} {
		for _, demand := range []int{20, 100} {
			for _, latency := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, 600 * time.Millisecond} {
				for _, noise := range []float64{0, .5, 1} {
					for _, client := range clientsOf[limit] {
						all = append(all, row{limit, demand, latency, noise, client})
					}
				}
			}
		}
	}
	return all
}

// run makes the calls of r for the given time. It must be called in virtual time.
func (r row) run(seed uint64, length time.Duration) result {
	random := rand.New(rand.NewPCG(seed, uint64(r.demand)+uint64(r.latency)))
	time.Sleep(time.Duration(random.Int64N(int64(time.Second))))
	rejected := 0
	rule := r.rule()
	s := simulation.NewServer(func(q simulation.Request) simulation.Response {
		reply := rule(serverrules.Request{At: q.At, Path: q.HTTP.URL.Path})
		delay := time.Duration(float64(r.latency) * math.Exp(r.noise*random.NormFloat64()))
		if !reply.OK() {
			rejected++
			delay = rejection
		}
		return simulation.Response{Status: reply.Status, Header: reply.Header, Delay: delay}
	})
	defer s.Close()
	c := r.newClient(&lateTransport{base: s.Transport(2 * r.demand), random: rand.New(rand.NewPCG(seed, 2))})
	var calls counter
	var running sync.WaitGroup
	n := int(length.Seconds()) * r.demand
	for range n {
		time.Sleep(time.Second / time.Duration(r.demand))
		running.Go(func() { calls.add(call(c, s.URL)) })
	}
	running.Wait()
	possible := float64(perSecond) * length.Seconds() * r.inTime()
	return result{
		Limit: r.limit, Demand: r.demand, Latency: r.latency.Seconds(), Noise: r.noise, Client: r.client,
		Calls: n, Sent: s.Received(), Rejected: rejected, Failed: n - calls.ok, Possible: possible,
		Share: float64(calls.ok) / possible, Early: float64(calls.early) / float64(max(n-calls.ok, 1)),
	}
}

// rule returns the limit that the server enforces.
func (r row) rule() serverrules.Server {
	switch r.limit {
	case "own":
		return func(serverrules.Request) serverrules.Reply { return serverrules.Reply{} }
	case "stated":
		return statedBucket()
	case "learned":
		return serverrules.Nginx(throttle.NginxConfig{Rate: perSecond, Per: time.Second, Burst: perSecond, NoDelay: true}, serverrules.Reject(http.StatusTooManyRequests))
	}
	panic(fmt.Sprintf("goodput: no limit %q", r.limit))
}

// statedBucket is a token bucket that states its units in each response, as that of the library
// throttled does.
func statedBucket() serverrules.Server {
	bucket := throttle.NewTokenBucket(throttle.PerSecond(perSecond))
	return func(q serverrules.Request) serverrules.Reply {
		d, err := bucket.Reserve(context.Background(), throttle.Claim{Now: q.At})
		if err != nil {
			panic(err)
		}
		seconds := func(d time.Duration) string { return strconv.Itoa(int(math.Ceil(d.Seconds()))) }
		reply := serverrules.Reply{Header: http.Header{
			"X-Ratelimit-Limit":     {strconv.FormatInt(d.Limit, 10)},
			"X-Ratelimit-Remaining": {strconv.FormatInt(d.Remaining, 10)},
			"X-Ratelimit-Reset":     {seconds(d.ResetAfter)},
		}}
		if !d.OK {
			reply.Status = http.StatusTooManyRequests
			reply.Header.Set("Retry-After", seconds(d.Wait))
		}
		return reply
	}
}

// newClient returns the client of r over base.
func (r row) newClient(base http.RoundTripper) *http.Client {
	switch r.client {
	case "heed":
		t := &heed.Transport{Base: base}
		switch r.limit {
		case "own":
			t.Limiter = throttle.NewTokenBucket(throttle.PerSecond(perSecond))
		case "learned":
			t.Quota = &quota.Tracker{Mode: quota.Full} // the default Mode learns no rate from rejections alone
		}
		return heed.NewClient(t)
	case "plain":
		return &http.Client{Transport: base}
	case "retryablehttp":
		c := retryablehttp.NewClient()
		c.Logger, c.HTTPClient = nil, &http.Client{Transport: base}
		return c.StandardClient()
	case "x/time/rate":
		return &http.Client{Transport: &limitedTransport{base, rate.NewLimiter(perSecond, perSecond)}}
	}
	panic(fmt.Sprintf("goodput: no client %q", r.client))
}

// inTime returns the probability that a response takes less than the deadline.
func (r row) inTime() float64 {
	if r.noise == 0 {
		return 1
	}
	return .5 * math.Erfc(-math.Log(float64(deadline)/float64(r.latency))/r.noise/math.Sqrt2)
}

// call makes one call. It reports whether the response was in time, and after which time the call
// ended.
func call(c *http.Client, url string) (ok bool, took time.Duration) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	ok = simulation.Get(ctx, c, url)
	return ok, time.Since(start)
}

// A counter counts calls.
type counter struct {
	mu        sync.Mutex
	ok, early int
}

func (c *counter) add(ok bool, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case ok:
		c.ok++
	case took <= deadline/10:
		c.early++
	}
}

// lateTransport sends each request up to maxLate after its client wants to, as late timers do.
type lateTransport struct {
	base *http.Transport

	mu     sync.Mutex
	random *rand.Rand
}

// RoundTrip implements http.RoundTripper.
func (l *lateTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	l.mu.Lock()
	late := time.Duration(l.random.Int64N(int64(maxLate)))
	l.mu.Unlock()
	time.Sleep(late)
	return l.base.RoundTrip(req)
}

// limitedTransport sends a request when limiter admits it.
type limitedTransport struct {
	base    http.RoundTripper
	limiter *rate.Limiter
}

// RoundTrip implements http.RoundTripper.
func (w *limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := w.limiter.Wait(r.Context()); err != nil {
		return nil, err
	}
	return w.base.RoundTrip(r)
}
