package monitor

// A table keeps a record for each of a bounded number of keys. It knows keys by a hash
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
type table[R any, P tableRecord[R]] struct {
	index  map[uint64]int
	slots  []slot[R]
	cursor int
}

// A tableRecord is what a roster keeps. It is over when it says no more than a new one.
type tableRecord[R any] interface {
	*R
	expired(now int64) bool
}

type slot[R any] struct {
	hash   uint64
	record R
}

// maxProbes is how many records are looked at to find room.
const maxProbes = 8

// find returns the record of a key; nil: there is none. It is good until the next add.
func (t *table[R, P]) find(hash uint64) P {
	if i, ok := t.index[hash]; ok {
		return &t.slots[i].record
	}
	return nil
}

// add returns a record for a key that has none; nil: there is no room. It is as its last
// owner left it.
func (t *table[R, P]) add(hash uint64, limit int, now int64) P {
	if t.index == nil {
		t.index = map[uint64]int{}
	}
	if len(t.slots) < limit {
		t.slots = append(t.slots, slot[R]{})
		return t.assign(len(t.slots)-1, hash)
	}
	for range min(maxProbes, len(t.slots)) {
		i := t.cursor
		if t.cursor++; t.cursor == len(t.slots) {
			t.cursor = 0
		}
		if P(&t.slots[i].record).expired(now) {
			delete(t.index, t.slots[i].hash)
			return t.assign(i, hash)
		}
	}
	return nil
}

func (t *table[R, P]) assign(i int, hash uint64) P {
	t.slots[i].hash, t.index[hash] = hash, i
	return &t.slots[i].record
}

// numActive returns how many records still say something.
func (t *table[R, P]) numActive(now int64) (n int) {
	for i := range t.slots {
		if !P(&t.slots[i].record).expired(now) {
			n++
		}
	}
	return n
}

// retainBelow forgets all keys but those whose hash is below limit.
func (t *table[R, P]) retainBelow(limit uint64) {
	all := t.slots
	t.slots, t.cursor = t.slots[:0], 0
	clear(t.index)
	for _, s := range all {
		if s.hash < limit {
			t.index[s.hash] = len(t.slots)
			t.slots = append(t.slots, s)
		}
	}
	clear(all[len(t.slots):])
}
