package quota

import (
	"net/http"
	"time"

	"github.com/heed-go/heed/throttle"
)

// Feedback returns what an answer says, as of now: resp, or err if there was
// none. d is what Demand returned for req. Hand the feedback to all limits of the
// request. Its windows are appended to buf, which may be nil.
//
// Throttled are 429, other answers that a server's headers mark as a refusal, 503
// with Retry-After, and 503 from a server that otherwise works. Failed are the other
// 5xx, and errors.
func (t *Tracker) Feedback(req *http.Request, d throttle.Demand, resp *http.Response, err error, now time.Time, buf []throttle.Window) throttle.Feedback {
	f := throttle.Feedback{Now: now}
	if err != nil || resp == nil {
		f.Outcome = throttle.Failed
		return f
	}
	b, ours := d.Limiter.(*bucket)
	var s *site
	switch {
	case ours:
		s = b.site
	case d.Limiter == nil:
		s = t.siteOf(req)
	}
	if s != nil && resp.StatusCode < 400 && !s.worthReading() {
		return f
	}
	if f.Now.IsZero() {
		f.Now = t.clock().Now()
	}
	r := Parse(resp.StatusCode, resp.Header, f.Now)
	f.Outcome, f.RetryAfter = outcome(resp.StatusCode, &r)
	if s != nil && resp.StatusCode == http.StatusServiceUnavailable && f.Outcome == throttle.Failed && s.refuses(b, f.Now) {
		f.Outcome = throttle.Throttled
	}
	f.Windows = r.AppendWindows(buf)
	if s != nil {
		s.heed(req, b, &f)
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
