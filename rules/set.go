package rules

import (
	"net/http"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// Set holds the limits of a file, in force. Its methods may be called by several goroutines at the
// same time. A Set does not change; to follow changes of a file use File. A Set of a File that has
// been replaced by a newer Set passes claims to the limits of the newer one.
type Set struct {
	config   Config
	domain   string
	rules    []*rule // in the order of the file
	root     *node
	router   router
	sources  []*valueSource
	replaces map[string]bool // names that at least one limit replaces
}

// Limits adds the limits that apply to r to t. It has the signature of heed.Transport.Limits and
// of throttlehttp.Middleware.Limits.
//
// A limit of a descriptor applies if r has a value for each key on the path to the limit; a limit
// of the section limits applies if its match does. Any number of limits may apply. Limits returns nil.
func (s *Set) Limits(r *http.Request, t *queue.Ticket) error {
	q := s.newSearch()
	q.req = r
	q.descend(s.root, 0)
	s.router.find(q)
	q.applyReplaces()
	q.addDemands(t)
	q.release()
	return nil
}

// Descriptor is a list of keys and values, as in a request to envoyproxy/ratelimit. The entries
// are in the order in which the keys are nested in the file.
type Descriptor []Entry

// Entry is one key of a Descriptor and its value.
type Entry struct{ Key, Value string }

// Add adds the limits that the descriptors lead to to t. It is for programs that supply keys and
// values themselves. Each descriptor finds at most one limit, nested as deeply in the file as the
// descriptor has entries.
func (s *Set) Add(t *queue.Ticket, descriptors ...Descriptor) {
	q := s.newSearch()
	for _, d := range descriptors {
		q.matchDescriptor(s.root, d)
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

// Domain returns the domain of the file.
func (s *Set) Domain() string { return s.domain }

// All returns all limits in the order of the file.
func (s *Set) All() []*Limit {
	all := make([]*Limit, len(s.rules))
	for i, r := range s.rules {
		all[i] = r.limit
	}
	return all
}

// activate returns a Set of p. Limits that old contains too keep their counts. After an error
// nothing has changed.
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

// activeLimits returns the activeLimits of s by Limit.ID.
func (s *Set) activeLimits() map[string]*activeLimit {
	all := map[string]*activeLimit{}
	if s != nil {
		for _, r := range s.rules {
			all[r.limit.ID] = r.limiter
		}
	}
	return all
}

// newActiveLimits creates an activeLimit for each limit that before does not contain or that
// cannot be changed in use to the new limit. The other entries are nil.
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
