package workers

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/heed-go/heed/examples/uses/internal/scenario"
	"github.com/heed-go/heed/heedtest"
)

// An api creates shipments. An account has 1,000 requests per minute. Only rejections state that,
// with a Retry-After until the end of the minute. Of 200 shipments, one is created without a
// response, because the connection is lost.
type api struct {
	counts *scenario.Counts

	mu      sync.Mutex
	window  scenario.Window
	created map[string]bool // by Idempotency-Key
}

const latency = 120 * time.Millisecond

func newAPI(c *scenario.Counts) *api {
	return &api{counts: c, window: scenario.Window{Limit: 1000, Per: time.Minute}, created: make(map[string]bool)}
}

func (a *api) respond(req heedtest.Request) heedtest.Response {
	first := a.counts.Received(req.URL) == 1
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if !a.window.Take(now, 1) {
		a.counts.Throttled()
		left := (a.window.End.Sub(now) + time.Second - 1) / time.Second
		return heedtest.Response{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {strconv.Itoa(int(left))}}, Delay: latency / 10}
	}
	resp := heedtest.Response{Status: http.StatusCreated, Delay: latency}
	key := req.Header.Get("Idempotency-Key")
	if a.created[key] {
		return resp
	}
	a.created[key] = true
	a.counts.Done(req.URL)
	if len(a.created)%200 == 0 && first {
		resp.Fault = heedtest.Drop
	}
	return resp
}
