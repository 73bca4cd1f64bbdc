package bandwidth

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"math"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/heed-go/heed/internal/closenotify"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// A response paces one request of a server and its response.
type response struct {
	w                http.ResponseWriter
	request          *http.Request
	settings         settings
	upload, download throttle.Limiter

	in     *body   // the body of the request; nil: not paced
	out    *stream // the body of the response; nil: not paced
	noBody bool    // the status of the response allows no body

	written   int64 // bytes that were written
	unflushed int64 // bytes that were written since the last flush
}

// detectLength is how many bytes a server of net/http collects to find the length of a body
// that its handler does not state.
const detectLength = 4 << 10

// flushBeforeWait flushes the response when a Write waits, so that bytes that are granted are
// also sent, and not collected by the server. It does not while the server may still find
// the length of the body.
func (a *response) flushBeforeWait(queue.Position) error {
	if a.written > detectLength && a.unflushed > 0 {
		_ = a.flush() // the next Write reports an error of the connection
	}
	return nil
}

func (a *response) flush() error {
	a.unflushed = 0
	return http.NewResponseController(a.w).Flush()
}

func (a *response) write(p []byte) (int, error) {
	n, err := a.w.Write(p)
	a.written, a.unflushed = a.written+int64(n), a.unflushed+int64(n)
	return n, err
}

func (a *response) writeString(s string) (int, error) {
	n, err := io.WriteString(a.w, s)
	a.written, a.unflushed = a.written+int64(n), a.unflushed+int64(n)
	return n, err
}

// pacedRequest returns the request for the handler.
func (a *response) pacedRequest() *http.Request {
	r := a.settings.requestFor(a.request, a.upload)
	if r != a.request {
		a.in = r.Body.(*body)
	}
	return r
}

// writer returns the ResponseWriter for the handler. It has the optional interfaces that
// callers detect by type assertion, as io.Copy does with io.ReaderFrom, if a.w has them.
// The combinations are those of the servers of net/http, and the smaller ones of other middleware.
func (a *response) writer() http.ResponseWriter {
	if a.request.Method != http.MethodHead {
		a.out = a.settings.stream(a.request.Context(), a.download)
	}
	if a.out != nil {
		a.out.onWait = a.flushBeforeWait
	}
	w := responseWriter{a}
	if _, ok := a.w.(http.Flusher); !ok {
		return w
	}
	if _, ok := a.w.(http.Pusher); ok {
		return pusher{flusher{w}}
	}
	if _, ok := a.w.(http.Hijacker); !ok {
		return flusher{w}
	}
	if _, ok := a.w.(io.ReaderFrom); !ok {
		return hijacker{flusher{w}}
	}
	return readerFrom{hijacker{flusher{w}}}
}

// close returns what was not used after the handler has returned.
func (a *response) close() {
	if a.in != nil {
		a.in.stream.close(http.ErrBodyReadAfterClose)
	}
	if a.out != nil {
		a.out.close(errHandlerReturned)
	}
}

// paced reports whether bytes that are written now take units.
func (a *response) paced() bool { return a.out != nil && !a.noBody }

type responseWriter struct{ *response }

func (w responseWriter) Unwrap() http.ResponseWriter { return w.w }
func (w responseWriter) Header() http.Header         { return w.w.Header() }

func (w responseWriter) WriteHeader(status int) {
	w.noBody = status == http.StatusNoContent || status == http.StatusNotModified
	w.w.WriteHeader(status)
}

func (w responseWriter) Write(p []byte) (int, error) {
	if !w.paced() {
		return w.w.Write(p)
	}
	return writePaced(w.out, p, w.write)
}

func (w responseWriter) WriteString(s string) (int, error) {
	if !w.paced() {
		return io.WriteString(w.w, s)
	}
	return writePaced(w.out, s, w.writeString)
}

// SetReadDeadline is called by http.ResponseController.
func (w responseWriter) SetReadDeadline(t time.Time) error {
	err := http.NewResponseController(w.w).SetReadDeadline(t)
	if err == nil && w.in != nil {
		w.in.stream.waits.setDeadline(t)
	}
	return err
}

// SetWriteDeadline is called by http.ResponseController.
func (w responseWriter) SetWriteDeadline(t time.Time) error {
	err := http.NewResponseController(w.w).SetWriteDeadline(t)
	if err == nil && w.out != nil {
		w.out.waits.setDeadline(t)
	}
	return err
}

type flusher struct{ responseWriter }

func (w flusher) Flush()            { _ = w.FlushError() }
func (w flusher) FlushError() error { return w.flush() }

type pusher struct{ flusher }

func (w pusher) Push(target string, opts *http.PushOptions) error {
	return w.w.(http.Pusher).Push(target, opts)
}

// CloseNotify implements http.CloseNotifier, as the servers of net/http do.
func (w pusher) CloseNotify() <-chan bool { return closenotify.Of(w.request.Context(), w.w) }

type hijacker struct{ flusher }

func (w hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := w.w.(http.Hijacker).Hijack()
	if err != nil {
		return c, rw, err
	}
	return hijacked(c, rw, w.settings.duplex(w.request.Context(), w.upload, w.download)), rw, nil
}

type readerFrom struct{ hijacker }

// CloseNotify implements http.CloseNotifier, as the servers of net/http do.
func (w readerFrom) CloseNotify() <-chan bool { return closenotify.Of(w.request.Context(), w.w) }

// ReadFrom copies src to the response. It passes a regular file to ReadFrom of the
// ResponseWriter below, which can avoid copying it, in chunks.
func (w readerFrom) ReadFrom(src io.Reader) (n int64, err error) {
	if !w.paced() {
		return w.w.(io.ReaderFrom).ReadFrom(src)
	}
	if file, size := regularFile(src); size > 0 {
		var done bool
		if n, done, err = w.readFromFile(src, file, size); done {
			return n, err
		}
	}
	buf := copyBuffers.Get().(*[copyBuffer]byte)
	defer copyBuffers.Put(buf)
	m, err := io.CopyBuffer(onlyWriter{w}, src, buf[:])
	return n + m, err
}

// readFromFile copies the next size bytes of file, which src reads. It reports whether that
// failed, or file has ended before.
func (w readerFrom) readFromFile(src io.Reader, file file, size int64) (n int64, done bool, err error) {
	limited, _ := src.(*io.LimitedReader)
	for n < size {
		chunk, err := w.out.size(int(min(size-n, maxChunk)))
		if err == nil {
			_, err = w.out.take(chunk)
		}
		if err != nil {
			return n, true, err
		}
		m, err := w.w.(io.ReaderFrom).ReadFrom(&io.LimitedReader{R: file, N: int64(chunk)})
		w.out.settle(int(max(int64(chunk)-m, 0)))
		n += m
		if limited != nil {
			limited.N -= m
		}
		if err != nil || m < int64(chunk) {
			return n, true, err
		}
	}
	return n, false, nil
}

// A file is an *os.File, or the type by which its method WriteTo passes it on.
type file interface {
	io.ReadSeeker
	syscall.Conn
	Stat() (fs.FileInfo, error)
}

// regularFile returns the regular file that src reads, and how many bytes src has left. It
// returns 0 bytes if src reads something else.
func regularFile(src io.Reader) (file, int64) {
	limit := int64(math.MaxInt64)
	if l, ok := src.(*io.LimitedReader); ok {
		src, limit = l.R, l.N
	}
	f, ok := src.(file)
	if !ok {
		return nil, 0
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, 0
	}
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, 0
	}
	return f, min(info.Size()-at, limit)
}

// copyBuffer is the size of the buffers of ReadFrom, which is that of io.Copy.
const copyBuffer = 32 << 10

var copyBuffers = sync.Pool{New: func() any { return new([copyBuffer]byte) }}

// An onlyWriter hides the methods of a ResponseWriter except Write.
type onlyWriter struct{ io.Writer }

var errHandlerReturned = errors.New("bandwidth: the handler has returned")
