package throttleredis

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// For every limit a process that is alone gets about its share, and at least one unit.
func TestShare_ofEveryKindOfLimit(t *testing.T) {
	t.Parallel()
	all := append(pairs(), limiterPair{name: "AllOf", remote: func(s *Store) throttle.Limiter {
		return AllOf(s.TokenBucket(throttle.PerSecond(9)), s.SlidingLog(throttle.SlidingLogConfig{Limit: throttle.PerSecond(30)}))
	}})
	for _, p := range all {
		s := newTestStore(t)
		s.Clock, s.useLocalClock = &manualClock{now: began}, true
		l := p.remote(s)
		share := l.(sharer).Share(3, 0)
		claim := throttle.Claim{Key: "k"}
		whole, err := throttle.ReserveAhead(t.Context(), l, claim, 10*time.Second)
		require.NoError(t, err, p.name)
		part, err := throttle.ReserveAhead(t.Context(), share, claim, 10*time.Second)
		require.NoError(t, err, p.name)
		require.True(t, part.OK, "%s: %+v", p.name, part)
		require.LessOrEqual(t, 3*part.Limit, whole.Limit+3, p.name)
		require.Equal(t, whole.Policy, part.Policy, p.name)
	}
}
