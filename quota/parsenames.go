package quota

import (
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
)

// Names are the headers in which the answers of one host speak of limits. Most
// hosts never do; Names makes it cheap to see that an answer does not, once a
// few have been looked at. The zero Names knows nothing yet; it must not be
// copied after use.
type Names struct {
	looked atomic.Uint32
	known  atomic.Pointer[[]string]
	mu     sync.Mutex // held while known is replaced
}

const (
	lookFirst = 4  // answers that are looked at in full
	lookEvery = 64 // after these, one in so many
	maxNames  = 24 // names kept
)

// Hint reports whether an answer of host has anything for r to parse. It looks
// through all headers of the first answers, of one in 64 after these, and of
// every answer that is not a success; of the others only at names it has met.
func (n *Names) Hint(r *Reader, host string, status int, h http.Header) bool {
	if c := n.looked.Add(1); c <= lookFirst || c%lookEvery == 0 || status < 200 || status > 299 {
		return n.scan(r, host, h)
	}
	if known := n.known.Load(); known != nil {
		for _, name := range *known {
			if _, ok := h[name]; ok {
				return true
			}
		}
	}
	return false
}

// scan looks at all headers, and keeps the names that count.
func (n *Names) scan(r *Reader, host string, h http.Header) (found bool) {
	p := parser{provider: r.provider(host), useTable: !r.NoProviderTable}
	known := wellKnown()
	for name, values := range h {
		if len(h) > maxHeaders && !p.isWellKnown(name) {
			continue
		}
		m, rule, ok := p.classify(name, known)
		if ok || rule != nil && rule.Read != nil || m.kind == KindRetryAfter || isUsageValue(m, values) {
			found = true
			n.keep(name)
		}
	}
	return found
}

// keep adds a name to those known.
func (n *Names) keep(name string) {
	if known := n.known.Load(); known != nil && slices.Contains(*known, name) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var known []string
	if old := n.known.Load(); old != nil {
		known = *old
	}
	if len(known) < maxNames && !slices.Contains(known, name) {
		known = append(slices.Clip(known), name)
		n.known.Store(&known)
	}
}
