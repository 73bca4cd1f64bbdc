package main

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/juju/ratelimit"
	xrate "golang.org/x/time/rate"

	"github.com/heed-go/heed/bandwidth"
	"github.com/heed-go/heed/throttle"
)

// A contender paces streams. Each function may be nil: nothing is then paced.
type contender struct {
	name string

	// client returns a client whose uploads or downloads are paced together.
	client func(base http.RoundTripper, perSecond int64, upload bool) http.RoundTripper

	// server returns h with request bodies or responses that are paced together.
	server func(h http.Handler, perSecond int64, upload bool) http.Handler
}

var contenders = []contender{
	{"heed", heedClient, heedServer},
	{"juju/ratelimit", peerClient(newJuju), peerServer(newJuju)},
	{"x/time/rate", peerClient(newXTime), peerServer(newXTime)},
}

// limitOf returns the limit of all contenders: its burst is what it restores in 50 ms.
func limitOf(perSecond int64) throttle.Limit { return bandwidth.PerSecond(perSecond) }

func heedClient(base http.RoundTripper, perSecond int64, upload bool) http.RoundTripper {
	t := &bandwidth.Transport{Base: base}
	if l := throttle.NewTokenBucket(limitOf(perSecond)); upload {
		t.Upload = l
	} else {
		t.Download = l
	}
	return t
}

func heedServer(h http.Handler, perSecond int64, upload bool) http.Handler {
	m := &bandwidth.Middleware{}
	if l := throttle.NewTokenBucket(limitOf(perSecond)); upload {
		m.Upload = l
	} else {
		m.Download = l
	}
	return m.Handler(h)
}

// A peer paces readers and writers by one limit.
type peer interface {
	reader(io.Reader) io.Reader
	writer(io.Writer) io.Writer
}

type juju struct{ bucket *ratelimit.Bucket }

func newJuju(perSecond int64) peer {
	l := limitOf(perSecond)
	return juju{ratelimit.NewBucketWithRate(float64(l.Count), l.Burst)}
}

func (p juju) reader(r io.Reader) io.Reader { return ratelimit.Reader(r, p.bucket) }
func (p juju) writer(w io.Writer) io.Writer { return ratelimit.Writer(w, p.bucket) }

// An xtime waits after each Read and before each Write, as programs with x/time/rate usually
// do, in parts that fit into the burst.
type xtime struct{ limiter *xrate.Limiter }

func newXTime(perSecond int64) peer {
	l := limitOf(perSecond)
	return xtime{xrate.NewLimiter(xrate.Limit(l.Count), int(l.Burst))}
}

func (p xtime) reader(r io.Reader) io.Reader { return xtimeReader{p, r} }
func (p xtime) writer(w io.Writer) io.Writer { return xtimeWriter{p, w} }

func (p xtime) wait(n int) error {
	for n > 0 {
		part := min(n, p.limiter.Burst())
		if err := p.limiter.WaitN(context.Background(), part); err != nil {
			return err
		}
		n -= part
	}
	return nil
}

type xtimeReader struct {
	xtime
	r io.Reader
}

func (r xtimeReader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	if err := r.wait(n); err != nil {
		return n, err
	}
	return n, err
}

type xtimeWriter struct {
	xtime
	w io.Writer
}

func (w xtimeWriter) Write(b []byte) (int, error) {
	if err := w.wait(len(b)); err != nil {
		return 0, err
	}
	return w.w.Write(b)
}

// A readCloser closes another value than it reads.
type readCloser struct {
	io.Reader
	io.Closer
}

// peerClient wraps the bodies, as these libraries leave it to their users.
func peerClient(newPeer func(int64) peer) func(http.RoundTripper, int64, bool) http.RoundTripper {
	return func(base http.RoundTripper, perSecond int64, upload bool) http.RoundTripper {
		p := newPeer(perSecond)
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if upload {
				r := *req
				r.Body = readCloser{p.reader(req.Body), req.Body}
				return base.RoundTrip(&r)
			}
			resp, err := base.RoundTrip(req)
			if err == nil {
				resp.Body = readCloser{p.reader(resp.Body), resp.Body}
			}
			return resp, err
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A peerWriter is a ResponseWriter whose body is paced.
type peerWriter struct {
	http.ResponseWriter
	body io.Writer
}

func (w peerWriter) Write(b []byte) (int, error) { return w.body.Write(b) }

func peerServer(newPeer func(int64) peer) func(http.Handler, int64, bool) http.Handler {
	return func(h http.Handler, perSecond int64, upload bool) http.Handler {
		p := newPeer(perSecond)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if upload {
				r2 := *r
				r2.Body = readCloser{p.reader(r.Body), r.Body}
				h.ServeHTTP(w, &r2)
				return
			}
			h.ServeHTTP(peerWriter{w, p.writer(w)}, r)
		})
	}
}

// zeros is an endless body that ends with ctx.
type zeros struct{ ctx context.Context }

func (z zeros) Read(p []byte) (int, error) {
	if z.ctx.Err() != nil {
		return 0, io.EOF
	}
	return len(p), nil
}

// readAll reads r with a buffer of size bytes until end, and returns how many bytes arrived.
func readAll(r io.Reader, size int, end time.Time) (n int64) {
	buf := make([]byte, size)
	for {
		m, err := r.Read(buf)
		if time.Now().After(end) {
			return n
		}
		if n += int64(m); err != nil {
			return n
		}
	}
}
