package source_test

import (
	"context"
	"math"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/rules/source"
	"github.com/heed-go/heed/throttle"
)

// TestSource_decidesAfterTheLookup checks the time of decisions of claims that waited for
// a lookup, and of claims with a time of their own.
func TestSource_decidesAfterTheLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fakeStore{latency: 300 * time.Millisecond}
		db.set("ann", 5)
		s := &source.Source{Lookup: db.lookup}
		start := time.Now()
		var all sync.WaitGroup
		for range 2 { // one looks up, the other waits for it
			all.Go(func() {
				if d := ask(t, s, "ann"); !d.At.Equal(start.Add(300 * time.Millisecond)) {
					t.Errorf("decided at %v", d.At.Sub(start))
				}
			})
		}
		all.Wait()
		d, err := s.Reserve(t.Context(), throttle.Claim{Key: "ann", Now: start.Add(time.Second)})
		require.NoError(t, err)
		require.Equal(t, start.Add(time.Second), d.At)
	})
}

// TestSource_observesTheCost checks that the actual cost of a claim reaches the bucket.
func TestSource_observesTheCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fakeStore{}
		db.set("ann", 10)
		s := &source.Source{Lookup: db.lookup}
		c := throttle.Claim{Key: "ann", Cost: 2}
		d, err := s.Reserve(t.Context(), c)
		require.NoError(t, err)
		require.EqualValues(t, 8, d.Remaining)
		s.Report(t.Context(), c, d, throttle.Feedback{Cost: 7})
		require.EqualValues(t, 2, ask(t, s, "ann").Remaining)
	})
}

// TestSource_forgetsKeysWithFullBuckets checks which keys are evicted for others.
func TestSource_forgetsKeysWithFullBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fakeStore{}
		s := &source.Source{Lookup: db.lookup, Default: throttle.PerMinute(3), MaxKeys: 1}
		ask(t, s, "ann")
		require.True(t, ask(t, s, "bob").Degraded)
		time.Sleep(20*time.Second - 1)
		require.True(t, ask(t, s, "bob").Degraded, "the bucket of ann is not full")
		time.Sleep(time.Second)
		require.False(t, ask(t, s, "bob").Degraded)
		require.Equal(t, 1, s.Len())
	})
}

// TestSource_olderReadingsUseTheLimit checks claims whose time is before the lookup: up to
// one TTL before it they use its result.
func TestSource_olderReadingsUseTheLimit(t *testing.T) {
	now := time.Unix(1e9, 0)
	for before, lookups := range map[time.Duration]int{time.Minute: 1, time.Minute + 1: 1, time.Minute + 2: 2} {
		db := &fakeStore{}
		db.set("ann", 5)
		s := &source.Source{Lookup: db.lookup, TTL: time.Minute, Rand: noJitter}
		for _, at := range []time.Time{now, now.Add(-before)} {
			_, err := s.Reserve(t.Context(), throttle.Claim{Key: "ann", Now: at})
			require.NoError(t, err)
		}
		require.Equal(t, lookups, db.numLookups(), before)
	}
}

// TestSource_anyAnswerShowsThatTheStoreIsAvailable checks after which lookups a failure is
// attributed to its key.
func TestSource_anyAnswerShowsThatTheStoreIsAvailable(t *testing.T) {
	for name, err := range map[string]error{"a limit": nil, "unlimited": source.ErrUnlimited, "no limit": source.ErrNoLimit, "another failure": errDown} {
		s := &source.Source{Lookup: func(_ context.Context, key string) (throttle.Limit, error) {
			if key == "bad" {
				return throttle.Limit{}, errDown
			}
			return throttle.PerMinute(3), err
		}}
		_, got := s.Reserve(t.Context(), throttle.Claim{Key: "good"})
		require.Equal(t, err == errDown, got != nil, name)
		d, got := s.Reserve(t.Context(), throttle.Claim{Key: "bad"})
		if err == errDown {
			require.ErrorIs(t, got, errDown, name)
		} else {
			require.Equal(t, "lookup failed", d.Policy, name)
		}
	}
}

// TestSource_countsLookupsThatEnd checks that MaxLookups holds after earlier lookups.
func TestSource_countsLookupsThatEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fakeStore{}
		s := &source.Source{Lookup: db.lookup, MaxLookups: 2, ErrorWithoutLimit: true, Timeout: time.Minute}
		for i := range 5 {
			_, err := s.Reserve(t.Context(), throttle.Claim{Key: strconv.Itoa(i)})
			require.ErrorIs(t, err, source.ErrNoLimit)
		}
		db.latency = time.Second
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() { _, _ = s.Reserve(t.Context(), throttle.Claim{Key: "slow" + strconv.Itoa(i)}) })
		}
		all.Wait()
		require.Equal(t, 2, db.maxRunning)
	})
}

// TestSource_shortensTTLsByAFifth checks the shortest TTL.
func TestSource_shortensTTLsByAFifth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fakeStore{}
		db.set("ann", 5)
		s := &source.Source{Lookup: db.lookup, TTL: 100 * time.Second, Rand: func() float64 { return math.Nextafter(1, 0) }}
		ask(t, s, "ann")
		time.Sleep(80*time.Second - 1)
		ask(t, s, "ann")
		require.Equal(t, 1, db.numLookups())
		time.Sleep(2 * time.Nanosecond)
		ask(t, s, "ann")
		require.Equal(t, 2, db.numLookups())
	})
}

func TestSource_needsLookup(t *testing.T) {
	require.PanicsWithValue(t, "source: Lookup is nil", func() {
		_, _ = new(source.Source).Reserve(t.Context(), throttle.Claim{})
	})
	require.PanicsWithValue(t, "source: Lookup is nil", func() { new(source.Source).Traits() }, "when a Middleware is set up")
}
