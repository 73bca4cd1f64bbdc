package main

import (
	"net/http"
	"net/url"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/bench"
	"github.com/heed-go/heed/bench/internal/heap"
	"github.com/heed-go/heed/throttlehttp"
)

// A load is the size of an attack.
type load struct {
	rate    int64
	length  time.Duration
	workers int
}

// A counters counts requests by outcome.
type counters struct{ requests, granted, panics, longest atomic.Int64 }

// run runs attack a against limiters of kind k.
func (o load) run(a attack, k limiterKind) result {
	empty := heap.InUse()
	clk := new(steppedClock)
	l := k.make(clk)
	var t counters
	m := throttlehttp.Middleware{Rules: []throttlehttp.Rule{{Limiter: l, Key: a.key}}}
	if a.secondKey != nil {
		m.Rules = append(m.Rules, throttlehttp.Rule{Limiter: buckets.make(clk), Key: a.secondKey})
	}
	h := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.granted.Add(1) }))

	made := heap.InUse()
	start, used := time.Now(), bench.ProcessorTime()
	var wg sync.WaitGroup
	for w := range o.workers {
		wg.Go(func() { o.work(h, &t, a, clk, int64(w), start) })
	}
	wg.Wait()
	n, took, used := t.requests.Load(), time.Since(start), bench.ProcessorTime()-used
	r := result{ // one client may use its burst, and the units restored in the hour of the clock
		Attack: a.name, Limiter: k.name, Requests: n, PerSecond: float64(n) / took.Seconds(), Processor: used.Seconds() * 1e6 / float64(n), Longest: float64(t.longest.Load()) / 1e6,
		Granted: t.granted.Load(), Allowed: 2 * perHour, LimiterSize: (made - empty) >> 10, Growth: (heap.InUse() - made) >> 10, GrownMax: 1 << 10,
		Panics: t.panics.Load(), Peer: k.peer,
	}
	if a.manyClients {
		r.Allowed = min(n, k.keys(n))
	}
	runtime.KeepAlive(h)
	return r
}

// work is one attacker: it sends the requests that are due, and then reads the clock again.
func (o load) work(h http.Handler, t *counters, a attack, clk *steppedClock, w int64, start time.Time) {
	rate := float64(o.rate) / float64(o.workers) / float64(max(a.slowdown, 1))
	r, rw := request(), discardWriter{}
	for sent := int64(0); ; {
		now := time.Since(start)
		if now > o.length {
			return
		}
		due := int64(now.Seconds()*rate) + 1
		if sent >= due {
			time.Sleep(50 * time.Microsecond)
		}
		for ; sent < due && now <= o.length; sent++ {
			i := sent*int64(o.workers) + w
			a.forge(r, i)
			if a.step != nil {
				a.step(clk, i)
			}
			clear(rw)
			t.send(h, rw, r)
			then := now
			now = time.Since(start)
			t.observe(now - then)
		}
	}
}

func (t *counters) send(h http.Handler, w http.ResponseWriter, r *http.Request) {
	t.requests.Add(1)
	defer func() {
		if recover() != nil {
			t.panics.Add(1)
		}
	}()
	h.ServeHTTP(w, r)
}

func (t *counters) observe(d time.Duration) {
	for {
		old := t.longest.Load()
		if int64(d) <= old || t.longest.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

// request returns the request that attackers modify. It comes from a trusted proxy.
func request() *http.Request {
	return &http.Request{
		Method: http.MethodGet, URL: &url.URL{Path: "/"}, Host: "api.example.com", RemoteAddr: "10.0.0.2:4711",
		Header: http.Header{"X-Api-Key": {""}, "X-Name": {""}, "X-Forwarded-For": {"192.0.2.7"}, "Forwarded": {"for=192.0.2.7"}},
	}
}

// discardWriter is a ResponseWriter that discards the body.
type discardWriter http.Header

func (n discardWriter) Header() http.Header         { return http.Header(n) }
func (n discardWriter) Write(b []byte) (int, error) { return len(b), nil }
func (n discardWriter) WriteHeader(int)             {}
