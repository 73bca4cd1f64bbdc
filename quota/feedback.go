package quota

import (
	"errors"
	"io"
	"net/http"
	"syscall"
	"time"

	"github.com/heed-go/heed/internal/h2error"
	"github.com/heed-go/heed/internal/quotalink"
	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

// Feedback classifies the response to req, as of now: resp, or err if there was none. The
// Demand d is that which Tracker.Demand returned for req. The result must be passed to all
// limits of the request. The limits that the response states are appended to buf, which may
// be nil, and returned as Feedback.RemoteLimits.
//
// The Outcome is throttle.Throttled for a 429, for a 503 with Retry-After, for other
// responses whose headers, or the first bytes of whose body, mark them as a rejection, and for the
// HTTP/2 error ENHANCE_YOUR_CALM. It is throttle.Failed for other 5xx and for other errors.
// Feedback.Cause is the reason. If the body was inspected, resp.Body is replaced by one that returns
// all of it.
func (t *Tracker) Feedback(req *http.Request, d throttle.Demand, resp *http.Response, err error, now time.Time, buf []throttle.RemoteLimit) throttle.Feedback {
	var report headers.Report
	return (*linked)(t).FeedbackReport(req, d, resp, err, time.Time{}, now, buf, &report)
}

func init() {
	quotalink.Of = func(tracker any) quotalink.Tracker { return (*linked)(tracker.(*Tracker)) }
}

// A linked implements quotalink.Tracker.
type linked Tracker

func (lt *linked) FeedbackReport(req *http.Request, d throttle.Demand, resp *http.Response, err error, sent, now time.Time, buf []throttle.RemoteLimit, report *headers.Report) throttle.Feedback {
	t := (*Tracker)(lt)
	t.once.Do(t.init)
	if l := t.listeners.Load(); l != nil {
		defer l.deliver()
	}
	var ep *endpoint // nil: nothing is learned
	var provider *headers.Provider
	small, _ := d.Limiter.(*smallQuota)
	asked, _ := d.Limiter.(*quota)
	if asked != nil && asked.small.Load() != nil {
		asked, small = nil, asked.small.Load()
	}
	switch {
	case t.Mode == Disabled:
		provider = t.reader.Provider(req.URL.Host)
	case asked != nil:
		ep, provider = asked.endpoint, asked.endpoint.provider
	case small != nil:
		ep, provider = small.endpoint, small.endpoint.provider
	default:
		ep = t.endpointOf(req)
		provider = ep.provider
	}
	responded := err == nil && resp != nil
	success := responded && resp.StatusCode < 400
	reads := !success || ep != nil && ep.statesLimits.Load()
	if !reads && ep != nil { // the host has stated no limit: the headers of some successes are read
		n := ep.successes.Add(1)
		reads = n <= sampleFirst || n%sampleEvery == 0
	}
	if !reads && !headers.InspectsBody(provider, resp.StatusCode, resp.Header) {
		return throttle.Feedback{Now: now}
	}
	if now.IsZero() {
		now = t.now()
	}
	f := throttle.Feedback{Now: now}
	if responded {
		*report = t.reader.Read(provider, resp, sent, now)
		if ep != nil {
			ep.scaleResets(report, resp.StatusCode, now)
		}
		classify(&f, resp.StatusCode, report, buf)
	} else {
		f.Outcome, f.Cause = classifyError(req, err)
	}
	switch {
	case ep == nil:
		return f
	case small != nil:
		ep.observeSmall(req, small, &f)
	default:
		ep.observe(req, asked, &f)
	}
	if responded && report.Global && f.Outcome == throttle.Throttled {
		ep.holdAll(&f)
	}
	if ep.hasReplaced.Load() {
		ep.renewWaits()
	}
	return f
}

// classify sets f to what a response with this status and report states. Its limits are appended to
// buf. The Retry-After of a response that is no rejection is ignored: it may be a polling interval.
func classify(f *throttle.Feedback, status int, r *headers.Report, buf []throttle.RemoteLimit) {
	if len(r.Limits) > 0 {
		f.RemoteLimits = r.AppendRemoteLimits(buf)
	}
	unavailable := status == http.StatusServiceUnavailable || status >= 500 && r.Throttled && r.Stated == headers.NotStated
	switch {
	case r.Throttled || unavailable && r.HasRetryAfter:
		f.Outcome, f.RetryAfter = throttle.Throttled, r.Wait
	case status >= 500:
		f.Outcome = throttle.Failed
	}
	switch {
	case f.Outcome == throttle.Throttled && r.Stated == headers.StatedWait && r.Wait == 0:
		f.Cause = throttle.CauseRetryNow
	case unavailable && !r.Permanent:
		f.Cause = throttle.CauseUnavailable
	case f.Outcome == throttle.Throttled && r.Stated == headers.NotStated:
		f.Cause = throttle.CauseUnstated
	case f.Outcome == throttle.Throttled:
		f.Cause = throttle.CauseStated
	}
}

// classifyError returns what a request shows that failed with err instead of a response. ENHANCE_YOUR_CALM of
// HTTP/2 is a rejection that states no time. The cause of a failure is CauseUnknown if servers do not reject
// requests in that way.
func classifyError(req *http.Request, err error) (throttle.Outcome, throttle.Cause) {
	var timeout interface{ Timeout() bool }
	switch {
	case isCanceled(req): // the deadline of the caller shows nothing about the server
		return throttle.Failed, throttle.CauseCanceled
	case h2error.IsCalm(err):
		return throttle.Throttled, throttle.CauseUnstated
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return throttle.Failed, throttle.CauseDropped
	case errors.As(err, &timeout) && timeout.Timeout():
		return throttle.Failed, throttle.CauseTimeout
	}
	return throttle.Failed, throttle.CauseUnknown
}

// isCanceled reports whether the caller of req has ended it. The Timeout of http.Client may close Request.Cancel before
// the context ends.
func isCanceled(req *http.Request) bool {
	select {
	case <-req.Cancel: //nolint:staticcheck // http.Client sets it
		return true
	default:
		return req.Context().Err() != nil
	}
}
