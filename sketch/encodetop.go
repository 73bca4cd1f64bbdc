package sketch

import "encoding/binary"

// AppendBinary implements encoding.BinaryAppender.
func (t *Top) AppendBinary(to []byte) ([]byte, error) {
	room, all := t.hits()
	start := len(to)
	to = head{kind: kindTop, a: uint64(room), b: uint64(len(all))}.append(to)
	for _, h := range all {
		to = binary.AppendUvarint(to, uint64(h.Count))
		to = binary.AppendUvarint(to, uint64(h.Over))
		to = binary.AppendUvarint(to, uint64(len(h.Key)))
		to = append(to, h.Key...)
	}
	return seal(to, start), nil
}

// MarshalBinary implements encoding.BinaryMarshaler.
func (t *Top) MarshalBinary() ([]byte, error) { return t.AppendBinary(nil) }

// UnmarshalBinary implements encoding.BinaryUnmarshaler. It replaces what t has counted;
// a failure, which is ErrEncoding, leaves it as it was.
func (t *Top) UnmarshalBinary(data []byte) error {
	h, body, err := open(data, kindTop)
	switch {
	case err != nil:
		return err
	case h.a == 0 || h.a > 1<<31-1 || h.b > h.a:
		return errBody("number of counters")
	}
	read := &Top{room: int(h.a), place: map[string]int{}}
	for range h.b {
		var hit Hit
		if hit, body, err = readHit(body); err != nil {
			return err
		}
		if _, twice := read.place[hit.Key]; twice {
			return errBody("list of keys")
		}
		read.insert(&hit)
	}
	if len(body) > 0 {
		return errBody("size")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.room, t.heap, t.place = read.room, read.heap, read.place
	return nil
}

// readHit reads one hit and returns what follows it.
func readHit(body []byte) (h Hit, rest []byte, err error) {
	var v [3]uint64 // count, over, length of the key
	for i := range v {
		n := 0
		if v[i], n = binary.Uvarint(body); n <= 0 {
			return h, nil, errBody("list of keys")
		}
		body = body[n:]
	}
	if v[0] > mostHits || v[1] > v[0] || v[2] > uint64(len(body)) {
		return h, nil, errBody("list of keys")
	}
	h = Hit{Key: string(body[:v[2]]), Count: int64(v[0]), Over: int64(v[1])}
	return h, body[v[2]:], nil
}
