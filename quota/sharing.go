package quota

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/internal/credentials"
	"github.com/heed-go/heed/quota/internal/hold"
	"github.com/heed-go/heed/quota/internal/peers"
	"github.com/heed-go/heed/quota/internal/routes"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// A sharing connects a Tracker with the Trackers of other processes through its Exchange: it
// publishes what this process learns of a quota, and applies what other processes publish.
//
//	join      A Tracker that begins to use an account publishes that, and fetches the state of its
//	          quotas. The first requests wait until the fetch has ended, at most for fetchTime.
//	limits    Remaining units are published when they have fallen by a quarter, at most once in
//	          publishEvery, and once a second. Each process keeps to its part, see peers.Set.
//	hold      Rejections that hold a quota hold it in all processes. The process that was rejected
//	          sends the tests, and publishes each of them and its result. The other processes test
//	          only if the next test, or its result, is 1 to 2 s late.
//
//	            rejected process    hold ── test ── rejected ── pause ── test ── accepted
//	                                 │        │         │                  │        │
//	            other processes     hold   wait 1-2 s  pause + 1-2 s    wait 1-2 s  release
//
// The state of a quota is published when it differs from the state that was last published or
// received, so each change is published by one process.
type sharing struct {
	tracker *Tracker
	key     []byte          // Exchange.Key
	self    uint64          // Update.Sender
	macs    sync.Pool       // of *routeMAC
	ctx     context.Context // of the subscription; done after Tracker.Close
	cancel  context.CancelFunc

	mu        sync.Mutex
	endpoints map[string]*endpoint // by endpoint.id; guarded by mu
}

const (
	fetchTime    = 100 * time.Millisecond // maximum wait of the first requests of an account for a fetch
	publishEvery = 5 * time.Millisecond   // minimum time between updates of limits, unless nothing remains
	joinEvery    = time.Second            // time between updates without a change, which show that the process exists
	probeEvery   = 100 * time.Millisecond // minimum time between updates of probes
)

func newSharing(t *Tracker) *sharing {
	s := &sharing{tracker: t, key: t.Exchange.Key(), self: rand.Uint64(), endpoints: make(map[string]*endpoint)}
	routeKey := s.hash("route")
	s.macs.New = func() any { return &routeMAC{mac: hmac.New(sha256.New, routeKey)} }
	s.ctx, s.cancel = context.WithCancel(context.Background())
	t.Exchange.Subscribe(s.ctx, s.receive)
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

// share makes ep, the new endpoint of the account of req, a shared one. Without a key, accounts with
// credentials are not shared. The first requests wait for the fetch that announce begins.
func (s *sharing) share(ep *endpoint, req *http.Request) {
	all := credentials.Join(func(found func(name, value string)) { s.tracker.credentials(req, ep.provider, found) })
	if s.ctx.Err() != nil || all != "" && len(s.key) == 0 {
		return
	}
	scheme := "https"
	if req.URL.Scheme == "http" {
		scheme = "http"
	}
	ep.id = base64.RawURLEncoding.EncodeToString(s.hash("account", scheme, ep.host, all)[:16])
	ep.unknown.Load().FetchUntil = s.tracker.now().Add(fetchTime)
}

// add begins to apply updates to ep, which the Tracker keeps from now on.
func (s *sharing) add(ep *endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endpoints[ep.id] = ep
}

// announce publishes that this process begins to use ep, and fetches its state.
func (s *sharing) announce(ep *endpoint) {
	s.publish(ep, Update{Kind: UpdateJoin})
	if s.ctx.Err() == nil {
		s.tracker.Exchange.Fetch(ep.id)
	}
}

// remove ends the sharing of ep, which the Tracker drops.
func (s *sharing) remove(ep *endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endpoints[ep.id] == ep {
		delete(s.endpoints, ep.id)
	}
}

// publish sends u, which concerns ep, to the other processes. The zero Update means that there
// is nothing to publish.
func (s *sharing) publish(ep *endpoint, u Update) {
	if u.Kind == UpdateFetched || s.ctx.Err() != nil {
		return
	}
	u.Sender, u.Account = s.self, ep.id
	s.tracker.Exchange.Publish(u)
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
	woken := ep.apply(u.aged(), s.tracker.now())
	if ep.hasReplaced.Load() {
		ep.renewWaits()
	}
	if woken {
		s.tracker.wake()
	}
	s.tracker.listeners.Load().deliver()
}

// route returns the hash of the route of req. In updates it is a message authentication code, so that all
// processes with the key compute the same, and none without it can test which path a hash is of, whatever
// other paths it knows.
func (ep *endpoint) route(req *http.Request) uint64 {
	if ep.id == "" {
		return routes.Hash(ep.tracker.seed, req)
	}
	m := ep.tracker.sharing.macs.Get().(*routeMAC)
	defer ep.tracker.sharing.macs.Put(m)
	return m.of(req)
}

// A routeMAC computes HMAC-SHA256 of routes, truncated to 64 bits, without allocations.
type routeMAC struct {
	mac   hash.Hash
	route [routes.Max]byte
	sum   [sha256.Size]byte
}

func (m *routeMAC) of(req *http.Request) uint64 {
	route := routes.Append(m.route[:0], req)
	m.mac.Reset()
	m.mac.Write(route)
	return routes.Mark(binary.BigEndian.Uint64(m.mac.Sum(m.sum[:0])), route)
}

// A sharedState is the state of a shared quota that updates are made of, and what other processes
// know of it: what this process has published or received. It is guarded by quota.mu.
type sharedState struct {
	route uint64 // of the latest response that concerned the quota; identifies it in updates; 0: none yet, or the unknown quota
	peers peers.Set

	held      bool // the quota is held
	heldSince time.Time
	heldUntil time.Time
	tests     int // rejected tests
	limits    peers.Limits
	probedAt  time.Time // when a test was last published
	limitsAt  time.Time // when limits were last published
}

// newProbe returns the update about the latest claim. It is nil if that is no test, or if one was published just now.
func (q *quota) newProbe() *Update {
	s := q.shared
	if !q.Testing() || q.LastGranted.Sub(s.probedAt) < probeEvery {
		return nil
	}
	s.probedAt = q.LastGranted
	return &Update{Kind: UpdateProbe, Route: s.route}
}

// setRoute records that a response to a request of route concerned q.
func (q *quota) setRoute(route uint64) {
	if q.endpoint.id == "" {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shared.route = route
}

// publishQuota publishes the state of the quota of req after a response to it, unless that is
// asked, the quota that granted the request: it publishes when it observes the response.
func (ep *endpoint) publishQuota(req *http.Request, asked *quota, now time.Time) {
	route := ep.route(req)
	ep.mu.Lock()
	q, known := ep.lookUp(route, req)
	ep.mu.Unlock()
	if known && q != asked {
		q.publish(now)
	}
}

// publish publishes what other processes do not know of q as of now.
func (q *quota) publish(now time.Time) {
	q.mu.Lock()
	now = ticks.Later(now, q.LastGranted)
	state := q.newState(now)
	q.mu.Unlock()
	q.endpoint.tracker.sharing.publish(q.endpoint, state)
}

// newState returns an update of the hold and the limits; the zero Update if other processes know
// them, or if no response has concerned q yet. The unknown quota has no route.
func (q *quota) newState(now time.Time) (u Update) {
	h, s := &q.Hold, q.shared
	if s.route == 0 && q.endpoint.unknown.Load() != q {
		return u
	}
	limitsChanged := q.limitsChanged(now)
	tests, pause := q.RejectedTests()
	switch {
	case h.Held && (!s.held || h.Since.After(s.heldSince) || tests > s.tests || h.Until.Sub(s.heldUntil) > statedlimit.Tolerance):
		u = Update{Kind: UpdateHold, Wait: max(q.holdUntil(now).Sub(now), 0), Stated: !h.Estimated()}
		if tests > s.tests {
			u.Pause = pause
		}
	case !h.Held && s.held:
		u = Update{Kind: UpdateRelease, Wait: max(now.Sub(q.LastGranted), 0)}
	case limitsChanged:
		u.Kind = UpdateLimits
	}
	s.setHold(h)
	s.tests = tests
	if u.Kind != UpdateFetched {
		u.Route, u.Limits, s.limitsAt = s.route, q.setLimits(now), now
	}
	return u
}

// setHold records that other processes know h.
func (s *sharedState) setHold(h *hold.Hold) {
	s.held, s.heldSince, s.heldUntil = h.Held, h.Since, h.Until
}

// limitsChanged reports whether the limits differ so much from what other processes know that
// they are to be published.
func (q *quota) limitsChanged(now time.Time) bool {
	since := now.Sub(q.shared.limitsAt)
	return q.shared.limits.Changed(q.Estimates, since < publishEvery) || since >= joinEvery && len(q.Estimates) > 0
}

// setLimits records that other processes know the limits, and returns them as of now.
func (q *quota) setLimits(now time.Time) (all []throttle.RemoteLimit) {
	q.shared.limits.Set(q.Estimates)
	for i := range q.Estimates {
		e := &q.Estimates[i]
		if reset := e.Reset.Sub(now); reset > 0 && !e.CountsInFlight() {
			all = append(all, throttle.RemoteLimit{Name: e.Name, Limit: e.Limit, Remaining: e.Remaining, Per: e.Per, ResetAfter: reset})
		}
	}
	return all
}
