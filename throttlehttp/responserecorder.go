package throttlehttp

import (
	"bufio"
	"context"
	"io"
	"math"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/heed-go/heed/internal/closenotify"
)

// A responseRecorder records the response of a handler, for a Rule with a FinalCost. It is
// also the context of the request, in which AddCost finds it.
type responseRecorder struct {
	context.Context
	w         http.ResponseWriter
	status    int  // 0 means that none has been sent
	left      bool // the client had left when the status was recorded
	bytes     int64
	addedCost atomic.Int64
}

type recorderKey struct{}

// Value implements context.Context.
func (a *responseRecorder) Value(key any) any {
	if key == (recorderKey{}) {
		return a
	}
	return a.Context.Value(key)
}

// AddCost adds n units to Response.AddedCost of the request of ctx. Every Rule.FinalCost of
// the request, in all nested Middlewares, can use it. AddCost may be called many times, by
// several goroutines, until the handler returns. It reports whether any rule of the request
// has a FinalCost. An n of zero or less is ignored.
func AddCost(ctx context.Context, n int64) bool {
	a, ok := ctx.Value(recorderKey{}).(*responseRecorder)
	for b := a; b != nil; b, _ = b.Context.Value(recorderKey{}).(*responseRecorder) {
		b.addCost(n)
	}
	return ok
}

// addCost adds n to the recorded cost, which saturates at math.MaxInt64.
func (a *responseRecorder) addCost(n int64) {
	for n > 0 {
		old := a.addedCost.Load()
		if a.addedCost.CompareAndSwap(old, old+min(n, math.MaxInt64-old)) {
			return
		}
	}
}

// response returns the recorded response after the handler has returned.
func (a *responseRecorder) response() Response {
	a.recordStatus(http.StatusOK)
	return Response{Status: a.status, Bytes: a.bytes, AddedCost: a.addedCost.Load()}
}

// recordStatus records the status of the response unless one was recorded before.
// Informational statuses except 101 are ignored.
func (a *responseRecorder) recordStatus(status int) {
	if a.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		a.status, a.left = status, a.Context.Err() != nil
	}
}

// writer returns a ResponseWriter that records the response and has the optional interfaces
// that callers detect by type assertion, as io.Copy does with io.ReaderFrom, if a.w has them.
// Other interfaces are found through Unwrap. The combinations are those of the servers of
// net/http, for HTTP/1 and HTTP/2, and the smaller ones of other middleware. Each type
// consists of one pointer, so that converting it to an interface does not allocate.
func (a *responseRecorder) writer() http.ResponseWriter {
	w := recordingWriter{a}
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

type recordingWriter struct{ rec *responseRecorder }

func (w recordingWriter) Unwrap() http.ResponseWriter { return w.rec.w }
func (w recordingWriter) Header() http.Header         { return w.rec.w.Header() }

func (w recordingWriter) WriteHeader(status int) {
	w.rec.recordStatus(status)
	w.rec.w.WriteHeader(status)
}

func (w recordingWriter) Write(p []byte) (int, error) {
	w.rec.recordStatus(http.StatusOK)
	n, err := w.rec.w.Write(p)
	w.rec.bytes += int64(n)
	return n, err
}

func (w recordingWriter) WriteString(s string) (int, error) {
	w.rec.recordStatus(http.StatusOK)
	n, err := io.WriteString(w.rec.w, s)
	w.rec.bytes += int64(n)
	return n, err
}

type flusher struct{ recordingWriter }

func (w flusher) Flush() { _ = w.FlushError() }

func (w flusher) FlushError() error {
	w.rec.recordStatus(http.StatusOK)
	return http.NewResponseController(w.rec.w).Flush()
}

type hijacker struct{ flusher }

func (w hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.rec.w.(http.Hijacker).Hijack()
	if err == nil {
		w.rec.recordStatus(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

type readerFrom struct{ hijacker }

func (w readerFrom) ReadFrom(src io.Reader) (int64, error) {
	w.rec.recordStatus(http.StatusOK)
	n, err := w.rec.w.(io.ReaderFrom).ReadFrom(src)
	w.rec.bytes += n
	return n, err
}

// CloseNotify implements http.CloseNotifier, as the servers of net/http do.
func (w readerFrom) CloseNotify() <-chan bool { return closenotify.Of(w.rec.Context, w.rec.w) }

type pusher struct{ flusher }

func (w pusher) Push(target string, opts *http.PushOptions) error {
	return w.rec.w.(http.Pusher).Push(target, opts)
}

// CloseNotify implements http.CloseNotifier, as the servers of net/http do.
func (w pusher) CloseNotify() <-chan bool { return closenotify.Of(w.rec.Context, w.rec.w) }
