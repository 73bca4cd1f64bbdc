// Package quota knows the limits of the servers that a client calls: it reads
// them from answers, keeps them, and writes them.
package quota

import (
	"hash/maphash"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A Tracker learns the limits of servers from what they answer. The zero Tracker
// is ready to use; it must not be copied after use, and its fields must not
// change.
//
// It keeps one state per scheme, host and credential, so that a refusal meant
// for one account does not stop another's work, and in it one per quota that the
// server was seen to have: see [Tracker.Demand]. The credential is kept as a keyed
// hash only.
type Tracker struct {
	Start    int            // requests in flight to a host that has said nothing yet; 0: 4, negative: no bound
	MaxSites int            // how many accounts at hosts are remembered; 0: 4096. Those that say nothing go first.
	Pace     Pace           // how told quotas are used; 0: Auto
	Reader   *Reader        // reads what answers say of limits; nil: the zero Reader
	Clock    throttle.Clock // nil: the system clock
	Rand     func() float64 // random numbers in [0, 1); nil: rand.Float64

	// Mode switches off what is estimated, or everything. The zero Mode is Full.
	Mode Mode

	// MaxHold is how long an end that a server states is obeyed before one request
	// is sent to test it, where that end is more than an hour away and not within a
	// window that the server states. Further tests follow after three, nine ...
	// times as long. Zero means 15 minutes.
	MaxHold time.Duration

	// ReserveShare is the part of each told quota that is left to others, in
	// [0, 1): no request goes while no more than that is left. 0: none.
	ReserveShare float64

	// Share tells other processes what servers said, and us what they said to
	// those; nil: this process is on its own. Secret is what these processes have in
	// common and nobody else knows: without it only accounts without a credential
	// are shared.
	Share  Share
	Secret []byte

	once   sync.Once
	zero   Reader
	seed   maphash.Seed
	convoy *convoy              // nil: no Share
	recent atomic.Pointer[site] // asked for last, and most often next
	shards [shards]shard

	latencies latencies
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
	a := accountOf(req)
	s := t.recent.Load()
	if s == nil || s.account != a {
		t.once.Do(t.init)
		if s = t.site(a); a.open() {
			t.recent.Store(s)
		}
	}
	return s
}

func (t *Tracker) init() {
	t.seed = maphash.MakeSeed()
	if t.Share != nil {
		t.convoy = newConvoy(t)
	}
}

// An account is what a quota belongs to.
type account struct {
	plain             bool // http, not https
	host              string
	credential, token string
}

// open reports whether a has no secrets. Only such an account is kept as it is.
func (a account) open() bool { return a.credential == "" && a.token == "" }

func accountOf(req *http.Request) account {
	a := account{plain: req.URL.Scheme == "http", host: req.URL.Host}
	if len(req.Header) > 0 {
		a.credential, a.token = first(req.Header["Authorization"]), first(req.Header["X-Api-Key"])
		if a.token == "" {
			a.token = first(req.Header["Api-Key"])
		}
	}
	return a
}

func first(v []string) string {
	if len(v) == 0 {
		return ""
	}
	return v[0]
}

func (t *Tracker) site(a account) *site {
	key := maphash.Comparable(t.seed, a)
	sh := &t.shards[key%shards]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.asked++
	s := sh.sites[key]
	if s == nil {
		s = newSite(t, a)
		sh.add(key, s, max(t.maxSites()/shards, 1))
	}
	s.touched = sh.asked
	return s
}

// add makes room for s and keeps it.
func (sh *shard) add(key uint64, s *site, most int) {
	if sh.sites == nil {
		sh.sites = make(map[uint64]*site)
	}
	for len(sh.sites) >= most {
		least := sh.leastWorth()
		sh.sites[least].forgotten()
		delete(sh.sites, least)
	}
	sh.sites[key] = s
}

// leastWorth looks at a few sites and returns the key of a blank one, or else of
// the one that was asked for longest ago.
func (sh *shard) leastWorth() (key uint64) {
	const look = 8
	oldest, seen := uint64(0), 0
	for k, s := range sh.sites {
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
	if t.Start == 0 {
		return 4
	}
	return t.Start
}

func (t *Tracker) maxSites() int {
	if t.MaxSites <= 0 {
		return 4096
	}
	return t.MaxSites
}

func (t *Tracker) reader() *Reader {
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

func (t *Tracker) use() use { return use{t.Pace, t.ReserveShare} }

func (t *Tracker) clock() throttle.Clock { return throttle.ClockOr(t.Clock) }

func (t *Tracker) random() float64 {
	if t.Rand == nil {
		return rand.Float64()
	}
	return t.Rand()
}
