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

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttlehttp"
	"github.com/stretchr/testify/require"
)

// attempt is a handler that says what the password was.
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

// try returns the status of an attempt of ann with a password, 0 if it panicked.
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
	return throttlehttp.Rule{Limiter: perHour(n), Key: sender, Settle: throttlehttp.OnStatus(http.StatusUnauthorized), Hidden: true}
}

func TestSettle_countsFailedLoginsOnly(t *testing.T) {
	h := (&throttlehttp.Middleware{Rules: []throttlehttp.Rule{failedLogins(4)}}).Handler(attempt)
	for i, step := range []struct {
		password string
		want     int
	}{
		{"right", 200}, {"right", 200}, {"right", 200}, {"right", 200}, {"right", 200},
		{"wrong", 401},
		{"half", 0},       // it had said 200 by then
		{"half wrong", 0}, // and here 401
		{"crash", 0},      // who can crash it at will gets no guesses for that
		{"right", 200},
		{"wrong", 401},
		{"right", 429},
		{"wrong", 429},
	} {
		require.Equal(t, step.want, try(h, step.password), "%d: %s", i, step.password)
	}
}

// Who tries passwords in parallel gets no more of them than one after another: the
// units are held while the handlers run.
func TestSettle_parallelGuessesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in which a hang is noticed
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

func TestSettle_penaltyForThoseWhoGoOnGuessing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		punished := throttle.NewPenalty(perHour(2), throttle.Sentence{After: 3, Within: time.Minute, For: 24 * time.Hour}, nil)
		rule := throttlehttp.Rule{Limiter: punished, Key: sender, Settle: throttlehttp.OnStatus(http.StatusUnauthorized)}
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

func TestSettle_chargesWhatWasDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []throttlehttp.Answer
		left := throttle.NewTokenBucket(throttle.PerHour(1000), nil)
		m := &throttlehttp.Middleware{
			Limiter: throttle.NewTokenBucket(throttle.PerHour(100), nil),
			Rules: []throttlehttp.Rule{{Limiter: left, Settle: func(_ *http.Request, a throttlehttp.Answer) int64 {
				seen = append(seen, a)
				return a.Bytes + a.Spent
			}}},
		}
		for name, tt := range map[string]struct {
			handle http.HandlerFunc
			want   throttlehttp.Answer
		}{
			"nothing":   {func(http.ResponseWriter, *http.Request) {}, throttlehttp.Answer{Status: 200}},
			"writes":    {func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 7)); io.WriteString(w, "eight") }, throttlehttp.Answer{Status: 200, Bytes: 12}},
			"copies":    {func(w http.ResponseWriter, _ *http.Request) { io.Copy(w, strings.NewReader("four")) }, throttlehttp.Answer{Status: 200, Bytes: 4}},
			"flushes":   {func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush(); w.WriteHeader(500) }, throttlehttp.Answer{Status: 200}},
			"not found": {http.NotFound, throttlehttp.Answer{Status: 404, Bytes: 19}},
			"hints": {func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusEarlyHints)
				w.WriteHeader(http.StatusCreated)
				w.WriteHeader(http.StatusTeapot) // too late
			}, throttlehttp.Answer{Status: 201}},
			"spends": {func(_ http.ResponseWriter, r *http.Request) {
				ctx, cancel := context.WithCancel(r.Context())
				cancel()
				require.True(t, throttlehttp.Spend(ctx, 30))
				require.True(t, throttlehttp.Spend(ctx, 12))
				require.True(t, throttlehttp.Spend(ctx, -5))
			}, throttlehttp.Answer{Status: 200, Spent: 42}},
		} {
			before, _ := left.Reserve(t.Context(), throttle.Claim{DryRun: true})
			seen = nil
			ask(m.Handler(tt.handle))
			require.Equal(t, []throttlehttp.Answer{tt.want}, seen, name)
			after, _ := left.Reserve(t.Context(), throttle.Claim{DryRun: true})
			require.Equal(t, before.Remaining-tt.want.Bytes-tt.want.Spent, after.Remaining, name)
		}
		d, _ := m.Limiter.Reserve(t.Context(), throttle.Claim{DryRun: true})
		require.EqualValues(t, 93, d.Remaining, "the other limit is charged as before")
	})
}

func TestSpend_reachesEveryMiddlewareAround(t *testing.T) {
	var seen []int64
	spent := func(_ *http.Request, a throttlehttp.Answer) int64 { seen = append(seen, a.Spent); return a.Spent }
	m := &throttlehttp.Middleware{Rules: []throttlehttp.Rule{{Limiter: perHour(10), Settle: spent}}}
	h := m.Handler(m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		throttlehttp.Spend(r.Context(), math.MaxInt64)
		throttlehttp.Spend(r.Context(), 2)
	})))
	ask(h)
	require.Equal(t, []int64{math.MaxInt64, math.MaxInt64}, seen)
	require.False(t, throttlehttp.Spend(t.Context(), 1), "nobody charges by it")
}

// A hook that panics ends all grants, and charges what was claimed.
func TestSettle_panicEndsEveryGrant(t *testing.T) {
	last := new(ledger)
	slots := throttle.NewInFlight(throttle.Capacity{Count: 1}, nil)
	m := &throttlehttp.Middleware{Rules: []throttlehttp.Rule{
		{Limiter: slots, Settle: func(*http.Request, throttlehttp.Answer) int64 { panic("boom") }},
		{Limiter: last},
	}}
	for range 3 {
		require.PanicsWithValue(t, "boom", func() { ask(m.Handler(ok)) })
	}
	require.Equal(t, []throttle.Outcome{throttle.Failed, throttle.Failed, throttle.Failed}, last.ended)
}
