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

	mu    sync.Mutex
	sites map[string]*site // by identifier
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
	f := &sharing{tracker: t, exchange: t.Exchange, key: t.Exchange.Key(), self: rand.Uint64(), sites: make(map[string]*site)}
	f.basis = binary.BigEndian.Uint64(f.hash("route"))
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.exchange.Subscribe(f.ctx, f.receive)
	return f
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
func (f *sharing) hash(words ...string) []byte {
	h := hmac.New(sha256.New, f.key)
	for _, w := range words {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(w))))
		h.Write([]byte(w))
	}
	return h.Sum(nil)
}

// add makes s, the new site of a, a shared one, unless it must not be shared. The first requests
// wait until announce has fetched what others know.
func (f *sharing) add(s *site, a account) {
	if f.ctx.Err() != nil || !a.open() && len(f.key) == 0 {
		return
	}
	scheme := "https"
	if a.plain {
		scheme = "http"
	}
	s.id = base64.RawURLEncoding.EncodeToString(f.hash("account", scheme, a.host, a.credential)[:16])
	b, until := s.fresh.Load(), f.tracker.clock().Now().Add(fetchTime)
	b.gate.until, b.shared.fetch = until, until
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sites[s.id] = s
}

// announce publishes that this process begins to use s, and fetches what others know of it.
func (f *sharing) announce(s *site) {
	f.publish(s, Update{Kind: UpdateJoin})
	if f.ctx.Err() == nil {
		f.exchange.Fetch(s.id)
	}
}

// remove ends the sharing of s, which the Tracker forgets. f may be nil.
func (f *sharing) remove(s *site) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sites[s.id] == s {
		delete(f.sites, s.id)
	}
}

// publish sends u, which concerns s, to the other processes. A zero Kind means that there is
// nothing to publish.
func (f *sharing) publish(s *site, u Update) {
	if u.Kind == UpdateFetched || f.ctx.Err() != nil {
		return
	}
	u.Sender, u.Account = f.self, s.id
	f.exchange.Publish(u)
}

// receive applies an update of another process.
func (f *sharing) receive(u Update) {
	if f.ctx.Err() != nil || u.Sender == f.self {
		return
	}
	f.mu.Lock()
	s := f.sites[u.Account]
	f.mu.Unlock()
	if s == nil {
		return
	}
	if s.apply(u.aged(), f.tracker.clock().Now()) {
		f.tracker.wake()
	}
	f.tracker.listeners.deliver()
}

// route returns the hash of the route of req. Processes that share compute the same: FNV-1a from
// a basis that depends on their key.
func (s *site) route(req *http.Request) uint64 {
	if s.id == "" {
		return routeOf(s.tracker.seed, req)
	}
	var buf [maxRoute]byte
	h := s.tracker.sharing.basis
	route := appendRoute(buf[:0], req)
	for _, c := range route {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return marked(h, route)
}

// A sharedBucket is a bucket that leaves units to other processes and publishes what it learns.
type sharedBucket bucket

// limiter returns the quota of req.
func (s *site) limiter(req *http.Request) throttle.Limiter {
	b := s.bucket(req)
	if s.id == "" {
		return b
	}
	return (*sharedBucket)(b)
}

// bucketOf returns the bucket that l is.
func bucketOf(l throttle.Limiter) (b *bucket, ours bool) {
	if s, shared := l.(*sharedBucket); shared {
		return (*bucket)(s), true
	}
	b, ours = l.(*bucket)
	return b, ours
}

// Reserve implements throttle.Limiter.
func (s *sharedBucket) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	b, u := (*bucket)(s), Update{}
	d, err := b.reserveShared(c, &u)
	b.site.tracker.sharing.publish(b.site, u)
	return d, err
}

// Cancel implements throttle.Limiter.
func (s *sharedBucket) Cancel(ctx context.Context, c throttle.Claim, d throttle.Decision) {
	(*bucket)(s).Cancel(ctx, c, d)
}

// Observe implements throttle.Observer.
func (s *sharedBucket) Observe(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	b := (*bucket)(s)
	b.Observe(ctx, c, d, f)
	b.publish(f.Now)
}

// NonBlocking is the method that throttle.IsNonBlocking calls.
func (*sharedBucket) NonBlocking() bool { return true }

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
func (b *bucket) reserveShared(c throttle.Claim, u *Update) (throttle.Decision, error) {
	if _, err := c.Units(); err != nil {
		return throttle.Decision{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now(c.Now)
	if wait, ok := b.leaveToPeers(now); !ok {
		d := throttle.Decision{Policy: b.site.names.quota, At: now, Wait: wait, ServerImposed: true}
		b.describe(&d, now)
		return d, nil
	}
	d, err := b.reserve(c)
	k := b.shared
	if d.OK && !c.DryRun && b.gate.ajar && d.Grant > b.gate.round && b.last.Sub(k.probed) >= probeEvery {
		k.probed = b.last
		*u = Update{Kind: UpdateProbe, Route: k.route}
	}
	return d, err
}

// spokeOf notes that a response to a request of route concerned b.
func (b *bucket) spokeOf(route uint64) {
	if b.site.id == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shared.route = route
}

// rejects notes a rejection without rate-limit headers of a request of route.
func (b *bucket) rejects(route uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shared.rejected, b.shared.from = min(b.shared.rejected+1, maxRejected), route
}

// publishQuota publishes what a response taught the quota of req, if that is another one than
// asked, which granted the request and publishes when it observes the response.
func (s *site) publishQuota(req *http.Request, asked *bucket, now time.Time) {
	if s.id == "" {
		return
	}
	if b := s.homeOf(req); b != nil && b != asked {
		b.publish(now)
	}
}

// publish publishes what other processes do not know of b as of now.
func (b *bucket) publish(now time.Time) {
	b.mu.Lock()
	now = b.now(now)
	rejections, state := b.newRejections(now), b.newState(now)
	b.mu.Unlock()
	b.site.tracker.sharing.publish(b.site, rejections)
	b.site.tracker.sharing.publish(b.site, state)
}

// newRejections returns an update of the rejections that are not published yet, if there are any
// and the latest update of them is not too recent.
func (b *bucket) newRejections(now time.Time) (u Update) {
	k := b.shared
	if k.rejected > 0 && now.Sub(k.reported) >= publishEvery {
		u = Update{Kind: UpdateRejections, Route: k.from, Rejections: k.rejected}
		k.rejected, k.reported = 0, now
	}
	return u
}

// newState returns an update of how the hold and the limits have changed, if they have.
func (b *bucket) newState(now time.Time) (u Update) {
	g, k := &b.gate, b.shared
	if k.route == 0 {
		return u // no response has concerned b yet
	}
	switch {
	case g.ajar && (!k.held || g.at.After(k.since) || g.until.Sub(k.until) > slack):
		u = Update{Kind: UpdateHold, Wait: max(g.until.Sub(now), 0), Stated: !g.estimated}
	case !g.ajar && k.held:
		u = Update{Kind: UpdateRelease, Wait: max(now.Sub(b.last), 0)}
	}
	k.knowHold(g)
	if changed := b.limitsChanged(now); changed || u.Kind != UpdateFetched {
		u.Limits, k.left = b.knowLimits(now), now
		if u.Kind == UpdateFetched {
			u.Kind = UpdateLimits
		}
	}
	u.Route = k.route
	return u
}

// knowHold notes that others know the state of g.
func (k *sharedState) knowHold(g *gate) { k.held, k.since, k.until = g.ajar, g.at, g.until }

// limitsChanged reports whether the limits differ so much from what others know that they are to
// be published.
func (b *bucket) limitsChanged(now time.Time) (changed bool) {
	k := b.shared
	recent := now.Sub(k.left) < publishEvery
	changed = now.Sub(k.left) >= joinEvery && len(b.told) > 0
	for i := range b.told {
		t := &b.told[i]
		known := k.find(t)
		switch {
		case t.slots.are: // what is left of them has changed when the update arrives
		case known == nil || t.reset.Sub(known.reset) > slack:
			changed = changed || !recent
		case t.remaining > known.left:
			known.left = t.remaining
		case t.remaining < known.left && t.remaining <= known.left-known.left/changedPart:
			changed = changed || !recent || t.remaining == 0
		}
	}
	return changed
}

func (k *sharedState) find(t *told) *knownLimit {
	for i := range k.limits {
		if k.limits[i].name == t.name && k.limits[i].per == t.per {
			return &k.limits[i]
		}
	}
	return nil
}

// knowLimits returns all limits as of now, and notes that others know them.
func (b *bucket) knowLimits(now time.Time) (all []throttle.RemoteLimit) {
	k := b.shared
	k.limits = k.limits[:0]
	for i := range b.told {
		t := &b.told[i]
		k.limits = append(k.limits, knownLimit{t.name, t.per, t.remaining, t.reset})
		if reset := t.reset.Sub(now); reset > 0 && !t.slots.are {
			all = append(all, throttle.RemoteLimit{Name: t.name, Limit: t.limit, Remaining: t.remaining, Per: t.per, ResetAfter: reset})
		}
	}
	return all
}
