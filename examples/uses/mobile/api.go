package mobile

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/heed-go/heed/examples/uses/internal/scenario"
	"github.com/heed-go/heed/heedtest"
)

// An api collects the events of all devices: 50 per second, and one effect for each
// Idempotency-Key. Of 100 events, one is stored without a response, because the connection is
// lost.
type api struct {
	counts *scenario.Counts

	mu     sync.Mutex
	rate   scenario.Bucket
	stored map[string]bool // by Idempotency-Key
	events int
}

const latency = 200 * time.Millisecond

func newAPI(c *scenario.Counts) *api {
	return &api{counts: c, rate: scenario.Bucket{Size: 50, Per: time.Second}, stored: make(map[string]bool)}
}

func (a *api) respond(req heedtest.Request) heedtest.Response {
	event := string(req.Body)
	first := a.counts.Received(event) == 1
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := time.Now(); !a.rate.Take(now, 1) {
		a.counts.Throttled()
		wait := int(a.rate.Until(now, 1)/time.Second) + 1
		return heedtest.Response{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {strconv.Itoa(wait)}}}
	}
	resp := heedtest.Response{Status: http.StatusAccepted, Delay: latency}
	key := req.Header.Get("Idempotency-Key")
	if key != "" && a.stored[key] {
		return resp
	}
	a.stored[key] = true
	a.counts.Done(event)
	if a.events++; a.events%100 == 0 && first {
		resp.Fault = heedtest.Drop
	}
	return resp
}
