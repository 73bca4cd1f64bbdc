package crawler

import (
	"hash/fnv"
	"net/http"
	"sync"
	"time"

	"github.com/heed-go/heed/examples/uses/internal/scenario"
	"github.com/heed-go/heed/heedtest"
)

// A web is the servers of many hosts, each with a limit that it does not state: 2 requests
// per second and 5 at the same moment. A third of them rejects with 503, as nginx does by
// default, the others with 429. One of 25 is down for maintenance and says for how long.
type web struct {
	counts *scenario.Counts

	mu    sync.Mutex
	hosts map[string]*host
}

type host struct {
	limit  scenario.Bucket
	status int       // of rejections
	upAt   time.Time // end of the maintenance
}

const (
	latency     = 100 * time.Millisecond
	maintenance = 20 * time.Second
)

func newWeb(c *scenario.Counts) *web { return &web{counts: c, hosts: make(map[string]*host)} }

func (w *web) respond(req heedtest.Request) heedtest.Response {
	page := req.Host + req.URL
	w.counts.Received(page)
	w.mu.Lock()
	defer w.mu.Unlock()
	h, now := w.host(req.Host), time.Now()
	if now.Before(h.upAt) {
		w.counts.Throttled()
		return heedtest.Response{Status: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {h.upAt.UTC().Format(http.TimeFormat)}}, Delay: latency}
	}
	if !h.limit.Take(now, 1) {
		w.counts.Throttled()
		return heedtest.Response{Status: h.status, Body: "<html>Slow down</html>", Delay: latency / 10}
	}
	w.counts.Done(page)
	return heedtest.Response{Body: "<html>" + page + "</html>", Delay: latency}
}

// host returns the server of a host, which is created when it is first asked.
func (w *web) host(name string) *host {
	h := w.hosts[name]
	if h == nil {
		h = &host{limit: scenario.Bucket{Size: 5, Per: 2500 * time.Millisecond}, status: http.StatusTooManyRequests}
		sum := fnv.New32()
		sum.Write([]byte(name))
		if sum.Sum32()%3 == 0 {
			h.status = http.StatusServiceUnavailable
		}
		if len(w.hosts)%25 == 0 {
			h.upAt = time.Now().Truncate(time.Second).Add(maintenance)
		}
		w.hosts[name] = h
	}
	return h
}
