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

	randMu  sync.Mutex // of Rand, which need not be safe for several goroutines
	once    sync.Once
	zero    headers.Reader
	seed    maphash.Seed
	sharing *sharing // nil: no Exchange
	host    atomic.Pointer[knownHost]
	recent  atomic.Pointer[endpoint] // asked for last, and most often next
	shards  [numShards]shard

	declared  declared
	latencies latencies
	listeners listeners
	wakers    wakers
}

const numShards = 16

type shard struct {
	mu        sync.Mutex
	endpoints map[uint64]*endpoint
	uses      uint64
}

// Demand returns the limit that must admit req before it is sent. It is the same Limiter for
// all requests that share a quota, and implements throttle.Observer. Demand.Limiter is nil if
// Mode is Disabled, or if the host is known and has never stated or enforced a limit. Demand
// must be called again for each attempt.
func (t *Tracker) Demand(req *http.Request) throttle.Demand {
	if t.Mode == Disabled {
		return throttle.Demand{}
	}
	ep := t.endpointOf(req)
	if ep.unlimited.Load() {
		return throttle.Demand{}
	}
	return throttle.Demand{Limiter: ep.quotaOf(req)}
}

func (t *Tracker) endpointOf(req *http.Request) *endpoint {
	t.once.Do(t.init)
	key := t.keyOf(req)
	if ep := t.recent.Load(); ep != nil && ep.key == key {
		if !ep.used.Load() {
			ep.used.Store(true)
		}
		return ep
	}
	ep := t.endpoint(key, req)
	t.recent.Store(ep)
	return ep
}

func (t *Tracker) init() {
	t.seed = maphash.MakeSeed()
	if t.Exchange != nil {
		t.sharing = newSharing(t)
	}
}

// endpoint returns the site of key, the account of req.
func (t *Tracker) endpoint(key uint64, req *http.Request) *endpoint {
	sh := &t.shards[key%numShards]
	if ep := sh.find(key); ep != nil {
		return ep
	}
	a := t.accountOf(req) // runs foreign code: not under the lock
	ep, isNew := sh.findOrAdd(t, key, a)
	if isNew && ep.id != "" {
		t.sharing.announce(ep) // foreign code, too
	}
	return ep
}

// findOrAdd returns the site of key, and reports whether it had to be created, for account a.
func (sh *shard) findOrAdd(t *Tracker, key uint64, a account) (ep *endpoint, isNew bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	ep = sh.endpoints[key]
	if isNew = ep == nil; isNew {
		ep = newEndpoint(t, key, a)
		sh.add(key, ep, max(t.maxAccounts()/numShards, 1))
	}
	sh.uses++
	ep.lastUsed = sh.uses
	return ep, isNew
}

// find returns the site of key; nil if there is none.
func (sh *shard) find(key uint64) *endpoint {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	ep := sh.endpoints[key]
	if ep != nil {
		sh.uses++
		ep.lastUsed = sh.uses
	}
	return ep
}

// add makes room for s and keeps it.
func (sh *shard) add(key uint64, ep *endpoint, most int) {
	if sh.endpoints == nil {
		sh.endpoints = make(map[uint64]*endpoint)
	}
	for len(sh.endpoints) >= most {
		least := sh.evictable()
		gone := sh.endpoints[least]
		delete(sh.endpoints, least)
		gone.tracker.recent.CompareAndSwap(gone, nil)
		gone.tracker.sharing.remove(gone)
	}
	sh.endpoints[key] = ep
}

// evictable looks at a few sites and returns the key of a blank one, or else of the one that
// was asked for longest ago. What was asked for on the fast path was asked for just now.
func (sh *shard) evictable() (key uint64) {
	const look = 8
	oldest, seen := uint64(0), 0
	for k, ep := range sh.endpoints {
		if ep.used.Swap(false) {
			sh.uses++
			ep.lastUsed = sh.uses
		}
		if ep.isBlank() {
			return k
		}
		if seen == 0 || ep.lastUsed < oldest {
			key, oldest = k, ep.lastUsed
		}
		if seen++; seen == look {
			break
		}
	}
	return key
}

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

// random returns a number in [0, 1). Rand is called by one goroutine at a time.
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
