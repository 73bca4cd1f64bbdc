package sketch

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"
)

// An encoded sketch is a head, a body and a checksum, all numbers little-endian:
//
//	"heed" │ kind │ version │ 0 0 │ seed │ a │ b │ body … │ xxh3 of all before
//	   4       1       1       2     8     8   8              8 bytes
//
// What a and b say depends on the kind. The seed is in it, so that a sketch can be
// read, and merged with others of its seed, where it was not made. Who knows the seed
// can aim at collisions: keep encoded sketches to yourself.
//
// A decoder allocates no more than a small multiple of the bytes that it is given,
// whatever they say.
const (
	magic        = "heed"
	version      = 1
	headerSize   = 32
	checksumSize = 8
)

// kind is what an encoded sketch is.
type kind byte

const (
	kindBloom    kind = 1
	kindCountMin kind = 2
	kindTopK     kind = 3
)

var (
	// ErrEncoding is returned for bytes that are no sketch of the kind that is asked for,
	// of a version that is not known, or were damaged.
	ErrEncoding = errors.New("sketch: decode")

	// ErrMerge is returned for sketches that do not fit together.
	ErrMerge = errors.New("sketch: merge: the sketches differ in seed or size: make both from the same numbers and the same Seed")
)

// header is what the decoders need to know before the body.
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

// appendChecksum appends the checksum of what was appended to buf after its first start bytes.
func appendChecksum(buf []byte, start int) []byte {
	return binary.LittleEndian.AppendUint64(buf, xxh3.Hash(buf[start:]))
}

// decodeHeader checks data and returns its head and its body.
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

// AppendBinary implements encoding.BinaryAppender. What was added before is in it, and
// what is added meanwhile may be in part.
func (b *Bloom) AppendBinary(to []byte) ([]byte, error) {
	start := len(to)
	to = header{kind: kindBloom, seed: b.seed, a: uint64(b.bitsPerPair), b: uint64(len(b.blocks))}.append(to)
	for i := range b.blocks {
		for w := range b.blocks[i] {
			to = binary.LittleEndian.AppendUint64(to, b.blocks[i][w].Load())
		}
	}
	return appendChecksum(to, start), nil
}

// MarshalBinary implements encoding.BinaryMarshaler, as AppendBinary does.
func (b *Bloom) MarshalBinary() ([]byte, error) {
	return b.AppendBinary(make([]byte, 0, headerSize+int(b.Bytes())+checksumSize))
}

// UnmarshalBinary implements encoding.BinaryUnmarshaler. It replaces b, which nobody
// may use meanwhile; a failure, which is ErrEncoding, leaves it as it was.
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

// Merge adds to b all that was added to other. Both must have the same size and seed;
// else the error is ErrMerge. What is added to other meanwhile may be left out.
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

// AppendBinary implements encoding.BinaryAppender. What was added before is in it, and
// what is added meanwhile may be in part.
func (c *CountMin) AppendBinary(to []byte) ([]byte, error) {
	start := len(to)
	to = header{kind: kindCountMin, seed: c.seed, a: countersPerLine, b: uint64(len(c.lines))}.append(to)
	for i := range c.lines {
		for _, n := range c.lines[i].counts() {
			to = binary.LittleEndian.AppendUint32(to, n)
		}
	}
	return appendChecksum(to, start), nil
}

// MarshalBinary implements encoding.BinaryMarshaler, as AppendBinary does.
func (c *CountMin) MarshalBinary() ([]byte, error) {
	return c.AppendBinary(make([]byte, 0, headerSize+int(c.Bytes())+checksumSize))
}

// UnmarshalBinary implements encoding.BinaryUnmarshaler. It replaces c, which nobody
// may use meanwhile; a failure, which is ErrEncoding, leaves it as it was.
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

// Merge adds to c all that was added to other. Both must have the same size and seed;
// else the error is ErrMerge. What is added to other meanwhile may be left out.
func (c *CountMin) Merge(other *CountMin) error {
	if c.seed != other.seed || len(c.lines) != len(other.lines) {
		return ErrMerge
	}
	for i := range c.lines {
		c.lines[i].add(other.lines[i].counts())
	}
	return nil
}

// countersPerLine is how many a line has.
const countersPerLine = cells + (rows-1)*countersPerRow

// counts returns what is on the counters of l.
func (l *line) counts() (all [countersPerLine]uint32) {
	for i := range l.cells {
		all[i] = uint32(l.cells[i].Load() >> 32)
	}
	for i := range all[cells:] {
		all[cells+i] = l.rows[i/countersPerRow][i%countersPerRow].Load()
	}
	return all
}

// add adds more to the counters of l, as one who is inside all cells.
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
