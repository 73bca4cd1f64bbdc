package rules

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// TestCompact_settlesAndCancels checks that a compact limit corrects the cost of a claim and takes
// back units that were not used.
func TestCompact_settlesAndCancels(t *testing.T) {
	set, err := Parse([]byte("domain: d\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 10, burst: 10, compact: true}}]"), Config{Clock: fixedClock(friday)})
	require.NoError(t, err)
	for i, tt := range []struct{ settled, left int64 }{{0, 9}, {7, 3}} {
		var ticket queue.Ticket
		key := []string{"ann", "bob"}[i]
		set.Add(&ticket, Descriptor{{"user", key}})
		d, err := ticket.Reserve(t.Context(), time.Time{})
		require.NoError(t, err)
		require.True(t, d.OK)
		if tt.settled > 0 {
			ticket.Settle(0, tt.settled)
		}
		ticket.Report(t.Context(), throttle.Feedback{})
		require.Equal(t, tt.left, unitsLeft(t, set, key), key)

		ticket = queue.Ticket{}
		set.Add(&ticket, Descriptor{{"user", key}})
		_, err = ticket.Reserve(t.Context(), time.Time{})
		require.NoError(t, err)
		ticket.Report(t.Context(), throttle.Feedback{State: throttle.Unused})
		require.Equal(t, tt.left, unitsLeft(t, set, key), key)
	}
}

// unitsLeft returns the remaining units of a user.
func unitsLeft(t *testing.T, set *Set, user string) int64 {
	var ticket queue.Ticket
	set.Add(&ticket, Descriptor{{"user", user}})
	demand := ticket.Demands[0]
	d, err := demand.Limiter.Reserve(t.Context(), throttle.Claim{Key: demand.Key, DryRun: true, Now: friday})
	require.NoError(t, err)
	return d.Remaining
}
