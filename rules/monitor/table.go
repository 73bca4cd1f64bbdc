package monitor

// A table keeps one record for each of a bounded number of keys. It identifies keys by their hash,
// so that it stores no data of clients, and reuses the memory of expired records.
//
//	      cursor: examines the next few slots when a new key needs one
//	        │
//	┌───┬───┬───┬───┬───┬───┐
//	│ # │   │ # │ # │   │ # │   #: not expired; the others may be reused
//	└───┴───┴───┴───┴───┴───┘
//
// Records that have not expired are never removed, so that a client cannot remove its record by
// inventing keys.
type table[R any, P tableRecord[R]] struct {
	index  map[uint64]int
	slots  []slot[R]
	cursor int
}

// A tableRecord is a record of a table. It has expired when it is equivalent to a new record.
type tableRecord[R any] interface {
	*R
	expired(now int64) bool
}

type slot[R any] struct {
	hash   uint64
	record R
}

// maxProbes is the maximum number of slots that add examines.
const maxProbes = 8

// find returns the record of a key, or nil if there is none. The record is valid until the next
// add.
func (t *table[R, P]) find(hash uint64) P {
	if i, ok := t.index[hash]; ok {
		return &t.slots[i].record
	}
	return nil
}

// add returns a record for a key that has none. It returns nil if no slot is free. The content of
// the record is that of its last key.
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

// numActive returns the number of records that have not expired.
func (t *table[R, P]) numActive(now int64) (n int) {
	for i := range t.slots {
		if !P(&t.slots[i].record).expired(now) {
			n++
		}
	}
	return n
}

// retainBelow removes all keys whose hash is limit or higher.
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
