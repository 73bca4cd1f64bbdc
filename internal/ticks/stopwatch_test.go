package ticks

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStopwatch_advancesTheReadingOfASlowClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reading := time.Unix(1e9, 0)
		s, unset := StartStopwatch(reading), StartStopwatch(time.Time{})
		require.Equal(t, reading, s.Now())
		time.Sleep(slowThreshold)
		require.Equal(t, reading, s.Now(), "a fast claim keeps the reading")
		time.Sleep(time.Nanosecond)
		require.Equal(t, reading.Add(slowThreshold+1), s.Now())
		require.Zero(t, unset.Now(), "each limiter reads its own clock")
	})
}
