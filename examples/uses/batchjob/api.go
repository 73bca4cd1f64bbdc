package batchjob

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/heed-go/heed/examples/uses/internal/scenario"
	"github.com/heed-go/heed/heedtest"
)

// An api creates invoices, one for each Idempotency-Key. An account has 1,000 requests per 10
// seconds, of which each response states what is left. Of 100 invoices, one is created without
// a response, because the connection is lost.
type api struct {
	counts *scenario.Counts

	mu       sync.Mutex
	window   scenario.Window
	created  map[string]bool // by Idempotency-Key
	invoices int
}

const latency = 50 * time.Millisecond

func newAPI(c *scenario.Counts) *api {
	return &api{counts: c, window: scenario.Window{Limit: 1000, Per: 10 * time.Second}, created: make(map[string]bool)}
}

func (a *api) respond(req heedtest.Request) heedtest.Response {
	var invoice struct{ Customer string }
	if err := json.Unmarshal(req.Body, &invoice); err != nil {
		return heedtest.Response{Status: http.StatusBadRequest, Body: err.Error()}
	}
	first := a.counts.Received(invoice.Customer) == 1
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	granted := a.window.Take(now, 1)
	reset := strconv.Itoa(int((a.window.End.Sub(now) + time.Second - 1) / time.Second))
	resp := heedtest.Response{Status: http.StatusCreated, Delay: latency, Header: http.Header{
		"X-Ratelimit-Limit":     {strconv.Itoa(a.window.Limit)},
		"X-Ratelimit-Remaining": {strconv.Itoa(a.window.Limit - a.window.Used)},
		"X-Ratelimit-Reset":     {reset},
	}}
	if !granted {
		a.counts.Throttled()
		resp.Status, resp.Delay = http.StatusTooManyRequests, latency/10
		resp.Header.Set("Retry-After", reset)
		return resp
	}
	key := req.Header.Get("Idempotency-Key")
	if key != "" && a.created[key] {
		return resp
	}
	a.created[key] = true
	a.counts.Done(invoice.Customer)
	if a.invoices++; a.invoices%100 == 0 && first {
		resp.Fault = heedtest.Drop
	}
	return resp
}
