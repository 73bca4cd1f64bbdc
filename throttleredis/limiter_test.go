package throttleredis

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

func TestTokenBucket_sharesItsUnits(t *testing.T) {
	s := newTestStore(t)
	other := &Store{Client: s.Client, Prefix: s.Prefix} // of another process
	a, b := s.TokenBucket(throttle.PerHour(3)), other.TokenBucket(throttle.PerHour(3))
	for i, l := range []*Limiter{a, b, a} {
		d, err := l.Reserve(t.Context(), throttle.Claim{Key: "k"})
		require.NoError(t, err)
		require.True(t, d.OK)
		require.Equal(t, int64(2-i), d.Remaining)
	}
	d, err := b.Reserve(t.Context(), throttle.Claim{Key: "k"})
	require.NoError(t, err)
	require.False(t, d.OK)
	require.InDelta(t, 20*time.Minute, d.Wait, float64(time.Minute))
}
