package main

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/quota"
)

// run makes the calls of all processes.
func run(p plan, share string) (r result, err error) {
	api, err := newAPI(p)
	if err != nil {
		return r, err
	}
	url := p.url
	if url == "" {
		url = "http://api.test/items"
	}
	exchanges, err := newExchanges(share, p.processes)
	if err != nil {
		return r, err
	}
	defer exchanges.close()
	r = result{Server: p.kind, Share: share, Processes: p.processes, Calls: p.processes * p.calls, Ideal: api.ideal(p.processes * p.calls)}
	var trackers []*quota.Tracker
	for i := range p.processes {
		trackers = append(trackers, &quota.Tracker{Exchange: exchanges.exchange(i)})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Held, r.HeldMS = countHeld(trackers, url, api.rejectedAt)
	}()

	var failed atomic.Int64
	speeds, took := make([]float64, p.processes), make([]time.Duration, p.processes)
	var all sync.WaitGroup
	for i, tr := range trackers {
		all.Go(func() {
			client := &http.Client{Transport: &heed.Transport{Base: api, Quota: tr}}
			n, t := work(client, p, url)
			failed.Add(int64(p.calls - n))
			speeds[i], took[i] = float64(n)/max(t.Seconds(), 1e-3), t
		})
	}
	all.Wait()
	select {
	case api.rejectedAt <- time.Time{}: // there was no 429
	default:
	}
	<-done
	for _, t := range took {
		r.Elapsed = max(r.Elapsed, t.Seconds())
	}
	r.Sent, r.Rejected, r.Failed, r.Jain, r.Messages = api.sent.Load(), api.rejected.Load(), failed.Load(), jain(speeds), exchanges.messages()
	r.Percent = 100 * float64(r.Rejected) / float64(max(r.Sent, 1))
	return r, nil
}

// work makes the calls of one process, and returns the number of successes and the time.
func work(client *http.Client, p plan, url string) (succeeded int, took time.Duration) {
	start := time.Now()
	var n, ok atomic.Int64
	var callers sync.WaitGroup
	for range p.callers {
		callers.Go(func() {
			for n.Add(1) <= int64(p.calls) {
				resp, err := client.Get(url)
				if err != nil {
					continue
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					ok.Add(1)
				}
			}
		})
	}
	callers.Wait()
	return int(ok.Load()), time.Since(start)
}

// countHeld returns the number of trackers that hold requests within two seconds of the
// first 429, and the time in milliseconds until the last of them does.
func countHeld(trackers []*quota.Tracker, url string, first <-chan time.Time) (n int, ms float64) {
	at := <-first
	if at.IsZero() {
		return 0, 0
	}
	held := make([]bool, len(trackers))
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0, 0
	}
	for since := time.Duration(0); n < len(trackers) && since < 2*time.Second; since = time.Since(at) {
		for i, tr := range trackers {
			if !held[i] && isHeld(tr, req) {
				held[i], ms = true, float64(time.Since(at).Microseconds())/1000
				n++
			}
		}
		time.Sleep(100 * time.Microsecond)
	}
	return n, ms
}

func jain(speeds []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, s := range speeds {
		sum += s
		squares += s * s
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(speeds)) * squares)
}
