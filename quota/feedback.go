package quota

import (
	"errors"
	"io"
	"net/http"
	"syscall"
	"time"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

// Feedback classifies the response to req, as of now: resp, or err if there was none. The
// Demand d is that which Tracker.Demand returned for req. The result must be passed to all
// limits of the request. The limits that the response states are appended to buf, which may
// be nil, and returned as Feedback.RemoteLimits.
//
// The Outcome is throttle.Throttled for a 429, for a 503 with Retry-After, and for other
// responses whose headers, or the first bytes of whose body, mark them as a rejection. It is
// also Throttled for a 503, a 403, a closed connection or a timeout while there is evidence
// that the server rejects requests in that way, see the package documentation. The Outcome is
// throttle.Failed for other 5xx and for other errors. Feedback.Cause is the reason. If the
// body was inspected, resp.Body is replaced by one that returns all of it.
func (t *Tracker) Feedback(req *http.Request, d throttle.Demand, resp *http.Response, err error, now time.Time, buf []throttle.RemoteLimit) throttle.Feedback {
	defer t.listeners.deliver()
	f := throttle.Feedback{Now: now}
	if t.Mode == Disabled {
		t.classify(req, resp, err, &f, buf)
		return f
	}
	q, ours := d.Limiter.(*quota)
	var ep *endpoint
	if ours {
		ep = q.endpoint
	} else {
		ep = t.endpointOf(req)
	}
	if err != nil || resp == nil {
		f.Outcome, f.Cause = throttle.Failed, causeOf(req, err)
		ep.suspectFailure(req, q, &f)
		return f
	}
	if resp.StatusCode < 400 && !ep.mayStateLimits() && !headers.InspectsBody(ep.provider, resp.StatusCode, resp.Header) {
		return f
	}
	if f.Now.IsZero() {
		f.Now = t.clock().Now()
	}
	r := t.reader().Read(ep.provider, resp, f.Now)
	f.Outcome, f.RetryAfter = outcome(resp.StatusCode, &r)
	ep.refineResets(&r, resp.Header, f.Now)
	f.RemoteLimits = r.AppendRemoteLimits(buf)
	f.Cause = causeOn(resp.StatusCode, &f, &r)
	if f.Outcome != throttle.Throttled {
		ep.suspectFailure(req, q, &f)
	}
	ep.observe(req, q, &f)
	if r.Global && f.Outcome == throttle.Throttled {
		ep.holdAll(q, &f)
	}
	return f
}

// classify fills in f without a trace of it in the Tracker.
func (t *Tracker) classify(req *http.Request, resp *http.Response, err error, f *throttle.Feedback, buf []throttle.RemoteLimit) {
	if err != nil || resp == nil {
		f.Outcome, f.Cause = throttle.Failed, causeOf(req, err)
		return
	}
	vendor := t.reader().Provider(req.URL.Host)
	if resp.StatusCode < 400 && !headers.InspectsBody(vendor, resp.StatusCode, resp.Header) {
		return
	}
	if f.Now.IsZero() {
		f.Now = t.clock().Now()
	}
	r := t.reader().Read(vendor, resp, f.Now)
	f.Outcome, f.RetryAfter = outcome(resp.StatusCode, &r)
	f.RemoteLimits = r.AppendRemoteLimits(buf)
	f.Cause = causeOn(resp.StatusCode, f, &r)
}

// causeOf returns what a request without a response failed with, as far as servers
// reject requests that way.
func causeOf(req *http.Request, err error) throttle.Cause {
	var timeout interface{ Timeout() bool }
	switch {
	case req.Context().Err() != nil: // the caller's own deadline says nothing of the server
		return throttle.CauseUnknown
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return throttle.CauseDropped
	case errors.As(err, &timeout) && timeout.Timeout():
		return throttle.CauseTimeout
	}
	return throttle.CauseUnknown
}

// causeOn returns what a response says of why it is a rejection or failure.
func causeOn(status int, f *throttle.Feedback, r *headers.Report) throttle.Cause {
	switch {
	case f.Outcome == throttle.Throttled && r.Stated == headers.StatedWait && f.RetryAfter == 0:
		return throttle.CauseRetryNow
	case f.Outcome == throttle.Throttled && r.Stated == headers.NotStated:
		return throttle.CauseUnstated
	case f.Outcome == throttle.Throttled:
		return throttle.CauseStated
	case r.Permanent:
	case status == http.StatusServiceUnavailable:
		return throttle.CauseUnavailable
	case status == http.StatusForbidden:
		return throttle.CauseForbidden
	}
	return throttle.CauseUnknown
}

// suspectFailure takes in a failure that may be a rejection.
func (ep *endpoint) suspectFailure(req *http.Request, asked *quota, f *throttle.Feedback) {
	if !isEstimated(f.Cause) || ep.tracker.Mode != Full {
		return
	}
	if f.Now.IsZero() {
		f.Now = ep.tracker.clock().Now()
	}
	ep.unlimited.Store(false)
	ep.suspect(req, asked, f)
}

// Report returns what a response to req states about limits: in its headers, and in the first
// bytes of its body if Feedback has read them. It changes nothing.
func (t *Tracker) Report(req *http.Request, resp *http.Response, now time.Time) headers.Report {
	r := t.reader()
	var vendor *headers.Provider
	if t.Mode == Disabled {
		vendor = r.Provider(req.URL.Host)
	} else {
		vendor = t.endpointOf(req).provider
	}
	return r.ReadPeeked(vendor, resp, now)
}

// outcome classifies a response and returns the wait that it states. A Retry-After is a
// command only on a refusal: on a success it is a polling interval, or means nothing.
func outcome(status int, r *headers.Report) (throttle.Outcome, time.Duration) {
	switch {
	case r.Throttled || status == http.StatusServiceUnavailable && r.HasRetryAfter:
		return throttle.Throttled, r.Wait
	case status >= 500:
		return throttle.Failed, 0
	}
	return throttle.Accepted, 0
}
