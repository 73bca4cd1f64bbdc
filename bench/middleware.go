package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	tollbooth7 "github.com/didip/tollbooth/v7"
	tollbooth8 "github.com/didip/tollbooth/v8"
	limiter8 "github.com/didip/tollbooth/v8/limiter"
	"github.com/go-chi/httprate"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/heed-go/heed/internal/memhttp"
	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttlehttp"
)

// A Middleware limits each address to a number of requests per hour, and states the limit
// in headers.
type Middleware struct {
	Name string
	Wrap func(perHour int, next http.Handler) http.Handler
}

// Middlewares returns ours first, in two dialects, and then the peers, each configured as
// in its documentation for limits by address in memory.
func Middlewares() []Middleware {
	return []Middleware{
		{"heed", heedMiddleware(0)},
		{"heed, all dialects", heedMiddleware(headers.XRateLimit | headers.XResetAfter | headers.Draft03 | headers.Draft10)},
		{"go-chi/httprate", wrapHTTPRate},
		{"ulule/limiter v3", wrapUlule},
		{"didip/tollbooth v7", wrapTollbooth7},
		{"didip/tollbooth v8", wrapTollbooth8},
		{"throttled v2", wrapThrottled},
	}
}

func heedMiddleware(d headers.Dialect) func(int, http.Handler) http.Handler {
	return func(perHour int, next http.Handler) http.Handler {
		m := &throttlehttp.Middleware{Dialect: d, Rules: []throttlehttp.Rule{{
			Limiter: keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerHour(int64(perHour))}),
			Key:     throttlehttp.IP{}.Key,
		}}}
		return m.Handler(next)
	}
}

func wrapHTTPRate(perHour int, next http.Handler) http.Handler {
	return httprate.LimitBy(perHour, time.Hour, func(r *http.Request) (string, error) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		return httprate.CanonicalizeIP(host), err
	})(next)
}

func wrapUlule(perHour int, next http.Handler) http.Handler {
	l := limiter.New(memory.NewStore(), limiter.Rate{Period: time.Hour, Limit: int64(perHour)})
	return stdlib.NewMiddleware(l).Handler(next)
}

func wrapTollbooth7(perHour int, next http.Handler) http.Handler {
	l := tollbooth7.NewLimiter(float64(perHour)/3600, nil)
	l.SetBurst(perHour)
	l.SetIPLookups([]string{"RemoteAddr"})
	return tollbooth7.LimitHandler(l, next)
}

func wrapTollbooth8(perHour int, next http.Handler) http.Handler {
	l := tollbooth8.NewLimiter(float64(perHour)/3600, nil)
	l.SetBurst(perHour)
	l.SetIPLookup(limiter8.IPLookup{Name: "RemoteAddr"})
	return tollbooth8.LimitHandler(l, next)
}

func wrapThrottled(perHour int, next http.Handler) http.Handler {
	return WrapThrottled(throttled.RateQuota{MaxRate: throttled.PerHour(perHour), MaxBurst: perHour - 1}, 1<<16, next)
}

// WrapThrottled returns next with a limit of throttled/throttled per IP address, for at most so
// many addresses.
func WrapThrottled(q throttled.RateQuota, maxAddresses int, next http.Handler) http.Handler {
	store, err := memstore.NewCtx(maxAddresses)
	if err != nil {
		panic(err)
	}
	l, err := throttled.NewGCRARateLimiterCtx(store, q)
	if err != nil {
		panic(err)
	}
	m := throttled.HTTPRateLimiterCtx{RateLimiter: l, VaryBy: &throttled.VaryBy{RemoteAddr: true}}
	return m.RateLimit(next)
}

// ample is more requests than any measurement makes from one address. A bucket counts this
// rate exactly in nanoseconds.
const ample = 1_000_000_000

// MiddlewarePairs compares ours with each peer, called directly: with all requests granted,
// and with all requests rejected.
func MiddlewarePairs() (pairs []Pair) {
	all := Middlewares()
	for _, theirs := range all[2:] {
		for _, ours := range all[:2] {
			pairs = append(pairs, Pair{Work: "request granted", Call: ours.Name, Peer: theirs.Name, Granted: true,
				Heed: serve(ours, ample), Theirs: serve(theirs, ample)})
		}
		pairs = append(pairs, Pair{Work: "request rejected", Call: all[0].Name, Peer: theirs.Name,
			Heed: serve(all[0], 1), Theirs: serve(theirs, 1)})
	}
	return pairs
}

// ServerPairs measures requests to a server in memory with each middleware and with none;
// the difference is the cost of the middleware.
func ServerPairs() (pairs []Pair) {
	bare := Middleware{"none", func(_ int, next http.Handler) http.Handler { return next }}
	for _, m := range Middlewares() {
		pairs = append(pairs, Pair{Work: "over a server", Call: m.Name, Peer: "no middleware", Granted: true,
			Heed: overServer(m), Theirs: overServer(bare)})
	}
	return pairs
}

// HeaderCounts returns the number of headers that m adds to a granted and to a rejected
// response.
func (m Middleware) HeaderCounts() (granted, rejected int) {
	h := m.Wrap(2, okHandler)
	for range 2 {
		w := &statusWriter{header: http.Header{}}
		h.ServeHTTP(w, clientRequests()[0])
		granted = len(w.header) - 1
	}
	w := &statusWriter{header: http.Header{}}
	for range 10 {
		clear(w.header)
		h.ServeHTTP(w, clientRequests()[0])
	}
	for _, other := range []string{"Content-Type", "Content-Length", "X-Content-Type-Options", "Cache-Control", "Vary"} {
		w.header.Del(other)
	}
	return granted, len(w.header)
}

// okHandler is a minimal handler.
var okHandler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	w.Header()["Content-Type"] = plainText
	w.WriteHeader(http.StatusOK)
})

var plainText = []string{"text/plain"}

// clientRequests are requests of a thousand clients. They are not modified.
var clientRequests = sync.OnceValue(func() []*http.Request {
	all := make([]*http.Request, 1000)
	for i := range all {
		all[i], _ = http.NewRequest(http.MethodGet, "http://mem.test/", nil)
		all[i].RemoteAddr = fmt.Sprintf("192.0.%d.%d:4711", i/250, i%250)
	}
	return all
})

// A statusWriter is a ResponseWriter with negligible cost.
type statusWriter struct {
	header http.Header
	status int
}

func (a *statusWriter) Header() http.Header         { return a.header }
func (a *statusWriter) WriteHeader(status int)      { a.status = status }
func (a *statusWriter) Write(p []byte) (int, error) { return len(p), nil }

// serve calls the handler of m directly. A limit of one request is exhausted first.
func serve(m Middleware, perHour int) Side {
	handler := sync.OnceValue(func() http.Handler {
		h := m.Wrap(perHour, okHandler)
		for range 3 * map[bool]int{true: 1}[perHour == 1] {
			serveAll(h, len(clientRequests()))
		}
		return h
	})
	return func(n int) int { return serveAll(handler(), n) }
}

func serveAll(h http.Handler, n int) (granted int) {
	w, requests := &statusWriter{header: make(http.Header)}, clientRequests()
	for i := range n {
		clear(w.header)
		w.status = 0
		if h.ServeHTTP(w, requests[i%len(requests)]); w.status == http.StatusOK {
			granted++
		}
	}
	return granted
}

// overServer sends requests over one connection to a server in memory, and reads the
// responses at minimal cost.
func overServer(m Middleware) Side {
	server := sync.OnceValue(func() *memhttp.Server { return memhttp.NewServer(m.Wrap(ample, okHandler)) })
	return func(n int) (granted int) {
		conn, err := server().Transport().DialContext(context.Background(), "tcp", "")
		if err != nil {
			return 0
		}
		defer conn.Close()
		r := bufio.NewReader(conn)
		for range n {
			if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: mem.test\r\n\r\n"); err != nil {
				return granted
			}
			line, err := r.ReadSlice('\n')
			if err != nil {
				return granted
			}
			if strings.HasPrefix(string(line), "HTTP/1.1 200") {
				granted++
			}
			for len(line) > 2 {
				if line, err = r.ReadSlice('\n'); err != nil {
					return granted
				}
			}
		}
		return granted
	}
}
