package quota

import (
	"net/http"
	"time"

	"github.com/heed-go/heed/throttle"
)

const (
	sampleFirst = 16 // answers of a host that are read for hints
	sampleEvery = 64 // and then one in so many, while there were none
)

// A host that has answered often and has never spoken of a limit is quiet: its
// requests demand nothing, so that most programs pay for no limit where there is
// none. Only their answers are counted, and the time is noted now and then, for the
// day on which one of them is a refusal:
//
//	note              note              note       refused
//	  │◀─ readEvery ───▶│◀─ readEvery ───▶│   some    │
//	                    ├──── accepted in this span ──┤
type sampler struct {
	previous, latest sample // the one before, and the latest
}

// A sample is how many answers had been counted at a time.
type sample struct {
	at        time.Time // zero: none yet
	successes uint32
}

// mayStateLimits counts a good answer, and reports whether it may bring hints.
func (ep *endpoint) mayStateLimits() bool {
	if ep.statesLimits.Load() {
		return true
	}
	n := ep.successes.Add(1)
	return n <= sampleFirst || n%sampleEvery == 0
}

// observe takes over what an answer says. asked is the quota that granted the
// request; nil: none was asked, since the host was quiet.
func (ep *endpoint) observe(req *http.Request, asked *quota, f *throttle.Feedback) {
	if len(f.RemoteLimits) > 0 {
		ep.statesLimits.Store(true)
	}
	if len(f.RemoteLimits) == 0 && f.Outcome != throttle.Throttled {
		if asked == nil {
			ep.addSample(f.Now)
		}
		return
	}
	ep.unlimited.Store(false)
	learned := *f // what the quota is to learn from
	if f.Outcome == throttle.Throttled && isEstimated(f.Cause) && !ep.isEvidence(req, asked, f) {
		learned.Outcome = throttle.Accepted
		if len(f.RemoteLimits) == 0 {
			return // it concerns no route more than another
		}
	}
	switch {
	case asked == nil:
		ep.endSampling(req, &learned)
	case !ep.assignRoute(req, asked, &learned):
		f.RemoteLimits = nil // they speak of another quota, which has been told
	}
	ep.publishQuota(req, asked, f.Now)
}

// isEvidence takes in a rejection that states nothing, and reports whether there is
// evidence to stop. Suspected causes were taken in by consider, and never stop a quota.
func (ep *endpoint) isEvidence(req *http.Request, asked *quota, f *throttle.Feedback) bool {
	return (f.Cause == throttle.CauseUnstated || f.Cause == throttle.CauseRetryNow) && ep.tracker.Mode == Full && ep.suspect(req, asked, f)
}

// addSample notes the time.
func (ep *endpoint) addSample(now time.Time) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.sampler.previous, ep.sampler.latest = ep.sampler.latest, sample{now, ep.successes.Load()}
}

// endSampling takes over the response that ends the quiet of a host.
func (ep *endpoint) endSampling(req *http.Request, f *throttle.Feedback) {
	q := ep.unknown.Load()
	if known := ep.knownQuotaOf(req); known != nil {
		q = known
	}
	if ep.assignRoute(req, q, f) && len(f.RemoteLimits) > 0 {
		q.applyStated(f.RemoteLimits, f.Now)
	}
	if f.Outcome == throttle.Throttled {
		q.rejectedExternally(f, ep.accepted(f.Now))
	}
}

// accepted returns what was accepted since the note before the latest.
func (ep *endpoint) accepted(now time.Time) acceptedSpan {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	n := ep.sampler.previous
	if n.at.IsZero() {
		n = ep.sampler.latest
	}
	if n.at.IsZero() {
		return acceptedSpan{since: now}
	}
	return acceptedSpan{since: n.at, n: int64(ep.successes.Load() - n.successes)}
}

// holdAll closes all quotas of s but asked, which observes the rejection as usual: the
// server says that it is meant for all that the account asks for.
func (ep *endpoint) holdAll(asked *quota, f *throttle.Feedback) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	all := throttle.Feedback{Now: f.Now, Outcome: f.Outcome, Cause: throttle.CauseStated, RetryAfter: f.RetryAfter}
	for _, q := range append([]*quota{ep.unknown.Load()}, ep.quotas...) {
		if q != asked {
			q.rejectedExternally(&all, acceptedSpan{since: f.Now})
		}
	}
}

// suspect takes in a response that may be a rejection and states nothing, and reports
// whether there is evidence to stop.
func (ep *endpoint) suspect(req *http.Request, asked *quota, f *throttle.Feedback) (stop bool) {
	q, before := asked, acceptedSpan{}
	if q == nil {
		q, before = ep.quotaOf(req), ep.accepted(f.Now)
	}
	stop = q.suspect(f, before, asked != nil)
	if ep.id != "" && f.Cause == throttle.CauseUnstated {
		q.addRejection(ep.route(req))
	}
	if asked == nil && !stop && f.Cause == throttle.CauseUnstated {
		q.mu.Lock()
		defer q.mu.Unlock()
		defer q.record(q.view())
		if now := q.now(f.Now); q.inference != nil && !q.hold.active && !q.inference.loop.on() {
			q.cutConcurrency(now)
		}
	}
	return stop
}

// rejectedExternally shuts the gate because of the answer to a request that b was not asked
// for. Of several such answers the first counts: the others are of the same burst.
func (q *quota) rejectedExternally(f *throttle.Feedback, accepted acceptedSpan) {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer q.record(q.view())
	n, now := uint64(0), q.now(f.Now)
	if !q.hold.active && !now.Before(q.hold.until) {
		n = q.hold.lastSent + 1
		q.inFlight.sent = max(q.inFlight.sent, n) // it takes the place of a claim
		if accepted.n > 0 {
			q.span = accepted
		}
	}
	if isEstimated(f.Cause) && !explains(f.RemoteLimits) {
		q.infer(accepted, now)
		q.stop(n, now)
		return
	}
	q.throttled(n, *f, explains(f.RemoteLimits), now)
}
