package heed

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heed-go/heed/internal/memhttp"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// An http2Server is an HTTP/2 server with configurable faults.
type http2Server struct {
	listener *memhttp.Listener
	base     *http.Transport
	requests atomic.Int64
	conns    atomic.Int64
	open     sync.Map                                   // keys are io.Closer
	play     func(c *http2Conn, stream uint32, n int64) // responds to request n
}

type http2Conn struct {
	*http2.Framer
	io.Closer
	*http2Server
}

func newHTTP2Server(play func(c *http2Conn, stream uint32, n int64)) *http2Server {
	f := &http2Server{listener: memhttp.NewListener(), play: play}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	f.base = &http.Transport{DialContext: dialer(f.listener), Protocols: protocols}
	go func() {
		for {
			c, err := f.listener.Accept()
			if err != nil {
				return
			}
			f.conns.Add(1)
			f.open.Store(c, nil)
			go f.serve(c)
		}
	}()
	return f
}

func (f *http2Server) close() {
	f.base.CloseIdleConnections()
	f.listener.Close()
	f.open.Range(func(c, _ any) bool { c.(io.Closer).Close(); return true })
}

func (f *http2Server) serve(c io.ReadWriteCloser) {
	defer c.Close()
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	fc := &http2Conn{Framer: http2.NewFramer(c, c), Closer: c, http2Server: f}
	fc.WriteSettings()
	for {
		frame, err := fc.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				fc.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				fc.WritePing(true, frame.Data)
			}
		case *http2.HeadersFrame:
			if frame.StreamEnded() {
				f.play(fc, frame.StreamID, f.requests.Add(1))
			}
		case *http2.DataFrame:
			if frame.StreamEnded() {
				f.play(fc, frame.StreamID, f.requests.Add(1))
			}
		}
	}
}

// respond sends a response with a status only.
func (c *http2Conn) respond(stream uint32, status int) {
	var b bytes.Buffer
	hpack.NewEncoder(&b).WriteField(hpack.HeaderField{Name: ":status", Value: strconv.Itoa(status)})
	c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: b.Bytes(), EndStream: true, EndHeaders: true})
}

// resetStreams resets the stream of request n with the n-th code, and responds to later
// requests with 200.
func resetStreams(codes ...http2.ErrCode) func(*http2Conn, uint32, int64) {
	return func(c *http2Conn, stream uint32, n int64) {
		if int(n) <= len(codes) {
			c.WriteRSTStream(stream, codes[n-1])
			return
		}
		c.respond(stream, 200)
	}
}

var streamScenarios = []scenario{
	{number: 134, summary: "REFUSED_STREAM: again, for any method and body", run: func(t *testing.T) {
		for _, method := range []string{"GET", "POST"} {
			for _, body := range []io.Reader{nil, strings.NewReader("abc"), &opaque{Reader: strings.NewReader("abc")}} {
				f := newHTTP2Server(resetStreams(http2.ErrCodeRefusedStream))
				req := put(t, body, -1)
				req.Method = method
				resp, err := (&Transport{Base: f.base}).RoundTrip(req)
				require.NoError(t, err)
				require.Equal(t, 200, resp.StatusCode)
				require.EqualValues(t, 2, f.requests.Load())
				require.EqualValues(t, 1, f.conns.Load())
				f.close()
			}
		}
	}},
	{number: 135, summary: "REFUSED_STREAM for ever ends", run: func(t *testing.T) {
		f := newHTTP2Server(func(c *http2Conn, stream uint32, _ int64) { c.WriteRSTStream(stream, http2.ErrCodeRefusedStream) })
		defer f.close()
		for _, method := range []string{"GET", "POST"} {
			f.requests.Store(0)
			_, err := (&Transport{Base: f.base, Retry: threeAttempts()}).RoundTrip(request(t, method, ""))
			require.ErrorIs(t, err, ErrMaxAttempts, method)
			require.LessOrEqual(t, f.requests.Load(), int64(3*8))
		}
	}},
	{number: 136, summary: "a GOAWAY that does not cover the request: again, on a new connection", run: func(t *testing.T) {
		f := newHTTP2Server(func(c *http2Conn, stream uint32, n int64) {
			if n == 1 {
				c.WriteGoAway(0, http2.ErrCodeNo, nil)
				return
			}
			c.respond(stream, 200)
		})
		defer f.close()
		resp, err := (&Transport{Base: f.base}).RoundTrip(request(t, "POST", "abc"))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.EqualValues(t, 2, f.conns.Load())
	}},
	{number: 137, summary: "a GOAWAY that covers it, then the end: only what is idempotent", run: func(t *testing.T) {
		for method, want := range map[string]int64{"GET": 2, "POST": 1} {
			f := newHTTP2Server(func(c *http2Conn, stream uint32, n int64) {
				if n == 1 {
					c.WriteGoAway(stream, http2.ErrCodeNo, nil)
					c.Close()
					return
				}
				c.respond(stream, 200)
			})
			_, err := (&Transport{Base: f.base}).RoundTrip(request(t, method, ""))
			require.Equal(t, want == 1, err != nil, err)
			require.Equal(t, want, f.requests.Load())
			f.close()
		}
	}},
	{number: 138, summary: "INTERNAL_ERROR, ENHANCE_YOUR_CALM, CANCEL: after a pause, what is idempotent", run: func(t *testing.T) {
		for _, code := range []http2.ErrCode{http2.ErrCodeInternal, http2.ErrCodeEnhanceYourCalm, http2.ErrCodeCancel} {
			for method, want := range map[string]int64{"GET": 2, "POST": 1} {
				f := newHTTP2Server(resetStreams(code))
				start := time.Now()
				_, err := (&Transport{Base: f.base, Retry: threeAttempts()}).RoundTrip(request(t, method, ""))
				require.Equal(t, want == 1, err != nil, err)
				require.Equal(t, want, f.requests.Load())
				require.Equal(t, time.Duration(want-1)*time.Second, time.Since(start))
				f.close()
			}
		}
	}},
	{number: 139, summary: "503, then 200: one connection", run: func(t *testing.T) {
		f := newHTTP2Server(func(c *http2Conn, stream uint32, n int64) { c.respond(stream, map[int64]int{1: 503, 2: 200}[n]) })
		defer f.close()
		resp, err := get(t, &Transport{Base: f.base})
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.EqualValues(t, 1, f.conns.Load())
	}},
}
