package throttle_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

func TestSubGrants_unwrapOnce(t *testing.T) {
	var a, b throttle.SubGrants
	parts := []throttle.Decision{{Grant: 7}, {Grant: 8}}
	d := a.Wrap(throttle.Decision{OK: true}, parts)
	parts[0].Grant = 0 // they were copied

	follow := func(x *throttle.SubGrants, d throttle.Decision, goesOn bool) (grants []uint64) {
		x.Unwrap(d, goesOn, func(parts []throttle.Decision) {
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

func TestFixedWindowConfig_windowAgreesWithFixedWindow(t *testing.T) {
	for _, q := range []throttle.FixedWindowConfig{{Count: 1, Per: 7 * time.Minute}, {Count: 1, Align: throttle.EachDay}, {Count: 1, Align: throttle.EachMonth}} {
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
