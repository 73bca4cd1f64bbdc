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

// Report returns what a response to req states about limits: its headers, and the first bytes
// of its body if Feedback has read those. It changes nothing.
func (t *Tracker) Report(req *http.Request, resp *http.Response, now time.Time) Report {
	r := t.reader()
	rep := r.parse(t.siteOf(req).vendor, resp.StatusCode, resp.Header, now)
	if head := headOf(resp.Body); len(head) > 0 {
		r.ReadBody(resp.StatusCode, resp.Header, head, &rep)
	}
	return rep
}

// outcome classifies a response and returns the wait that it states. A Retry-After is a
// command only on a refusal: on a success it is a polling interval, or means nothing.
func outcome(status int, r *Report) (throttle.Outcome, time.Duration) {
	switch {
	case r.Throttled || status == http.StatusServiceUnavailable && r.HasRetryAfter:
		return throttle.Throttled, r.Wait
	case status >= 500:
		return throttle.Failed, 0
	}
	return throttle.Accepted, 0
}
