package rules

// A roster keeps a record for each of a bounded number of keys. It knows keys by a hash
// of theirs, so that it holds nothing that a client sent, however long, and a record
// that is used again is not allocated again.
//
//	      hand: looks at the next few when somebody needs room
//	        │
//	┌───┬───┬───┬───┬───┬───┐
//	│ # │   │ # │ # │   │ # │   #: still says something; the others may be taken
//	└───┴───┴───┴───┴───┴───┘
//
// Records that still say something are never forgotten: who is watched cannot get
// himself forgotten by inventing names.
type roster[R any, P record[R]] struct {
	places map[uint64]int
	slots  []slot[R]
	hand   int
}

// A record is what a roster keeps. It is over when it says no more than a new one.
type record[R any] interface {
	*R
	over(now int64) bool
}

type slot[R any] struct {
	hash   uint64
	record R
}

// looks is how many records are looked at to find room.
const looks = 8

// find returns the record of a key; nil: there is none. It is good until the next add.
func (r *roster[R, P]) find(hash uint64) P {
	if i, ok := r.places[hash]; ok {
		return &r.slots[i].record
	}
	return nil
}

// add returns a record for a key that has none; nil: there is no room. It is as its last
// owner left it.
func (r *roster[R, P]) add(hash uint64, most int, now int64) P {
	if r.places == nil {
		r.places = map[uint64]int{}
	}
	if len(r.slots) < most {
		r.slots = append(r.slots, slot[R]{})
		return r.give(len(r.slots)-1, hash)
	}
	for range min(looks, len(r.slots)) {
		i := r.hand
		if r.hand++; r.hand == len(r.slots) {
			r.hand = 0
		}
		if P(&r.slots[i].record).over(now) {
			delete(r.places, r.slots[i].hash)
			return r.give(i, hash)
		}
	}
	return nil
}

func (r *roster[R, P]) give(i int, hash uint64) P {
	r.slots[i].hash, r.places[hash] = hash, i
	return &r.slots[i].record
}

// used returns how many records still say something.
func (r *roster[R, P]) used(now int64) (n int) {
	for i := range r.slots {
		if !P(&r.slots[i].record).over(now) {
			n++
		}
	}
	return n
}

// keepOnly forgets all keys but those whose hash is below limit.
func (r *roster[R, P]) keepOnly(limit uint64) {
	all := r.slots
	r.slots, r.hand = r.slots[:0], 0
	clear(r.places)
	for _, s := range all {
		if s.hash < limit {
			r.places[s.hash] = len(r.slots)
			r.slots = append(r.slots, s)
		}
	}
	clear(all[len(r.slots):])
}
