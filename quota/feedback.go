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
// Throttled are 429, other answers that a server's headers mark as a refusal, or the
// first bytes of its body, 503 with Retry-After, and 503 from a server that otherwise
// works. So are connections that such a server closes one after another. Failed are the
// other 5xx, and errors. Where a body was looked into,
// resp.Body is replaced by one that still has all of it.
func (t *Tracker) Feedback(req *http.Request, d throttle.Demand, resp *http.Response, err error, now time.Time, buf []throttle.Window) throttle.Feedback {
	f := throttle.Feedback{Now: now}
	b, ours := bucketOf(d.Limiter)
	var s *site
	if ours {
		s = b.site
	} else {
		s = t.siteOf(req)
	}
	if err != nil || resp == nil {
		f.Outcome = throttle.Failed
		if hungUp(err) {
			s.hangUp(req, b, &f)
		}
		return f
	}
	if resp.StatusCode < 400 && !s.worthReading() && !wantsBody(s.vendor, resp.StatusCode, resp.Header) {
		return f
	}
	if f.Now.IsZero() {
		f.Now = t.clock().Now()
	}
	r := t.reader().read(s.vendor, resp, f.Now)
	f.Outcome, f.RetryAfter = outcome(resp.StatusCode, &r)
	if resp.StatusCode == http.StatusServiceUnavailable && f.Outcome == throttle.Failed && s.refuses(b, f.Now) {
		f.Outcome = throttle.Throttled
	}
	s.sharpen(&r, resp.Header, f.Now)
	f.Windows = r.AppendWindows(buf)
	s.heed(req, b, &f)
	if r.Global && f.Outcome == throttle.Throttled {
		s.shut(b, &f)
	}
	return f
}

// Report returns what the headers of an answer to req say of limits, as Reader
// reads them. Nothing is learned from it.
func (t *Tracker) Report(req *http.Request, resp *http.Response, now time.Time) Report {
	return t.reader().parse(t.siteOf(req).vendor, resp.StatusCode, resp.Header, now)
}

// outcome classifies an answer. A Retry-After is a command only where the work
// was refused: on a success it is a polling interval, or a habit.
func outcome(status int, r *Report) (throttle.Outcome, time.Duration) {
	switch {
	case r.Throttled || status == http.StatusServiceUnavailable && r.HasRetryAfter:
		if r.HasRetryAfter && (r.RetryForm == DeltaSeconds || r.RetryForm == DeltaMillis) {
			return throttle.Throttled, max(r.RetryAfter, 1) // a stated 0 differs from none
		}
		return throttle.Throttled, r.RetryAfter
	case status >= 500:
		return throttle.Failed, 0
	}
	return throttle.Accepted, 0
}
