package quota

import (
	"net/http"
	"time"

	"github.com/heed-go/heed/throttle"
)

// Feedback returns what an answer says, as of now: resp, or err if there was
// none. d is what Demand returned for req. Hand the feedback to all limits
// of the request. Its windows are appended to buf, which may be nil.
//
// Throttled are 429, other answers that a server's headers mark as a refusal, and
// 503 with Retry-After. Failed are the other 5xx, and errors.
func (t *Tracker) Feedback(req *http.Request, d throttle.Demand, resp *http.Response, err error, now time.Time, buf []throttle.Window) throttle.Feedback {
	f := throttle.Feedback{Now: now}
	if err != nil || resp == nil {
		f.Outcome = throttle.Failed
		return f
	}
	b, ours := d.Limiter.(*bucket)
	good := resp.StatusCode < 400
	if ours && good && !b.site.worthReading() {
		return f
	}
	if f.Now.IsZero() {
		f.Now = t.clock().Now()
	}
	r := Parse(resp.StatusCode, resp.Header, f.Now)
	f.Outcome, f.RetryAfter = outcome(resp.StatusCode, &r)
	f.Windows = r.AppendWindows(buf)
	if !ours {
		return f
	}
	if len(r.Limits) > 0 {
		b.site.hinted.Store(true)
	}
	if (len(f.Windows) > 0 || f.Outcome == throttle.Throttled) && !b.site.place(req, b, &f) {
		f.Windows = nil // they speak of another quota, which has been told
	}
	return f
}

// outcome classifies an answer. A Retry-After is a command only where the work
// was refused: on a success it is a polling interval, or a habit.
func outcome(status int, r *Report) (throttle.Outcome, time.Duration) {
	switch {
	case r.Throttled || status == http.StatusServiceUnavailable && r.HasRetryAfter:
		return throttle.Throttled, r.RetryAfter
	case status >= 500:
		return throttle.Failed, 0
	}
	return throttle.Accepted, 0
}

const (
	readFirst = 16 // answers of a host that are read for hints
	readEvery = 64 // and then one in so many, while there were none
)

// worthReading reports whether a good answer may bring hints.
func (s *site) worthReading() bool {
	if s.hinted.Load() {
		return true
	}
	n := s.answers.Add(1)
	return n <= readFirst || n%readEvery == 0
}
