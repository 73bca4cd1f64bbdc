package model

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// Each limit of a unit is known by its name and window, if there is memory for it.
func TestUnits_findsTheEstimateOfALimit(t *testing.T) {
	u := &Units{Account: modelAt(0).Account, Unit: "tokens"}
	for i, l := range []throttle.RemoteLimit{{}, {Name: "a"}, {Per: time.Minute}, {Name: "a", Per: time.Minute}} {
		require.Equal(t, -1, u.find(l, time.Time{}), "another unit")
		l.Unit = "tokens"
		require.Equal(t, i, u.find(l, time.Time{}))
	}
	require.True(t, u.Estimates[3].Weighted)
	require.Equal(t, 1, u.find(throttle.RemoteLimit{Unit: "tokens", Name: "a"}, time.Time{}))
	u.Dropped = true
	require.Equal(t, -1, u.find(throttle.RemoteLimit{Unit: "tokens", Name: "b"}, time.Time{}))
	u.Dropped = false
	u.Account.Memory.Store(MaxBytes)
	require.Equal(t, -1, u.find(throttle.RemoteLimit{Unit: "tokens", Name: "b"}, time.Time{}))
}
