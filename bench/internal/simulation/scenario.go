package simulation

import (
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// A Scenario is loads of one client to one server. It describes them by data alone, so that
// programs share what a server does.
type Scenario struct {
	Loads []Load // they begin at the same time, apart from After
	Site  Site
}

// A Site describes how a server responds.
type Site struct {
	Latency  Latency
	Capacity int     // requests in flight beyond which responses become slower in proportion; zero: any
	Backends int     // a request goes to a random one of them; zero means 1
	Faults   []Fault // the first that applies to a request determines its response

	// Statement returns a function that returns the header fields of the responses to requests that
	// do not fail. Nil means that they have none. It is called at the beginning of a run.
	Statement func() func(Request) http.Header
}

// A Result is what a client did in a Scenario.
type Result struct {
	Outcome
	Sent       int           // requests that arrived
	Rejected   int           // requests that failed because of a Fault whose response is not right
	Early      int           // requests that were sent again before the Retry-After of their own response
	Overloaded time.Duration // time at which twice the Capacity was last exceeded
}

// Seed returns a seed for run n of what has a name.
func Seed(name string, n int) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name + "\x00" + strconv.Itoa(n)))
	return h.Sum64()
}

// Run makes the calls of s with the client that newClient returns. It must be called in
// virtual time. It begins at a random fraction of a second and varies all that Server.Vary
// does. Calls end by their context or, as the seed decides, by Client.Timeout if they all have the
// same deadline. observe is called with each request; nil means that it is not needed.
func (s Scenario) Run(newClient func(base http.RoundTripper) *http.Client, seed uint64, observe func(Request, Response)) Result {
	random := rand.New(rand.NewPCG(seed, 1))
	time.Sleep(time.Duration(random.Int64N(int64(time.Second))))
	site := s.open(random)
	server := NewServer(func(r Request) Response {
		resp := site.respond(r)
		if observe != nil {
			observe(r, resp)
		}
		return resp
	})
	server.Vary(seed)
	defer server.Close()
	connections := 2000
	if slices.ContainsFunc(s.Site.Faults, func(f Fault) bool { return f.Drop || f.Hang }) {
		connections = 0
	}
	client := newClient(server.Transport(connections))
	if deadline, ok := site.commonDeadline(); ok && random.IntN(2) == 0 {
		client.Timeout = deadline
	}
	out := site.run(client, server.URL)
	result := Result{Outcome: out, Sent: server.Received(), Early: server.Early()}
	server.Do(func() { result.Rejected, result.Overloaded = site.rejected, site.overloaded })
	return result
}

// An openSite is a Site during a run.
type openSite struct {
	Site
	loads      []Load
	faults     []*activeFault
	statement  func(Request) http.Header // nil: none
	start      time.Time
	rejected   int
	overloaded time.Duration
}

func (s Scenario) open(random *rand.Rand) *openSite {
	site := &openSite{Site: s.Site, loads: slices.Clone(s.Loads), start: time.Now()}
	calls, counts := 0, [Routes + 1]int{Backends: s.Site.Backends}
	for i := range site.loads {
		l := &site.loads[i]
		l.First, l.Seed = calls, random.Uint64()|1
		calls += l.Calls + l.Burst
		counts[Resources] = max(counts[Resources], l.Resources)
		counts[Tenants] = max(counts[Tenants], l.Tenants)
		counts[Routes] = max(counts[Routes], l.Routes)
	}
	for _, f := range s.Site.Faults {
		site.faults = append(site.faults, f.activate(counts, random))
	}
	if s.Site.Statement != nil {
		site.statement = s.Site.Statement()
	}
	return site
}

// commonDeadline returns the deadline of all calls, if they have one.
func (s *openSite) commonDeadline() (time.Duration, bool) {
	first := s.loads[0].Deadline
	differs := slices.ContainsFunc(s.loads, func(l Load) bool { return l.Deadline != first })
	return first, first > 0 && !differs
}

// run makes the calls of all loads.
func (s *openSite) run(client *http.Client, url string) (all Outcome) {
	outcomes := make(chan Outcome)
	for _, l := range s.loads {
		if client.Timeout > 0 {
			l.Deadline = 0
		}
		go func() {
			out := l.Run(client, url)
			out.Elapsed += l.After
			out.LastFailure += l.After
			outcomes <- out
		}()
	}
	for range s.loads {
		all.add(<-outcomes)
	}
	return all
}

// add adds the calls of another load that began at the same time.
func (o *Outcome) add(other Outcome) {
	succeeded, more := o.Calls-o.Failed, other.Calls-other.Failed
	if succeeded+more > 0 {
		o.Mean = (o.Mean*time.Duration(succeeded) + other.Mean*time.Duration(more)) / time.Duration(succeeded+more)
	}
	o.Calls += other.Calls
	o.Failed += other.Failed
	o.Elapsed = max(o.Elapsed, other.Elapsed)
	o.LastFailure = max(o.LastFailure, other.LastFailure)
}

func (s *openSite) respond(r Request) Response {
	load := s.loadOf(r.Call)
	latency := s.Latency
	if load.Latency != (Latency{}) {
		latency = load.Latency
	}
	delay := latency.draw(r.Random)
	if s.Capacity > 0 && r.InFlight > s.Capacity {
		delay = delay * time.Duration(r.InFlight) / time.Duration(s.Capacity)
		if r.InFlight > 2*s.Capacity {
			s.overloaded = r.At.Sub(s.start)
		}
	}
	target := load.target(r.Call - load.First)
	which := [...]int{Backends: r.Random.IntN(max(s.Backends, 1)), Resources: target.Resource, Tenants: target.Tenant, Routes: target.Route}
	var response *Response
	for _, f := range s.faults {
		if applies := response == nil && f.applies(r, which); applies {
			answer := f.response(r, delay)
			response = &answer
		}
	}
	if response == nil {
		answer := Response{Delay: delay}
		if s.statement != nil {
			answer.Header = s.statement(r)
		}
		return answer
	}
	if response.Status < 400 || !slices.Contains(load.Right, response.Status) {
		s.rejected++
	}
	return *response
}

// loadOf returns the load of a call.
func (s *openSite) loadOf(call int) *Load {
	i := len(s.loads) - 1
	for i > 0 && s.loads[i].First > call {
		i--
	}
	return &s.loads[i]
}
