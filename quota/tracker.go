package quota

import (
	"hash/maphash"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/quota/headers"
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
	// InitialConcurrency is the maximum number of requests in flight to a host that has not
	// stated a limit yet, at the beginning of slow start. Zero means 4; a negative value
	// means no maximum.
	InitialConcurrency int

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
	// (Authorization, X-API-Key and others, but not cookies), the user of the URL, and the
	// query parameters api_key, apikey and those of headers.Provider.AccountParams.
	Account func(*http.Request) string

	// Rand returns random numbers in [0, 1). It is not called concurrently. Nil means
	// rand.Float64 of math/rand/v2.
	Rand func() float64

	// Mode disables estimates, or all holds. Zero means Full.
	Mode Mode

	// MaxHold is the time after which a stated end of a hold or quota is tested with one
	// request, if that end is more than an hour away and not within a window that the
	// server states. Further tests follow after three times, nine times ... as long. Zero
	// or less means 15 minutes.
	MaxHold time.Duration

	// Headroom is the part of each stated quota that is left to other clients, in [0, 1).
	// Requests wait while the remaining units do not exceed it. Zero means none.
	Headroom float64

	// Exchange shares what is known of servers with other processes. Nil means that nothing
	// is shared. Package quota/fleet has one over any message bus.
	Exchange Exchange

	once    sync.Once // calls init
	seed    maphash.Seed
	zero    headers.Reader            // used if Reader is nil
	randMu  sync.Mutex                // serializes the calls of Rand
	sharing *sharing                  // nil: there is no Exchange
	host    atomic.Pointer[knownHost] // cache of hostOf
	recent  atomic.Pointer[endpoint]  // endpoint of the latest request, and probably of the next one
	shards  [numShards]shard          // endpoints by account.key % numShards

	declared  declared
	latencies latencies
	listeners listeners
	wakers    wakers
}

const numShards = 16

// A shard holds a part of the endpoints of a Tracker, by the hashes of their accounts.
type shard struct {
	mu        sync.Mutex // guards all fields, and endpoint.lastUsed
	endpoints map[uint64]*endpoint
	uses      uint64 // lookups; numbers them for endpoint.lastUsed
}

// Demand returns the limit that must admit req before it is sent. It is the same Limiter for
// all requests that share a quota, and implements throttle.Observer. Demand.Limiter is nil if
// Mode is Disabled, or if the host is known and has never stated or enforced a limit. Demand
// must be called again for each attempt, and when a request that waits is to be limited by
// another Limiter, see Notify.
func (t *Tracker) Demand(req *http.Request) throttle.Demand {
	if t.Mode == Disabled {
		return throttle.Demand{}
	}
	ep := t.endpointOf(req)
	if ep.unlimited.Load() {
		return throttle.Demand{}
	}
	return throttle.Demand{Limiter: ep.limiterOf(req)}
}

// endpointOf returns the endpoint of the account of req.
func (t *Tracker) endpointOf(req *http.Request) *endpoint {
	t.once.Do(t.init)
	key := t.keyOf(req)
	if ep := t.recent.Load(); ep != nil && ep.key == key {
		if !ep.usedRecently.Load() { // most stores would only move the cache line
			ep.usedRecently.Store(true)
		}
		return ep
	}
	sh := &t.shards[key%numShards]
	ep := sh.find(key)
	if ep == nil {
		a := t.accountOf(req) // may call Tracker.Account: not under a lock
		var isNew bool
		if ep, isNew = sh.findOrAdd(t, key, a); isNew && ep.id != "" {
			t.sharing.announce(ep) // calls Exchange: not under a lock
		}
	}
	t.recent.Store(ep)
	return ep
}

func (t *Tracker) init() {
	t.seed = maphash.MakeSeed()
	if t.Exchange != nil {
		t.sharing = newSharing(t)
	}
}

// find returns the endpoint of key; nil if there is none.
func (sh *shard) find(key uint64) *endpoint {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	ep := sh.endpoints[key]
	if ep != nil {
		sh.use(ep)
	}
	return ep
}

// findOrAdd returns the endpoint of key, and reports whether it was added, for account a.
func (sh *shard) findOrAdd(t *Tracker, key uint64, a account) (ep *endpoint, isNew bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	ep = sh.endpoints[key]
	if isNew = ep == nil; isNew {
		ep = newEndpoint(t, key, a)
		sh.add(ep, max(t.maxAccounts()/numShards, 1))
	}
	sh.use(ep)
	return ep, isNew
}

// use records that ep is in use. The caller holds sh.mu.
func (sh *shard) use(ep *endpoint) {
	sh.uses++
	ep.lastUsed = sh.uses
}

// add adds ep, and removes others so that there are at most maxEndpoints. The caller holds sh.mu.
func (sh *shard) add(ep *endpoint, maxEndpoints int) {
	if sh.endpoints == nil {
		sh.endpoints = make(map[uint64]*endpoint)
	}
	for len(sh.endpoints) >= maxEndpoints {
		sh.remove(sh.evictable())
	}
	sh.endpoints[ep.key] = ep
}

// evictable returns one of a few endpoints: a blank one, or else the one used least recently. The
// caller holds sh.mu.
func (sh *shard) evictable() (oldest *endpoint) {
	const maxSeen = 8
	seen := 0
	for _, ep := range sh.endpoints {
		if ep.usedRecently.Swap(false) {
			sh.use(ep)
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

// remove removes ep. The caller holds sh.mu.
func (sh *shard) remove(ep *endpoint) {
	delete(sh.endpoints, ep.key)
	ep.tracker.recent.CompareAndSwap(ep, nil)
	ep.tracker.sharing.remove(ep)
}

// Forget drops everything that is known of the account of req at its host: limits, holds and
// estimates. Requests that wait for these limits are sent as to an unknown host.
func (t *Tracker) Forget(req *http.Request) {
	t.once.Do(t.init)
	key := t.keyOf(req)
	sh := &t.shards[key%numShards]
	sh.mu.Lock()
	ep := sh.endpoints[key]
	if ep != nil {
		sh.remove(ep)
	}
	sh.mu.Unlock()
	if ep == nil {
		return
	}
	for _, q := range ep.allQuotas() { // requests may still wait for them
		q.forget()
	}
	ep.mu.Lock()
	ep.small.forget()
	ep.mu.Unlock()
	t.wake()
	t.listeners.deliver()
}

// forget removes everything that q knows, so that it admits all requests from now on.
func (q *quota) forget() {
	q.mu.Lock()
	before := q.view()
	q.hold, q.slow, q.slowStart, q.inference = hold{lastSent: q.hold.lastSent}, slowResponses{}, slowStart{successes: knownAfter}, nil
	q.estimates = nil
	q.record(before)
	q.mu.Unlock()
	q.drop()
}

// The methods below return the fields of the Tracker or their defaults.

func (t *Tracker) initialConcurrency() int {
	if t.InitialConcurrency == 0 {
		return 4
	}
	return t.InitialConcurrency
}

func (t *Tracker) maxAccounts() int {
	if t.MaxAccounts <= 0 {
		return 4096
	}
	return t.MaxAccounts
}

func (t *Tracker) reader() *headers.Reader {
	if t.Reader == nil {
		return &t.zero
	}
	return t.Reader
}

func (t *Tracker) maxHold() time.Duration {
	if t.MaxHold <= 0 {
		return defaultHold
	}
	return t.MaxHold
}

func (t *Tracker) pacing() pacing { return pacing{t.Pacing, t.Headroom, t.maxHold()} }

func (t *Tracker) clock() throttle.Clock { return throttle.ClockOr(t.Clock) }

// random returns a random number in [0, 1).
func (t *Tracker) random() float64 {
	if t.Rand == nil {
		return rand.Float64()
	}
	t.randMu.Lock()
	defer t.randMu.Unlock()
	return t.Rand()
}

// A Mode selects the reasons for which a Tracker may hold requests.
type Mode uint8

const (
	// Full obeys the limits that servers state, and estimates those that they do not state.
	Full Mode = iota

	// StatedOnly obeys the limits that servers state: Retry-After, the remaining units of a
	// quota, and documented errors. There is no slow start, no learned rate, and no bound on
	// requests in flight to a server that responds late.
	StatedOnly

	// Disabled holds no requests. Responses are still classified.
	Disabled
)
