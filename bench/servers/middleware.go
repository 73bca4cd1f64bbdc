package main

import (
	"net/http"
	"net/http/httptest"
	"time"

	tollbooth7 "github.com/didip/tollbooth/v7"
	"github.com/go-chi/httprate"
	"github.com/throttled/throttled/v2"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/heed-go/heed/bench"
	"github.com/heed-go/heed/internal/serverrules"
)

// The middlewares of this file are not simulated: they are the real ones, which read virtual
// time. Their limits are in memory, and all requests are from one address.

// middleware returns a server that replies as wrap(handler) does.
func middleware(wrap func(http.Handler) http.Handler) serverrules.Server {
	h := wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	return func(r serverrules.Request) serverrules.Reply {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, r.Path, nil))
		w.Header().Del("Content-Length") // of the body that is not passed on
		return serverrules.Reply{Status: w.Code, Header: w.Header()}
	}
}

// httpRate is go-chi/httprate: a sliding counter, with the length of the window as
// Retry-After.
func httpRate(limit int, per time.Duration) serverrules.Server {
	return middleware(httprate.LimitBy(limit, per, httprate.Key("*")))
}

// ulule is ulule/limiter: a fixed window whose reset is rounded down to a second.
func ulule(limit int64, per time.Duration) serverrules.Server {
	store := memory.NewStoreWithOptions(limiter.StoreOptions{Prefix: "l"}) // without a goroutine that cleans up
	return middleware(stdlib.NewMiddleware(limiter.New(store, limiter.Rate{Period: per, Limit: limit})).Handler)
}

// tollbooth is didip/tollbooth: a token bucket of x/time/rate whose burst is the number of
// requests of one second. RateLimit-Reset is always 1.
func tollbooth(perSecond float64) serverrules.Server {
	l := tollbooth7.NewLimiter(perSecond, nil)
	l.SetIPLookups([]string{"RemoteAddr"})
	return middleware(func(next http.Handler) http.Handler { return tollbooth7.LimitHandler(l, next) })
}

// gcra is throttled/throttled: a GCRA with all headers.
func gcra(perSecond, burst int) serverrules.Server {
	return middleware(func(next http.Handler) http.Handler {
		return bench.WrapThrottled(throttled.RateQuota{MaxRate: throttled.PerSec(perSecond), MaxBurst: burst - 1}, 1, next)
	})
}
