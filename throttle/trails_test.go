package throttle_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

func TestTrails_leadBackOnce(t *testing.T) {
	var a, b throttle.Trails
	parts := []throttle.Decision{{Grant: 7}, {Grant: 8}}
	d := a.Mark(throttle.Decision{OK: true}, parts)
	parts[0].Grant = 0 // they were copied

	follow := func(x *throttle.Trails, d throttle.Decision, goesOn bool) (grants []uint64) {
		x.Follow(d, goesOn, func(parts []throttle.Decision) {
			for _, p := range parts {
				grants = append(grants, p.Grant)
			}
		})
		return grants
	}
	require.Empty(t, follow(&b, d, false), "it is not theirs")
	require.Equal(t, []uint64{7, 8}, follow(&a, d, true))
	require.Equal(t, []uint64{7, 8}, follow(&a, d, false))
	require.Empty(t, follow(&a, d, false), "the claim has ended")
	require.Empty(t, follow(&a, throttle.Decision{OK: true}, false))
}

func TestQuota_windowIsTheOneThatAFixedWindowCounts(t *testing.T) {
	for _, q := range []throttle.Quota{{Count: 1, Per: 7 * time.Minute}, {Count: 1, Anchor: throttle.EachDay}, {Count: 1, Anchor: throttle.EachMonth}} {
		now := time.Date(2026, 11, 21, 13, 50, 12, 0, time.UTC)
		from, to := q.Window(now)
		require.False(t, now.Before(from))
		require.True(t, now.Before(to))
		d, err := throttle.NewFixedWindow(q, nil).Reserve(t.Context(), throttle.Claim{Now: now})
		require.NoError(t, err)
		require.Equal(t, to.Sub(now), d.ResetAfter)
		require.Equal(t, to.Sub(from), d.Per)
	}
}
