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
	q, ours := d.Limiter.(*quota)
	small, _ := d.Limiter.(*smallQuota)
	if ours && q.small.Load() != nil {
		q, small, ours = nil, q.small.Load(), false
	}
	var ep *endpoint // nil: nothing is learned
	var provider *headers.Provider
	switch {
	case t.Mode == Disabled:
		provider = t.reader().Provider(req.URL.Host)
	case ours:
		ep, provider = q.endpoint, q.endpoint.provider
	case small != nil:
		ep, provider = small.endpoint, small.endpoint.provider
	default:
		ep = t.endpointOf(req)
		provider = ep.provider
	}
	if err != nil || resp == nil {
		f.Outcome, f.Cause = throttle.Failed, causeOf(req, err)
		if ep != nil && small == nil {
			ep.suspectFailure(req, q, &f)
		}
		return f
	}
	if resp.StatusCode < 400 && (ep == nil || !ep.mayStateLimits()) && !headers.InspectsBody(provider, resp.StatusCode, resp.Header) {
		return f
	}
	if f.Now.IsZero() {
		f.Now = t.clock().Now()
	}
	r := t.reader().Read(provider, resp, f.Now)
	if ep == nil {
		classify(&f, resp.StatusCode, &r, buf)
		return f
	}
	ep.refineResets(&r, resp.Header, f.Now)
	classify(&f, resp.StatusCode, &r, buf)
	if small != nil {
		ep.observeSmall(req, small, &f)
	} else {
		if f.Outcome != throttle.Throttled {
			ep.suspectFailure(req, q, &f)
		}
		ep.observe(req, q, &f)
	}
	if r.Global && f.Outcome == throttle.Throttled {
		ep.holdAll(q, &f)
	}
	ep.renewWaits()
	return f
}

// classify sets f to what a response with this status and report states. Its limits are appended to
// buf. The Retry-After of a response that is no rejection is ignored: it may be a polling interval.
func classify(f *throttle.Feedback, status int, r *headers.Report, buf []throttle.RemoteLimit) {
	f.RemoteLimits = r.AppendRemoteLimits(buf)
	unavailable := status == http.StatusServiceUnavailable
	switch {
	case r.Throttled || unavailable && r.HasRetryAfter:
		f.Outcome, f.RetryAfter = throttle.Throttled, r.Wait
	case status >= 500:
		f.Outcome = throttle.Failed
	}
	switch {
	case f.Outcome == throttle.Throttled && r.Stated == headers.StatedWait && r.Wait == 0:
		f.Cause = throttle.CauseRetryNow
	case f.Outcome == throttle.Throttled && r.Stated == headers.NotStated:
		f.Cause = throttle.CauseUnstated
	case f.Outcome == throttle.Throttled:
		f.Cause = throttle.CauseStated
	case r.Permanent:
	case unavailable:
		f.Cause = throttle.CauseUnavailable
	case status == http.StatusForbidden:
		f.Cause = throttle.CauseForbidden
	}
}

// causeOf returns the cause of a request that failed with err instead of a response: CauseUnknown if
// servers do not reject requests in that way.
func causeOf(req *http.Request, err error) throttle.Cause {
	var timeout interface{ Timeout() bool }
	switch {
	case req.Context().Err() != nil: // the deadline of the caller shows nothing about the server
		return throttle.CauseUnknown
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return throttle.CauseDropped
	case errors.As(err, &timeout) && timeout.Timeout():
		return throttle.CauseTimeout
	}
	return throttle.CauseUnknown
}

// suspectFailure adds f to the evidence of a limit if servers reject requests in that way. asked is
// the quota that admitted req, or nil.
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
	if t.Mode == Disabled {
		return t.reader().ReadPeeked(t.reader().Provider(req.URL.Host), resp, now)
	}
	return t.reader().ReadPeeked(t.endpointOf(req).provider, resp, now)
}
