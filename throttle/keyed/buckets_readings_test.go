package keyed_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// Of the units of an Unused claim, those that were restored before a later claim with a Now are not returned, even if the
// caller of Report states an older time.
func TestBuckets_returnsUnitsAsOfTheLatestNow(t *testing.T) {
	b := keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerSecond(10)})
	c := throttle.Claim{Key: "a", Cost: 10, Now: time.Unix(1, 0)}
	d := reserve(t, b, c)
	later := throttle.Claim{Key: "a", Cost: 2, Now: c.Now.Add(500 * time.Millisecond)}
	require.True(t, reserve(t, b, later).OK)
	b.Report(t.Context(), c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
	later.DryRun = true
	require.EqualValues(t, 8, reserve(t, b, later).Remaining)
}
