package quota

import (
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

const (
	maxQuotas = 16  // quotas of one account at one host
	maxRoutes = 112 // routes of which the quota is remembered: as many as a map of 128 places takes
	minShared = 3   // that share the only quota known make it the quota of all
)

// A endpoint is one account at one host, and the quotas it was seen to have there.
//
// All routes begin with one quota of which nothing is known. What an answer says
// of its route takes that quota over for the route, and others go on with a fresh
// one: so a refusal of one route does not hold up another.
//
//	unknown ──▶ fresh ── 429, or "30 left of 30" ──▶ pool of this route
//	               ▲                                      │ another route is told of
//	               └── a new one for the others           ▼ the same numbers
//	                                                   its pool, too
//
// A second route that is refused without a word while the first is held back
// shows that the host limits them together, and then they are one.
//
// Routes that differ in one segment and show the same quota become a pattern, see patterns: then
// others like them begin with that quota.
type endpoint struct {
	tracker  *Tracker
	key      uint64 // keyed hash of the account
	names    *policyNames
	provider *headers.Provider // what is known about the host; nil: nothing
	lastUsed uint64            // guarded by the shard: when it was last asked for
	used     atomic.Bool       // asked for since then, without the shard
	id       string            // identifies the account in updates; "": it is not shared

	statesLimits atomic.Bool   // an answer has spoken of limits
	successes    atomic.Uint32 // good ones, while none has
	hasQuotas    atomic.Bool   // there are pools: routes are told apart
	unlimited    atomic.Bool   // it is quiet: nothing is demanded of its requests

	mu       sync.Mutex
	unknown  atomic.Pointer[quota] // for routes whose quota is not known
	quotas   []*quota              // quotas of which something is known
	routes   map[uint64]*quota     // to one of pools
	patterns patterns
	sampler  sampler
	clock    clockOffset
	memory   memoryBudget
}

func newEndpoint(t *Tracker, key uint64, a account) *endpoint {
	ep := &endpoint{tracker: t, key: key, names: newPolicyNames(a.host), provider: t.reader().Provider(a.host)}
	ep.unknown.Store(ep.newQuota(0))
	if t.sharing != nil {
		t.sharing.add(ep, a)
	}
	return ep
}

// quotaOf returns the quota of a request.
func (ep *endpoint) quotaOf(req *http.Request) *quota {
	if !ep.hasQuotas.Load() {
		return ep.unknown.Load()
	}
	route := ep.route(req)
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if q := ep.knownQuota(route, req); q != nil {
		return q
	}
	return ep.quotaOfRoute(route)
}

// knownQuotaOf returns the quota of the route of req, if that is known.
func (ep *endpoint) knownQuotaOf(req *http.Request) *quota {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.knownQuota(ep.route(req), req)
}

// knownQuota returns the quota of the route of req, or else of its pattern; nil if neither is known.
func (ep *endpoint) knownQuota(route uint64, req *http.Request) *quota {
	if q := ep.routes[route]; q != nil {
		return q
	}
	return ep.patternOf(req)
}

// quotaOfRoute returns the quota of a route that may be known. Routes of one pattern count as one of those
// that make the only quota that of all.
func (ep *endpoint) quotaOfRoute(route uint64) *quota {
	if q := ep.routes[route]; q != nil {
		return q
	}
	if len(ep.quotas) == 1 && !ep.quotas[0].named && route&namedRoute == 0 && len(ep.routes)-ep.patterns.extraRoutes >= minShared {
		return ep.quotas[0]
	}
	return ep.unknown.Load()
}

// assignRoute decides which quota an answer speaks of, and remembers it for the
// request's route. asked is the quota that granted the request. It reports false
// if that is another one, which then has been told.
func (ep *endpoint) assignRoute(req *http.Request, asked *quota, f *throttle.Feedback) (own bool) {
	route := ep.route(req)
	ep.mu.Lock()
	defer ep.mu.Unlock()
	known := ep.findQuota(route, req, asked, f)
	if known == nil { // nothing is stated, or there is no room for what is: then it is not tracked
		return !statesRemaining(f.RemoteLimits)
	}
	ep.recordRoute(route, req, known, asked, f)
	if known != asked && len(f.RemoteLimits) > 0 {
		known.applyStated(f.RemoteLimits, f.Now)
		return false
	}
	return true
}

// recordRoute remembers that a response to req, of route, spoke of home. A route whose pattern has
// that quota takes no place of its own.
func (ep *endpoint) recordRoute(route uint64, req *http.Request, known, asked *quota, f *throttle.Feedback) {
	before := ep.routes[route]
	if before == nil && ep.patternOf(req) == known {
		return
	}
	if before != known {
		shown := !statesRemaining(f.RemoteLimits) || known.shows(f.RemoteLimits, asked.maxReordered(), f.Now)
		ep.recordShown(req, route, known, shown)
	}
	ep.rememberRoute(route, known)
}

// findQuotaOfRoute returns the quota that another process states a response to a request of route
// spoke of; nil if that cannot be known. asked is the one that granted the request.
func (ep *endpoint) findQuotaOfRoute(route uint64, asked *quota, f *throttle.Feedback) *quota {
	return ep.findQuota(route, nil, asked, f)
}

// findQuota is settleRoute for a response to req, which is of route.
func (ep *endpoint) findQuota(route uint64, req *http.Request, asked *quota, f *throttle.Feedback) *quota {
	known := ep.routes[route]
	told := statesRemaining(f.RemoteLimits)
	switch {
	case known != nil && !(told && known.statesOther(f.RemoteLimits)):
	case told:
		open := asked.maxReordered()
		ep.patterns.peak.add(open, f.Now)
		if route&namedRoute == 0 {
			if known = ep.quotaOfSimilar(req, f.RemoteLimits, open, f.Now); known == nil {
				known = ep.quotaStating(f.RemoteLimits, f.Now)
			}
		}
		if known == nil {
			known = ep.addQuotaOfRoute(route, asked, f.Now)
		}
	case known == nil && f.Outcome == throttle.Throttled:
		if known = ep.patternOf(req); known == nil {
			known = ep.quotaOfRejected(route, asked, f.Now)
		}
	}
	return known
}

// statesRemaining reports whether windows say how many requests are left.
func statesRemaining(windows []throttle.RemoteLimit) bool {
	return slices.ContainsFunc(windows, countsRequests)
}

// quotaStating returns the pool that windows speak of; nil if there is none yet.
func (ep *endpoint) quotaStating(windows []throttle.RemoteLimit, now time.Time) *quota {
	for _, q := range ep.quotas {
		if !q.named && q.statesSame(windows, now) {
			return q
		}
	}
	return nil
}

// addQuotaOfRoute is settle for a route, which may be a quota name.
func (ep *endpoint) addQuotaOfRoute(route uint64, asked *quota, now time.Time) *quota {
	q := ep.addQuota(asked, now)
	if q != nil {
		q.named = route&namedRoute != 0
	}
	return q
}

// addQuota makes a pool of the bucket that was asked, if it is the fresh one, or else of a new
// one. It returns nil if there is no room for a pool.
func (ep *endpoint) addQuota(asked *quota, now time.Time) *quota {
	if !ep.room(now) {
		return nil
	}
	if slices.Contains(ep.quotas, asked) || asked.isDropped() {
		asked = ep.newQuota(knownAfter)
	} else {
		ep.unknown.Store(ep.newQuota(asked.numSuccesses()))
	}
	ep.memory.reserve(quotaBytes)
	if asked.shared != nil {
		ep.memory.reserve(sharedBytes)
	}
	ep.quotas = append(ep.quotas, asked)
	ep.hasQuotas.Store(true)
	return asked
}

// quotaOfRejected returns the quota of a route that was refused without a word.
func (ep *endpoint) quotaOfRejected(route uint64, asked *quota, now time.Time) *quota {
	if route&namedRoute != 0 {
		return ep.addQuotaOfRoute(route, asked, now)
	}
	if slices.Contains(ep.quotas, asked) {
		return asked
	}
	for _, q := range ep.quotas {
		if !q.named && q.isHeld(now) {
			ep.unknown.Store(q) // for all routes that are still unknown
			return q
		}
	}
	return ep.addQuota(asked, now)
}

// rememberRoute notes the quota of a route, in place of any other if there are too many.
func (ep *endpoint) rememberRoute(route uint64, q *quota) {
	if ep.routes == nil {
		ep.routes = make(map[uint64]*quota)
	}
	if _, known := ep.routes[route]; !known && (len(ep.routes) >= maxRoutes || !ep.memory.reserve(routeBytes)) {
		if len(ep.routes) == 0 {
			return
		}
		for r := range ep.routes {
			delete(ep.routes, r)
			break
		}
	}
	ep.routes[route] = q
	q.setRoute(route)
}

// isBlank reports whether nothing would be lost if the site were forgotten.
func (ep *endpoint) isBlank() bool {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return len(ep.quotas) == 0 && ep.unknown.Load().isBlank()
}

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
