package journal

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

const (
	fileMagic  = "heedlog\x01"
	headerSize = 24
	maxFrame   = 1 << 30

	// bufferSize is the size of buffers, and of the frames that Rewrite writes.
	bufferSize = 64 << 10

	// allocationSize is the unit in which a file grows that has a reserve.
	allocationSize = 16 << 10
)

// frameMagic begins each frame, so that a damaged file can be searched for later frames. It
// is not valid UTF-8, which makes it rare in records.
var frameMagic = []byte{0xf7, 'h', 'd', 0xfe}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errInvalid means that there is no intact frame at an offset.
var errInvalid = errors.New("journal: invalid frame")

// appendRecord appends record with its length to frame.
func appendRecord(frame, record []byte) []byte {
	frame = binary.AppendUvarint(frame, uint64(len(record)))
	return append(frame, record...)
}

// sealFrame fills in the header of frame. durable is the length of the file that is on disk.
func sealFrame(frame []byte, durable int64) {
	payload := frame[headerSize:]
	copy(frame, frameMagic)
	binary.LittleEndian.PutUint32(frame[4:], uint32(len(payload)))
	binary.LittleEndian.PutUint64(frame[8:], uint64(durable))
	binary.LittleEndian.PutUint32(frame[16:], crc32.Checksum(payload, castagnoli))
	binary.LittleEndian.PutUint32(frame[20:], crc32.Checksum(frame[:20], castagnoli))
}

// A header is the decoded header of a frame.
type header struct {
	length  int64
	durable int64
	crc     uint32
}

// parseHeader decodes the header at the start of b, which has at least headerSize bytes.
func parseHeader(b []byte) (h header, ok bool) {
	if !bytes.Equal(b[:4], frameMagic) || crc32.Checksum(b[:20], castagnoli) != binary.LittleEndian.Uint32(b[20:]) {
		return h, false
	}
	h.length = int64(binary.LittleEndian.Uint32(b[4:]))
	h.durable = int64(binary.LittleEndian.Uint64(b[8:]))
	h.crc = binary.LittleEndian.Uint32(b[16:])
	return h, true
}

// readFrame returns the header and the payload of the frame at the start of r, of which size
// bytes are left. The error is errInvalid, or that of r.
func readFrame(r io.Reader, size int64) (h header, payload []byte, err error) {
	var b [headerSize]byte
	if size < headerSize {
		return h, nil, errInvalid
	}
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return h, nil, err
	}
	h, ok := parseHeader(b[:])
	if !ok || h.length > size-headerSize {
		return h, nil, errInvalid
	}
	payload = make([]byte, h.length)
	if _, err := io.ReadFull(r, payload); err != nil {
		return h, nil, err
	}
	if crc32.Checksum(payload, castagnoli) != h.crc || !hasRecords(payload) {
		return h, nil, errInvalid
	}
	return h, payload, nil
}

// hasRecords reports whether payload consists of complete records.
func hasRecords(payload []byte) bool {
	for len(payload) > 0 {
		n, k := binary.Uvarint(payload)
		if k <= 0 || n > uint64(len(payload)-k) {
			return false
		}
		payload = payload[k+int(n):]
	}
	return true
}

// Read calls apply for each record of a journal of size bytes, and returns the length of its
// intact part: 0 if the file is new. What follows was never acknowledged. The error is
// ErrNotJournal, a *CorruptError, that of r, or that of apply; apply may then have been
// called.
func Read(r io.ReaderAt, size int64, apply func(record []byte) error) (end int64, err error) {
	start := make([]byte, min(size, int64(len(fileMagic))))
	if _, err := r.ReadAt(start, 0); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	switch {
	case string(start) != fileMagic[:len(start)]:
		return 0, ErrNotJournal
	case len(start) < len(fileMagic):
		return 0, nil // the process ended before the file had its magic
	}
	end = int64(len(fileMagic))
	in := bufio.NewReaderSize(io.NewSectionReader(r, end, size-end), bufferSize)
	for end < size {
		h, payload, err := readFrame(in, size-end)
		if errors.Is(err, errInvalid) {
			return end, checkTail(r, end, size)
		}
		if err != nil {
			return end, err
		}
		if err := applyRecords(payload, apply); err != nil {
			return end, err
		}
		end += headerSize + h.length
	}
	return end, nil
}

func applyRecords(payload []byte, apply func([]byte) error) error {
	for len(payload) > 0 {
		n, k := binary.Uvarint(payload)
		if err := apply(payload[k : k+int(n)]); err != nil {
			return err
		}
		payload = payload[k+int(n):]
	}
	return nil
}

// ReadAround is like Read. If the file is damaged, it calls damaged with the number of bytes that
// cannot be read, continues with the intact frames that follow, and returns the *CorruptError.
func ReadAround(r io.ReaderAt, size int64, apply func(record []byte) error, damaged func(bytes int64)) error {
	end, err := Read(r, size, apply)
	var corrupt *CorruptError
	if !errors.As(err, &corrupt) && !errors.Is(err, ErrNotJournal) {
		return err
	}
	for end < size {
		at, findErr := nextFrame(r, end, size, func(header) bool { return true })
		switch {
		case findErr != nil:
			return findErr
		case at == size && end == 0:
			return err // it is no journal
		}
		if at > end {
			damaged(at - end)
		}
		if at == size {
			break
		}
		h, payload, readErr := readFrame(io.NewSectionReader(r, at, size-at), size-at)
		if readErr == nil {
			readErr = applyRecords(payload, apply)
		}
		if readErr != nil {
			return readErr
		}
		end = at + headerSize + h.length
	}
	if corrupt == nil {
		err = &CorruptError{} // the start of the file
	}
	return err
}

// checkTail returns a *CorruptError if an intact frame between end and size states that the
// file was on disk beyond end. Frames that were written later than the last wait for the
// disk may be stored in any order before a power failure, so that other intact frames prove
// nothing.
func checkTail(r io.ReaderAt, end, size int64) error {
	at, err := nextFrame(r, end, size, func(h header) bool { return h.durable > end })
	if err == nil && at < size {
		err = &CorruptError{Offset: end}
	}
	return err
}

// nextFrame returns the position of the first intact frame from start on whose header ok accepts,
// or size if there is none.
func nextFrame(r io.ReaderAt, start, size int64, ok func(header) bool) (int64, error) {
	buf := make([]byte, bufferSize)
	for offset := start; size-offset >= headerSize; {
		n, err := r.ReadAt(buf[:min(int64(len(buf)), size-offset)], offset)
		if err != nil && !errors.Is(err, io.EOF) {
			return size, err
		}
		if n < headerSize {
			return size, nil
		}
		for i := 0; i <= n-headerSize; i++ {
			skip := bytes.Index(buf[i:n], frameMagic)
			if skip < 0 || i+skip > n-headerSize {
				break
			}
			i += skip
			if h, isHeader := parseHeader(buf[i:]); !isHeader || !ok(h) {
				continue
			}
			at := offset + int64(i)
			_, _, err := readFrame(io.NewSectionReader(r, at, size-at), size-at)
			if err == nil {
				return at, nil
			}
			if !errors.Is(err, errInvalid) {
				return size, err
			}
		}
		offset += int64(n - headerSize + 1)
	}
	return size, nil
}

// contentEnd returns the position after the last byte from start on that is not zero.
func contentEnd(r io.ReaderAt, start, size int64) (int64, error) {
	buf := make([]byte, bufferSize)
	end := start
	for offset := start; offset < size; {
		n, err := r.ReadAt(buf[:min(int64(len(buf)), size-offset)], offset)
		if err != nil && !errors.Is(err, io.EOF) {
			return end, err
		}
		if n == 0 {
			break
		}
		if used := len(bytes.TrimRight(buf[:n], "\x00")); used > 0 {
			end = offset + int64(used)
		}
		offset += int64(n)
	}
	return end, nil
}

// A frameWriter writes records to a new file, in frames of about 64 KiB. Its first error
// stays.
type frameWriter struct {
	w     *bufio.Writer
	frame []byte
	size  int64
	err   error
}

// add writes a record.
func (f *frameWriter) add(record []byte) {
	if f.frame == nil {
		f.frame = make([]byte, headerSize, bufferSize)
	}
	if f.frame = appendRecord(f.frame, record); len(f.frame) >= bufferSize {
		f.flush()
	}
}

// flush writes the present frame. The file gets its name when it is on disk, so that a frame
// proves that those before it were.
func (f *frameWriter) flush() {
	if len(f.frame) > headerSize {
		sealFrame(f.frame, f.size)
		f.write(f.frame)
		f.frame = f.frame[:headerSize]
	}
}

func (f *frameWriter) write(p []byte) {
	if f.err == nil {
		_, f.err = f.w.Write(p)
		f.size += int64(len(p))
	}
}

// finish writes what is left.
func (f *frameWriter) finish() error {
	f.flush()
	if f.err == nil {
		f.err = f.w.Flush()
	}
	return f.err
}
