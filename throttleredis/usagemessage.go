package throttleredis

import (
	"encoding/binary"
	"math"
	"time"
)

// A usageItem is the counter of a host for one key, as it is sent or stored.
type usageItem struct {
	limit   uint64 // id of the limit
	tag     string // hash tag of the key
	counter usageCounter
	level   int64 // of a bucket: ticks taken by all hosts, as far as the host knew
	version uint64

	age time.Duration // time since it was stored; zero if it was received when it was sent
}

// A usageMessage is what a host sends to all others. Without items it reports that the
// host is running. Its binary form is
//
//	format, flags: 1 byte each
//	host: 8 bytes
//	sequence: uvarint
//	items: limit (8 bytes), length of the tag (uvarint), tag,
//	       window, units, previous, level (varints)
type usageMessage struct {
	host     uint64
	sequence uint64 // of the host's messages; the version of the items
	ending   bool   // the host ends
	items    []usageItem
}

const (
	usageFormat   = 1
	flagEnding    = 1
	maxUsageBytes = 32 << 10 // maximum length of a message in bytes
	maxTagBytes   = 64       // see hashTag
)

// appendHeader appends the part of the message before the items.
func (m *usageMessage) appendHeader(b []byte) []byte {
	flags := byte(0)
	if m.ending {
		flags = flagEnding
	}
	b = append(b, usageFormat, flags)
	b = binary.LittleEndian.AppendUint64(b, m.host)
	return binary.AppendUvarint(b, m.sequence)
}

func (i *usageItem) appendName(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, i.limit)
	b = binary.AppendUvarint(b, uint64(len(i.tag)))
	return append(b, i.tag...)
}

func (i *usageItem) appendCounter(b []byte) []byte {
	for _, n := range [...]int64{i.counter.window, i.counter.units, i.counter.previous, i.level} {
		b = binary.AppendVarint(b, n)
	}
	return b
}

// A usageReader reads the binary form of messages.
type usageReader struct {
	rest   string
	failed bool
}

// take returns the next n bytes, or zeros if there are fewer.
func (r *usageReader) take(n int) string {
	if r.failed = r.failed || n > len(r.rest); r.failed {
		return string(make([]byte, n))
	}
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}

func (r *usageReader) byte() byte { return r.take(1)[0] }

func (r *usageReader) uint64() uint64 { return binary.LittleEndian.Uint64([]byte(r.take(8))) }

func (r *usageReader) uvarint() uint64 {
	n, size := binary.Uvarint([]byte(r.rest[:min(len(r.rest), binary.MaxVarintLen64)]))
	if size <= 0 {
		r.failed = true
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *usageReader) varint() int64 {
	n := r.uvarint()
	return int64(n>>1) ^ -int64(n&1)
}

func (r *usageReader) name() (limit uint64, tag string) {
	limit = r.uint64()
	if n := r.uvarint(); n <= maxTagBytes {
		return limit, r.take(int(n))
	}
	r.failed = true
	return 0, ""
}

func (r *usageReader) counter() (c usageCounter, level int64) {
	return usageCounter{window: r.varint(), units: r.varint(), previous: r.varint()}, r.varint()
}

// parseUsage parses the binary form of a message. It returns false if text is malformed.
func parseUsage(text string) (m usageMessage, ok bool) {
	r := usageReader{rest: text}
	format, flags := r.byte(), r.byte()
	m.host, m.sequence, m.ending = r.uint64(), r.uvarint(), flags&flagEnding != 0
	if len(text) > 2*maxUsageBytes || format != usageFormat || m.sequence == 0 {
		return m, false
	}
	for !r.failed && r.rest != "" {
		i := usageItem{version: m.sequence}
		i.limit, i.tag = r.name()
		i.counter, i.level = r.counter()
		m.items = append(m.items, i)
	}
	return m, !r.failed
}

// storedEnd is stored instead of a sequence number by a host that has ended.
const storedEnd = "end"

// storedValue returns the value that stores i in the hash of its host. The name of the field is
// that of i. The field without a name stores the sequence number of the latest message, or
// storedEnd.
func (i *usageItem) storedValue() string {
	return string(i.appendCounter(binary.AppendUvarint(nil, i.version)))
}

// parseStoredItem returns the item that f stores.
func parseStoredItem(f storedField) (i usageItem, ok bool) {
	name, value := usageReader{rest: f.name}, usageReader{rest: f.value}
	i.limit, i.tag = name.name()
	i.version = value.uvarint()
	i.counter, i.level = value.counter()
	i.age = min(max(f.age, 0), math.MaxInt64/2)
	return i, !name.failed && !value.failed && i.version > 0
}
