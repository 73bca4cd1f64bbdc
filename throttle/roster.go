package throttle

import "strings"

// A roster keeps a record per key and knows which of them could be forgotten, so
// that there is a bound on how many there are. A record whose state equals that of a
// key never seen can be forgotten without loss; others never are.
//
// Nothing ever looks at all records. They stand in a pile by the instant before which
// they cannot be forgotten, as far as was known when each was last looked at. Claims
// move that instant later, so the pile need not hear of them: only the first is looked
// at, when somebody needs its room. A cancel may move it earlier; then the record stays
// for longer than it must.
type roster[R record] struct {
	byKey map[string]R
	pile  pile[R, soonest[R]]
}

// A record is what a roster keeps for a key.
type record interface {
	comparable
	berth() *berth
}

// A berth is where a record stands in its roster.
type berth struct {
	key   string
	index int   // in the pile
	from  int64 // it cannot be forgotten before
}

type soonest[R record] struct{}

func (soonest[R]) before(a, b R) bool { return a.berth().from < b.berth().from }
func (soonest[R]) moved(m R, i int)   { m.berth().index = i }

// tries is how many records are looked at when room is needed. Each look that finds
// one in use moves it to where it belongs, so that looks are not made in vain.
const tries = 8

func (r *roster[R]) len() int { return r.pile.len() }

// add keeps m under a key that has no record.
func (r *roster[R]) add(m R, key string, now int64) {
	if r.byKey == nil {
		r.byKey = make(map[string]R)
	}
	key = strings.Clone(key) // it may be a part of something large
	*m.berth() = berth{key: key, from: now}
	r.byKey[key] = m
	r.pile.push(m)
}

// drop removes m.
func (r *roster[R]) drop(m R) {
	delete(r.byKey, m.berth().key)
	r.pile.remove(m.berth().index)
}

// forget forgets a record that is unused by now. It reports false if it found none.
//
// The func unused returns now if the state of a record equals that of a key never seen,
// and otherwise the instant, later than now, at which to look again. It is called under
// the lock of the roster: it must not call limiters or hooks.
func (r *roster[R]) forget(now int64, unused func(m R, now int64) int64) bool {
	for range min(tries, r.len()) {
		m := r.pile.first()
		p := m.berth()
		if p.from > now {
			return false
		}
		if p.from = unused(m, now); p.from <= now {
			r.drop(m)
			return true
		}
		r.pile.fix(p.index)
	}
	return false
}
