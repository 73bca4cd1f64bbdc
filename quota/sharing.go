package quota

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A sharing connects a Tracker with those of other processes through its Exchange: it publishes
// what this process learns of a quota, and applies what others publish.
//
//	join     A Tracker that begins to use an account publishes that, and fetches what others know
//	         of it. The first requests wait for the end of the fetch, at most for fetchTime.
//	limits   What is left of a quota is published when it has changed by a quarter, at most once
//	         in publishEvery, and once a second. Each process has at most its part of half of it
//	         in flight, see peers.
//	hold     A rejection that holds a quota holds it in all processes. The process that was
//	         rejected sends the probe and publishes that. The others come 50 to 250 ms later, and
//	         wait for the result of a probe for 1 to 2 s. Then each sends its own.
//
//	           rejected  hold ────────── end ▶ probe ────────▶ accepted
//	           others    hold ────────── end ── delay ── wait ──┐ │
//	                                                    release ◀─┘
//
//	evidence Rejections without rate-limit headers count as evidence in all processes.
//
// An update is published when what the Tracker knows differs from what others know, as far as
// this Tracker has published or received it: so each change is published once.
type sharing struct {
	tracker  *Tracker
	exchange Exchange
	key      []byte
	self     uint64          // Update.Sender
	basis    uint64          // of the hashes of routes
	ctx      context.Context // of the subscription; done after Tracker.Close
	cancel   context.CancelFunc

	mu        sync.Mutex
	endpoints map[string]*endpoint // by identifier
}

const (
	fetchTime    = 100 * time.Millisecond // that the first requests of an account wait for other processes
	publishEvery = 5 * time.Millisecond   // updates of what is left, unless nothing is
	joinEvery    = time.Second            // updates without a change, which show that the process exists
	probeEvery   = 100 * time.Millisecond // updates of probes that fail one after the other
	changedPart  = 4                      // a change by a part of that is published
	maxRejected  = 100                    // rejections in one update
)

func newSharing(t *Tracker) *sharing {
	s := &sharing{tracker: t, exchange: t.Exchange, key: t.Exchange.Key(), self: rand.Uint64(), endpoints: make(map[string]*endpoint)}
	s.basis = binary.BigEndian.Uint64(s.hash("route"))
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.exchange.Subscribe(s.ctx, s.receive)
	return s
}

// Close ends the use of Exchange: t publishes no more updates, ignores those of other
// processes, and ends its subscription. The Tracker may still be used after Close. Without an
// Exchange, Close does nothing.
func (t *Tracker) Close() {
	t.once.Do(t.init)
	if t.sharing != nil {
		t.sharing.cancel()
	}
}

// hash returns a keyed hash of words.
func (s *sharing) hash(words ...string) []byte {
	h := hmac.New(sha256.New, s.key)
	for _, w := range words {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(w))))
		h.Write([]byte(w))
	}
	return h.Sum(nil)
}

// add makes s, the new site of a, a shared one, unless it must not be shared. The first requests
// wait until announce has fetched what others know.
func (s *sharing) add(ep *endpoint, a account) {
	if s.ctx.Err() != nil || !a.isAnonymous() && len(s.key) == 0 {
		return
	}
	scheme := "https"
	if a.plain {
		scheme = "http"
	}
	ep.id = base64.RawURLEncoding.EncodeToString(s.hash("account", scheme, a.host, a.credential)[:16])
	q, until := ep.unknown.Load(), s.tracker.clock().Now().Add(fetchTime)
	q.hold.until, q.shared.fetch = until, until
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endpoints[ep.id] = ep
}

// announce publishes that this process begins to use s, and fetches what others know of it.
func (s *sharing) announce(ep *endpoint) {
	s.publish(ep, Update{Kind: UpdateJoin})
	if s.ctx.Err() == nil {
		s.exchange.Fetch(ep.id)
	}
}

// remove ends the sharing of s, which the Tracker forgets. f may be nil.
func (s *sharing) remove(ep *endpoint) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endpoints[ep.id] == ep {
		delete(s.endpoints, ep.id)
	}
}

// publish sends u, which concerns s, to the other processes. A zero Kind means that there is
// nothing to publish.
func (s *sharing) publish(ep *endpoint, u Update) {
	if u.Kind == UpdateFetched || s.ctx.Err() != nil {
		return
	}
	u.Sender, u.Account = s.self, ep.id
	s.exchange.Publish(u)
}

// receive applies an update of another process.
func (s *sharing) receive(u Update) {
	if s.ctx.Err() != nil || u.Sender == s.self {
		return
	}
	s.mu.Lock()
	ep := s.endpoints[u.Account]
	s.mu.Unlock()
	if ep == nil {
		return
	}
	if ep.apply(u.aged(), s.tracker.clock().Now()) {
		s.tracker.wake()
	}
	s.tracker.listeners.deliver()
}

// route returns the hash of the route of req. Processes that share compute the same: FNV-1a from
// a basis that depends on their key.
func (ep *endpoint) route(req *http.Request) uint64 {
	if ep.id == "" {
		return routeOf(ep.tracker.seed, req)
	}
	var buf [maxRoute]byte
	h := ep.tracker.sharing.basis
	route := appendRoute(buf[:0], req)
	for _, c := range route {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return marked(h, route)
}

// A sharedQuota is a bucket that leaves units to other processes and publishes what it learns.
type sharedQuota quota

// limiterOf returns the quota of req.
func (ep *endpoint) limiterOf(req *http.Request) throttle.Limiter {
	q := ep.quotaOf(req)
	if ep.id == "" {
		return q
	}
	return (*sharedQuota)(q)
}

// quotaOfLimiter returns the bucket that l is.
func quotaOfLimiter(l throttle.Limiter) (q *quota, ours bool) {
	if sq, shared := l.(*sharedQuota); shared {
		return (*quota)(sq), true
	}
	q, ours = l.(*quota)
	return q, ours
}

// Reserve implements throttle.Limiter.
func (sq *sharedQuota) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	q, u := (*quota)(sq), Update{}
	d, err := q.reserveShared(c, &u)
	q.endpoint.tracker.sharing.publish(q.endpoint, u)
	return d, err
}

// Cancel implements throttle.Limiter.
func (sq *sharedQuota) Cancel(ctx context.Context, c throttle.Claim, d throttle.Decision) {
	(*quota)(sq).Cancel(ctx, c, d)
}

// Observe implements throttle.Observer.
func (sq *sharedQuota) Observe(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	q := (*quota)(sq)
	q.Observe(ctx, c, d, f)
	q.publish(f.Now)
}

// NonBlocking is the method that throttle.IsNonBlocking calls.
func (*sharedQuota) NonBlocking() bool { return true }

// sharedState is the state of a bucket of which updates are published. It is guarded by bucket.mu.
type sharedState struct {
	route   uint64    // of the latest response that concerned the bucket; identifies it in updates; 0: none yet
	fetch   time.Time // until when requests wait for what others know; zero: they do not
	follows bool      // another process sends the probe
	peers   peers

	rejected int    // rejections without rate-limit headers that are not published yet
	from     uint64 // the route of the latest

	// What other processes know, because it was published by this process or by them:
	held     bool
	since    time.Time // when the latest hold began
	until    time.Time // its end
	limits   []knownLimit
	probed   time.Time // when a probe was last published
	left     time.Time // when limits were last published
	reported time.Time // when rejections were last published
}

type knownLimit struct {
	name  string
	per   time.Duration
	left  int64
	reset time.Time
}

// reserveShared is reserve for a shared bucket. It sets u if the claim is a probe that is to be
// published.
func (q *quota) reserveShared(c throttle.Claim, u *Update) (throttle.Decision, error) {
	if _, err := c.Units(); err != nil {
		return throttle.Decision{}, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now(c.Now)
	if wait, ok := q.leaveToPeers(now); !ok {
		d := throttle.Decision{Policy: q.endpoint.names.quota, At: now, Wait: wait, ServerImposed: true}
		q.describe(&d, now)
		return d, nil
	}
	d, err := q.reserve(c)
	s := q.shared
	if d.OK && !c.DryRun && q.hold.active && d.Grant > q.hold.lastSent && q.lastGranted.Sub(s.probed) >= probeEvery {
		s.probed = q.lastGranted
		*u = Update{Kind: UpdateProbe, Route: s.route}
	}
	return d, err
}

// setRoute notes that a response to a request of route concerned b.
func (q *quota) setRoute(route uint64) {
	if q.endpoint.id == "" {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shared.route = route
}

// addRejection notes a rejection without rate-limit headers of a request of route.
func (q *quota) addRejection(route uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shared.rejected, q.shared.from = min(q.shared.rejected+1, maxRejected), route
}

// publishQuota publishes what a response taught the quota of req, if that is another one than
// asked, which granted the request and publishes when it observes the response.
func (ep *endpoint) publishQuota(req *http.Request, asked *quota, now time.Time) {
	if ep.id == "" {
		return
	}
	if q, known := ep.lookUp(ep.route(req), req); known && q != asked {
		q.publish(now)
	}
}

// publish publishes what other processes do not know of b as of now.
func (q *quota) publish(now time.Time) {
	q.mu.Lock()
	now = q.now(now)
	rejections, state := q.newRejections(now), q.newState(now)
	q.mu.Unlock()
	q.endpoint.tracker.sharing.publish(q.endpoint, rejections)
	q.endpoint.tracker.sharing.publish(q.endpoint, state)
}

// newRejections returns an update of the rejections that are not published yet, if there are any
// and the latest update of them is not too recent.
func (q *quota) newRejections(now time.Time) (u Update) {
	s := q.shared
	if s.rejected > 0 && now.Sub(s.reported) >= publishEvery {
		u = Update{Kind: UpdateRejections, Route: s.from, Rejections: s.rejected}
		s.rejected, s.reported = 0, now
	}
	return u
}

// newState returns an update of how the hold and the limits have changed, if they have.
func (q *quota) newState(now time.Time) (u Update) {
	h, s := &q.hold, q.shared
	if s.route == 0 {
		return u // no response has concerned b yet
	}
	switch {
	case h.active && (!s.held || h.closedAt.After(s.since) || h.until.Sub(s.until) > tolerance):
		u = Update{Kind: UpdateHold, Wait: max(h.until.Sub(now), 0), Stated: !h.estimated}
	case !h.active && s.held:
		u = Update{Kind: UpdateRelease, Wait: max(now.Sub(q.lastGranted), 0)}
	}
	s.markHoldKnown(h)
	if changed := q.limitsChanged(now); changed || u.Kind != UpdateFetched {
		u.Limits, s.left = q.markLimitsKnown(now), now
		if u.Kind == UpdateFetched {
			u.Kind = UpdateLimits
		}
	}
	u.Route = s.route
	return u
}

// markHoldKnown notes that others know the state of g.
func (s *sharedState) markHoldKnown(h *hold) {
	s.held, s.since, s.until = h.active, h.closedAt, h.until
}

// limitsChanged reports whether the limits differ so much from what others know that they are to
// be published.
func (q *quota) limitsChanged(now time.Time) (changed bool) {
	s := q.shared
	recent := now.Sub(s.left) < publishEvery
	changed = now.Sub(s.left) >= joinEvery && len(q.estimates) > 0
	for i := range q.estimates {
		e := &q.estimates[i]
		known := s.find(e)
		switch {
		case e.concurrency.confirmed: // what is left of them has changed when the update arrives
		case known == nil || e.reset.Sub(known.reset) > tolerance:
			changed = changed || !recent
		case e.remaining > known.left:
			known.left = e.remaining
		case e.remaining < known.left && e.remaining <= known.left-known.left/changedPart:
			changed = changed || !recent || e.remaining == 0
		}
	}
	return changed
}

func (s *sharedState) find(e *estimate) *knownLimit {
	for i := range s.limits {
		if s.limits[i].name == e.name && s.limits[i].per == e.per {
			return &s.limits[i]
		}
	}
	return nil
}

// markLimitsKnown returns all limits as of now, and notes that others know them.
func (q *quota) markLimitsKnown(now time.Time) (all []throttle.RemoteLimit) {
	s := q.shared
	s.limits = s.limits[:0]
	for i := range q.estimates {
		e := &q.estimates[i]
		s.limits = append(s.limits, knownLimit{e.name, e.per, e.remaining, e.reset})
		if reset := e.reset.Sub(now); reset > 0 && !e.concurrency.confirmed {
			all = append(all, throttle.RemoteLimit{Name: e.name, Limit: e.limit, Remaining: e.remaining, Per: e.per, ResetAfter: reset})
		}
	}
	return all
}
