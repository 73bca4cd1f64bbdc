package throttle_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

func TestLimit_withBurst(t *testing.T) {
	l := throttle.PerMinute(60)
	require.Equal(t, throttle.Limit{Count: 60, Per: time.Minute, Burst: 5}, l.WithBurst(5))
	require.Equal(t, throttle.Limit{Count: 60, Per: time.Minute}, l, "the original is unchanged")
	require.EqualValues(t, 60, remaining(t, throttle.NewTokenBucket(l.WithBurst(0))), "0 means Count")
	require.Error(t, l.WithBurst(-1).Validate())
}
