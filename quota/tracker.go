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

// A Tracker learns the limits of servers from what they answer. The zero Tracker
// is ready to use; it must not be copied after use, and its fields must not
// change.
//
// It keeps one state per scheme, host and account, so that a refusal of one account does not
// stop another, and in it one per quota that the server was seen to have: see [Tracker.Demand].
// Hosts are compared without case, default port and a dot at the end. Credentials are kept as
// a keyed hash only.
type Tracker struct {
	InitialConcurrency int             // requests in flight to a host that has said nothing yet; 0: 4, negative: no bound
	MaxAccounts        int             // how many accounts at hosts are remembered; 0: 4096. Those that say nothing go first.
	Pacing             Pacing          // how told quotas are used; 0: Auto
	Reader             *headers.Reader // reads what answers say of limits; nil: the zero Reader
	Clock              throttle.Clock  // nil: the system clock

	// Account returns what tells the accounts of one host apart. Nil means by credentials: the
	// header fields that carry them (Authorization, X-API-Key and others, but no cookies), the
	// user of the URL, and the query parameters api_key, apikey and those of headers.Provider.AccountParams.
	// It must return the same for a request each time, and "" where requests have no account.
	Account func(*http.Request) string

	Rand func() float64 // random numbers in [0, 1); nil: rand.Float64

	// Mode switches off what is estimated, or everything. The zero Mode is Full.
	Mode Mode

	// MaxHold is how long an end that a server states is obeyed before one request
	// is sent to test it, where that end is more than an hour away and not within a
	// window that the server states. Further tests follow after three, nine ...
	// times as long. Zero means 15 minutes.
	MaxHold time.Duration

	// Headroom is the part of each told quota that is left to others, in
	// [0, 1): no request goes while no more than that is left. 0: none.
	Headroom float64

	// Exchange tells other processes what servers said, and us what they said to
	// those; nil: this process is on its own. Secret is what these processes have in
	// common and nobody else knows: without it only accounts without a credential
	// are shared.
	Exchange Exchange
	Secret   []byte

	randMu sync.Mutex // of Rand, which need not be safe for several goroutines
	once   sync.Once
	zero   headers.Reader
	seed   maphash.Seed
	convoy *convoy // nil: no Share
	host   atomic.Pointer[knownHost]
	recent atomic.Pointer[site] // asked for last, and most often next
	shards [shards]shard

	latencies latencies
	listeners listeners
	waiters   waiters
}

const shards = 16

type shard struct {
	mu    sync.Mutex
	sites map[uint64]*site
	asked uint64
}

// Demand returns the limit that req must pass before it is sent. It is the same
// Limiter for all requests that share a quota, and an Observer. There is none
// (Demand.Limiter is nil) while a known host has never spoken of a limit; ask again
// before a request is sent again.
func (t *Tracker) Demand(req *http.Request) throttle.Demand {
	if t.Mode == Disabled {
		return throttle.Demand{}
	}
	s := t.siteOf(req)
	if s.silent.Load() {
		return throttle.Demand{}
	}
	return throttle.Demand{Limiter: s.limiter(req)}
}

func (t *Tracker) siteOf(req *http.Request) *site {
	t.once.Do(t.init)
	key := t.keyOf(req)
	if s := t.recent.Load(); s != nil && s.key == key {
		if !s.used.Load() {
			s.used.Store(true)
		}
		return s
	}
	s := t.site(key, req)
	t.recent.Store(s)
	return s
}

func (t *Tracker) init() {
	t.seed = maphash.MakeSeed()
	if t.Exchange != nil {
		t.convoy = newConvoy(t)
	}
}

// site returns the site of key, the account of req.
func (t *Tracker) site(key uint64, req *http.Request) *site {
	sh := &t.shards[key%shards]
	if s := sh.find(key); s != nil {
		return s
	}
	a := t.accountOf(req) // runs foreign code: not under the lock
	sh.mu.Lock()
	defer sh.mu.Unlock()
	s := sh.sites[key]
	if s == nil {
		s = newSite(t, key, a)
		sh.add(key, s, max(t.maxSites()/shards, 1))
	}
	sh.asked++
	s.touched = sh.asked
	return s
}

// find returns the site of key; nil if there is none.
func (sh *shard) find(key uint64) *site {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	s := sh.sites[key]
	if s != nil {
		sh.asked++
		s.touched = sh.asked
	}
	return s
}

// add makes room for s and keeps it.
func (sh *shard) add(key uint64, s *site, most int) {
	if sh.sites == nil {
		sh.sites = make(map[uint64]*site)
	}
	for len(sh.sites) >= most {
		least := sh.leastWorth()
		gone := sh.sites[least]
		delete(sh.sites, least)
		gone.tracker.recent.CompareAndSwap(gone, nil)
		gone.forgotten()
	}
	sh.sites[key] = s
}

// leastWorth looks at a few sites and returns the key of a blank one, or else of the one that
// was asked for longest ago. What was asked for on the fast path was asked for just now.
func (sh *shard) leastWorth() (key uint64) {
	const look = 8
	oldest, seen := uint64(0), 0
	for k, s := range sh.sites {
		if s.used.Swap(false) {
			sh.asked++
			s.touched = sh.asked
		}
		if s.blank() {
			return k
		}
		if seen == 0 || s.touched < oldest {
			key, oldest = k, s.touched
		}
		if seen++; seen == look {
			break
		}
	}
	return key
}

func (t *Tracker) start() int {
	if t.InitialConcurrency == 0 {
		return 4
	}
	return t.InitialConcurrency
}

func (t *Tracker) maxSites() int {
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

func (t *Tracker) use() use { return use{t.Pacing, t.Headroom, t.maxHold()} }

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
