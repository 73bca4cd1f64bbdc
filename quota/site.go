package quota

import (
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

const (
	maxPools  = 16  // quotas of one account at one host
	maxRoutes = 112 // routes of which the quota is remembered: as many as a map of 128 places takes
	fewRoutes = 3   // that share the only quota known make it the quota of all
)

// A site is one account at one host, and the quotas it was seen to have there.
//
// All routes begin with one quota of which nothing is known. What an answer says
// of its route takes that quota over for the route, and others go on with a fresh
// one: so a refusal of one route does not hold up another.
//
//	unknown ──▶ fresh ── 429, or "30 left of 30" ──▶ pool of this route
//	               ▲                                      │ another route is told of
//	               └── a new one for the others           ▼ the same numbers
//	                                                   its pool, too
//
// A second route that is refused without a word while the first is held back
// shows that the host limits them together, and then they are one.
//
// Routes that differ in one segment and show the same quota become a pattern, see patterns: then
// others like them begin with that quota.
type site struct {
	tracker *Tracker
	key     uint64 // keyed hash of the account
	names   *names
	vendor  *headers.Provider // what is known about the host; nil: nothing
	touched uint64            // guarded by the shard: when it was last asked for
	used    atomic.Bool       // asked for since then, without the shard
	id      string            // identifies the account in updates; "": it is not shared

	hinted  atomic.Bool   // an answer has spoken of limits
	answers atomic.Uint32 // good ones, while none has
	split   atomic.Bool   // there are pools: routes are told apart
	silent  atomic.Bool   // it is quiet: nothing is demanded of its requests

	mu       sync.Mutex
	fresh    atomic.Pointer[bucket] // for routes whose quota is not known
	pools    []*bucket              // quotas of which something is known
	routes   map[uint64]*bucket     // to one of pools
	patterns patterns
	quiet    quiet
	dateline dateline
	budget   budget
}

func newSite(t *Tracker, key uint64, a account) *site {
	s := &site{tracker: t, key: key, names: newNames(a.host), vendor: t.reader().Provider(a.host)}
	s.fresh.Store(s.newBucket(0))
	if t.sharing != nil {
		t.sharing.add(s, a)
	}
	return s
}

// bucket returns the quota of a request.
func (s *site) bucket(req *http.Request) *bucket {
	if !s.split.Load() {
		return s.fresh.Load()
	}
	route := s.route(req)
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.known(route, req); b != nil {
		return b
	}
	return s.of(route)
}

// homeOf returns the quota of the route of req, if that is known.
func (s *site) homeOf(req *http.Request) *bucket {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known(s.route(req), req)
}

// known returns the quota of the route of req, or else of its pattern; nil if neither is known.
func (s *site) known(route uint64, req *http.Request) *bucket {
	if b := s.routes[route]; b != nil {
		return b
	}
	return s.patternOf(req)
}

// of returns the quota of a route that may be known. Routes of one pattern count as one of those
// that make the only quota that of all.
func (s *site) of(route uint64) *bucket {
	if b := s.routes[route]; b != nil {
		return b
	}
	if len(s.pools) == 1 && !s.pools[0].named && route&namedRoute == 0 && len(s.routes)-s.patterns.spare >= fewRoutes {
		return s.pools[0]
	}
	return s.fresh.Load()
}

// place decides which quota an answer speaks of, and remembers it for the
// request's route. asked is the quota that granted the request. It reports false
// if that is another one, which then has been told.
func (s *site) place(req *http.Request, asked *bucket, f *throttle.Feedback) (own bool) {
	route := s.route(req)
	s.mu.Lock()
	defer s.mu.Unlock()
	home := s.settleRequest(route, req, asked, f)
	if home == nil { // nothing is stated, or there is no room for what is: then it is not tracked
		return !saysLeft(f.RemoteLimits)
	}
	s.settled(route, req, home, asked, f)
	if home != asked && len(f.RemoteLimits) > 0 {
		home.hear(f.RemoteLimits, f.Now)
		return false
	}
	return true
}

// settled remembers that a response to req, of route, spoke of home. A route whose pattern has
// that quota takes no place of its own.
func (s *site) settled(route uint64, req *http.Request, home, asked *bucket, f *throttle.Feedback) {
	before := s.routes[route]
	if before == nil && s.patternOf(req) == home {
		return
	}
	if before != home {
		shown := !saysLeft(f.RemoteLimits) || home.shows(f.RemoteLimits, asked.overtaken(), f.Now)
		s.showed(req, route, home, shown)
	}
	s.remember(route, home)
}

// settleRoute returns the quota that another process states a response to a request of route
// spoke of; nil if that cannot be known. asked is the one that granted the request.
func (s *site) settleRoute(route uint64, asked *bucket, f *throttle.Feedback) *bucket {
	return s.settleRequest(route, nil, asked, f)
}

// settleRequest is settleRoute for a response to req, which is of route.
func (s *site) settleRequest(route uint64, req *http.Request, asked *bucket, f *throttle.Feedback) *bucket {
	home := s.routes[route]
	told := saysLeft(f.RemoteLimits)
	switch {
	case home != nil && !(told && home.elsewhere(f.RemoteLimits)):
	case told:
		open := asked.overtaken()
		s.patterns.crowd.note(open, f.Now)
		if route&namedRoute == 0 {
			if home = s.alike(req, f.RemoteLimits, open, f.Now); home == nil {
				home = s.pool(f.RemoteLimits, f.Now)
			}
		}
		if home == nil {
			home = s.settleFor(route, asked, f.Now)
		}
	case home == nil && f.Outcome == throttle.Throttled:
		if home = s.patternOf(req); home == nil {
			home = s.refused(route, asked, f.Now)
		}
	}
	return home
}

// saysLeft reports whether windows say how many requests are left.
func saysLeft(windows []throttle.RemoteLimit) bool {
	return slices.ContainsFunc(windows, countsRequests)
}

// pool returns the pool that windows speak of; nil if there is none yet.
func (s *site) pool(windows []throttle.RemoteLimit, now time.Time) *bucket {
	for _, b := range s.pools {
		if !b.named && b.hasTold(windows, now) {
			return b
		}
	}
	return nil
}

// settleFor is settle for a route, which may be a quota name.
func (s *site) settleFor(route uint64, asked *bucket, now time.Time) *bucket {
	b := s.settle(asked, now)
	if b != nil {
		b.named = route&namedRoute != 0
	}
	return b
}

// settle makes a pool of the bucket that was asked, if it is the fresh one, or else of a new
// one. It returns nil if there is no room for a pool.
func (s *site) settle(asked *bucket, now time.Time) *bucket {
	if !s.room(now) {
		return nil
	}
	if slices.Contains(s.pools, asked) || asked.isDropped() {
		asked = s.newBucket(knownAfter)
	} else {
		s.fresh.Store(s.newBucket(asked.goodAnswers()))
	}
	s.budget.take(bucketBytes)
	if asked.shared != nil {
		s.budget.take(sharedBytes)
	}
	s.pools = append(s.pools, asked)
	s.split.Store(true)
	return asked
}

// refused returns the quota of a route that was refused without a word.
func (s *site) refused(route uint64, asked *bucket, now time.Time) *bucket {
	if route&namedRoute != 0 {
		return s.settleFor(route, asked, now)
	}
	if slices.Contains(s.pools, asked) {
		return asked
	}
	for _, b := range s.pools {
		if !b.named && b.heldBack(now) {
			s.fresh.Store(b) // for all routes that are still unknown
			return b
		}
	}
	return s.settle(asked, now)
}

// remember notes the quota of a route, in place of any other if there are too many.
func (s *site) remember(route uint64, b *bucket) {
	if s.routes == nil {
		s.routes = make(map[uint64]*bucket)
	}
	if _, known := s.routes[route]; !known && (len(s.routes) >= maxRoutes || !s.budget.take(routeBytes)) {
		if len(s.routes) == 0 {
			return
		}
		for r := range s.routes {
			delete(s.routes, r)
			break
		}
	}
	s.routes[route] = b
	b.spokeOf(route)
}

// blank reports whether nothing would be lost if the site were forgotten.
func (s *site) blank() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pools) == 0 && s.fresh.Load().blank()
}
