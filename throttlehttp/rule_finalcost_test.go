package throttlehttp_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/internal/memhttp"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttlehttp"
	"github.com/stretchr/testify/require"
)

// attempt is a handler whose response depends on the password.
var attempt = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	switch r.Header.Get("Password") {
	case "right":
		fmt.Fprintln(w, "hello")
	case "crash":
		panic("boom")
	case "half":
		fmt.Fprintln(w, "hel")
		panic(http.ErrAbortHandler)
	case "half wrong":
		w.WriteHeader(http.StatusUnauthorized)
		panic(http.ErrAbortHandler)
	default:
		w.WriteHeader(http.StatusUnauthorized)
	}
})

// try sends a login of ann with a password and returns the status, or 0 if the handler
// panicked.
func try(h http.Handler, password string) (status int) {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set("User", "ann")
	r.Header.Set("Password", password)
	defer func() {
		if recover() == nil {
			status = w.Code
		}
	}()
	h.ServeHTTP(w, r)
	return
}

func failedLogins(n int64) throttlehttp.Rule {
	return throttlehttp.Rule{Limiter: perHour(n), Key: senderKey, FinalCost: throttlehttp.OnStatus(http.StatusUnauthorized), Hidden: true}
}

func TestFinalCost_countsFailedLoginsOnly(t *testing.T) {
	h := (&throttlehttp.Middleware{Rules: []throttlehttp.Rule{failedLogins(4)}}).Handler(attempt)
	for i, step := range []struct {
		password string
		want     int
	}{
		{"right", 200}, {"right", 200}, {"right", 200}, {"right", 200}, {"right", 200},
		{"wrong", 401},
		{"half", 0},       // panicked after status 200
		{"half wrong", 0}, // panicked after status 401
		{"crash", 0},      // panicked without a status: a crash that clients can cause must not give them free guesses
		{"right", 200},
		{"wrong", 401},
		{"right", 429},
		{"wrong", 429},
	} {
		require.Equal(t, step.want, try(h, step.password), "%d: %s", i, step.password)
	}
}

// TestFinalCost_parallelGuessesAreCounted checks that parallel guesses are counted as
// serial ones are: the units are held while the handlers run.
func TestFinalCost_parallelGuessesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // synctest detects hangs
		let := make(chan struct{})
		h := (&throttlehttp.Middleware{Rules: []throttlehttp.Rule{failedLogins(5)}}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-let
			attempt(w, r)
		}))
		got := make(chan int)
		for range 50 {
			go func() { got <- try(h, "wrong") }()
		}
		for range 45 {
			require.Equal(t, http.StatusTooManyRequests, <-got)
		}
		close(let)
		for range 5 {
			require.Equal(t, http.StatusUnauthorized, <-got)
		}
	})
}

func TestFinalCost_banForRepeatedGuessing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		punished := keyed.NewBan(perHour(2), keyed.BanConfig{Rejections: 3, Within: time.Minute, Duration: 24 * time.Hour})
		rule := throttlehttp.Rule{Limiter: punished, Key: senderKey, FinalCost: throttlehttp.OnStatus(http.StatusUnauthorized)}
		h := (&throttlehttp.Middleware{Rules: []throttlehttp.Rule{rule}}).Handler(attempt)
		for _, want := range []int{401, 401, 429, 429, 429} {
			require.Equal(t, want, try(h, "wrong"))
		}
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("User", "ann")
		h.ServeHTTP(w, r)
		require.Equal(t, "86400", w.Header().Get("Retry-After"))
	})
}

func TestFinalCost_chargesWhatWasDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []throttlehttp.Response
		left := throttle.NewTokenBucket(throttle.PerHour(1000))
		m := &throttlehttp.Middleware{
			Limiter: throttle.NewTokenBucket(throttle.PerHour(100)),
			Rules: []throttlehttp.Rule{{Limiter: left, FinalCost: func(_ *http.Request, a throttlehttp.Response) int64 {
				seen = append(seen, a)
				return a.Bytes + a.AddedCost
			}}},
		}
		for name, tt := range map[string]struct {
			handle http.HandlerFunc
			want   throttlehttp.Response
		}{
			"nothing":   {func(http.ResponseWriter, *http.Request) {}, throttlehttp.Response{Status: 200}},
			"writes":    {func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 7)); io.WriteString(w, "eight") }, throttlehttp.Response{Status: 200, Bytes: 12}},
			"copies":    {func(w http.ResponseWriter, _ *http.Request) { io.Copy(w, strings.NewReader("four")) }, throttlehttp.Response{Status: 200, Bytes: 4}},
			"flushes":   {func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush(); w.WriteHeader(500) }, throttlehttp.Response{Status: 200}},
			"not found": {http.NotFound, throttlehttp.Response{Status: 404, Bytes: 19}},
			"hints": {func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusEarlyHints)
				w.WriteHeader(http.StatusCreated)
				w.WriteHeader(http.StatusTeapot) // too late to change the status
			}, throttlehttp.Response{Status: 201}},
			"spends": {func(_ http.ResponseWriter, r *http.Request) {
				ctx, cancel := context.WithCancel(r.Context())
				cancel()
				require.True(t, throttlehttp.AddCost(ctx, 30))
				require.True(t, throttlehttp.AddCost(ctx, 12))
				require.True(t, throttlehttp.AddCost(ctx, -5))
				require.True(t, throttlehttp.AddCost(ctx, 1))
			}, throttlehttp.Response{Status: 200, AddedCost: 43}},
		} {
			before, _ := left.Reserve(t.Context(), throttle.Claim{DryRun: true})
			seen = nil
			serveGet(m.Handler(tt.handle))
			require.Equal(t, []throttlehttp.Response{tt.want}, seen, name)
			after, _ := left.Reserve(t.Context(), throttle.Claim{DryRun: true})
			require.Equal(t, before.Remaining-tt.want.Bytes-tt.want.AddedCost, after.Remaining, name)
		}
		d, _ := m.Limiter.Reserve(t.Context(), throttle.Claim{DryRun: true})
		require.EqualValues(t, 93, d.Remaining, "the other limit is charged as before")
	})
}

func TestAddCost_reachesOuterMiddlewares(t *testing.T) {
	var seen []int64
	spent := func(_ *http.Request, a throttlehttp.Response) int64 {
		seen = append(seen, a.AddedCost)
		return a.AddedCost
	}
	m := &throttlehttp.Middleware{Rules: []throttlehttp.Rule{{Limiter: perHour(10), FinalCost: spent}}}
	h := m.Handler(m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		throttlehttp.AddCost(r.Context(), math.MaxInt64)
		throttlehttp.AddCost(r.Context(), 2)
	})))
	serveGet(h)
	require.Equal(t, []int64{math.MaxInt64, math.MaxInt64}, seen)
	require.False(t, throttlehttp.AddCost(t.Context(), 1), "nobody charges by it")
}

// TestFinalCost_responsesBeginWithTheirFirstByte checks that a status after the first byte does
// not count, and that FinalCost is called if the handler panics then.
func TestFinalCost_responsesBeginWithTheirFirstByte(t *testing.T) {
	for name, begin := range map[string]func(http.ResponseWriter){
		"Write":       func(w http.ResponseWriter) { w.Write([]byte("x")) },
		"WriteString": func(w http.ResponseWriter) { io.WriteString(w, "x") },
		"ReadFrom":    func(w http.ResponseWriter) { w.(io.ReaderFrom).ReadFrom(strings.NewReader("x")) },
		"Flush":       func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
	} {
		synctest.Test(t, func(t *testing.T) {
			for _, panics := range []bool{false, true} {
				var seen recordedResponses
				s := memhttp.Start(&http.Server{ErrorLog: discardLogger, Handler: seen.middleware().Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					begin(w)
					if panics {
						panic(http.ErrAbortHandler)
					}
					w.WriteHeader(http.StatusInternalServerError)
				}))})
				if resp, err := s.Client().Get(s.URL); err == nil {
					resp.Body.Close()
				}
				s.Close()
				require.Len(t, seen.all(), 1, name)
				require.Equal(t, http.StatusOK, seen.all()[0].Status, name)
			}
		})
	}
}

// TestFinalCost_needsAResponse checks that FinalCost is called for a handler that has begun
// to respond before it panicked, and not for one that has not.
func TestFinalCost_needsAResponse(t *testing.T) {
	var got []int
	m := &throttlehttp.Middleware{Rules: []throttlehttp.Rule{{Limiter: perHour(100), FinalCost: func(_ *http.Request, a throttlehttp.Response) int64 {
		got = append(got, a.Status)
		return 1
	}}}}
	for _, password := range []string{"right", "crash", "half", "half wrong", "wrong"} {
		try(m.Handler(attempt), password)
	}
	require.Equal(t, []int{200, 200, 401, 401}, got)
}

// TestFinalCost_panicEndsEveryGrant checks that a hook that panics ends all grants, and
// that the claimed cost is charged.
func TestFinalCost_panicEndsEveryGrant(t *testing.T) {
	last := new(grantCounter)
	slots := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1})
	m := &throttlehttp.Middleware{Rules: []throttlehttp.Rule{
		{Limiter: slots, FinalCost: func(*http.Request, throttlehttp.Response) int64 { panic("boom") }},
		{Limiter: last},
	}}
	for range 3 {
		require.PanicsWithValue(t, "boom", func() { serveGet(m.Handler(ok)) })
	}
	require.Equal(t, []throttle.Outcome{throttle.Failed, throttle.Failed, throttle.Failed}, last.ended)
}

// TestFinalCost_knowsTheRoute checks that FinalCost, and middleware outside of the limit, see the
// pattern that a mux inside of it has matched, as they do without a FinalCost.
func TestFinalCost_knowsTheRoute(t *testing.T) {
	var route, id string
	m := &throttlehttp.Middleware{Rules: []throttlehttp.Rule{{Limiter: throttle.AllowAll, FinalCost: func(r *http.Request, _ throttlehttp.Response) int64 {
		route, id = r.Pattern, r.PathValue("id")
		return 1
	}}}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items/{id}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /broken/{id}", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		panic(http.ErrAbortHandler)
	})
	h := recoverPanics(m.Handler(mux))
	for path, want := range map[string]string{"/items/7": "GET /items/{id}", "/broken/7": "GET /broken/{id}"} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		h.ServeHTTP(httptest.NewRecorder(), r)
		require.Equal(t, want, route)
		require.Equal(t, "7", id)
		require.Equal(t, want, r.Pattern)
	}
}

// TestFinalCost_clientThatLeavesPaysCost checks what a request costs whose client leaves before, or after,
// the handler has sent a status. Each client leaves after a second; the limit is 5. (Review L11: the
// handler ran 50 of 50 times.)
func TestFinalCost_clientThatLeavesPaysCost(t *testing.T) {
	for name, tt := range map[string]struct {
		finalCost func(*http.Request, throttlehttp.Response) int64
		handler   http.HandlerFunc
		want      int // how often the handler runs
	}{
		"returns":        {throttlehttp.OnStatus(401), func(http.ResponseWriter, *http.Request) {}, 5},
		"other status":   {throttlehttp.OnStatus(401), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }, 5},
		"that status":    {throttlehttp.OnStatus(401), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, 5},
		"cost was added": {addedCost, func(_ http.ResponseWriter, r *http.Request) { throttlehttp.AddCost(r.Context(), 2) }, 3},
		"status sent":    {throttlehttp.OnStatus(401), nil, 20},
	} {
		synctest.Test(t, func(t *testing.T) {
			ran := 0
			m := &throttlehttp.Middleware{Rules: []throttlehttp.Rule{{Limiter: perHour(5), Key: senderKey, FinalCost: tt.finalCost}}}
			h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ran++
				if tt.handler == nil {
					w.WriteHeader(200)
				}
				<-r.Context().Done()
				if tt.handler != nil {
					tt.handler(w, r)
				}
			}))
			for range 20 {
				ctx, leave := context.WithTimeout(t.Context(), time.Second)
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil))
				leave()
			}
			require.Equal(t, tt.want, ran, name)
		})
	}
}

func addedCost(_ *http.Request, a throttlehttp.Response) int64 { return a.AddedCost }
