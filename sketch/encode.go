package sketch

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"
)

// An encoded sketch consists of a header, a body and a checksum. All numbers are little-endian:
//
//	"heed" │ kind │ version │ 0 0 │ seed │ a │ b │ body … │ xxh3 of all before
//	   4       1       1       2     8     8   8              8 bytes
//
// The meaning of a and b depends on the kind. The seed is included, so that a sketch can be read
// in another process and merged with others of the same seed. A party that knows the seed can
// construct collisions: keep encoded sketches secret.
//
// Decoders allocate at most a small multiple of the length of the data, whatever it contains.
const (
	magic        = "heed"
	version      = 1
	headerSize   = 32
	checksumSize = 8
)

// kind identifies the type of an encoded sketch.
type kind byte

const (
	kindBloom    kind = 1
	kindCountMin kind = 2
	kindTopK     kind = 3
)

var (
	// ErrEncoding is wrapped by errors for data that is not a sketch of the expected kind, that
	// has an unknown version, or that is damaged.
	ErrEncoding = errors.New("sketch: decode")

	// ErrMerge is returned for sketches with different seeds or sizes.
	ErrMerge = errors.New("sketch: merge: the sketches differ in seed or size: make both from the same numbers and the same Seed")
)

// header is the decoded header of a sketch.
type header struct {
	kind       kind
	seed, a, b uint64
}

func (h header) append(to []byte) []byte {
	to = append(append(to, magic...), byte(h.kind), version, 0, 0)
	for _, v := range []uint64{h.seed, h.a, h.b} {
		to = binary.LittleEndian.AppendUint64(to, v)
	}
	return to
}

// appendChecksum appends the checksum of buf.
func appendChecksum(buf []byte) []byte {
	return binary.LittleEndian.AppendUint64(buf, xxh3.Hash(buf))
}

// decodeHeader validates data and returns its header and its body.
func decodeHeader(data []byte, want kind) (h header, body []byte, err error) {
	if len(data) < headerSize+checksumSize || string(data[:4]) != magic {
		return h, nil, fmt.Errorf("%w: this is no sketch", ErrEncoding)
	}
	h.kind = kind(data[4])
	switch {
	case data[5] != version:
		return h, nil, fmt.Errorf("%w: it has version %d, and only %d is known", ErrEncoding, data[5], version)
	case h.kind != want:
		return h, nil, fmt.Errorf("%w: it is of kind %d: want %d", ErrEncoding, h.kind, want)
	}
	end := len(data) - checksumSize
	if xxh3.Hash(data[:end]) != binary.LittleEndian.Uint64(data[end:]) {
		return h, nil, fmt.Errorf("%w: its checksum does not match: it was damaged", ErrEncoding)
	}
	h.seed = binary.LittleEndian.Uint64(data[8:])
	h.a = binary.LittleEndian.Uint64(data[16:])
	h.b = binary.LittleEndian.Uint64(data[24:])
	return h, data[headerSize:end], nil
}

func invalidBody(what string) error {
	return fmt.Errorf("%w: its %s cannot be", ErrEncoding, what)
}

// MarshalBinary implements encoding.BinaryMarshaler. The result includes all that was added before the call.
func (b *Bloom) MarshalBinary() ([]byte, error) {
	to := header{kind: kindBloom, seed: b.seed, a: uint64(b.bitsPerPair), b: uint64(len(b.blocks))}.append(make([]byte, 0, headerSize+int(b.Bytes())+checksumSize))
	for i := range b.blocks {
		for w := range b.blocks[i] {
			to = binary.LittleEndian.AppendUint64(to, b.blocks[i][w].Load())
		}
	}
	return appendChecksum(to), nil
}

// UnmarshalBinary implements encoding.BinaryUnmarshaler. It replaces b, which must not be used by
// other goroutines during the call. It leaves b unchanged if it returns an error, which wraps
// ErrEncoding.
func (b *Bloom) UnmarshalBinary(data []byte) error {
	h, body, err := decodeHeader(data, kindBloom)
	switch {
	case err != nil:
		return err
	case h.a < 1 || h.a > maxPerGroup:
		return invalidBody("number of bits")
	case len(body) == 0 || len(body)%cacheLineBytes != 0 || h.b != uint64(len(body)/cacheLineBytes):
		return invalidBody("size")
	}
	blocks := make([]block, h.b)
	for i := range blocks {
		for w := range blocks[i] {
			blocks[i][w].Store(binary.LittleEndian.Uint64(body))
			body = body[8:]
		}
	}
	*b = Bloom{seed: h.seed, bitsPerPair: int(h.a), blocks: blocks}
	return nil
}

// Merge adds all keys of other to b. It returns ErrMerge unless both have the same size and seed.
// Keys that are added to other during the call may be missing.
func (b *Bloom) Merge(other *Bloom) error {
	if b.seed != other.seed || b.bitsPerPair != other.bitsPerPair || len(b.blocks) != len(other.blocks) {
		return ErrMerge
	}
	for i := range b.blocks {
		for w := range b.blocks[i] {
			b.blocks[i][w].Or(other.blocks[i][w].Load())
		}
	}
	return nil
}

// MarshalBinary implements encoding.BinaryMarshaler. The result includes all that was added before the call.
func (c *CountMin) MarshalBinary() ([]byte, error) {
	to := header{kind: kindCountMin, seed: c.seed, a: countersPerLine, b: uint64(len(c.lines))}.append(make([]byte, 0, headerSize+int(c.Bytes())+checksumSize))
	for i := range c.lines {
		for _, n := range c.lines[i].counts() {
			to = binary.LittleEndian.AppendUint32(to, n)
		}
	}
	return appendChecksum(to), nil
}

// UnmarshalBinary implements encoding.BinaryUnmarshaler. It replaces c, which must not be used by
// other goroutines during the call. It leaves c unchanged if it returns an error, which wraps
// ErrEncoding.
func (c *CountMin) UnmarshalBinary(data []byte) error {
	const lineSize = countersPerLine * 4
	h, body, err := decodeHeader(data, kindCountMin)
	switch {
	case err != nil:
		return err
	case h.a != countersPerLine:
		return invalidBody("number of counters")
	case len(body) == 0 || len(body)%lineSize != 0 || h.b != uint64(len(body)/lineSize):
		return invalidBody("size")
	}
	lines := make([]line, h.b)
	for i := range lines {
		var counts [countersPerLine]uint32
		for k := range counts {
			counts[k] = binary.LittleEndian.Uint32(body)
			body = body[4:]
		}
		lines[i].add(counts)
	}
	*c = CountMin{seed: h.seed, lines: lines}
	return nil
}

// Merge adds all counts of other to c. It returns ErrMerge unless both have the same size and
// seed. What is added to other during the call may be missing.
func (c *CountMin) Merge(other *CountMin) error {
	if c.seed != other.seed || len(c.lines) != len(other.lines) {
		return ErrMerge
	}
	for i := range c.lines {
		c.lines[i].add(other.lines[i].counts())
	}
	return nil
}

// countersPerLine is the number of counters of a line.
const countersPerLine = cells + (rows-1)*countersPerRow

// counts returns the counters of l.
func (l *line) counts() (all [countersPerLine]uint32) {
	for i := range l.cells {
		all[i] = uint32(l.cells[i].Load() >> 32)
	}
	for i := range all[cells:] {
		all[cells+i] = l.rows[i/countersPerRow][i%countersPerRow].Load()
	}
	return all
}

// add adds more to the counters of l. It enters all cells, so that concurrent updates notice it.
func (l *line) add(more [countersPerLine]uint32) {
	for i := range l.cells {
		l.cells[i].Add(1)
	}
	for i, n := range more[cells:] {
		increase(&l.rows[i/countersPerRow][i%countersPerRow], n)
	}
	for i := range l.cells {
		exitCell(&l.cells[i], l.cells[i].Load(), more[i])
	}
}
