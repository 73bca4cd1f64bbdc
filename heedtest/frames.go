package heedtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"

	"golang.org/x/net/http2/hpack"
)

// The server of net/http has no words for the faults of HTTP/2, and does not tell
// a handler which stream its request came over. Both are added between it and the
// network, frame by frame:
//
//	client ──▶ [ numberer: each request gets a header with its stream ] ──▶ server
//	       ◀── [ inserter: frames of ours between those of the server ] ◀──

const (
	frameHeaderSize = 9
	headersFrame    = 0x1
	resetFrame      = 0x3
	goAwayFrame     = 0x7
	continuation    = 0x9

	endHeaders = 0x4
	padded     = 0x8
	priority   = 0x20

	noError          = 0x0
	refusedStream    = 0x7
	enhanceYourCalm  = 0xb
	prefaceSize      = len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	headerTableLimit = 4096
	maxBlock         = 2 << 20 // bytes of a frame and of the block before it
)

var errTooLarge = errors.New("heedtest: a frame or a block of headers of more than 2 MiB: a server would reject it")

// streamHeader is where a handler finds the number of its stream.
const streamHeader = "Heedtest-Stream"

// takeStream returns the number of the stream that r came over, 0 over HTTP/1.1,
// and takes the header out.
func takeStream(r *http.Request) uint32 {
	n, _ := strconv.ParseUint(r.Header.Get(streamHeader), 10, 31)
	r.Header.Del(streamHeader)
	return uint32(n)
}

// A streamTagger is what a client sends, with the stream added to each request. Header
// blocks depend on those before them, so all are read and written anew.
type streamTagger struct {
	src         io.Reader
	out         bytes.Buffer
	prefaceRead bool // the preface is through
	block       []byte
	flags       byte // of the frame that the block began in
	decoder     *hpack.Decoder
	encoder     *hpack.Encoder
	encoded     bytes.Buffer
}

func newStreamTagger(src io.Reader) *streamTagger {
	n := &streamTagger{src: src, decoder: hpack.NewDecoder(headerTableLimit, nil)}
	n.encoder = hpack.NewEncoder(&n.encoded)
	return n
}

// Read implements io.Reader.
func (n *streamTagger) Read(p []byte) (int, error) {
	for n.out.Len() == 0 {
		if err := n.readFrame(); err != nil {
			return 0, err
		}
	}
	return n.out.Read(p)
}

// readFrame moves the next frame to out.
func (n *streamTagger) readFrame() error {
	if !n.prefaceRead {
		n.prefaceRead = true
		_, err := io.CopyN(&n.out, n.src, int64(prefaceSize))
		return err
	}
	var head [frameHeaderSize]byte
	if _, err := io.ReadFull(n.src, head[:]); err != nil {
		return err
	}
	if payloadSize(head[:])+len(n.block) > maxBlock {
		return errTooLarge
	}
	payload := make([]byte, payloadSize(head[:]))
	if _, err := io.ReadFull(n.src, payload); err != nil {
		return err
	}
	kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:])
	switch kind {
	case headersFrame:
		n.block, n.flags = append(n.block[:0], fragment(payload, flags)...), flags
	case continuation:
		n.block = append(n.block, payload...)
	default:
		n.out.Write(head[:])
		n.out.Write(payload)
		return nil
	}
	if flags&endHeaders == 0 {
		return nil
	}
	return n.rewrite(stream)
}

// rewrite moves the block, which is complete, to out.
func (n *streamTagger) rewrite(stream uint32) error {
	fields, err := n.decoder.DecodeFull(n.block)
	if err != nil {
		return err
	}
	n.block = n.block[:0]
	n.encoded.Reset()
	isRequest := false // and not the trailer of one
	for _, f := range fields {
		isRequest = isRequest || f.Name == ":method"
		_ = n.encoder.WriteField(f)
	}
	if isRequest {
		_ = n.encoder.WriteField(hpack.HeaderField{Name: "heedtest-stream", Value: strconv.Itoa(int(stream))})
	}
	flags := n.flags&^(padded|priority) | endHeaders
	n.out.Write(frame(headersFrame, flags, stream, n.encoded.Bytes()))
	return nil
}

// fragment returns what of the payload of a HEADERS frame belongs to the block.
func fragment(payload []byte, flags byte) []byte {
	pad := 0
	if flags&padded != 0 && len(payload) > 0 {
		pad, payload = int(payload[0]), payload[1:]
	}
	if flags&priority != 0 {
		payload = payload[min(5, len(payload)):]
	}
	return payload[:max(len(payload)-pad, 0)]
}

// A frameInserter is what a server sends, with room for frames between its own.
type frameInserter struct {
	dst io.Writer

	mu      sync.Mutex
	head    []byte // as far as it was sent, of a frame whose head is not complete
	left    int    // bytes of the present frame
	pending []byte // frames to insert
}

// Write implements io.Writer.
func (i *frameInserter) Write(p []byte) (int, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	var out []byte
	for rest := p; len(rest) > 0; {
		out = i.appendPending(out)
		k := min(i.left, len(rest))
		if i.left == 0 {
			k = min(frameHeaderSize-len(i.head), len(rest))
			if i.head = append(i.head, rest[:k]...); len(i.head) == frameHeaderSize {
				i.left, i.head = payloadSize(i.head), i.head[:0]
			}
		} else {
			i.left -= k
		}
		out, rest = append(out, rest[:k]...), rest[k:]
	}
	if _, err := i.dst.Write(i.appendPending(out)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// insert sends f as soon as no frame of the server is under way.
func (i *frameInserter) insert(f []byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.pending = append(i.pending, f...)
	if out := i.appendPending(nil); out != nil {
		_, _ = i.dst.Write(out)
	}
}

// appendPending adds the waiting frames to out, if this is the place for them.
func (i *frameInserter) appendPending(out []byte) []byte {
	if i.left == 0 && len(i.head) == 0 {
		out, i.pending = append(out, i.pending...), nil
	}
	return out
}

// resetFrameOf returns a frame that ends a stream.
func resetFrameOf(stream, code uint32) []byte {
	return frame(resetFrame, 0, stream, binary.BigEndian.AppendUint32(nil, code))
}

// goAwayFrameOf returns a frame that says to use another connection. What came over
// streams after last was not looked at.
func goAwayFrameOf(last, code uint32) []byte {
	return frame(goAwayFrame, 0, 0, binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, last), code))
}

func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	f := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	f = binary.BigEndian.AppendUint32(append(f, flags), stream)
	return append(f, payload...)
}

func payloadSize(head []byte) int { return int(head[0])<<16 | int(head[1])<<8 | int(head[2]) }
