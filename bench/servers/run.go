package main

import (
	"math/rand/v2"
	"time"

	"github.com/heed-go/heed/bench/clients"
	"github.com/heed-go/heed/bench/internal/simulation"
	"github.com/heed-go/heed/internal/serverrules"
)

const (
	calls   = 300
	workers = 30

	// minPause is the minimum time between the two jobs: longer than all windows and
	// penalties that are not extended meanwhile, apart from windows of a minute.
	minPause = 30 * time.Second

	// phase is how long after the beginning of a minute the second job begins, in addition to a random
	// fraction of a second, so that it does not begin together with a window.
	phase = 1200 * time.Millisecond

	// headerTimeout is the time after which the transport of all clients gives up a request
	// that is not responded to.
	headerTimeout = 5 * time.Second
)

// A result is one job of a client on a server. Sent are the requests that arrived, wasted
// those that the server rejected, and failed the calls that ended with an error or a status
// other than 200.
type result struct {
	Client  string  `json:"client"`
	Server  string  `json:"server"`
	Job     int     `json:"job"` // 1 or 2
	Calls   int     `json:"calls"`
	Sent    int     `json:"sent"`
	Wasted  int     `json:"wasted"`
	Failed  int     `json:"failed"`
	Elapsed float64 `json:"elapsed_s"`
	Ideal   float64 `json:"ideal_s"`
	Seed    int     `json:"seed"`
}

// times returns the elapsed time as a multiple of the ideal one.
func (r result) times() float64 { return r.Elapsed / r.Ideal }

// run makes both jobs with one client, which keeps what it learned. It must be called in
// virtual time. The seed decides at which fraction of a second a job begins, how long responses take, 0.5 to
// 1.5 ms, and all that Server.Vary does.
func (r row) run(client string, seed int) []result {
	varied := simulation.Seed(r.server, seed)
	random := rand.New(rand.NewPCG(varied, 1))
	start, rule, wasted := time.Now(), r.new(), 0
	s := simulation.NewServer(func(q simulation.Request) simulation.Response {
		reply := rule(serverrules.Request{At: q.At, Path: q.HTTP.URL.Path})
		if !reply.OK() {
			wasted++
		}
		delay := 500*time.Microsecond + time.Duration(q.Random.Int64N(int64(time.Millisecond)))
		return simulation.Response{Status: reply.Status, Header: reply.Header, Delay: delay + reply.Delay, Drop: reply.Drop, Hang: reply.Hang}
	})
	s.Vary(varied)
	defer s.Close()
	connections := workers
	if r.closes {
		connections = 0
	}
	base := s.Transport(connections)
	base.ResponseHeaderTimeout = headerTimeout
	c, err := clients.New(client, base, nil)
	if err != nil {
		panic(err)
	}
	results := []result{}
	for job := range 2 {
		if job > 0 {
			pause(start)
		}
		time.Sleep(time.Duration(random.Int64N(int64(time.Second))))
		load := simulation.Load{Calls: calls, Path: r.path, First: job * calls, Seed: varied + uint64(job) + 1}
		at, sent, before := time.Since(start), s.Received(), 0
		s.Do(func() { before = wasted })
		out := load.Closed(c, s.URL, workers)
		result := result{Client: client, Server: r.server, Job: job + 1, Seed: seed, Calls: out.Calls, Failed: out.Failed,
			Sent: s.Received() - sent, Elapsed: out.Elapsed.Seconds(), Ideal: r.ideal(calls, at).Seconds()}
		s.Do(func() { result.Wasted = wasted - before })
		results = append(results, result)
	}
	return results
}

// pause waits for minPause, and then until phase after the beginning of a minute.
func pause(start time.Time) {
	time.Sleep(minPause)
	const minute = time.Minute
	time.Sleep(minute - (time.Since(start)+minute-phase)%minute)
}
