package source_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/rules/source"
	"github.com/heed-go/heed/throttle"
)

// inventKeys makes n clients claim with a new key each 5 ms. It returns a function that stops them.
func inventKeys(s *source.Source, n int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for g := range n {
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				_, _ = s.Reserve(ctx, throttle.Claim{Key: "invented " + strconv.Itoa(g) + " " + strconv.Itoa(i)})
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// TestSource_knownKeysGoFirst checks how many of 50 tenants are served while clients invent keys, each of
// which is looked up. (Review M7: 42 of 200.)
func TestSource_knownKeysGoFirst(t *testing.T) {
	for name, tt := range map[string]struct {
		clients int
		known   bool // the tenants have been served before, and their keys removed since
		limit   throttle.Limit
		least   int // of 50 tenants, with their own limit
	}{
		"new, few clients":             {40, false, throttle.Limit{}, 50},
		"known, few clients":           {40, true, throttle.Limit{}, 50},
		"known, many clients":          {100, true, throttle.Limit{}, 50},
		"known, many clients, default": {100, true, throttle.PerMinute(3), 50},
	} {
		synctest.Test(t, func(t *testing.T) {
			db := &fakeStore{latency: 20 * time.Millisecond}
			s := &source.Source{Lookup: db.lookup, Default: tt.limit, MaxKeys: 1 << 20, TTL: time.Minute}
			for i := range 50 {
				db.set("tenant "+strconv.Itoa(i), 100)
				if tt.known {
					require.True(t, ask(t, s, "tenant "+strconv.Itoa(i)).OK)
				}
			}
			time.Sleep(time.Hour) // the records have expired
			stop := inventKeys(s, tt.clients)
			time.Sleep(200 * time.Millisecond)
			served := 0
			for i := range 50 {
				began := time.Now()
				if d := ask(t, s, "tenant "+strconv.Itoa(i)); d.OK && !d.Degraded {
					served++
				}
				require.LessOrEqual(t, time.Since(began), 200*time.Millisecond, name)
				time.Sleep(5 * time.Millisecond)
			}
			stop()
			require.GreaterOrEqual(t, served, tt.least, name)
			require.LessOrEqual(t, db.maxRunning, 16, name)
		})
	}
}

// TestSource_waitsForALookup checks the order in which claims of different keys get the only lookup: known
// keys first, then others in the order of arrival.
func TestSource_waitsForALookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fakeStore{latency: 30 * time.Millisecond}
		for _, key := range []string{"known", "a", "b", "c", "late"} {
			db.set(key, 9)
		}
		s := &source.Source{Lookup: db.lookup, MaxLookups: 1, TTL: time.Minute}
		require.True(t, ask(t, s, "known").OK)
		time.Sleep(time.Hour)
		start := time.Now()
		var mu sync.Mutex
		var got []string
		var all sync.WaitGroup
		for _, key := range []string{"a", "b", "c", "late", "busy", "full", "known"} {
			all.Go(func() {
				d := ask(t, s, key)
				mu.Lock()
				defer mu.Unlock()
				got = append(got, key+" "+d.Policy+" "+time.Since(start).String())
			})
			synctest.Wait()
		}
		all.Wait()
		require.ElementsMatch(t, []string{
			"full lookup busy 0s", // four others wait
			"a 9 per 1m0s 30ms",
			"known 9 per 1m0s 60ms",
			"b 9 per 1m0s 90ms",
			"c 9 per 1m0s 120ms",
			"late lookup busy 100ms",
			"busy lookup busy 100ms",
		}, got)
	})
}

// TestSource_claimsOfOneKeyAreBusyTogether checks that claims of one key wait for one slot together, not one
// after the other, and that an expired limit is used for FailedTTL if there is no slot.
func TestSource_claimsOfOneKeyAreBusyTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fakeStore{}
		db.set("known", 9)
		s := &source.Source{Lookup: db.lookup, MaxLookups: 1, TTL: time.Minute, Timeout: time.Hour, Rand: noJitter}
		require.True(t, ask(t, s, "known").OK)
		time.Sleep(time.Hour)
		db.latency = 2 * time.Hour
		go s.Reserve(t.Context(), throttle.Claim{Key: "slow"})
		synctest.Wait()
		for _, tt := range []struct {
			key  string
			wait time.Duration
			ok   bool
		}{{"new", 100 * time.Millisecond, false}, {"known", 100 * time.Millisecond, true}, {"known", 0, true}} {
			start := time.Now()
			var all sync.WaitGroup
			for range 10 {
				all.Go(func() {
					d, err := s.Reserve(t.Context(), throttle.Claim{Key: tt.key, DryRun: true})
					require.NoError(t, err)
					require.Equal(t, tt.ok, d.OK, tt.key)
				})
			}
			all.Wait()
			require.Equal(t, tt.wait, time.Since(start), tt.key)
		}
		time.Sleep(3 * time.Hour)
	})
}
