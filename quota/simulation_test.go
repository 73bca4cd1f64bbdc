package quota_test

import (
	"cmp"
	"container/heap"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/internal/quotalink"
	"github.com/heed-go/heed/internal/serverrules"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
)

// A scenario is a server and the calls that clients make to it. Time is simulated and all
// random numbers have a seed, so that a scenario always takes the same course.
type scenario struct {
	name   string
	server func() serverrules.Server

	calls   int // in all
	burst   int // calls at the start
	rate    int // calls per second after that
	clients int // make the calls in turn, each with a Tracker of its own; zero means 1

	// pause is the time from the first call to a second job of as many calls, which begins with the same
	// burst. Zero means that there is one job.
	pause time.Duration

	// ideal is the shortest time in which clients that know the limit could make the calls
	// if responses took no time.
	ideal time.Duration

	column time.Duration // of the plot; zero means 250 ms

	// varies is set if the number of rejections, and with it the time, depends on the order of requests that are
	// sent at one moment, which no seed decides where each call has a goroutine.
	varies bool
}

const (
	roundTripTime = 20 * time.Millisecond
	sampleTime    = 10 * time.Millisecond
	maxTime       = 10 * time.Minute
	maxAttempts   = 10 // the default of heed.RetryPolicy.MaxAttempts
	maxFailures   = 4  // the default of heed.RetryPolicy.MaxAttempts
)

// arrival returns when call i is made, from the start of the scenario.
func (c *scenario) arrival(i int) time.Duration {
	if second := c.calls / 2; c.pause > 0 && i >= second {
		one := *c
		one.pause = 0
		return c.pause + one.arrival(i-second)
	}
	if i < c.burst {
		return 0
	}
	return time.Duration(i-c.burst+1) * time.Second / time.Duration(c.rate)
}

// A simulation is a scenario that runs in one goroutine: one event after another, in the
// order of their times.
type simulation struct {
	*scenario
	start, now time.Time
	events     events
	scheduled  int // events so far
	serve      serverrules.Server
	clients    []*simulatedClient
	open       int // calls that have not ended
	failed     int // calls that ended without success
	requests   []request
	samples    []sample
	learned    []notice
}

// A request is what the server did with a request.
type request struct {
	at       time.Duration
	client   int
	accepted bool
}

// A sample is why the calls of a client wait at one moment.
type sample struct {
	at     time.Duration
	client int
	reason string // empty if none waits
}

// A notice describes a limit that a Tracker has learned or dropped.
type notice struct {
	at   time.Duration
	text string
}

// run returns the simulation of c at the end of its last call. After maxTime the open calls
// have failed.
func (c *scenario) run() *simulation {
	start := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	s := &simulation{scenario: c, start: start, now: start, serve: c.server(), open: c.calls}
	for i := range max(c.clients, 1) {
		s.clients = append(s.clients, newSimulatedClient(s, i))
	}
	for i := range c.calls {
		client, one := s.clients[i%len(s.clients)], &call{number: i}
		s.after(c.arrival(i), func() { client.join(one) })
	}
	s.sample()
	for s.open > 0 && s.elapsed() < maxTime {
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		e.do()
	}
	s.failed += s.open
	return s
}

// Now and After implement throttle.Clock. A Tracker does not call After.
func (s *simulation) Now() time.Time                       { return s.now }
func (s *simulation) After(time.Duration) <-chan time.Time { return nil }

// elapsed returns the time since the start.
func (s *simulation) elapsed() time.Duration { return s.now.Sub(s.start) }

// sample records why calls wait, now and from now on.
func (s *simulation) sample() {
	for i, c := range s.clients {
		s.samples = append(s.samples, sample{s.elapsed(), i, c.reason})
	}
	s.after(sampleTime, s.sample)
}

// after schedules an event.
func (s *simulation) after(d time.Duration, do func()) {
	s.scheduled++
	heap.Push(&s.events, event{s.now.Add(d), s.scheduled, do})
}

// An event is a function that is called at a time. Events of one time are called in the
// order in which they were scheduled.
type event struct {
	at     time.Time
	number int
	do     func()
}

// events is a heap, the earliest event first.
type events []event

func (e events) Len() int      { return len(e) }
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e events) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].number < e[j].number
}

func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// A simulatedClient does with each call what a heed.Transport and its queue do: it waits
// for the limit of the Tracker in the order of arrival, sends, reports the response, and
// retries. TestScenarios_agreeWithTransport compares both.
type simulatedClient struct {
	s       *simulation
	number  int
	tracker *quota.Tracker
	events  *quota.Events // the Tracker calls them while this refers to them
	req     *http.Request
	budget  backoff.Budget
	delays  *rand.Rand
	waiting []*call   // in the order of their numbers
	wakeAt  time.Time // when the first of waiting asks again; zero means that it is not known
	reason  string    // for which the first of waiting waits
}

// A call is one call of a client.
type call struct {
	number             int // in the order of arrival
	attempts, failures int
	demand             throttle.Demand
	delay              time.Duration // before the last retry
	rejected           bool          // before
	immediate          bool          // it was repeated without a delay
}

func newSimulatedClient(s *simulation, number int) *simulatedClient {
	random, delays := randomFor(number)
	c := &simulatedClient{s: s, number: number, delays: delays}
	c.tracker = &quota.Tracker{Mode: quota.Full, Clock: s, Rand: random.Float64} // of all rules
	c.events = &quota.Events{LimitLearned: func(l quota.LimitLearnedInfo) {
		if l.Change != quota.Changed {
			s.learned = append(s.learned, notice{s.elapsed(), l.String()})
		}
	}}
	c.tracker.Listen(c.events)
	c.req = &http.Request{Method: http.MethodGet, URL: itemsURL, Host: itemsURL.Host, Header: http.Header{}}
	return c
}

// randomFor returns the random numbers of the Tracker and of the delays of a client.
func randomFor(client int) (tracker, delays *rand.Rand) {
	return rand.New(rand.NewPCG(1, uint64(client))), rand.New(rand.NewPCG(2, uint64(client)))
}

// join makes a call wait for its next attempt. A retry goes before calls that arrived later.
func (c *simulatedClient) join(one *call) {
	one.demand = c.tracker.Demand(c.req)
	i, _ := slices.BinarySearchFunc(c.waiting, one, func(a, b *call) int { return cmp.Compare(a.number, b.number) })
	c.waiting = slices.Insert(c.waiting, i, one)
	c.grant()
}

// grant sends the calls that the limit grants now.
func (c *simulatedClient) grant() {
	c.reason, c.wakeAt = "", time.Time{}
	for len(c.waiting) > 0 {
		one := c.waiting[0]
		claim := throttle.Claim{Key: one.demand.Key, Cost: one.demand.Cost, Now: c.s.now, Waits: true}
		var d throttle.Decision
		if one.demand.Limiter != nil {
			d = mustReserve(one.demand.Limiter, claim)
			if !d.OK {
				c.wait(d)
				return
			}
		}
		c.waiting = c.waiting[1:]
		c.send(one, claim, d)
	}
}

func mustReserve(l throttle.Limiter, c throttle.Claim) throttle.Decision {
	d, err := l.Reserve(context.Background(), c)
	if err != nil {
		panic(err)
	}
	return d
}

// wait asks again when d states, or after a response.
func (c *simulatedClient) wait(d throttle.Decision) {
	c.reason = reasonOf(d.Policy)
	if d.Wait <= 0 || d.Wait == throttle.Forever {
		return
	}
	at := c.s.now.Add(d.Wait)
	c.wakeAt = at
	c.s.after(d.Wait, func() {
		if c.wakeAt.Equal(at) {
			c.grant()
		}
	})
}

// send sends a request, which arrives after half of the round trip.
func (c *simulatedClient) send(one *call, claim throttle.Claim, d throttle.Decision) {
	if one.attempts++; one.attempts == 1 {
		c.budget.Deposit(c.s.now, 1)
	}
	sent := c.s.now
	c.s.after(roundTripTime/2, func() {
		reply := c.s.serve(serverrules.Request{At: c.s.now, Path: c.req.URL.Path})
		c.s.requests = append(c.s.requests, request{c.s.elapsed(), c.number, reply.OK()})
		c.s.after(roundTripTime/2+reply.Delay, func() { c.receive(one, claim, d, reply, sent) })
	})
}

// receive reports the reply to the Tracker, and ends or retries the call.
func (c *simulatedClient) receive(one *call, claim throttle.Claim, d throttle.Decision, reply serverrules.Reply, sent time.Time) {
	resp, err := respondWith(reply, c.req)
	f := c.tracker.Feedback(c.req, one.demand, resp, err, c.s.now, nil)
	f.Repeated = one.rejected
	one.demand.Limiter.Report(context.Background(), claim, d, f)
	switch {
	case reply.OK():
		quotalink.Of(c.tracker).ObserveLatency(c.req, c.s.now.Sub(sent), c.s.now)
		c.s.open--
	case !c.retry(one, f):
		c.s.open--
		c.s.failed++
	}
	c.grant()
}

// respondWith returns what a RoundTripper returns for a reply.
func respondWith(reply serverrules.Reply, req *http.Request) (*http.Response, error) {
	if reply.Drop {
		return nil, io.ErrUnexpectedEOF
	}
	resp := &http.Response{StatusCode: cmp.Or(reply.Status, http.StatusOK), Header: reply.Header, Body: http.NoBody, Request: req}
	if resp.Header == nil {
		resp.Header = http.Header{}
	}
	return resp, nil
}

// retry reports whether the call will be repeated, after what the rejection states or after the backoff.
func (c *simulatedClient) retry(one *call, f throttle.Feedback) bool {
	throttled := f.Outcome == throttle.Throttled
	if !throttled {
		one.failures++
	}
	if one.failures == maxFailures || one.attempts == maxAttempts {
		return false
	}
	one.rejected = one.rejected || throttled
	held := throttled && f.Cause != throttle.CauseRetryNow && c.holds(f.RetryAfter)
	if !throttled && !c.budget.Withdraw(c.s.now) {
		return false
	}
	c.s.after(c.delay(one, &f, held), func() { c.join(one) })
	return true
}

// delay returns the time until a call is repeated.
func (c *simulatedClient) delay(one *call, f *throttle.Feedback, held bool) time.Duration {
	switch stated := quota.StatedDelay(f); {
	case f.RetryAfter > 0 && held:
		return f.RetryAfter
	case f.RetryAfter > 0:
		return backoff.RetryAfterJitter{Rand: c.delays.Float64}.Delay(f.RetryAfter, one.attempts)
	case stated > 0:
		return stated
	case f.Cause == throttle.CauseRetryNow && !one.immediate:
		one.immediate = true
		return 0
	}
	one.delay = backoff.Exponential{Rand: c.delays.Float64}.Delay(one.attempts, one.delay)
	if f.Cause == throttle.CauseRetryNow {
		return one.delay / 10
	}
	return one.delay
}

// holds reports whether a request sent now would wait at least that long.
func (c *simulatedClient) holds(atLeast time.Duration) bool {
	demand := c.tracker.Demand(c.req)
	if demand.Limiter == nil {
		return false
	}
	d := mustReserve(demand.Limiter, throttle.Claim{Key: demand.Key, Cost: demand.Cost, Now: c.s.now, DryRun: true})
	return !d.OK && (d.Wait == 0 || d.Wait >= atLeast)
}
