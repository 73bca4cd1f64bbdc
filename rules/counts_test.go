package rules_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttle"
)

func TestCounts_shares(t *testing.T) {
	n := rules.Counts{Allowed: 6, Refused: 2, Shadowed: 1, Returned: 3, Abandoned: 1}
	require.InDelta(t, 3./8, n.RefusedShare(), 1e-12)
	require.InDelta(t, 3./4, n.ReturnedShare(), 1e-12)
	require.Zero(t, rules.Counts{}.RefusedShare())
	require.Zero(t, rules.Counts{}.ReturnedShare())
	require.InDelta(t, 1., rules.Counts{Returned: 5}.ReturnedShare(), 1e-12)
	require.Zero(t, rules.Counts{Abandoned: 5}.ReturnedShare())
}

// What is granted only because of a shadow counts as refused: it is named, and begins a
// streak. What is granted over a soft limit does not.
func TestStats_countsShadowedGrantsAsRefused(t *testing.T) {
	for shadow, want := range map[bool]int64{true: 1, false: 0} {
		stats := &rules.Stats{Limit: throttle.PerMinute(1), Shadow: shadow}
		decide := func(key string, at time.Duration, over bool) {
			stats.Decided(throttle.Claim{Key: key}, throttle.Decision{OK: true, OverLimit: over, At: noon.Add(at)})
		}
		decide("ann", 0, false)
		decide("ann", time.Second, true)
		decide("ann", time.Minute, false)
		decide("bob", time.Minute, false)
		n := stats.Snapshot()
		require.Equal(t, want, n.Returned)
		require.Equal(t, want, n.Demand.Sessions)
		hits := stats.TopRefusedCleartext(5)
		require.Len(t, hits, int(want))
		for _, h := range hits {
			require.Equal(t, "ann", h.Key)
			require.EqualValues(t, 1, h.Count)
		}
	}
}

func TestSource_defaultMaxLookupsIsSixteen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fakeStore{latency: time.Second}
		s := &rules.Source{Lookup: db.lookup, Default: throttle.PerMinute(3), Timeout: time.Minute}
		var all sync.WaitGroup
		for i := range 17 {
			all.Go(func() { _, _ = s.Reserve(t.Context(), throttle.Claim{Key: strconv.Itoa(i)}) })
		}
		all.Wait()
		require.Equal(t, 16, db.numLookups())
		require.Equal(t, 16, db.maxRunning)
	})
}

// Each of the times that a Source remembers something can be set.
func TestSource_obeysTTLs(t *testing.T) {
	for name, tt := range map[string]struct {
		key    string
		lookup func(context.Context, string) (throttle.Limit, error)
		want   time.Duration
	}{
		"TTL":              {"ann", func(context.Context, string) (throttle.Limit, error) { return throttle.PerMinute(1), nil }, 7 * time.Minute},
		"TTL of unlimited": {"vip", func(context.Context, string) (throttle.Limit, error) { return throttle.Limit{}, rules.ErrUnlimited }, 7 * time.Minute},
		"MissingTTL":       {"new", func(context.Context, string) (throttle.Limit, error) { return throttle.Limit{}, rules.ErrNoLimit }, 3 * time.Minute},
		"FailedTTL":        {"bob", func(context.Context, string) (throttle.Limit, error) { return throttle.Limit{}, errDown }, 2 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			s := &rules.Source{Default: throttle.PerMinute(3), Rand: noJitter,
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
