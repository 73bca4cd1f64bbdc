package heedtest

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sort"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2/hpack"
)

// TestFrameInserter_neverSplitsAFrame checks that a frame is inserted between two frames
// of the server, wherever the writes of the server end.
func TestFrameInserter_neverSplitsAFrame(t *testing.T) {
	first, empty, last := frame(0, 0, 1, []byte("first")), frame(4, 1, 0, nil), frame(0, 1, 1, []byte("last"))
	inserted := resetFrameOf(3, refusedStream)
	all := bytes.Join([][]byte{first, empty, last}, nil)
	bounds := []int{0, len(first), len(first) + len(empty), len(all)}
	for split := range len(all) + 1 {
		var got bytes.Buffer
		i := &frameInserter{dst: &got}
		_, err := i.Write(all[:split])
		require.NoError(t, err)
		i.insert(inserted)
		_, err = i.Write(all[split:])
		require.NoError(t, err)
		at := bounds[sort.SearchInts(bounds, split)]
		require.Equal(t, string(all[:at])+string(inserted)+string(all[at:]), got.String(), "split at %d", split)
	}
}

// TestStreamTagger_addsTheStreamToRequests checks header blocks that the client splits,
// pads and gives a priority.
func TestStreamTagger_addsTheStreamToRequests(t *testing.T) {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	encode := func(fields ...string) []byte {
		block.Reset()
		for i := 0; i < len(fields); i += 2 {
			require.NoError(t, enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
		}
		return bytes.Clone(block.Bytes())
	}
	preface := strings.Repeat("p", prefaceSize)
	request := []string{":method", "POST", ":path", "/a", "x-long", strings.Repeat("v", 50)}
	one := encode(request...)
	two := encode(request...) // refers to the HPACK table
	trailer := encode("x-sum", "7")
	three := encode(request...)
	data := frame(0, 0, 1, []byte("data"))
	sent := bytes.Join([][]byte{
		[]byte(preface),
		frame(headersFrame, endHeaders, 1, one),
		data,
		frame(headersFrame, padded|priority, 3, append([]byte{2, 0, 0, 0, 0, 9}, append(two[:1:1], 0, 0)...)),
		frame(continuation, 0, 3, two[1:2]),
		frame(continuation, endHeaders, 3, two[2:]),
		frame(headersFrame, endHeaders|1, 1, trailer),
		frame(headersFrame, endHeaders|1, 5, three),
	}, nil)

	got, err := io.ReadAll(newStreamTagger(iotest.OneByteReader(bytes.NewReader(sent))))
	require.NoError(t, err)
	require.Equal(t, preface, string(got[:prefaceSize]))
	dec := hpack.NewDecoder(headerTableLimit, nil)
	var seen []string
	for got = got[prefaceSize:]; len(got) > 0; {
		size, kind, flags, stream := payloadSize(got), got[3], got[4], binary.BigEndian.Uint32(got[5:])
		payload := got[frameHeaderSize : frameHeaderSize+size]
		got = got[frameHeaderSize+size:]
		if kind != headersFrame {
			require.Equal(t, data, frame(kind, flags, stream, payload))
			continue
		}
		require.Equal(t, byte(endHeaders), flags&^1)
		fields, err := dec.DecodeFull(payload)
		require.NoError(t, err)
		var s []string
		for _, f := range fields {
			s = append(s, f.Name+"="+f.Value)
		}
		seen = append(seen, strings.Join(s, " "))
	}
	prefix := ":method=POST :path=/a x-long=" + strings.Repeat("v", 50) + " heedtest-stream="
	require.Equal(t, []string{prefix + "1", prefix + "3", "x-sum=7", prefix + "5"}, seen)
}

func TestStreamTagger_brokenInputIsAnError(t *testing.T) {
	for name, sent := range map[string][]byte{
		"cut head":    {0, 0},
		"cut payload": frame(0, 0, 1, []byte("data"))[:11],
		"bad block":   frame(headersFrame, endHeaders, 1, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}),
		"endless":     bytes.Repeat(frame(continuation, 0, 1, make([]byte, 1<<20)), 3),
		"short":       frame(headersFrame, endHeaders|padded|priority, 1, []byte{200, 1})[:10],
	} {
		_, err := io.ReadAll(newStreamTagger(bytes.NewReader(append(make([]byte, prefaceSize), sent...))))
		require.Error(t, err, name)
	}
	_, err := io.ReadAll(newStreamTagger(bytes.NewReader(append(make([]byte, prefaceSize), 255, 255, 255, 0, 0, 0, 0, 0, 0))))
	require.ErrorIs(t, err, errTooLarge)
	require.Empty(t, fragment([]byte{200, 1, 2}, padded|priority))
	require.Empty(t, fragment(nil, padded|priority))
	require.Empty(t, fragment([]byte{0}, padded))
	require.Equal(t, []byte{7}, fragment([]byte{0, 7}, padded))
	require.Equal(t, []byte{7}, fragment([]byte{0, 0, 0, 0, 0, 7}, priority))
}

// TestStreamTagger_copiesTheLongestFrame checks a frame of 2 MiB.
func TestStreamTagger_copiesTheLongestFrame(t *testing.T) {
	sent := append(make([]byte, prefaceSize), frame(0, 0, 1, make([]byte, maxBlock))...)
	got, err := io.ReadAll(newStreamTagger(bytes.NewReader(sent)))
	require.NoError(t, err)
	require.True(t, bytes.Equal(sent, got))
}

// TestStreamTagger_forgetsABlock checks that a block of headers that has ended does not count
// towards the maximum length of later frames.
func TestStreamTagger_forgetsABlock(t *testing.T) {
	var block bytes.Buffer
	require.NoError(t, hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: "x-long", Value: strings.Repeat("v", 100_000)}))
	data := frame(0, 0, 1, make([]byte, maxBlock))
	sent := bytes.Join([][]byte{make([]byte, prefaceSize), frame(headersFrame, endHeaders, 1, block.Bytes()), data}, nil)
	got, err := io.ReadAll(newStreamTagger(bytes.NewReader(sent)))
	require.NoError(t, err)
	require.True(t, bytes.HasSuffix(got, data))
}

// A halfCloser counts calls of CloseWrite.
type halfCloser struct {
	net.Conn
	closed int
}

func (c *halfCloser) CloseWrite() error { c.closed++; return nil }

func TestConn_closesTheWritingDirection(t *testing.T) {
	inner := new(halfCloser)
	c := &conn{Conn: inner}
	require.NoError(t, c.CloseWrite())
	require.Equal(t, 1, inner.closed)
	c.hang()
	require.NoError(t, c.CloseWrite())
	require.Equal(t, 1, inner.closed, "nothing is sent any more")
	require.NoError(t, (&conn{Conn: struct{ net.Conn }{inner}}).CloseWrite())
}

func FuzzStreamTagger(f *testing.F) {
	f.Add(frame(headersFrame, endHeaders, 1, []byte{0x82, 0x84}))
	f.Add(frame(headersFrame, padded|priority, 1, []byte{1, 0, 0, 0, 0, 9, 0x82, 0}))
	f.Add(frame(continuation, endHeaders, 1, []byte{0x82}))
	f.Fuzz(func(t *testing.T, sent []byte) {
		out, _ := io.ReadAll(newStreamTagger(bytes.NewReader(append(make([]byte, prefaceSize), sent...))))
		for out = out[min(prefaceSize, len(out)):]; len(out) > 0; {
			require.GreaterOrEqual(t, len(out), frameHeaderSize)
			require.GreaterOrEqual(t, len(out)-frameHeaderSize, payloadSize(out), "whole frames only")
			out = out[frameHeaderSize+payloadSize(out):]
		}
	})
}
