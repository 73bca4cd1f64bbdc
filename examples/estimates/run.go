package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/heedtest"
	"github.com/heed-go/heed/quota"
)

// A result holds the outcome of the calls of a scenario.
type result struct {
	Server   string         `json:"server"`
	Calls    int            `json:"calls"`
	Failed   int            `json:"failed"`   // calls without a successful response
	Sent     int            `json:"sent"`     // requests, including retries
	Rejected int            `json:"rejected"` // responses with status 503 or 429
	Waited   map[string]int `json:"waited"`   // calls by the limit that they waited longest for
	Longest  float64        `json:"longest_wait_s"`
	Elapsed  float64        `json:"elapsed_s"`
	Events   []event        `json:"events"`
}

// An event is an event that the Transport reported through its Trace.
type event struct {
	After float64 `json:"after_s"`
	What  string  `json:"what"`
}

// A recorder collects a result. It is safe for concurrent use.
type recorder struct {
	start time.Time

	mu sync.Mutex
	result
}

// run makes the calls of s to server.
func (s scenario) run(server *heedtest.Server) result {
	r := &recorder{start: time.Now(), result: result{Server: s.title, Calls: s.calls, Waited: map[string]int{}, Events: []event{}}}
	client := heed.NewClient(&heed.Transport{Base: server.Transport(), Quota: &quota.Tracker{Mode: quota.Full}, Trace: r.trace()})
	defer client.CloseIdleConnections()
	var next atomic.Int64
	var all sync.WaitGroup
	for range s.workers {
		all.Go(func() {
			for item := next.Add(1); item <= int64(s.calls); item = next.Add(1) {
				r.countCall(client.Get(fmt.Sprintf("%s/items/%d", server.URL, item)))
			}
		})
	}
	all.Wait()
	r.Elapsed = time.Since(r.start).Seconds()
	return r.result
}

// trace returns a Trace that counts requests and records what the Transport learns about
// the server.
func (r *recorder) trace() *heed.Trace {
	return &heed.Trace{
		AttemptDone: func(_ *http.Request, s heed.AttemptInfo) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.Sent++
			if s.Status != 0 && s.Status != http.StatusOK {
				r.Rejected++
			}
		},
		Hold: func(i quota.HoldInfo) {
			if i.Held {
				r.addEvent("no requests for %d ms: %s", i.For.Milliseconds(), nameOf(i.Limit))
			} else {
				r.addEvent("requests again: %s", nameOf(i.Limit))
			}
		},
		LimitLearned: func(i quota.LimitLearnedInfo) {
			if i.Size > 0 {
				r.addEvent("%s: %s, %d requests per %v", nameOf(i.Limit), i.Change, i.Size, i.Per)
				return
			}
			r.addEvent("%s: %s, %.1f requests a second", nameOf(i.Limit), i.Change, i.Rate)
		},
	}
}

// addEvent adds an event.
func (r *recorder) addEvent(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Events = append(r.Events, event{time.Since(r.start).Seconds(), fmt.Sprintf(format, args...)})
}

// nameOf returns the name of a limit without the host.
func nameOf(limit string) string {
	_, name, _ := strings.Cut(limit, ": ")
	return name
}

// countCall counts a call that returned resp and err.
func (r *recorder) countCall(resp *http.Response, err error) {
	if err == nil {
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || resp.StatusCode != http.StatusOK {
		r.Failed++
	}
	if info, ok := heed.InfoFrom(resp); ok && info.QueueWait > 0 {
		r.Waited[nameOf(info.Limit)]++
		r.Longest = max(r.Longest, info.QueueWait.Seconds())
	}
}
