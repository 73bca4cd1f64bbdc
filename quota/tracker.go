package quota

import (
	"hash/maphash"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/quota/internal/model"
	"github.com/heed-go/heed/quota/internal/routes"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// A Tracker learns the limits of servers from their responses. The zero Tracker is ready to
// use. It is safe for concurrent use. Its fields must not be changed after the first request,
// and it must not be copied.
//
// A Tracker keeps a state for each account, which is a scheme, a host and credentials, so that
// a rejection of one account does not hold another. Each account has a state for each quota
// that the server was seen to have, see [Tracker.Demand]. Hosts are compared without regard to
// case, a default port, and a trailing dot. Credentials are kept only as a keyed hash.
type Tracker struct {
	// MaxAccounts is the maximum number of accounts whose state is kept. Beyond it, accounts
	// without any state to keep are dropped first, then those not used recently. Zero or less
	// means 4096.
	MaxAccounts int

	// Pacing selects how the remaining units of a quota are spent. Zero means Auto.
	Pacing Pacing

	// Reader parses the limits that responses state. Nil means the zero headers.Reader.
	Reader *headers.Reader

	// Clock is the source of time. Nil means the system clock.
	Clock throttle.Clock

	// Account returns the account of a request at its host. It must return the same account
	// for a request each time, and "" for requests without an account. Nil means that
	// accounts are distinguished by credentials: the header fields that carry them
	// (Authorization, X-API-Key and others, but not cookies), the user of the URL, the query
	// parameters api_key and apikey, and those that headers.Provider lists for the host
	// (AccountHeaders, AccountParams, AccountSegment). Of a signed request only the identifier of
	// the key counts.
	Account func(*http.Request) string

	// Rand returns random numbers in [0, 1). It is not called concurrently, and must not call
	// methods of the Tracker. Nil means rand.Float64 of math/rand/v2.
	Rand func() float64

	// Mode adds estimates of what servers do not state, or disables all holds. Zero means StatedOnly.
	Mode Mode

	// NeverTest disables requests that test whether the server accepts requests before the time
	// that it stated, also as the last chance of a call. It is for quotas whose overage costs money.
	// A statement that is wrong is then obeyed until its end.
	NeverTest bool

	// Headroom is the part of each stated quota that is left to other clients, in [0, 1).
	// Requests wait while the remaining units do not exceed it. Zero, a negative value and NaN mean
	// none. From 1 on all units are left to them, so hardly any request is sent.
	Headroom float64

	// Exchange shares what is known of servers with other processes. Nil means that nothing
	// is shared. Package quota/fleet has one over any message bus.
	Exchange Exchange

	once        sync.Once        // calls init, which sets the fields of this paragraph: the ones above, or their defaults
	now         func() time.Time // of Clock
	reader      *headers.Reader
	providers   map[string]*headers.Provider // of reader.Hosts
	config      model.Config
	maxAccounts int
	seed        maphash.Seed
	sharing     *sharing // nil: there is no Exchange

	mu        sync.RWMutex             // guards the fields of this paragraph, and endpoint.lastUsed
	endpoints map[uint64]*endpoint     // by endpoint.key, at most MaxAccounts
	uses      uint64                   // numbers the uses of endpoints for endpoint.lastUsed
	recent    atomic.Pointer[endpoint] // of the latest request, and probably of the next one; set with mu locked, read without

	randMu    sync.Mutex           // serializes the calls of Rand
	hosts     [numHosts]model.Host // by endpoint.hostKey: hosts that share one share its tests
	latencies routes.Latencies

	// Nil until Declare, Listen and Notify are called. The values are replaced and never changed.
	declared  atomic.Pointer[map[string]throttle.Limit] // by canonical host
	listeners atomic.Pointer[listeners]
	wakers    atomic.Pointer[[]interface{ Wake() }]
}

// Demand returns the limit that must admit req before it is sent. It is the same Limiter for
// all requests that share a quota. Demand.Limiter is nil if Mode is Disabled. Demand must be called
// again for each attempt, and when a request that waits is to be limited by another Limiter, see
// Notify. A caller that stops waiting calls Report of the Limiter with the zero throttle.Decision:
// that calls give up is a reason to test an estimate.
func (t *Tracker) Demand(req *http.Request) throttle.Demand {
	if t.Mode == Disabled {
		return throttle.Demand{}
	}
	ep := t.endpointOf(req)
	switch {
	case !ep.hasQuotas.Load():
		return throttle.Demand{Limiter: ep.unknown.Load()}
	}
	return throttle.Demand{Limiter: ep.limiterOf(req)}
}

func (t *Tracker) init() {
	if t.now = time.Now; t.Clock != nil {
		t.now = t.Clock.Now
	}
	if t.reader = t.Reader; t.reader == nil {
		t.reader = new(headers.Reader)
	}
	t.providers = copyOf(t.reader.Hosts)
	t.config = model.Config{Full: t.Mode == Full, NeverTest: t.NeverTest, Random: t.random}
	t.config.Pacing = statedlimit.Pacing{Spread: t.Pacing == Spread, Headroom: t.Headroom}
	if t.maxAccounts = t.MaxAccounts; t.maxAccounts <= 0 {
		t.maxAccounts = 4096
	}
	t.seed = maphash.MakeSeed()
	t.endpoints = make(map[uint64]*endpoint)
	if t.Exchange != nil {
		t.sharing = newSharing(t)
	}
}

// endpointOf returns the endpoint of the account of req.
func (t *Tracker) endpointOf(req *http.Request) *endpoint {
	t.once.Do(t.init)
	ep := t.recent.Load()
	key, host := t.identify(req, ep)
	if ep == nil || ep.key != key {
		t.mu.RLock()
		if ep = t.endpoints[key]; ep != nil {
			t.recent.Store(ep)
		}
		t.mu.RUnlock()
		if ep == nil {
			return t.addEndpoint(req, key, host)
		}
	}
	if !ep.usedRecently.Load() { // most stores would only move the cache line
		ep.usedRecently.Store(true)
	}
	return ep
}

// addEndpoint adds an endpoint for the account of req, unless another goroutine has added one. It
// returns the endpoint of the account. The strings of req are copied, because they may be parts of a
// URL with credentials.
func (t *Tracker) addEndpoint(req *http.Request, key uint64, host string) *endpoint {
	host = strings.Clone(host)
	hostKey := maphash.String(t.seed, host)
	if req.URL.Scheme == "http" {
		hostKey++
	}
	ep := &endpoint{tracker: t, key: key, hostKey: hostKey, scheme: strings.Clone(req.URL.Scheme), urlHost: strings.Clone(req.URL.Host), host: host, provider: t.provider(host)}
	ep.Config = &t.config
	ep.Names = namesAt(host)
	ep.unknown.Store(ep.newQuota())
	ep.Host = &t.hosts[hostKey%numHosts]
	if t.sharing != nil {
		t.sharing.share(ep, req)
	}
	t.mu.Lock()
	added := t.endpoints[ep.key]
	if added == nil {
		for len(t.endpoints) >= t.maxAccounts {
			t.remove(t.evictable())
		}
		t.endpoints[ep.key] = ep
		t.uses++
		ep.lastUsed = t.uses
		if ep.id != "" {
			t.sharing.add(ep)
		}
	}
	t.recent.Store(t.endpoints[ep.key])
	t.mu.Unlock()
	if added != nil {
		return added
	}
	if ep.id != "" {
		t.sharing.announce(ep) // calls Exchange: not under a lock
	}
	return ep
}

// namesAt returns the names of the limits of host, which share an allocation.
func namesAt(host string) model.Names {
	const quota, retryAfter, slowStart, overload = ": quota", ": retry-after", ": slow start", ": overload"
	all := host + quota + host + retryAfter + host + learnedRate + host + slowStart + host + overload
	a := len(host) + len(quota)
	b := a + len(host) + len(retryAfter)
	c := b + len(host) + len(learnedRate)
	d := c + len(host) + len(slowStart)
	return model.Names{Quota: all[:a], RetryAfter: all[a:b], LearnedRate: all[b:c], SlowStart: all[c:d], Overload: all[d:]}
}

// evictable returns one of a few endpoints: a blank one, or else the one used least recently. The
// caller holds t.mu.
func (t *Tracker) evictable() (oldest *endpoint) {
	const maxSeen = 8
	seen := 0
	for _, ep := range t.endpoints {
		if ep.usedRecently.Swap(false) {
			t.uses++
			ep.lastUsed = t.uses
		}
		if ep.isBlank() {
			return ep
		}
		if oldest == nil || ep.lastUsed < oldest.lastUsed {
			oldest = ep
		}
		if seen++; seen == maxSeen {
			break
		}
	}
	return oldest
}

// remove removes ep. The caller holds t.mu.
func (t *Tracker) remove(ep *endpoint) {
	delete(t.endpoints, ep.key)
	t.recent.CompareAndSwap(ep, nil)
	if ep.id != "" {
		t.sharing.remove(ep)
	}
}

// Forget drops everything that is known of the account of req at its host: limits, holds and
// estimates. Requests that wait for these limits are sent as to an unknown host.
func (t *Tracker) Forget(req *http.Request) {
	t.once.Do(t.init)
	key, _ := t.identify(req, nil)
	t.mu.Lock()
	ep := t.endpoints[key]
	if ep != nil {
		t.remove(ep)
	}
	t.mu.Unlock()
	if ep == nil {
		return
	}
	ep.forget(t.now())
	t.wake()
	t.listeners.Load().deliver()
}

// random returns a random number in [0, 1).
func (t *Tracker) random() float64 {
	if t.Rand == nil {
		return rand.Float64()
	}
	t.randMu.Lock()
	defer t.randMu.Unlock()
	return t.Rand()
}

// Notify registers w, usually the queue whose callers wait for limits of t. t calls Wake when
// requests may be sent earlier than it had stated: after an Update of another process, and
// after Forget. If w has a method Renew(throttle.Limiter), t calls it when Demand may return
// another Limiter for requests that wait for this one. A heed.Transport calls Notify for its
// Queue. Nil has no effect, and each w is registered once.
//
// t keeps w. If w has a method Alive() bool, t drops w when Alive returns false; a type that
// refers to a queue by a weak pointer can have it.
func (t *Tracker) Notify(w interface{ Wake() }) {
	for w != nil {
		before, all := t.wakers.Load(), []interface{ Wake() }{w}
		if before != nil {
			for _, o := range *before {
				a, mayEnd := o.(interface{ Alive() bool })
				same := reflect.ValueOf(o).Comparable() && reflect.ValueOf(w).Comparable() && o == w
				if !same && (!mayEnd || a.Alive()) {
					all = append(all, o)
				}
			}
		}
		if t.wakers.CompareAndSwap(before, &all) {
			return
		}
	}
}

// wake calls all wakers. The caller holds no lock.
func (t *Tracker) wake() {
	if all := t.wakers.Load(); all != nil {
		for _, w := range *all {
			w.Wake()
		}
	}
}

// A Mode selects the reasons for which a Tracker may hold requests.
type Mode uint8

const (
	// StatedOnly obeys what servers state, and rejections: all rules of the package documentation but 6 and 7, which estimate
	// what servers do not state.
	StatedOnly Mode = iota

	// Full also estimates the limits that servers enforce without stating them, from their rejections and failures. It is
	// for hosts that are known to have such limits, and saves most of the requests that these reject; where requests
	// are rejected for other reasons, an estimate that is wrong delays calls until a trial has refuted it.
	Full

	// Disabled holds no requests and remembers nothing. Responses are still classified, each
	// by itself.
	Disabled
)

// String returns the name of m in lower case.
func (m Mode) String() string { return nameOf(uint8(m), "mode", "stated only", "full", "disabled") }

// numHosts is the number of hosts whose tests are counted apart.
const numHosts = 64

// A Pacing selects how the remaining units of a quota are spent over the time until its reset.
type Pacing uint8

const (
	// Auto sends requests immediately until no units remain.
	Auto Pacing = iota

	// Spread sends requests at even intervals, so that no units remain at the reset.
	Spread
)

// String returns the name of p in lower case.
func (p Pacing) String() string { return nameOf(uint8(p), "pacing", "auto", "spread") }

// nameOf returns the name with index i, or kind and i if there is none.
func nameOf(i uint8, kind string, names ...string) string {
	if int(i) < len(names) {
		return names[i]
	}
	return kind + " " + strconv.Itoa(int(i))
}
