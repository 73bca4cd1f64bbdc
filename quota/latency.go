package quota

import (
	"net/http"
	"time"

	"github.com/heed-go/heed/quota/internal/routes"
)

func (lt *linked) ObserveLatency(req *http.Request, d time.Duration, now time.Time) {
	t := (*Tracker)(lt)
	t.once.Do(t.init)
	t.latencies.Observe(routes.HostRouteOf(t.seed, req), d, now)
}

func (lt *linked) ObserveExpired(req *http.Request, d, waited time.Duration, now time.Time) {
	t := (*Tracker)(lt)
	t.once.Do(t.init)
	t.latencies.ObserveExpired(routes.HostRouteOf(t.seed, req), d, waited, now)
}

func (lt *linked) Latency(req *http.Request, now time.Time) (typical, high time.Duration) {
	t := (*Tracker)(lt)
	t.once.Do(t.init)
	return t.latencies.Latency(routes.HostRouteOf(t.seed, req), now)
}
