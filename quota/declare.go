package quota

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/heed-go/heed/internal/httphost"
	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// declared holds the limits that the program has declared.
type declared struct {
	mu     sync.Mutex
	byHost map[string]throttle.Limit // by canonical host; guarded by mu
}

// Declare states the limit of a server before any response does: l.Count requests in each
// l.Per, or l.Burst requests in a correspondingly shorter time if that is fewer. Requests of
// each account at host are counted against it, from the first one on, until a response states
// how many requests are left. A rejection that comes before the limit is used up lowers it.
// If the server is seen to have several quotas, the limit holds for each of them. It holds with
// every Mode but Disabled.
//
// host is the host of a URL, with its port unless that is the default one. Declare applies to
// accounts that are not known yet, so it is called before the first request to the host. It
// replaces what was declared for host. An error is returned if host is no host or l is not
// valid.
func (t *Tracker) Declare(host string, l throttle.Limit) error {
	if err := l.Validate(); err != nil {
		return fmt.Errorf("quota: declare a limit of %q: %w", host, err)
	}
	if host == "" || strings.ContainsAny(host, "/?#@ ") {
		return fmt.Errorf("quota: declare a limit of %q: not a host", host)
	}
	d := &t.declared
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byHost == nil {
		d.byHost = make(map[string]throttle.Limit)
	}
	d.byHost[httphost.Canonical("https", host)] = l
	return nil
}

// apply gives q, which is new, the limit that is declared for its host, as a learned window. If
// there is no memory for it, q has no declared limit.
func (d *declared) apply(q *quota) {
	d.mu.Lock()
	l, ok := d.byHost[q.endpoint.names.host]
	d.mu.Unlock()
	if !ok || !q.endpoint.memory.reserve(inferenceBytes) {
		return
	}
	w := learnedWindow{limit: l.Count, length: l.Per, declared: true, confirmed: true, gridless: true, testAfter: math.MaxInt}
	if l.Burst > 0 && l.Burst < l.Count {
		w.limit, w.length = l.Burst, time.Duration(ticks.MulDivUp(int64(l.Per), l.Burst, l.Count))
	}
	w.confirmedLimit, w.maxLength = w.limit, w.length
	q.inference = &inference{window: w}
}
