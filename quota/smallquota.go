package quota

import (
	"cmp"
	"context"
	"hash/maphash"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/heed-go/heed/quota/internal/model"
	"github.com/heed-go/heed/quota/internal/routes"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// smallQuotas are the quotas of an endpoint that has more of them than there is memory for: some
// hosts have a quota for each of hundreds of routes, and each response states the name and the rest
// of the one that its request used. A quota of type quota takes more than a kilobyte, a smallQuota
// with its route 64 bytes. It knows the one limit that the responses state and nothing else: no holds,
// no learned limits, no measured use, no sharing between processes.
//
// An endpoint begins to use them when there is no memory for one more quota, and a response states one
// limit with a name. Quotas that no request uses then become small ones, too. endpoint.mu guards all
// of it. Nil has no quotas.
type smallQuotas struct {
	began  time.Time // times of small quotas are durations since then
	routes []smallRoute
}

// A smallRoute is a route with its small quota, in ascending order of route.
type smallRoute struct {
	route uint64
	quota *smallQuota
}

const (
	smallBytes    = 64 // of a smallQuota with a route
	maxSmallShown = 16 // small quotas in an AccountSnapshot
)

// A smallQuota is a quota of which one limit is known. It implements throttle.Limiter. It obeys what
// the server states of that limit, and no rejections that state nothing.
//
// While no unit is left, one request at a time is sent as a test, at intervals that grow from one second
// with each rejected test; the first test of a statement that no rejection has confirmed is sent
// immediately. If a test is accepted although no units have come back, the statement is ignored until its
// reset, or until a rejection repeats it.
type smallQuota struct {
	endpoint  *endpoint
	name      uint64        // hash of the name of the limit; 0: no response has stated it
	reset     time.Duration // when units return, since smallQuotas.began
	lastUsed  uint32        // time of the latest request, in smallTick since smallQuotas.began
	limit     int32         // 0 without a name: a response stated no limit, so the unknown quota is used
	remaining int32         // as last stated, less accepted requests whose responses stated nothing
	sent      uint32        // number of the latest request, modulo 2^32
	seen      uint32        // number of the latest request when remaining was stated
	open      uint16        // requests in flight
	rejected  uint8         // rejected tests, see judge
	belief    belief
}

// A belief is whether a smallQuota obeys the statement that no units are left.
type belief uint8

const (
	obeyed  belief = iota
	tested         // the latest request is a test, and in flight
	ignored        // a test was accepted; until the reset, or the next rejection that states it
)

const (
	smallTick       = time.Second / 16
	smallFirstPause = time.Second // between two tests; half as much more after each rejected one
	maxSmallPauses  = 40          // of which the longest lasts for months
)

// find returns the small quota of route; nil if it has none.
func (s *smallQuotas) find(route uint64) *smallQuota {
	if s == nil {
		return nil
	}
	i, ok := s.search(route)
	if !ok {
		return nil
	}
	if q := s.routes[i].quota; !q.statesNothing() {
		return q
	}
	return nil
}

func (s *smallQuotas) search(route uint64) (i int, ok bool) {
	return slices.BinarySearchFunc(s.routes, route, func(r smallRoute, route uint64) int { return cmp.Compare(r.route, route) })
}

// isSmall reports whether limits are what a small quota can hold: one named limit of requests.
func isSmall(limits []throttle.RemoteLimit) bool {
	return len(limits) == 1 && limits[0].Name != "" && limits[0].Unit != statedlimit.UnitConcurrent && statedlimit.CountsRequests(limits[0]) && limits[0].Limit <= math.MaxInt32
}

// assignSmall applies the limits that a response to a request of route states to the small quota of
// that name, which becomes the quota of route. It returns false if ep uses no small quotas, if a quota
// of type quota has limits, or if they are no limit of a small one. The caller holds ep.mu.
func (ep *endpoint) assignSmall(route uint64, limits []throttle.RemoteLimit, now time.Time) bool {
	if !isSmall(limits) || routes.IsNamed(route) || ep.routes[route] != nil {
		return false
	}
	if ep.small == nil {
		if ep.hasMemoryForQuota(limits) {
			return false
		}
		ep.small = &smallQuotas{began: now}
		ep.replace(ep.unknown.Load())
	}
	ep.shrinkQuotas(now)
	if slices.ContainsFunc(ep.quotas, func(q *quota) bool { return !q.named && q.statesSame(limits, now) }) {
		return false
	}
	w, name := limits[0], maphash.String(ep.tracker.seed, limits[0].Name)
	for _, r := range ep.small.routes {
		if r.quota.name == name {
			ep.addSmall(route, r.quota, now)
			r.quota.update(w, now)
			return true
		}
	}
	q := &smallQuota{endpoint: ep, name: name}
	q.set(w, now)
	ep.addSmall(route, q, now)
	return true
}

// addSmall makes q the small quota of route. If there is no memory for it, it replaces the one that
// was used least recently of those that hold no requests; if there is none, route has no quota.
func (ep *endpoint) addSmall(route uint64, q *smallQuota, now time.Time) {
	s := ep.small
	i, known := s.search(route)
	if known {
		if old := s.routes[i].quota; old != q {
			ep.replace(old)
			s.routes[i].quota = q
		}
		return
	}
	if !ep.Memory.Reserve(smallBytes) {
		oldest, _ := s.oldestIdle(now)
		if oldest < 0 {
			return
		}
		s.routes = slices.Delete(s.routes, oldest, oldest+1)
		i, _ = s.search(route)
	}
	s.insert(i, route, q)
	before, _ := ep.lookUp(route, nil)
	ep.replace(before) // requests of route may wait for it, for lack of memory: see addUnstated
}

// oldestIdle returns the index of the route whose quota was used least recently of those that hold no requests, and when that
// was; -1 if there is none.
func (s *smallQuotas) oldestIdle(now time.Time) (oldest int, used time.Time) {
	if s == nil {
		return -1, used
	}
	oldest = -1
	for i, r := range s.routes {
		if o := r.quota; o.open == 0 && (o.remaining > 0 || o.reset <= now.Sub(s.began)) && (oldest < 0 || o.lastUsed < s.routes[oldest].quota.lastUsed) {
			oldest, used = i, s.began.Add(time.Duration(o.lastUsed)*smallTick)
		}
	}
	return oldest, used
}

// dropSmall removes the small quota of the route with an index.
func (ep *endpoint) dropSmall(i int) {
	ep.small.routes = slices.Delete(ep.small.routes, i, i+1)
	ep.Memory.Release(smallBytes)
}

// insert inserts a route, for whose quota memory is reserved, at index i.
func (s *smallQuotas) insert(i int, route uint64, q *smallQuota) {
	if len(s.routes) == cap(s.routes) { // slices.Insert would allocate twice as much
		s.routes = slices.Grow(s.routes, 8)[: len(s.routes) : len(s.routes)+8]
	}
	s.routes = slices.Insert(s.routes, i, smallRoute{route, q})
}

// addUnstated adds a small quota for route, of which nothing is known, if there is memory: one request
// at a time is sent until a response states the limit. It returns nil if route uses the unknown quota.
// The caller holds ep.mu.
func (ep *endpoint) addUnstated(route uint64) *smallQuota {
	i, known := ep.small.search(route)
	if known || routes.IsNamed(route) || ep.routes[route] != nil || !ep.Memory.Reserve(smallBytes) {
		return nil
	}
	q := &smallQuota{endpoint: ep, limit: 1, remaining: 1}
	ep.small.insert(i, route, q)
	return q
}

// shrinkQuotas makes small quotas of the quotas that a small one can hold and no request uses.
func (ep *endpoint) shrinkQuotas(now time.Time) {
	for i := len(ep.quotas) - 1; i >= 0; i-- {
		q := ep.quotas[i]
		if q == ep.unknown.Load() || q.named {
			continue
		}
		w, ok := q.shrunk(now)
		if !ok {
			continue
		}
		small := &smallQuota{endpoint: ep, name: maphash.String(ep.tracker.seed, w.Name)}
		small.set(w, now)
		var routes []uint64
		for route, of := range ep.routes {
			if of == q {
				routes = append(routes, route)
			}
		}
		q.small.Store(small) // for requests that are about to wait for q
		ep.replace(q)
		ep.drop(i)
		for _, route := range routes {
			ep.addSmall(route, small, now)
		}
	}
}

// shrunk returns the limit of q as a small quota can hold it, if no request uses q and nothing else
// is known of it but a hold, which becomes a limit that is used up.
func (q *quota) shrunk(now time.Time) (w throttle.RemoteLimit, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.InFlight.Open > 0 || q.Learned != nil || len(q.units) > 0 || len(q.Estimates) != 1 {
		return w, false
	}
	e := &q.Estimates[0]
	w = throttle.RemoteLimit{Name: e.Name, Limit: e.Limit, Remaining: e.Left(now), ResetAfter: e.Reset.Sub(now), Per: e.Per}
	if held, waits := q.Hold.Waits(now); waits {
		w.Remaining, w.ResetAfter = 0, max(w.ResetAfter, held)
	}
	return w, isSmall([]throttle.RemoteLimit{w}) && !e.CountsInFlight()
}

// statesNothing reports whether the route of q is known to have no small quota.
func (q *smallQuota) statesNothing() bool { return q.name == 0 && q.limit == 0 }

// set begins to count against w. A statement that is ignored is not repeated.
func (q *smallQuota) set(w throttle.RemoteLimit, now time.Time) {
	if q.belief == ignored && w.Remaining <= int64(q.remaining) && now.Sub(q.endpoint.small.began) < q.reset {
		return
	}
	q.limit, q.remaining = int32(w.Limit), int32(min(max(w.Remaining, 0), math.MaxInt32)) //nolint:gosec // see isSmall
	q.reset, q.seen, q.belief = statedlimit.ResetOf(w, now).Sub(q.endpoint.small.began), q.sent, obeyed
}

// update applies w, which the response to a request that q did not admit states: such a response
// may be older than what is known, so it only lowers what remains of the same window.
func (q *smallQuota) update(w throttle.RemoteLimit, now time.Time) {
	if apart := statedlimit.ResetOf(w, now).Sub(q.endpoint.small.began) - q.reset; apart > statedlimit.ToleranceOf(w) || w.Remaining < int64(q.remaining) {
		q.set(w, now)
	}
}

// observeSmall applies f, the response to req, if it states the limits of another quota than asked,
// which admitted req. asked applies the others itself when it observes f.
func (ep *endpoint) observeSmall(req *http.Request, asked *smallQuota, f *throttle.Feedback) {
	if asked.name == 0 && !statesRemaining(f.RemoteLimits) && f.Outcome == throttle.Accepted {
		ep.mu.Lock()
		defer ep.mu.Unlock()
		asked.limit = 0
		ep.replace(asked)
		return
	}
	if !statesRemaining(f.RemoteLimits) || isSmall(f.RemoteLimits) && maphash.String(ep.tracker.seed, f.RemoteLimits[0].Name) == asked.name {
		return
	}
	route := ep.route(req)
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.assignSmall(route, f.RemoteLimits, f.Now)
	concernsOther(f)
}

// Reserve implements throttle.Limiter.
func (q *smallQuota) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	n, err := c.Units()
	if err != nil {
		return throttle.Decision{}, err
	}
	ep, now := q.endpoint, c.Now
	if now.IsZero() {
		now = ep.tracker.now()
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	d := throttle.Decision{Policy: ep.Names.Quota, At: now}
	test := q.decide(&d, n, c.DryRun, now.Sub(ep.small.began), now)
	if d.OK && !c.DryRun {
		q.sent++
		q.open++
		q.lastUsed = uint32(max(now.Sub(ep.small.began)/smallTick, 0)) //nolint:gosec // years
		d.Grant = uint64(q.sent)
		if test {
			q.belief = tested
			ep.Host.Tested(now)
		}
	}
	return d, nil
}

// decide decides on a claim of n units as of now, which is at since smallQuotas.began. test is set if it is granted
// as a test.
func (q *smallQuota) decide(d *throttle.Decision, n int64, dryRun bool, at time.Duration, now time.Time) (test bool) {
	ep := q.endpoint
	n = min(n, max(int64(q.limit), 1))
	wait := q.reset - at
	free := int64(q.remaining) - int64(q.open) - ep.Pacing.Reserved(int64(q.limit))
	d.Limit, d.Remaining, d.ResetAfter = max(int64(q.limit), 1), max(free, 0), max(wait, 0)
	switch {
	case q.open == math.MaxUint16:
	case free >= n, wait <= 0 && q.open == 0, wait > 0 && q.belief == ignored: // after the reset, one request tests whether units have returned
		d.OK = true
		return false
	}
	d.ServerImposed = true
	switch {
	case wait <= 0, q.belief == tested: // the response to that request decides
		return false
	case q.remaining > 0, ep.NeverTest: // units are in flight, or left to others
		d.Wait = wait
		return false
	case q.rejected > 0:
		d.Expected = wait
	}
	switch due := max(q.testDueIn(at), ep.Host.TestIn(now)); {
	case due > 0:
		d.Wait = min(due, wait)
	case dryRun && q.rejected == 0:
		d.Wait = time.Millisecond
	default:
		d.OK, d.ServerImposed, d.Expected = true, false, 0
		return true
	}
	return false
}

// testDueIn returns the time until a test may be sent.
func (q *smallQuota) testDueIn(at time.Duration) time.Duration {
	if q.rejected == 0 {
		return 0
	}
	pause := float64(smallFirstPause) * math.Pow(1.5, float64(q.rejected-1))
	return time.Duration(q.lastUsed)*smallTick + time.Duration(pause) - at
}

// end applies that a request is not in flight any more.
func (q *smallQuota) end() { q.open -= min(q.open, 1) }

// endTest reports whether the request of d is the test, which has ended.
func (q *smallQuota) endTest(d throttle.Decision) bool {
	if q.belief != tested || uint32(d.Grant) != q.sent { //nolint:gosec // modulo 2^32
		return false
	}
	q.belief = obeyed
	return true
}

// Report implements throttle.Limiter. The zero Decision means that a caller has given up.
func (q *smallQuota) Report(_ context.Context, _ throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	ep, now := q.endpoint, f.Now
	if now.IsZero() {
		now = ep.tracker.now()
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if !d.OK || f.State == throttle.Ongoing && !isSmall(f.RemoteLimits) {
		return
	}
	test := false
	if f.State != throttle.Ongoing {
		q.end()
		test = q.endTest(d)
	}
	if f.State == throttle.Unused || f.Outcome == throttle.Failed || f.Cause == model.CauseOtherQuota {
		return
	}
	q.judge(test, &f, now)
	switch stated, over := isSmall(f.RemoteLimits), q.reset <= now.Sub(ep.small.began); {
	case stated && (int32(uint32(d.Grant)-q.seen) > 0 || over): //nolint:gosec // modulo 2^32
		q.set(f.RemoteLimits[0], now)
	case stated:
		q.update(f.RemoteLimits[0], now)
	case f.Outcome != throttle.Accepted || q.belief == ignored:
	case q.remaining <= 0 && over: // the server does not state the limit any more
		q.name, q.limit = 0, 0
		ep.replace(q)
	default:
		q.remaining = max(q.remaining-1, 0)
	}
}

// Traits implements throttle.Limiter.
func (*smallQuota) Traits() throttle.Traits {
	return throttle.Traits{NonBlocking: true, EndsAtResponse: true}
}

// judge applies what the response f shows about the statement that no units are left. test reports whether its
// request was sent as a test.
func (q *smallQuota) judge(test bool, f *throttle.Feedback, now time.Time) {
	stated := isSmall(f.RemoteLimits)
	switch {
	case f.Outcome == throttle.Throttled && test:
		q.rejected = min(q.rejected+1, maxSmallPauses)
	case f.Outcome == throttle.Throttled && stated && f.RemoteLimits[0].Remaining <= 0:
		if q.belief == ignored { // more than the acceptance of the test has subtracted
			q.rejected = min(q.rejected+3, maxSmallPauses)
		}
		q.rejected, q.belief = max(q.rejected, 1), obeyed
	case f.Outcome == throttle.Accepted && test:
		q.rejected -= min(q.rejected, 2)
		q.endpoint.Host.Accepts(now)
		if !stated || f.RemoteLimits[0].Remaining <= int64(q.remaining) { // no units have come back
			q.belief = ignored
		}
	}
}

// hold lets no request of a small quota but tests pass for a time, because the server has documented that a
// rejection concerns all of the account.
func (s *smallQuotas) hold(wait time.Duration, now time.Time) {
	if s == nil {
		return
	}
	until := now.Add(wait).Sub(s.began)
	for _, r := range s.routes {
		q := r.quota
		q.remaining, q.reset, q.rejected, q.belief = 0, max(q.reset, until), max(q.rejected, 1), obeyed
		q.lastUsed = uint32(max(now.Sub(s.began)/smallTick, 0)) //nolint:gosec // years
	}
}

// forget drops all small quotas. Requests that wait for them are admitted.
func (s *smallQuotas) forget() {
	if s == nil {
		return
	}
	for _, r := range s.routes {
		r.quota.remaining, r.quota.reset, r.quota.belief = math.MaxInt32, 0, obeyed
	}
	s.routes = nil
}

// snapshots describes the small quotas with the fewest units left.
func (s *smallQuotas) snapshots(host string, now time.Time) (all []QuotaSnapshot) {
	if s == nil {
		return nil
	}
	seen := make(map[*smallQuota]bool, len(s.routes))
	for _, r := range s.routes {
		q := r.quota
		if seen[q] {
			continue
		}
		seen[q] = true
		reset, left := s.began.Add(q.reset), max(int64(q.remaining)-int64(q.open), 0)
		snap := QuotaSnapshot{Name: host, InFlight: int(q.open), Limits: []LimitSnapshot{{Unit: "requests", Size: int64(q.limit), Remaining: left, RemainingKnown: true, Reset: reset}}}
		if q.remaining <= 0 && q.belief != ignored && reset.After(now) {
			snap.Hold = &HoldSnapshot{Reason: "quota", Until: reset, Probe: q.belief == tested}
		}
		all = append(all, snap)
	}
	slices.SortStableFunc(all, func(a, b QuotaSnapshot) int { return cmp.Compare(a.Limits[0].Remaining, b.Limits[0].Remaining) })
	return all[:min(len(all), maxSmallShown)]
}
