package worlds

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/heed-go/heed"
)

// Waits is why a call of heed took longer than its attempts.
type Waits struct {
	Queue   map[string]time.Duration // waits in the queue, by their reason; nil: there were none
	Backoff time.Duration            // between attempts, outside the queue
	Stopped error                    // why it was not sent again; nil: it was, or there was no reason to
}

// Cause returns the reason of a call that ends with r for its failure or delay: why it was not sent again, or what it
// has waited for longest.
func (w *Waits) Cause(r Result) string {
	if w.Stopped != nil && r.Reason != Deadline && r.Reason != Unsent {
		for _, stop := range []error{heed.ErrMaxAttempts, heed.ErrMaxWait, heed.ErrMaxElapsed, heed.ErrRetryBudget, heed.ErrNotIdempotent} {
			if errors.Is(w.Stopped, stop) {
				return "not retried, " + stop.Error()[len("heed: "):]
			}
		}
		return "not retried"
	}
	cause, longest := "none", time.Duration(-1)
	for reason, d := range w.Queue {
		if reason = "waited: " + reason; d > longest || d == longest && reason < cause {
			cause, longest = reason, d
		}
	}
	if w.Backoff > max(longest, 0) {
		cause = "waited: backoff"
	}
	if cause == "none" && !r.OK() {
		return r.Reason.String() + " " + strconv.Itoa(int(r.Status))
	}
	return cause
}

// ownReason is the reason of waits that no limit of the server causes.
const ownReason = "the own limit"

// waitedForServer reports whether a limit of the server has delayed a call.
func (w *Waits) waitedForServer() bool {
	for reason := range w.Queue {
		if !strings.HasPrefix(reason, ownReason) {
			return true
		}
	}
	return false
}

// A recorder records the Waits of calls. It is safe for concurrent use.
type recorder struct {
	n     int // calls
	mu    sync.Mutex
	calls []Waits
}

// trace returns the functions that record.
func (r *recorder) trace() *heed.Trace {
	r.calls = make([]Waits, r.n)
	change := func(req *http.Request, f func(*Waits)) {
		if call, ok := req.Context().Value(callKey{}).(int); ok {
			r.mu.Lock()
			defer r.mu.Unlock()
			f(&r.calls[call])
		}
	}
	return &heed.Trace{
		WaitDone: func(req *http.Request, info heed.WaitInfo) {
			if info.Waited <= 0 && info.Err == nil {
				return
			}
			reason := cmp.Or(info.Reason, ownReason)
			if info.Attempt > 1 {
				reason += " (repeated)"
			}
			change(req, func(w *Waits) {
				if w.Queue == nil {
					w.Queue = map[string]time.Duration{}
				}
				w.Queue[reason] += info.Waited
			})
		},
		Done: func(req *http.Request, info heed.DoneInfo) {
			change(req, func(w *Waits) { w.Backoff, w.Stopped = info.BackoffWait, info.StopReason })
		},
	}
}
