package metrics

import (
	"math"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/heed-go/heed/internal/httphost"
)

// Bounds of the values of attributes: with more values the time series would grow without
// bound.
const (
	defaultServers = 100
	maxQuotas      = 100
	maxUnits       = 20
	maxTypes       = 50

	maxValue = 100 // bytes of a value

	// keepUnused is the time for which a name that is not used is kept although another one needs
	// its place. It is longer than the intervals over which rates are computed.
	keepUnused = 10 * time.Minute
)

// A recentSet is a set of at most max names. Beyond it a name replaces the one that was not used for
// the longest time, if that is at least keepUnused: otherwise names that are used in turn would
// replace each other all the time.
type recentSet[K comparable] struct {
	max    int
	forget func(K) // called for names that are replaced, without a lock held

	mu    sync.RWMutex
	names map[K]*atomic.Int64 // time of the last use in ns since 1970
	busy  int64               // no name can be replaced before this time
}

// use reports whether the set has k, and adds it if it can.
func (s *recentSet[K]) use(k K) bool {
	now := time.Now().UnixNano()
	s.mu.RLock()
	used, known := s.names[k]
	full := len(s.names) >= s.max && now < s.busy
	s.mu.RUnlock()
	if known {
		used.Store(now)
	}
	if known || full {
		return known
	}
	replaced, added := s.add(k, now)
	if replaced != nil {
		s.forget(*replaced)
	}
	return added
}

// add adds k if it can, and returns the name that k replaces; nil: none.
func (s *recentSet[K]) add(k K, now int64) (replaced *K, added bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names == nil {
		s.names = make(map[K]*atomic.Int64)
	}
	used, known := s.names[k]
	if !known {
		if len(s.names) >= s.max {
			oldest, ok := s.oldest(now)
			if !ok {
				return nil, false
			}
			delete(s.names, oldest)
			replaced = &oldest
		}
		used = new(atomic.Int64)
		s.names[k] = used
	}
	used.Store(now)
	return replaced, true
}

// oldest returns the name that was not used for the longest time, if that is at least keepUnused. The
// caller holds s.mu.
func (s *recentSet[K]) oldest(now int64) (oldest K, ok bool) {
	first := int64(math.MaxInt64)
	for k, used := range s.names {
		if at := used.Load(); at < first {
			oldest, first = k, at
		}
	}
	s.busy = first + int64(keepUnused)
	return oldest, now >= s.busy
}

// limitNames is a recentSet of names of limits.
type limitNames struct{ recentSet[string] }

// value returns s as the value of an attribute, or otherValue.
func (n *limitNames) value(s string) string {
	if s == "" {
		return ""
	}
	if len(s) > maxValue || !utf8.ValidString(s) {
		s = validValue(s)
	}
	if !n.use(s) {
		return otherValue
	}
	return s
}

// A bounded set keeps the first values of an attribute, and replaces further ones with
// otherValue.
type bounded struct {
	max   int
	mu    sync.RWMutex
	known map[string]string
}

// value returns s, or otherValue.
func (b *bounded) value(s string) string {
	if s == "" {
		return ""
	}
	b.mu.RLock()
	v, ok := b.known[s]
	full := len(b.known) >= b.max
	b.mu.RUnlock()
	switch {
	case ok:
		return v
	case full:
		return otherValue
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if v, ok = b.known[s]; ok {
		return v
	}
	if len(b.known) >= b.max {
		return otherValue
	}
	if b.known == nil {
		b.known = make(map[string]string)
	}
	v = validValue(s)
	b.known[strings.Clone(s)] = v
	return v
}

// validValue returns s as valid UTF-8 of at most maxValue bytes.
func validValue(s string) string {
	s = strings.ToValidUTF8(s, "?")
	for len(s) > maxValue {
		_, n := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-n]
	}
	return strings.Clone(s)
}

// A server is the host of a URL in two attributes.
type server struct{ address, port string }

var otherServer = server{address: otherValue}

// servers is a recentSet of servers, which keeps the spellings of their hosts, too.
type servers struct {
	recentSet[server]

	spellingsMu sync.RWMutex
	spellings   map[hostKey]server
}

// A hostKey is a host as a URL spells it.
type hostKey struct{ scheme, host string }

// of returns the server of u.
func (s *servers) of(u *url.URL) server {
	if u == nil {
		return server{}
	}
	return s.at(hostKey{u.Scheme, u.Host})
}

// at returns the server of k, or otherServer.
func (s *servers) at(k hostKey) server {
	v := s.parse(k)
	if !s.use(v) {
		return otherServer
	}
	return v
}

// parse returns the server of k. Spellings are kept because parsing allocates; when there are too
// many, those of all servers are dropped.
func (s *servers) parse(k hostKey) server {
	s.spellingsMu.RLock()
	v, ok := s.spellings[k]
	s.spellingsMu.RUnlock()
	if ok {
		return v
	}
	v = serverOf(k)
	s.spellingsMu.Lock()
	defer s.spellingsMu.Unlock()
	if s.spellings == nil || len(s.spellings) >= 4*s.max {
		s.spellings = make(map[hostKey]server)
	}
	s.spellings[hostKey{strings.Clone(k.scheme), strings.Clone(k.host)}] = v
	return v
}

// serverOf returns the server of a host.
func serverOf(k hostKey) server { return splitHost(httphost.Canonical(k.scheme, k.host)) }

// splitHost returns the server of a canonical host.
func splitHost(host string) server {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = strings.Trim(host, "[]"), ""
	}
	return server{validValue(name), validValue(port)}
}

// methodValue returns the name of a method, or otherValue if it is not one of net/http.
func methodValue(method string) string {
	switch method {
	case "":
		return "GET"
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE":
		return method
	}
	return otherValue
}
