package metrics

import (
	"net"
	"net/url"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/heed-go/heed/internal/httphost"
)

// Bounds of the values of attributes: with more values the time series would grow without
// bound.
const (
	maxHosts  = 100
	maxLimits = 100
	maxQuotas = 100
	maxUnits  = 20
	maxTypes  = 50

	maxValue = 100 // bytes of a value
)

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

// servers is a bounded set of servers.
type servers struct {
	max   int
	mu    sync.RWMutex
	known map[hostKey]server
	names map[server]bool
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

// at returns the server of k.
func (s *servers) at(k hostKey) server {
	s.mu.RLock()
	v, ok := s.known[k]
	s.mu.RUnlock()
	if ok {
		return v
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v = splitHost(httphost.Canonical(k.scheme, k.host))
	if !s.names[v] && len(s.names) >= s.max {
		return otherServer
	}
	if s.known == nil {
		s.known, s.names = make(map[hostKey]server), make(map[server]bool)
	}
	s.names[v] = true
	if len(s.known) < 4*s.max { // one server may be spelled in many ways
		s.known[hostKey{strings.Clone(k.scheme), strings.Clone(k.host)}] = v
	}
	return v
}

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
