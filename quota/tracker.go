// Package quota knows the limits of the servers that a client calls: it reads
// them from answers, keeps them, and writes them.
package quota

import (
	"net/http"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A Tracker learns the limits of servers from what they answer, one state per
// bucket. The zero Tracker is ready to use; it must not be copied after use.
type Tracker struct {
	Start int            // requests in flight to a host that has said nothing yet; 0: 4, negative: no bound
	Clock throttle.Clock // nil: the system clock
}

// Demand returns the limit that req must pass. The Limiter is the same one for
// all requests that share a bucket.
func (t *Tracker) Demand(req *http.Request) throttle.Demand { return throttle.Demand{} }

// Feedback returns what the answer to req says, as of now: resp, or err if there
// was none. Hand it to the limits of the request (Waiter.Observe).
func (t *Tracker) Feedback(req *http.Request, resp *http.Response, err error, now time.Time) throttle.Feedback {
	return throttle.Feedback{Now: now}
}
