package sketch

import "encoding/binary"

// MarshalBinary implements encoding.BinaryMarshaler.
func (t *TopK) MarshalBinary() ([]byte, error) {
	capacity, all := t.items()
	to := header{kind: kindTopK, a: uint64(capacity), b: uint64(len(all))}.append(nil)
	for _, h := range all {
		to = binary.AppendUvarint(to, uint64(h.Count))
		to = binary.AppendUvarint(to, uint64(h.MaxError))
		to = binary.AppendUvarint(to, uint64(len(h.Key)))
		to = append(to, h.Key...)
	}
	return appendChecksum(to), nil
}

// UnmarshalBinary implements encoding.BinaryUnmarshaler. It replaces the content of t. It leaves t
// unchanged if it returns an error, which wraps ErrEncoding.
func (t *TopK) UnmarshalBinary(data []byte) error {
	h, body, err := decodeHeader(data, kindTopK)
	switch {
	case err != nil:
		return err
	case h.a == 0 || h.a > 1<<31-1 || h.b > h.a:
		return invalidBody("number of counters")
	}
	read := &TopK{capacity: int(h.a), index: map[string]int{}}
	for range h.b {
		var item Item
		if item, body, err = readItem(body); err != nil {
			return err
		}
		if _, twice := read.index[item.Key]; twice {
			return invalidBody("list of keys")
		}
		read.insert(&item)
	}
	if len(body) > 0 {
		return invalidBody("size")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.capacity, t.heap, t.index = read.capacity, read.heap, read.index
	return nil
}

// readItem reads one item and returns the bytes after it.
func readItem(body []byte) (h Item, rest []byte, err error) {
	var v [3]uint64 // Count, MaxError, length of Key
	for i := range v {
		n := 0
		if v[i], n = binary.Uvarint(body); n <= 0 {
			return h, nil, invalidBody("list of keys")
		}
		body = body[n:]
	}
	if v[0] > maxItemCount || v[1] > v[0] || v[2] > uint64(len(body)) {
		return h, nil, invalidBody("list of keys")
	}
	h = Item{Key: string(body[:v[2]]), Count: int64(v[0]), MaxError: int64(v[1])}
	return h, body[v[2]:], nil
}
