package workers

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/heed-go/heed/examples/uses/internal/scenario"
	"github.com/heed-go/heed/heedtest"
)

// An api creates shipments. An account has 600 requests per minute, of which each response
// states what is left, in the header fields of draft-ietf-httpapi-ratelimit-headers. Of 200
// shipments, one is created without a response, because the connection is lost.
type api struct {
	counts *scenario.Counts

	mu      sync.Mutex
	window  scenario.Window
	created map[string]bool // by Idempotency-Key
}

const latency = 120 * time.Millisecond

func newAPI(c *scenario.Counts) *api {
	return &api{counts: c, window: scenario.Window{Limit: 600, Per: time.Minute}, created: make(map[string]bool)}
}

func (a *api) respond(req heedtest.Request) heedtest.Response {
	first := a.counts.Received(req.URL) == 1
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	granted := a.window.Take(now, 1)
	reset := strconv.Itoa(int((a.window.End.Sub(now) + time.Second - 1) / time.Second))
	resp := heedtest.Response{Status: http.StatusCreated, Delay: latency, Header: http.Header{
		"Ratelimit-Policy": {`"account";q=600;w=60`},
		"Ratelimit":        {`"account";r=` + strconv.Itoa(a.window.Limit-a.window.Used) + ";t=" + reset},
	}}
	if !granted {
		a.counts.Throttled()
		resp.Status, resp.Delay = http.StatusTooManyRequests, latency/10
		resp.Header.Set("Retry-After", reset)
		return resp
	}
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
