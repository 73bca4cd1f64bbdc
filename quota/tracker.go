// Package quota knows the limits of the servers that a client calls: it reads
// them from answers, keeps them, and writes them.
package quota

import (
	"hash/maphash"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/heed-go/heed/throttle"
)

// A Tracker learns the limits of servers from what they answer. The zero Tracker
// is ready to use; it must not be copied after use, and its fields must not
// change.
//
// It keeps one state per scheme, host and credential, so that a refusal meant
// for one account does not stop another's work. The credential is kept as a
// keyed hash only.
type Tracker struct {
	Start      int            // requests in flight to a host that has said nothing yet; 0: 4, negative: no bound
	MaxBuckets int            // how many quotas are remembered; 0: 4096. Those that say nothing go first.
	Clock      throttle.Clock // nil: the system clock
	Rand       func() float64 // random numbers in [0, 1); nil: rand.Float64

	once   sync.Once
	seed   maphash.Seed
	recent atomic.Pointer[bucket] // asked for last, and most often next
	shards [shards]shard
}

const shards = 16

type shard struct {
	mu      sync.Mutex
	buckets map[uint64]*bucket
	asked   uint64
}

// Demand returns the limit that req must pass before it is sent. It is the same
// Limiter for all requests that share a quota, and an Observer.
func (t *Tracker) Demand(req *http.Request) throttle.Demand {
	a := accountOf(req)
	if b := t.recent.Load(); b != nil && b.account == a {
		return throttle.Demand{Limiter: b}
	}
	t.once.Do(func() { t.seed = maphash.MakeSeed() })
	b := t.bucket(a)
	if a.open() {
		t.recent.Store(b)
	}
	return throttle.Demand{Limiter: b}
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

func (t *Tracker) bucket(a account) *bucket {
	key := maphash.Comparable(t.seed, a)
	s := &t.shards[key%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	b := s.buckets[key]
	if b == nil {
		b = &bucket{tracker: t, names: newNames(a.host)}
		if a.open() {
			b.account = a
		}
		s.add(key, b, max(t.maxBuckets()/shards, 1))
	}
	b.touched = s.asked
	return b
}

// add makes room for b and keeps it.
func (s *shard) add(key uint64, b *bucket, most int) {
	if s.buckets == nil {
		s.buckets = make(map[uint64]*bucket)
	}
	for len(s.buckets) >= most {
		delete(s.buckets, s.leastWorth())
	}
	s.buckets[key] = b
}

// leastWorth looks at a few buckets and returns the key of a blank one, or else of
// the one that was asked for longest ago.
func (s *shard) leastWorth() (key uint64) {
	const look = 8
	oldest, seen := uint64(0), 0
	for k, b := range s.buckets {
		if b.blank() {
			return k
		}
		if seen == 0 || b.touched < oldest {
			key, oldest = k, b.touched
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

func (t *Tracker) maxBuckets() int {
	if t.MaxBuckets <= 0 {
		return 4096
	}
	return t.MaxBuckets
}

func (t *Tracker) clock() throttle.Clock { return throttle.ClockOr(t.Clock) }

func (t *Tracker) random() float64 {
	if t.Rand == nil {
		return rand.Float64()
	}
	return t.Rand()
}
