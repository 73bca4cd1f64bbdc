package rules

import (
	"net/http"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// A Set is the limits of a file, in force. Its methods may be called by many
// goroutines at once. What it says never changes; to follow a file that does, see
// File. A Set that was made by a File and is no longer the one in force counts as the
// newer one does.
type Set struct {
	config   Config
	domain   string
	rules    []*rule // in the order of the file
	root     *node
	router   router
	sources  []*valueSource
	replaces map[string]bool // names that any limit replaces
	bundles  bundles
}

// Limits adds to t what r must pass. It fits Transport.Limits and the Limits of the
// server's middleware: the same file serves both.
//
// Of the descriptors, those hold whose keys r has a value for, all the way down to
// the limit; of the limits with a match, all that match. Where that is more than t has
// room for, the rest are one demand for all of them. It panics if t has no room.
func (s *Set) Limits(r *http.Request, t *queue.Ticket) {
	q := s.newSearch()
	q.req = r
	q.descend(s.root, 0)
	s.router.find(q)
	q.applyReplaces()
	q.addDemands(t)
	q.release()
}

// A Descriptor is what envoyproxy/ratelimit is asked with: keys and values, in the
// order in which they stand in the file one below the other.
type Descriptor []Entry

// An Entry is one key of a Descriptor and its value.
type Entry struct{ Key, Value string }

// Add adds to t what the descriptors must pass, for programs that know the values
// themselves. Each descriptor finds at most one limit, as many entries deep in the
// file as it has. It panics if t has no room.
func (s *Set) Add(t *queue.Ticket, descriptors ...Descriptor) {
	q := s.newSearch()
	for _, d := range descriptors {
		if len(d) > 0 && len(d) <= maxDepth {
			q.matchDescriptor(s.root, d)
		}
	}
	q.applyReplaces()
	q.addDemands(t)
	q.release()
}

func (s *Set) newSearch() *search {
	q := searchPool.Get().(*search)
	q.set = s
	return q
}

// Domain returns the word domain of the file.
func (s *Set) Domain() string { return s.domain }

// All returns what the file says, limit by limit, in its order.
func (s *Set) All() []*Limit {
	all := make([]*Limit, len(s.rules))
	for i, r := range s.rules {
		all[i] = r.limit
	}
	return all
}

// activate makes a Set of p. Limits that old has as well go on with what they have
// counted. If there is an error, nothing has changed.
func (p *parsedFile) activate(setting Config, old *Set) (*Set, error) {
	s := &Set{config: setting, domain: p.domain, rules: p.rules, root: p.root, router: p.router, sources: p.sources}
	s.replaces = map[string]bool{}
	for _, r := range s.rules {
		for _, name := range r.limit.Replaces {
			s.replaces[name] = true
		}
	}
	before := old.activeLimits()
	created, err := s.newActiveLimits(before)
	if err != nil {
		return nil, err
	}
	now := throttle.ClockOr(setting.Clock).Now()
	for i, r := range s.rules {
		a := before[r.limit.ID]
		delete(before, r.limit.ID)
		switch {
		case created[i] == nil:
			r.limiter = a
			a.update(r.limit, now)
		default:
			r.limiter = created[i]
			if a != nil {
				a.retire(r.limiter)
			}
		}
	}
	for _, a := range before {
		a.retire(nil)
	}
	return s, nil
}

// activeLimits returns the gates of s by the places of their limits.
func (s *Set) activeLimits() map[string]*activeLimit {
	all := map[string]*activeLimit{}
	if s != nil {
		for _, r := range s.rules {
			all[r.limit.ID] = r.limiter
		}
	}
	return all
}

// newActiveLimits makes the gates that before has not got, or that cannot become what the
// file says now; nil: there is one that can.
func (s *Set) newActiveLimits(before map[string]*activeLimit) ([]*activeLimit, error) {
	created := make([]*activeLimit, len(s.rules))
	for i, r := range s.rules {
		a := before[r.limit.ID]
		if a != nil && a.limit().definition() == r.limit.definition() {
			continue
		}
		built, err := build(r.limit, &s.config)
		if err != nil {
			return nil, &Error{r.limit.Line, r.limit.Column, "Build: " + err.Error()}
		}
		if built != nil || a == nil || a.immutable || !sameShape(a.limit(), r.limit) {
			created[i] = newActiveLimit(r.limit, &s.config, built)
		}
	}
	return created, nil
}
