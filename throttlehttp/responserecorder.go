package throttlehttp

import (
	"bufio"
	"context"
	"io"
	"math"
	"net"
	"net/http"
	"sync/atomic"
)

// A responseRecorder sees what a handler does with a request, for a Rule with Settle. It is the
// context of the request meanwhile, where Spend finds it.
type responseRecorder struct {
	context.Context
	w         http.ResponseWriter
	status    int // 0: none yet
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

// AddCost adds n units to what the request of ctx has cost, for every Rule.FinalCost that
// charges by Response.AddedCost. It may be called many times, by several goroutines, until
// the handler returns. It reports whether there is such a rule; an n of 0 or less is
// not counted.
func AddCost(ctx context.Context, n int64) bool {
	a, ok := ctx.Value(recorderKey{}).(*responseRecorder)
	for b := a; b != nil; b, _ = b.Context.Value(recorderKey{}).(*responseRecorder) {
		b.addCost(n)
	}
	return ok
}

// addCost adds n, and stops at the end of what an int64 holds.
func (a *responseRecorder) addCost(n int64) {
	for n > 0 {
		old := a.addedCost.Load()
		if a.addedCost.CompareAndSwap(old, old+min(n, math.MaxInt64-old)) {
			return
		}
	}
}

// response returns what was done, after the handler has returned.
func (a *responseRecorder) response() Response {
	a.recordStatus(http.StatusOK)
	return Response{Status: a.status, Bytes: a.bytes, AddedCost: a.addedCost.Load()}
}

// recordStatus notes the status of the answer, unless it has begun.
func (a *responseRecorder) recordStatus(status int) {
	if a.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		a.status = status
	}
}

// writer returns a ResponseWriter that watches and can do what a.to can. What is asked
// of it by an interface, as io.Copy does for files, must not be lost; anything else is
// found by Unwrap. These are the sets that the servers of net/http have, for HTTP/1
// and HTTP/2, and the smaller ones of other middleware. Each is one pointer, so that
// none is allocated.
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

type pusher struct{ flusher }

func (w pusher) Push(target string, opts *http.PushOptions) error {
	return w.rec.w.(http.Pusher).Push(target, opts)
}
