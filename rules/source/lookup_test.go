package source_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/rules/source"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

func TestSource_looksUpOnceForConcurrentClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fakeStore{latency: 100 * time.Millisecond}
		db.set("ann", 5)
		s := &source.Source{Lookup: db.lookup, TTL: time.Minute, Rand: noJitter}
		granted, began := make(chan bool, 100), time.Now()
		for range 100 {
			go func() { granted <- ask(t, s, "ann").OK }()
		}
		n := 0
		for range 100 {
			if <-granted {
				n++
			}
		}
		require.Equal(t, 5, n)
		require.Equal(t, 100*time.Millisecond, time.Since(began))
		require.Equal(t, 1, db.numLookups())
		time.Sleep(time.Minute)
		ask(t, s, "ann")
		require.Equal(t, 2, db.numLookups())
	})
}

func TestSource_servesStaleLimitDuringLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fakeStore{}
		db.set("ann", 5)
		s := &source.Source{Lookup: db.lookup, Rand: noJitter}
		ask(t, s, "ann")
		time.Sleep(2 * time.Minute)
		db.set("ann", 7)
		db.latency = 100 * time.Millisecond
		go ask(t, s, "ann")
		synctest.Wait()
		began := time.Now()
		require.EqualValues(t, 5, ask(t, s, "ann").Limit)
		require.Zero(t, time.Since(began))
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		require.EqualValues(t, 7, ask(t, s, "ann").Limit)
		require.Equal(t, 2, db.numLookups())
	})
}

func TestSource_waitingClaimTakesOverCancelledLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fakeStore{latency: 100 * time.Millisecond}
		db.set("ann", 5)
		s := &source.Source{Lookup: db.lookup, OnError: func(string, error) { t.Error("nothing failed") }}
		hasty, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("hasty"))
		defer cancel()
		gaveUp := make(chan error, 1)
		go func() {
			_, err := s.Reserve(hasty, throttle.Claim{Key: "ann"})
			gaveUp <- err
		}()
		synctest.Wait()
		require.True(t, ask(t, s, "ann").OK)
		require.EqualError(t, <-gaveUp, "hasty")
		require.Equal(t, 2, db.numLookups())

		db.set("bob", 5)
		go ask(t, s, "bob")
		synctest.Wait()
		waiting, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("no time"))
		defer cancel()
		_, err := s.Reserve(waiting, throttle.Claim{Key: "bob"})
		require.EqualError(t, err, "no time")
		time.Sleep(time.Second)
	})
}

// TestSource_cancelledLookupUsesStaleLimit checks that a claim whose context ends during a lookup
// uses the previous limit, and that the next claim looks up the limit again.
func TestSource_cancelledLookupUsesStaleLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fakeStore{latency: time.Millisecond} // without latency the lookup may end before the context
		db.set("ann", 5)
		s := &source.Source{Lookup: db.lookup, Rand: noJitter}
		ask(t, s, "ann")
		time.Sleep(time.Minute)
		db.set("ann", 7)
		db.latency = time.Millisecond
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		d, err := s.Reserve(gone, throttle.Claim{Key: "ann"})
		require.NoError(t, err)
		require.EqualValues(t, 5, d.Limit)
		require.EqualValues(t, 7, ask(t, s, "ann").Limit)
	})
}

func TestSource_lookupTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fakeStore{latency: time.Hour}
		s := &source.Source{Lookup: db.lookup, Default: throttle.PerMinute(3), Timeout: 2 * time.Second}
		began := time.Now()
		require.True(t, ask(t, s, "ann").Degraded)
		require.Equal(t, 2*time.Second, time.Since(began))
	})
}

func TestSource_boundsConcurrentLookups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fakeStore{latency: 100 * time.Millisecond}
		s := &source.Source{Lookup: db.lookup, Default: throttle.PerMinute(3), MaxLookups: 4}
		var wg sync.WaitGroup
		var mu sync.Mutex
		degraded := 0
		for i := range 100 {
			db.set(strconv.Itoa(i), 10)
			wg.Go(func() {
				if ask(t, s, strconv.Itoa(i)).Degraded {
					mu.Lock()
					degraded++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		require.Equal(t, 4, db.maxRunning)
		require.Equal(t, 96, degraded)
		db.latency = 0
		for i := range 100 {
			d := ask(t, s, strconv.Itoa(i))
			require.False(t, d.Degraded)
			require.LessOrEqual(t, d.Remaining, int64(8), "what was used before the limit was known counts")
		}
	})
}

func TestSource_spreadsExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, x := &fakeStore{}, 0.
		s := &source.Source{Lookup: db.lookup, Default: throttle.PerSecond(3), MissingTTL: 100 * time.Second,
			Rand: func() float64 { x += .01; return x - .01 }}
		for i := range 100 {
			ask(t, s, strconv.Itoa(i))
		}
		time.Sleep(80 * time.Second)
		var perSecond []int
		for range 20 {
			was := db.numLookups()
			for i := range 100 {
				ask(t, s, strconv.Itoa(i))
			}
			perSecond = append(perSecond, db.numLookups()-was)
			time.Sleep(time.Second)
		}
		require.LessOrEqual(t, slices.Max(perSecond), 6, perSecond)
		require.GreaterOrEqual(t, db.numLookups(), 190, "almost all were asked for again before they were too old")
	})
}

func TestSource_survivesPanicInLookup(t *testing.T) {
	calls := 0
	s := &source.Source{MaxLookups: 1, Lookup: func(context.Context, string) (throttle.Limit, error) {
		if calls++; calls == 1 {
			panic("driver")
		}
		return throttle.PerMinute(3), nil
	}}
	require.PanicsWithValue(t, "driver", func() { ask(t, s, "ann") })
	require.True(t, ask(t, s, "ann").OK)
}

func TestSource_concurrentUse(t *testing.T) {
	db := &fakeStore{}
	for i := range 20 {
		db.set(strconv.Itoa(i), int64(i))
	}
	s := &source.Source{Lookup: db.lookup, Default: throttle.PerMinute(3), MaxKeys: 8, MaxLookups: 2}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 500 {
				c := throttle.Claim{Key: strconv.Itoa((i*7 + g) % 24)}
				d, err := s.Reserve(t.Context(), c)
				if err != nil {
					t.Error(err)
				}
				if i%3 == 0 {
					s.Report(t.Context(), c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
				} else {
					s.Report(t.Context(), c, d, throttle.Feedback{Cost: 2})
				}
				if i%50 == 0 {
					s.Refresh()
				}
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, s.Len(), 8)
}

func TestSource_worksWithQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fakeStore{latency: 10 * time.Millisecond}
		db.set("ann", 60)
		s := &source.Source{Lookup: db.lookup, TTL: time.Hour}
		w := &queue.Queue{}
		defer w.Close()
		var went []time.Duration
		start := time.Now()
		for range 62 {
			ticket := queue.Ticket{}
			ticket.Add(throttle.Demand{Limiter: s, Key: "ann"})
			require.NoError(t, w.Wait(t.Context(), &ticket))
			went = append(went, time.Since(start).Round(10*time.Millisecond))
		}
		require.Equal(t, 10*time.Millisecond, went[59])
		require.Equal(t, []time.Duration{time.Second, 2 * time.Second}, went[60:])

		raised := make(chan time.Duration)
		go func() {
			ticket := queue.Ticket{}
			ticket.Add(throttle.Demand{Limiter: s, Key: "ann"})
			if err := w.Wait(t.Context(), &ticket); err != nil {
				t.Error(err)
			}
			raised <- time.Since(start).Round(10 * time.Millisecond)
		}()
		synctest.Wait()
		db.set("ann", 600)
		s.Refresh()
		w.Wake()
		require.Less(t, <-raised, 2300*time.Millisecond)
	})
}

func TestSource_defaultMaxLookupsIsSixteen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fakeStore{latency: time.Second}
		s := &source.Source{Lookup: db.lookup, Default: throttle.PerMinute(3), Timeout: time.Minute}
		var all sync.WaitGroup
		for i := range 17 {
			all.Go(func() { _, _ = s.Reserve(t.Context(), throttle.Claim{Key: strconv.Itoa(i)}) })
		}
		all.Wait()
		require.Equal(t, 16, db.numLookups())
		require.Equal(t, 16, db.maxRunning)
	})
}

// TestSource_obeysTTLs checks each TTL of a Source.
func TestSource_obeysTTLs(t *testing.T) {
	for name, tt := range map[string]struct {
		key    string
		lookup func(context.Context, string) (throttle.Limit, error)
		want   time.Duration
	}{
		"TTL":              {"ann", func(context.Context, string) (throttle.Limit, error) { return throttle.PerMinute(1), nil }, 7 * time.Minute},
		"TTL of unlimited": {"vip", func(context.Context, string) (throttle.Limit, error) { return throttle.Limit{}, source.ErrUnlimited }, 7 * time.Minute},
		"MissingTTL":       {"new", func(context.Context, string) (throttle.Limit, error) { return throttle.Limit{}, source.ErrNoLimit }, 3 * time.Minute},
		"FailedTTL":        {"bob", func(context.Context, string) (throttle.Limit, error) { return throttle.Limit{}, errDown }, 2 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			s := &source.Source{Default: throttle.PerMinute(3), Rand: noJitter,
				TTL: 7 * time.Minute, MissingTTL: 3 * time.Minute, FailedTTL: 2 * time.Minute,
				Lookup: func(ctx context.Context, key string) (throttle.Limit, error) { calls++; return tt.lookup(ctx, key) }}
			ask(t, s, tt.key)
			time.Sleep(tt.want - time.Nanosecond)
			ask(t, s, tt.key)
			require.Equal(t, 1, calls, name)
			time.Sleep(time.Nanosecond)
			ask(t, s, tt.key)
			require.Equal(t, 2, calls, name)
		})
	}
}
