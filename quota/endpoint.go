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
	maxQuotas        = 16  // quotas of one endpoint
	maxRoutes        = 112 // entries of endpoint.routes: as many as a map of 128 slots holds
	minSharingRoutes = 3   // routes that share the only known quota and make it the quota of all routes
)

// An endpoint is one account at one host, with the quotas that the host was seen to have for it.
//
// Each request is admitted by the quota of its route, see routeOf. At first no quota is known, and
// the quota called unknown admits all requests. Responses assign quotas to routes:
//
//	response to a request of a route                     the route gets
//	──────────────────────────────────────────────────   ──────────────────────────────────
//	states the units left of limits that
//	  its quota has                                      its quota
//	  a quota that similar routes have shown may have    that quota, see patterns
//	  another quota is likely to have                    that quota
//	  no quota has                                       a new quota
//	is a rejection that does not state units left, and
//	  the route has a quota                              its quota
//	  the route matches a pattern                        the quota of the pattern
//	  a known quota admitted the request                 that quota
//	  another quota is held: the host limits its         the held quota, and so does each
//	  routes together                                    route that has none
//	  no quota is held                                   a new quota
//
// A new quota is the unknown one with all that it has learned. Routes without a quota continue
// with a new unknown one, so a rejection of one route does not hold the others. A route without
// a quota uses that of the pattern that it matches, or else the only quota known if three other
// routes share that, or else the unknown one. A route that is a quota name, see WithName, shares
// its quota with no other route.
type endpoint struct {
	tracker  *Tracker
	key      uint64 // keyed hash of the account
	names    *policyNames
	provider *headers.Provider // properties of the host; nil: none are known
	id       string            // identifies the account in updates; empty: it is not shared

	lastUsed     uint64      // value of shard.uses at the latest lookup in the shard; guarded by shard.mu
	usedRecently atomic.Bool // found by Tracker.recent since then, without shard.mu

	statesLimits atomic.Bool   // a response has stated a limit
	successes    atomic.Uint32 // responses below status 400, counted until statesLimits is set
	hasQuotas    atomic.Bool   // a quota was ever added to quotas
	hasReplaced  atomic.Bool   // replaced is not empty
	unlimited    atomic.Bool   // the host is known and has shown no limit: Demand returns no Limiter

	mu       sync.Mutex            // guards the fields below, except that unknown is loaded without it
	unknown  atomic.Pointer[quota] // quota of all routes without one; may be one of quotas
	quotas   []*quota              // quotas of which something is known
	routes   map[uint64]*quota     // quotas of routes, by the hash of the route; each is in quotas
	replaced []throttle.Limiter    // requests that wait for these may have other quotas now, see renewWaits
	small    *smallQuotas          // quotas of more routes than there is memory for; nil: none
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

// limiterOf returns the quota or smallQuota that must admit req.
func (ep *endpoint) limiterOf(req *http.Request) throttle.Limiter {
	if !ep.hasQuotas.Load() {
		return ep.unknown.Load()
	}
	route := ep.route(req)
	ep.mu.Lock()
	q, areSmall := ep.small.find(route), ep.small != nil && !ep.small.began.IsZero()
	ep.mu.Unlock()
	if q != nil {
		return q
	}
	known, _ := ep.lookUp(route, req)
	if areSmall && known == ep.unknown.Load() {
		if q := ep.addUnstated(route); q != nil {
			return q
		}
	}
	return known
}

// quotaOf returns the quota of req, if that is no small one.
func (ep *endpoint) quotaOf(req *http.Request) *quota {
	if !ep.hasQuotas.Load() {
		return ep.unknown.Load()
	}
	q, _ := ep.lookUp(ep.route(req), req)
	return q
}

// lookUp returns the quota that a request of route uses, and reports whether the route, or the
// pattern that req matches, has that quota. A nil req matches no pattern. Routes of one pattern
// count as one among those that share the only quota known.
func (ep *endpoint) lookUp(route uint64, req *http.Request) (q *quota, known bool) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if q = ep.routes[route]; q != nil {
		return q, true
	}
	if q = ep.patternOf(req); q != nil {
		return q, true
	}
	if len(ep.quotas) == 1 && !ep.quotas[0].named && !isNamed(route) && len(ep.routes)-ep.patterns.extraRoutes >= minSharingRoutes {
		return ep.quotas[0], false
	}
	return ep.unknown.Load(), false
}

// observe applies what the response to req states. asked is the quota that admitted req; nil means
// that none did, because ep was unlimited. If the limits that f states are of another quota, that
// one is updated, and f.RemoteLimits becomes nil so that asked does not apply them.
func (ep *endpoint) observe(req *http.Request, asked *quota, f *throttle.Feedback) {
	if len(f.RemoteLimits) > 0 {
		ep.statesLimits.Store(true)
	} else if f.Outcome != throttle.Throttled {
		if asked == nil {
			ep.addSample(f.Now)
		}
		return
	}
	ep.unlimited.Store(false)
	learned := *f // what the quotas learn
	if f.Outcome == throttle.Throttled && isEstimated(f.Cause) {
		// Suspected causes never stop a quota. suspectFailure has added them to the evidence.
		bare := f.Cause == throttle.CauseUnstated || f.Cause == throttle.CauseRetryNow
		if stop := bare && ep.tracker.Mode == Full && ep.suspect(req, asked, f); !stop {
			learned.Outcome = throttle.Accepted
			if len(f.RemoteLimits) == 0 {
				return // it shows nothing about the quota of its route
			}
		}
	}
	if asked == nil {
		ep.endSampling(req, &learned)
	} else if !ep.assignRoute(req, asked, &learned) {
		concernsOther(f)
	}
	ep.publishQuota(req, asked, f.Now)
}

// concernsOther removes from f, which states limits of another quota than the one that granted the
// request, what that one must not apply.
func concernsOther(f *throttle.Feedback) {
	if f.Outcome == throttle.Throttled && explains(f.RemoteLimits) {
		f.Cause = throttle.CauseOtherQuota
	}
	f.RemoteLimits = nil
}

// suspect adds a response that may be a rejection, and states nothing, to the evidence of a limit.
// It reports whether that is now sufficient to stop sending.
func (ep *endpoint) suspect(req *http.Request, asked *quota, f *throttle.Feedback) (stop bool) {
	q, before := asked, acceptedSpan{}
	if q == nil {
		q, before = ep.quotaOf(req), ep.accepted(f.Now)
	}
	stop = q.suspect(f, before, asked != nil)
	if f.Cause != throttle.CauseUnstated {
		return stop
	}
	if ep.id != "" {
		q.addRejection(ep.route(req))
	}
	if asked == nil && !stop {
		q.mu.Lock()
		defer q.mu.Unlock()
		defer q.record(q.view())
		if now := q.now(f.Now); q.inference != nil && !q.hold.active && !q.inference.loop.on() {
			q.cutConcurrency(now)
		}
	}
	return stop
}

// assignRoute assigns to the route of req the quota that its response f concerns. asked is the
// quota that admitted req. assignRoute returns false if asked must not apply the limits that f
// states: another quota has them and was updated, or none has them for lack of memory.
func (ep *endpoint) assignRoute(req *http.Request, asked *quota, f *throttle.Feedback) (own bool) {
	route, stated := ep.route(req), statesRemaining(f.RemoteLimits)
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.assignSmall(route, f.RemoteLimits, f.Now) {
		return false
	}
	q := ep.quotaOfResponse(route, req, asked, f)
	if q == nil {
		return !stated
	}
	if assigned := ep.routes[route]; assigned != nil || ep.patternOf(req) != q { // a route of a pattern needs no entry
		if assigned != q {
			ep.recordShown(req, route, q, !stated || q.isShownBy(f.RemoteLimits, asked.maxReordered(), f.Now))
		}
		ep.rememberRoute(route, q)
	}
	if q != asked && len(f.RemoteLimits) > 0 {
		q.applyStated(f.RemoteLimits, f.Now)
		return false
	}
	return true
}

// quotaOfResponse returns the quota that the response f to a request of route concerns, which may
// be a new one: see endpoint. It returns nil if f shows nothing about it, or if there is no memory
// for a new quota. asked is the quota that admitted the request; req is nil if another process
// sent it. The caller holds ep.mu.
func (ep *endpoint) quotaOfResponse(route uint64, req *http.Request, asked *quota, f *throttle.Feedback) *quota {
	q := ep.routes[route]
	if !statesRemaining(f.RemoteLimits) {
		if q == nil && f.Outcome == throttle.Throttled {
			q = ep.quotaOfRejection(route, req, asked, f.Now)
		}
		return q
	}
	if q != nil && !q.statesOther(f.RemoteLimits) {
		return q
	}
	reordered := asked.maxReordered()
	ep.patterns.peak.add(reordered, f.Now)
	if isNamed(route) {
		return ep.addQuota(route, asked, f.Now)
	}
	if q = ep.quotaOfSimilar(req, f.RemoteLimits, reordered, f.Now); q != nil {
		return q
	}
	for _, q := range ep.quotas {
		if !q.named && q.statesSame(f.RemoteLimits, f.Now) {
			return q
		}
	}
	return ep.addQuota(route, asked, f.Now)
}

// quotaOfRejection is quotaOfResponse for a rejection that states no remaining units, of a route
// that has no quota.
func (ep *endpoint) quotaOfRejection(route uint64, req *http.Request, asked *quota, now time.Time) *quota {
	if q := ep.patternOf(req); q != nil {
		return q
	}
	if isNamed(route) {
		return ep.addQuota(route, asked, now)
	}
	if slices.Contains(ep.quotas, asked) {
		return asked
	}
	for _, q := range ep.quotas {
		if !q.named && q.isHeld(now) {
			ep.replace(ep.unknown.Swap(q))
			return q
		}
	}
	return ep.addQuota(route, asked, now)
}

// statesRemaining reports whether limits state how many requests are left.
func statesRemaining(limits []throttle.RemoteLimit) bool {
	return slices.ContainsFunc(limits, countsRequests)
}

// addQuota adds a quota for route: asked if that is the unknown quota, which a new one replaces,
// and otherwise a new one. It returns nil if there is no memory for it. The caller holds ep.mu.
func (ep *endpoint) addQuota(route uint64, asked *quota, now time.Time) *quota {
	if !ep.evictQuotas(now) {
		return nil
	}
	q := asked
	if slices.Contains(ep.quotas, asked) || asked.isDropped() {
		q = ep.newQuota(knownAfter)
	} else {
		ep.unknown.Store(ep.newQuota(asked.numSuccesses()))
		ep.replace(asked)
	}
	q.named = isNamed(route)
	ep.memory.reserve(quotaBytes)
	if q.shared != nil {
		ep.memory.reserve(sharedBytes)
	}
	ep.quotas = append(ep.quotas, q)
	ep.hasQuotas.Store(true)
	return q
}

// rememberRoute stores the quota of route. If there are too many routes, it replaces any of them.
// The caller holds ep.mu.
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
	if ep.routes[route] == nil {
		ep.replace(ep.unknown.Load())
	}
	ep.routes[route] = q
	q.setRoute(route)
}

// allQuotas returns all quotas of ep, each once.
func (ep *endpoint) allQuotas() []*quota {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if unknown := ep.unknown.Load(); !slices.Contains(ep.quotas, unknown) {
		return append([]*quota{unknown}, ep.quotas...)
	}
	return slices.Clone(ep.quotas)
}

// isBlank reports whether ep knows nothing that would be lost with it.
func (ep *endpoint) isBlank() bool {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return len(ep.quotas) == 0 && ep.small == nil && ep.unknown.Load().isBlank()
}

// holdAll holds all quotas of ep but asked, because the server states that the rejection f
// concerns the whole account. asked, which may be nil, observes f itself.
func (ep *endpoint) holdAll(asked *quota, f *throttle.Feedback) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	all := throttle.Feedback{Now: f.Now, Outcome: f.Outcome, Cause: throttle.CauseStated, RetryAfter: f.RetryAfter}
	for _, q := range append([]*quota{ep.unknown.Load()}, ep.quotas...) {
		if q != asked {
			q.rejectedExternally(&all, acceptedSpan{since: f.Now})
		}
	}
	ep.small.hold(min(f.RetryAfter, maxDelay), f.Now)
}

// rejectedExternally applies the rejection f of a request that q did not admit: a request of an
// unlimited endpoint, of another quota or of another process. accepted is what was accepted
// before. The first rejection begins a hold. The others until its end are of the same burst and
// only extend it.
func (q *quota) rejectedExternally(f *throttle.Feedback, accepted acceptedSpan) {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer q.record(q.view())
	n, now := uint64(0), q.now(f.Now)
	if !q.hold.active && !now.Before(q.hold.until) {
		n = q.hold.lastSent + 1 // stands for a claim that was sent after the latest hold
		q.inFlight.sent = max(q.inFlight.sent, n)
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

const (
	sampleFirst = 16 // successful responses of an endpoint whose headers are read for limits
	sampleEvery = 64 // of the later ones, the headers of one in so many are read, until one states a limit
)

// A sampler records how many requests an unlimited endpoint accepts. Its requests need no Limiter,
// so they are only counted, and one in sampleEvery adds a sample. When a request is rejected, the
// estimate begins with what was accepted since the sample before the latest:
//
//	sample            sample             sample    rejection
//	  │◀─ sampleEvery ─▶│◀─ sampleEvery ─▶│            │
//	                    ├──────── acceptedSpan ────────┤
//
// Its fields are guarded by endpoint.mu.
type sampler struct {
	previous, latest sample
}

// A sample is the number of successful responses at one time.
type sample struct {
	at        time.Time // zero: there is no sample
	successes uint32
}

// mayStateLimits counts a successful response, and reports whether its headers are to be read.
func (ep *endpoint) mayStateLimits() bool {
	if ep.statesLimits.Load() {
		return true
	}
	n := ep.successes.Add(1)
	return n <= sampleFirst || n%sampleEvery == 0
}

// addSample records the number of successful responses.
func (ep *endpoint) addSample(now time.Time) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.sampler.previous, ep.sampler.latest = ep.sampler.latest, sample{now, ep.successes.Load()}
}

// accepted returns the requests that were accepted since the sample before the latest.
func (ep *endpoint) accepted(now time.Time) acceptedSpan {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	s := ep.sampler.previous
	if s.at.IsZero() {
		s = ep.sampler.latest
	}
	if s.at.IsZero() {
		return acceptedSpan{since: now}
	}
	return acceptedSpan{since: s.at, n: int64(ep.successes.Load() - s.successes)}
}

// endSampling applies f, the response to a request that no quota admitted because ep was
// unlimited.
func (ep *endpoint) endSampling(req *http.Request, f *throttle.Feedback) {
	q, known := ep.lookUp(ep.route(req), req)
	if !known {
		q = ep.unknown.Load()
	}
	if ep.assignRoute(req, q, f) && len(f.RemoteLimits) > 0 {
		q.applyStated(f.RemoteLimits, f.Now)
	}
	if f.Outcome == throttle.Throttled {
		q.rejectedExternally(f, ep.accepted(f.Now))
	}
}
