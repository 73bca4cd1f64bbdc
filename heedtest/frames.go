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

// The server of net/http cannot produce the faults of HTTP/2, and does not report to a
// handler on which stream its request arrived. Both are added between the server and the
// network, frame by frame:
//
//	client ──▶ [ streamTagger: adds a header with the stream to each request ] ──▶ server
//	       ◀── [ frameInserter: inserts frames between those of the server ] ◀──

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
	maxBlock         = 2 << 20 // maximum length of a frame and the block before it, in bytes
)

var errTooLarge = errors.New("heedtest: a frame or a block of headers of more than 2 MiB: a server would reject it")

// streamHeader is the header that contains the number of the stream of a request.
const streamHeader = "Heedtest-Stream"

// takeStream returns the number of the stream of r, or 0 over HTTP/1.1, and deletes the
// header.
func takeStream(r *http.Request) uint32 {
	n, _ := strconv.ParseUint(r.Header.Get(streamHeader), 10, 31)
	r.Header.Del(streamHeader)
	return uint32(n)
}

// A streamTagger reads what a client sends and adds the number of the stream to each request.
// Header blocks depend on previous ones (HPACK), so all blocks are decoded and encoded again.
type streamTagger struct {
	src         io.Reader
	out         bytes.Buffer
	prefaceRead bool // whether the client preface has been copied
	block       []byte
	flags       byte // flags of the frame in which the block began
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

// readFrame copies the next frame to out.
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

// rewrite encodes the complete block again and writes it to out.
func (n *streamTagger) rewrite(stream uint32) error {
	fields, err := n.decoder.DecodeFull(n.block)
	if err != nil {
		return err
	}
	n.block = n.block[:0]
	n.encoded.Reset()
	isRequest := false // false for trailers
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

// fragment returns the part of the payload of a HEADERS frame that belongs to the block.
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

// A frameInserter forwards what a server sends and inserts frames between frames of the
// server.
type frameInserter struct {
	dst io.Writer

	mu      sync.Mutex
	head    []byte // the incomplete header of the current frame
	left    int    // bytes that are left of the current frame's payload
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

// insert sends f immediately, or after the frame that the server is writing.
func (i *frameInserter) insert(f []byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.pending = append(i.pending, f...)
	if out := i.appendPending(nil); out != nil {
		_, _ = i.dst.Write(out)
	}
}

// appendPending appends the pending frames to out unless a frame is incomplete.
func (i *frameInserter) appendPending(out []byte) []byte {
	if i.left == 0 && len(i.head) == 0 {
		out, i.pending = append(out, i.pending...), nil
	}
	return out
}

// resetFrameOf returns a RST_STREAM frame.
func resetFrameOf(stream, code uint32) []byte {
	return frame(resetFrame, 0, stream, binary.BigEndian.AppendUint32(nil, code))
}

// goAwayFrameOf returns a GOAWAY frame. It means that the connection accepts no more requests
// and that requests on streams after last have not been processed.
func goAwayFrameOf(last, code uint32) []byte {
	return frame(goAwayFrame, 0, 0, binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, last), code))
}

func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	f := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	f = binary.BigEndian.AppendUint32(append(f, flags), stream)
	return append(f, payload...)
}

func payloadSize(head []byte) int { return int(head[0])<<16 | int(head[1])<<8 | int(head[2]) }
