package quota

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// A convoy is what a Tracker needs to share what servers say with the Trackers of
// other processes.
//
// Accounts and routes are told apart by hashes that are the same in all of them:
// those of a Tracker on its own are seeded at random.
type convoy struct {
	tracker *Tracker
	share   Exchange
	secret  []byte
	self    uint64 // tells our own news from those of others
	basis   uint64 // of the hashes of routes

	closed <-chan struct{}
	cancel context.CancelFunc // ends the subscription

	mu    sync.Mutex // guards what follows
	sites map[string]*site
	early early
	guard replayGuard
}

func newConvoy(t *Tracker) *convoy {
	f := &convoy{tracker: t, share: t.Exchange, secret: t.Secret, self: rand.Uint64(), sites: make(map[string]*site)}
	f.basis = binary.BigEndian.Uint64(f.hash("route"))
	f.guard = newReplayGuard(t.clock().Now())
	f.listen()
	return f
}

func (f *convoy) hash(words ...string) []byte {
	h := hmac.New(sha256.New, f.secret)
	for _, w := range words {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(w))))
		h.Write([]byte(w))
	}
	return h.Sum(nil)
}

// idOf returns what the fleet calls a; "": it is not shared. Without a secret a
// weak credential could be guessed from its hash.
func (f *convoy) idOf(a account) string {
	if !a.open() && len(f.secret) == 0 {
		return ""
	}
	scheme := "https"
	if a.plain {
		scheme = "http"
	}
	return base64.RawURLEncoding.EncodeToString(f.hash("account", scheme, a.host, a.credential)[:16])
}

// recallFor is how long the first requests of an account wait for what others know
// of it.
const recallFor = 100 * time.Millisecond

// join makes s, which nobody has asked for yet, one of the fleet.
func (f *convoy) join(s *site, a account) {
	if f.isClosed() {
		return
	}
	if s.id = f.idOf(a); s.id == "" {
		return
	}
	now := f.tracker.clock().Now()
	s.fresh.Load().awaitRecall(now.Add(recallFor))
	f.mu.Lock()
	f.sites[s.id] = s
	known := f.early.take(s.id)
	f.guard.recall(s.id, now)
	f.mu.Unlock()
	for _, k := range known {
		s.learnOf(k.news.aged(now.Sub(k.at)), now)
	}
	f.post(s, news{Say: sayHere})
	f.share.Fetch(s.id)
}

// leave forgets s.
func (f *convoy) leave(s *site) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sites[s.id] == s {
		delete(f.sites, s.id)
		f.guard.recalled(s.id)
	}
}

func (s *site) forgotten() {
	if s.id != "" {
		s.tracker.convoy.leave(s)
	}
}

// post sends n to the other processes.
func (f *convoy) post(s *site, n news) {
	if f.isClosed() {
		return
	}
	n.From = f.self
	f.mu.Lock()
	f.guard.stamp(&n, f.tracker.clock().Now())
	f.mu.Unlock()
	f.share.Publish(Update{Account: s.id, Bucket: strconv.FormatUint(n.Route, 36), News: n.encode(f.secret, s.id), Keep: n.keep()})
}

// hear applies a message of another process. One that was applied before has no effect.
func (f *convoy) hear(m Update) {
	if f.isClosed() {
		return
	}
	if m.News == "" {
		f.recalled(m.Account)
		return
	}
	n, ok := decodeNews(f.secret, m.Account, m.News)
	if !ok || n.From == f.self {
		return
	}
	now := f.tracker.clock().Now()
	f.mu.Lock()
	age, fresh := f.guard.accept(&n, m.Account, m.Age, now)
	if !fresh {
		f.mu.Unlock()
		return
	}
	n = n.aged(age)
	s := f.sites[m.Account]
	if s == nil {
		f.early.add(m.Account, n, now)
	}
	f.mu.Unlock()
	if s != nil && s.learnOf(n, now) {
		f.tracker.wake()
	}
	f.tracker.listeners.deliver()
}

// recalled lets the first requests of an account go.
func (f *convoy) recalled(account string) {
	f.mu.Lock()
	s := f.sites[account]
	f.guard.recalled(account)
	f.mu.Unlock()
	if s != nil && s.endRecall() {
		f.tracker.wake()
	}
}

// route returns the hash of the route of req: between processes that share it is
// FNV-1a from a basis that depends on their secret.
func (s *site) route(req *http.Request) uint64 {
	if s.id == "" {
		return routeOf(s.tracker.seed, req)
	}
	var buf [maxRoute]byte
	h := s.tracker.convoy.basis
	route := appendRoute(buf[:0], req)
	for _, c := range route {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return marked(h, route)
}
