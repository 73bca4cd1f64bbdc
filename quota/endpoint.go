package quota

import (
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/quota/internal/model"
	"github.com/heed-go/heed/quota/internal/routes"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

const (
	maxQuotas        = 16               // quotas of one endpoint
	maxRoutes        = routes.MaxRoutes // entries of endpoint.routes: as many as a map of 128 slots holds
	minSharingRoutes = 3                // routes that share the only known quota and make it the quota of all routes

	// peakMaxAge is the time for which endpoint.peak is remembered.
	peakMaxAge = 10 * time.Second

	learnedRate = ": learned rate" // end of endpoint.names.learnedRate
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
//	is a rejection of a request with a quota name        a new quota, if it has none
//
// A new quota is the unknown one with all that it has learned. Routes without a quota continue
// with a new unknown one. A route without
// a quota uses that of the pattern that it matches, or else the only quota known if three other
// routes share that, or else the unknown one. A route that is a quota name, see WithName, shares
// its quota with no other route.
type endpoint struct {
	tracker  *Tracker
	key      uint64            // keyed hash of the account, see Tracker.identify
	hostKey  uint64            // keyed hash of scheme and host
	scheme   string            // of the URL of the first request
	urlHost  string            // of the URL of the first request
	host     string            // canonical
	provider *headers.Provider // properties of the host; nil: none are known
	model.Account
	id string // identifies the account in updates; empty: it is not shared

	lastUsed     uint64      // value of Tracker.uses when usedRecently was last found set; guarded by Tracker.mu
	usedRecently atomic.Bool // since then

	statesLimits atomic.Bool               // a response has stated a limit
	successes    atomic.Int64              // responses below status 400, counted until statesLimits is set
	hasQuotas    atomic.Bool               // a quota was ever added to quotas
	hasReplaced  atomic.Bool               // replaced is not empty
	resetUnit    atomic.Pointer[resetUnit] // nil: no reset without a unit was seen

	mu       sync.Mutex              // guards the fields below, except that unknown is loaded without it
	unknown  atomic.Pointer[quota]   // quota of all routes without one; may be one of quotas
	quotas   []*quota                // quotas of which something is known
	routes   map[uint64]*quota       // quotas of routes, by the hash of the route; each is in quotas
	replaced []throttle.Limiter      // requests that wait for these may have other quotas now, see renewWaits
	small    *smallQuotas            // quotas of more routes than there is memory for; nil: none
	patterns routes.Patterns[*quota] // local to a process: updates contain hashes of routes only

	// The most requests of one quota that were in flight together, whose responses can state the
	// remaining units in any order.
	peak   int64
	peakAt time.Time
}

// limiterOf returns the quota or smallQuota that must admit req.
func (ep *endpoint) limiterOf(req *http.Request) throttle.Limiter {
	route := ep.route(req)
	ep.mu.Lock()
	defer ep.mu.Unlock()
	small := ep.small.find(route)
	known, _ := ep.lookUp(route, req)
	if small == nil && ep.small != nil && known == ep.unknown.Load() {
		small = ep.addUnstated(route)
	}
	if small != nil {
		return small
	}
	return known
}

// quotaOf returns the quota of req, if that is no small one.
func (ep *endpoint) quotaOf(req *http.Request) *quota {
	if !ep.hasQuotas.Load() {
		return ep.unknown.Load()
	}
	route := ep.route(req)
	ep.mu.Lock()
	defer ep.mu.Unlock()
	q, _ := ep.lookUp(route, req)
	return q
}

// lookUp returns the quota that a request of route uses, and reports whether the route, or the
// pattern that req matches, has that quota. A nil req matches no pattern. Routes of one pattern
// count as one among those that share the only quota known. The caller holds ep.mu.
func (ep *endpoint) lookUp(route uint64, req *http.Request) (q *quota, known bool) {
	if q = ep.routes[route]; q != nil {
		return q, true
	}
	if q = ep.patterns.Of(ep.tracker.seed, req); q != nil {
		return q, true
	}
	if len(ep.quotas) == 1 && !ep.quotas[0].named && !routes.IsNamed(route) && len(ep.routes)-ep.patterns.ExtraRoutes() >= minSharingRoutes {
		return ep.quotas[0], false
	}
	return ep.unknown.Load(), false
}

// observe applies what the response to req states. asked is the quota that admitted req; nil means that none did. If
// the limits that f states are of another quota, that one is updated, and f.RemoteLimits becomes nil so that asked does
// not apply them.
func (ep *endpoint) observe(req *http.Request, asked *quota, f *throttle.Feedback) {
	states := len(f.RemoteLimits) > 0
	if !states && f.Outcome != throttle.Throttled {
		return
	}
	if states {
		ep.statesLimits.Store(true)
	}
	q := asked
	if q == nil {
		q = ep.quotaOf(req)
	}
	own := ep.assignRoute(req, q, f)
	switch {
	case asked == nil: // no quota observes f
		if own && states {
			q.applyStated(f.RemoteLimits, f.Now)
		}
		if f.Outcome == throttle.Throttled {
			q.rejectedExternally(f)
		}
	case !own:
		concernsOther(f)
	}
	if ep.id != "" {
		ep.publishQuota(req, asked, f.Now)
	}
}

// concernsOther removes from f, which states limits of another quota than the one that granted the
// request, what that one must not apply.
func concernsOther(f *throttle.Feedback) {
	if f.Outcome == throttle.Throttled && model.Explains(f.RemoteLimits) {
		f.Cause = model.CauseOtherQuota
	}
	f.RemoteLimits = nil
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
	if assigned := ep.routes[route]; assigned != nil || ep.patterns.Of(ep.tracker.seed, req) != q { // a route of a pattern needs no entry
		if assigned != q {
			_, shown := q.matches(f.RemoteLimits, asked.reordered(), f.Now)
			ep.patterns.Record(ep.tracker.seed, req, route, q, shown || !stated, func(bytes int64) bool { // the limit goes first, which is applied later
				return ep.Memory.Load()+bytes+routeBytes+estimateBytes(f.RemoteLimits) <= model.MaxBytes && ep.Memory.Reserve(bytes)
			})
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
		if q == nil && f.Outcome == throttle.Throttled && routes.IsNamed(route) {
			q = ep.addQuota(route, asked, f.RemoteLimits, f.Now)
		}
		return q
	}
	if q != nil && !q.statesOther(f.RemoteLimits) {
		return q
	}
	reordered := asked.reordered()
	if reordered >= ep.peak || f.Now.Sub(ep.peakAt) > peakMaxAge {
		ep.peak, ep.peakAt = reordered, f.Now
	}
	if routes.IsNamed(route) {
		return ep.addQuota(route, asked, f.RemoteLimits, f.Now)
	}
	if q = ep.quotaOfSimilar(req, f.RemoteLimits, reordered, f.Now); q != nil {
		return q
	}
	for _, q := range ep.quotas {
		if !q.named && q.statesSame(f.RemoteLimits, f.Now) {
			return q
		}
	}
	return ep.addQuota(route, asked, f.RemoteLimits, f.Now)
}

// quotaOfSimilar returns the quota that routes like that of req have shown, if it may have limits. It returns
// nil if there is none. reordered is how many responses to later requests may have arrived before the one
// that states limits.
func (ep *endpoint) quotaOfSimilar(req *http.Request, limits []throttle.RemoteLimit, reordered int64, now time.Time) *quota {
	for q, pattern := range ep.patterns.Similar(ep.tracker.seed, req) {
		tolerated := reordered
		if pattern { // its quota is likely to be that of one more route
			tolerated = max(reordered, ep.peak)
		}
		if may, _ := q.matches(limits, tolerated, now); may {
			return q
		}
	}
	return nil
}

// reordered returns how many responses to requests that q admitted may have arrived before the
// response to the oldest request in flight, at most.
func (q *quota) reordered() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.InFlight.Span()
}

// statesRemaining reports whether limits state how many requests are left.
func statesRemaining(limits []throttle.RemoteLimit) bool {
	return slices.ContainsFunc(limits, statedlimit.CountsRequests)
}

// addQuota adds a quota for route, of which limits are stated: asked if that is the unknown quota, which a new one replaces,
// and otherwise a new one. It returns nil if there is no memory for it. The caller holds ep.mu.
func (ep *endpoint) addQuota(route uint64, asked *quota, limits []throttle.RemoteLimit, now time.Time) *quota {
	if !ep.evictQuotas(limits, now) || !ep.Memory.Reserve(ep.quotaBytes()) { // before newQuota, which takes what is left for a declared limit
		return nil
	}
	asked.mu.Lock()
	dropped := asked.Dropped
	asked.mu.Unlock()
	q := asked
	if dropped || slices.Contains(ep.quotas, asked) {
		q = ep.newQuota()
	} else {
		ep.unknown.Store(ep.newQuota())
		ep.replace(asked)
	}
	q.named = routes.IsNamed(route)
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
	if _, known := ep.routes[route]; !known && (len(ep.routes) >= maxRoutes || !ep.Memory.Reserve(routeBytes)) {
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

// replace records that requests which wait for q may have another quota now. The caller holds
// ep.mu, and calls renewWaits when it holds no lock.
func (ep *endpoint) replace(q throttle.Limiter) {
	if !slices.Contains(ep.replaced, q) {
		ep.replaced = append(ep.replaced, q)
		ep.hasReplaced.Store(true)
	}
}

// renewWaits lets the callers that wait for replaced quotas ask for their demands again. The
// caller holds no lock.
func (ep *endpoint) renewWaits() {
	ep.mu.Lock()
	replaced := ep.replaced
	ep.replaced = nil
	ep.hasReplaced.Store(false)
	ep.mu.Unlock()
	all := ep.tracker.wakers.Load()
	if all == nil {
		return
	}
	for _, w := range *all {
		if r, ok := w.(interface{ Renew(throttle.Limiter) }); ok {
			for _, q := range replaced {
				r.Renew(q)
			}
		}
	}
}

// all returns all quotas of ep, each once. The caller holds ep.mu.
func (ep *endpoint) all() []*quota {
	if unknown := ep.unknown.Load(); !slices.Contains(ep.quotas, unknown) {
		return append([]*quota{unknown}, ep.quotas...)
	}
	return slices.Clone(ep.quotas)
}

// isBlank reports whether ep knows nothing but successful responses, so that little is lost with it.
func (ep *endpoint) isBlank() bool {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return len(ep.quotas) == 0 && ep.small == nil && ep.unknown.Load().isBlank()
}

// forget drops everything that is known. The requests that wait for its quotas are admitted.
func (ep *endpoint) forget(now time.Time) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	for _, q := range ep.all() {
		q.forget(now)
	}
	ep.small.forget()
}

// holdAll holds all quotas of ep, because the server states that the rejection f concerns the whole account.
func (ep *endpoint) holdAll(f *throttle.Feedback) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	for _, q := range ep.all() {
		q.change(f.Now, func(now time.Time) { q.HoldAll(f.RetryAfter, now) })
	}
	ep.small.hold(min(f.RetryAfter, headers.MaxDelay), f.Now)
}

// rejectedExternally applies the rejection f of a request that q did not admit: of another quota or of another process.
func (q *quota) rejectedExternally(f *throttle.Feedback) {
	q.change(f.Now, func(now time.Time) { q.RejectedElsewhere(f, now) })
}

const (
	sampleFirst = 16 // successful responses of an endpoint whose headers are read for limits
	sampleEvery = 64 // of the later ones, the headers of one in so many are read, until one states a limit
)
