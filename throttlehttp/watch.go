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

// A watch sees what a handler does with a request, for a Rule with Settle. It is the
// context of the request meanwhile, where Spend finds it.
type watch struct {
	context.Context
	to     http.ResponseWriter
	status int // 0: none yet
	bytes  int64
	spent  atomic.Int64
}

type watchKey struct{}

// Value implements context.Context.
func (a *watch) Value(key any) any {
	if key == (watchKey{}) {
		return a
	}
	return a.Context.Value(key)
}

// Spend adds n units to what the request of ctx has cost, for every Rule.Settle that
// charges by Answer.Spent. It may be called many times, by several goroutines, until
// the handler returns. It reports whether there is such a rule; an n of 0 or less is
// not counted.
func Spend(ctx context.Context, n int64) bool {
	a, ok := ctx.Value(watchKey{}).(*watch)
	for b := a; b != nil; b, _ = b.Context.Value(watchKey{}).(*watch) {
		b.spend(n)
	}
	return ok
}

// spend adds n, and stops at the end of what an int64 holds.
func (a *watch) spend(n int64) {
	for n > 0 {
		old := a.spent.Load()
		if a.spent.CompareAndSwap(old, old+min(n, math.MaxInt64-old)) {
			return
		}
	}
}

// answer returns what was done, after the handler has returned.
func (a *watch) answer() Answer {
	a.begin(http.StatusOK)
	return Answer{Status: a.status, Bytes: a.bytes, Spent: a.spent.Load()}
}

// begin notes the status of the answer, unless it has begun.
func (a *watch) begin(status int) {
	if a.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		a.status = status
	}
}

// writer returns a ResponseWriter that watches and can do what a.to can. What is asked
// of it by an interface, as io.Copy does for files, must not be lost; anything else is
// found by Unwrap. These are the sets that the servers of net/http have, for HTTP/1
// and HTTP/2, and the smaller ones of other middleware. Each is one pointer, so that
// none is allocated.
func (a *watch) writer() http.ResponseWriter {
	w := watched{a}
	if _, ok := a.to.(http.Flusher); !ok {
		return w
	}
	if _, ok := a.to.(http.Pusher); ok {
		return pusher{flusher{w}}
	}
	if _, ok := a.to.(http.Hijacker); !ok {
		return flusher{w}
	}
	if _, ok := a.to.(io.ReaderFrom); !ok {
		return hijacker{flusher{w}}
	}
	return readerFrom{hijacker{flusher{w}}}
}

type watched struct{ a *watch }

func (w watched) Unwrap() http.ResponseWriter { return w.a.to }
func (w watched) Header() http.Header         { return w.a.to.Header() }

func (w watched) WriteHeader(status int) {
	w.a.begin(status)
	w.a.to.WriteHeader(status)
}

func (w watched) Write(p []byte) (int, error) {
	w.a.begin(http.StatusOK)
	n, err := w.a.to.Write(p)
	w.a.bytes += int64(n)
	return n, err
}

func (w watched) WriteString(s string) (int, error) {
	w.a.begin(http.StatusOK)
	n, err := io.WriteString(w.a.to, s)
	w.a.bytes += int64(n)
	return n, err
}

type flusher struct{ watched }

func (w flusher) Flush() { _ = w.FlushError() }

func (w flusher) FlushError() error {
	w.a.begin(http.StatusOK)
	return http.NewResponseController(w.a.to).Flush()
}

type hijacker struct{ flusher }

func (w hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.a.to.(http.Hijacker).Hijack()
	if err == nil {
		w.a.begin(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

type readerFrom struct{ hijacker }

func (w readerFrom) ReadFrom(src io.Reader) (int64, error) {
	w.a.begin(http.StatusOK)
	n, err := w.a.to.(io.ReaderFrom).ReadFrom(src)
	w.a.bytes += n
	return n, err
}

type pusher struct{ flusher }

func (w pusher) Push(target string, opts *http.PushOptions) error {
	return w.a.to.(http.Pusher).Push(target, opts)
}
