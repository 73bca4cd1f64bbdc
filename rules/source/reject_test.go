package source_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/rules/source"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
	"github.com/heed-go/heed/throttlehttp"
)

// tenants starts a server that limits each tenant with s. It returns a function that sends a
// request of a tenant and returns the status.
func tenants(m throttlehttp.Middleware, s *source.Source) func(tenant string) int {
	m.Rules = []throttlehttp.Rule{{Limiter: s, Key: throttlehttp.Header("X-Tenant")}}
	h := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	return func(tenant string) int {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-Tenant", tenant)
		h.ServeHTTP(w, r)
		return w.Code
	}
}

// TestSource_rejectsInventedKeys checks that a client that invents tenants is rejected, whether
// its requests arrive one after the other or more of them at the same time than MaxLookups.
func TestSource_rejectsInventedKeys(t *testing.T) {
	for name, m := range map[string]throttlehttp.Middleware{"rejecting": {}, "delaying": {Queue: new(queue.Queue)}} {
		synctest.Test(t, func(t *testing.T) {
			db := &fakeStore{latency: 20 * time.Millisecond}
			db.set("header.X-Tenant:acme", 60)
			get := tenants(m, &source.Source{Lookup: db.lookup})
			require.Equal(t, http.StatusOK, get("acme"), name)
			for range 50 {
				require.Equal(t, http.StatusTooManyRequests, get("invented"), name)
			}
			var served atomic.Int64
			var all sync.WaitGroup
			for i := range 200 {
				all.Go(func() {
					if get("invented"+strconv.Itoa(i)) != http.StatusTooManyRequests {
						served.Add(1)
					}
				})
			}
			all.Wait()
			require.Zero(t, served.Load(), name)
			require.Equal(t, http.StatusOK, get("acme"), name)
		})
	}
}

func TestSource_rejectionsNamePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fakeStore{latency: time.Second}
		s := &source.Source{Lookup: db.lookup, MaxLookups: 1, MaxKeys: 2, Timeout: time.Minute}
		go s.Reserve(t.Context(), throttle.Claim{Key: "first"})
		synctest.Wait()
		// Since review M7 a claim waits for a lookup before it is rejected.
		busy := throttle.Decision{Policy: "lookup busy", Wait: 100 * time.Millisecond, At: time.Now().Add(100 * time.Millisecond), Degraded: true}
		require.Equal(t, busy, ask(t, s, "second"), "one lookup at a time")
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, throttle.Decision{Policy: "no limit", Wait: throttle.Forever, At: time.Now()}, ask(t, s, "first"))
		require.True(t, db.numLookups() == 1, "it is remembered that a key has no limit")
	})
}

// TestSource_rejectsMoreKeysThanItRemembers checks that keys in use are not removed in favor of
// new keys, which are rejected.
func TestSource_rejectsMoreKeysThanItRemembers(t *testing.T) {
	db := &fakeStore{}
	s := &source.Source{Lookup: db.lookup, MaxKeys: 2}
	for _, key := range []string{"ann", "bob", "eve"} {
		db.set(key, 1)
	}
	require.True(t, ask(t, s, "ann").OK)
	require.True(t, ask(t, s, "bob").OK)
	d := ask(t, s, "eve")
	require.Equal(t, []any{false, "lookup busy", true, 100 * time.Millisecond}, []any{d.OK, d.Policy, d.Degraded, d.Wait})
	require.Equal(t, 2, db.numLookups())
}

// TestSource_rejectsKeysThatTheStoreCannotLookUp checks that a key that the database rejects, such
// as one that is not UTF-8, does not count as an outage while other lookups succeed. Without a
// success for 10 s it does.
func TestSource_rejectsKeysThatTheStoreCannotLookUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fakeStore{}
		db.set("ann", 5)
		s := &source.Source{Rand: noJitter, Lookup: func(ctx context.Context, key string) (throttle.Limit, error) {
			if key == "\xff" {
				return throttle.Limit{}, errors.New("invalid byte sequence")
			}
			return db.lookup(ctx, key)
		}}
		ask(t, s, "ann")
		d := ask(t, s, "\xff")
		require.Equal(t, throttle.Decision{Policy: "lookup failed", Wait: throttle.Forever, At: time.Now(), Degraded: true}, d)

		db.fail(errDown)
		time.Sleep(10*time.Second - time.Nanosecond)
		require.Equal(t, "lookup failed", ask(t, s, "eve").Policy)
		time.Sleep(time.Nanosecond)
		_, err := s.Reserve(t.Context(), throttle.Claim{Key: "kim"})
		require.ErrorIs(t, err, errDown, "10 s after the last success")
		time.Sleep(time.Second)
		_, err = s.Reserve(t.Context(), throttle.Claim{Key: "eve"})
		require.ErrorIs(t, err, errDown)
		require.True(t, ask(t, s, "ann").OK, "it keeps its limit")
	})
}

// TestSource_outageIsLeftToTheMiddleware checks that FailClosed decides during an outage, and only
// then.
func TestSource_outageIsLeftToTheMiddleware(t *testing.T) {
	for closed, want := range map[bool]int{false: http.StatusOK, true: http.StatusServiceUnavailable} {
		db := &fakeStore{}
		db.fail(errDown)
		get := tenants(throttlehttp.Middleware{FailClosed: closed}, &source.Source{Lookup: db.lookup})
		require.Equal(t, want, get("acme"))
	}
}

// TestSource_errorWithoutLimit checks that ErrorWithoutLimit returns errors for keys without a
// limit.
func TestSource_errorWithoutLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fakeStore{latency: time.Second}
		s := &source.Source{Lookup: db.lookup, MaxLookups: 1, ErrorWithoutLimit: true, Timeout: time.Minute}
		go s.Reserve(t.Context(), throttle.Claim{Key: "first"})
		synctest.Wait()
		_, err := s.Reserve(t.Context(), throttle.Claim{Key: "second"})
		require.ErrorIs(t, err, source.ErrBusy)
		time.Sleep(time.Second)
		synctest.Wait()
		_, err = s.Reserve(t.Context(), throttle.Claim{Key: "first"})
		require.ErrorIs(t, err, source.ErrNoLimit)
		db.fail(errDown)
		_, err = s.Reserve(t.Context(), throttle.Claim{Key: "third"})
		require.ErrorIs(t, err, errDown)

		f := throttle.NewFallback(throttle.FallbackConfig{Primary: s, Secondary: throttle.NewTokenBucket(throttle.PerHour(1))})
		for _, want := range []bool{true, false} {
			d, err := f.Reserve(t.Context(), throttle.Claim{Key: "first"})
			require.NoError(t, err)
			require.Equal(t, want, d.OK)
		}
		require.Equal(t, http.StatusOK, tenants(throttlehttp.Middleware{}, s)("invented"), "an error is what FailClosed is for")
	})
}
