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

	follow := func(x *throttle.SubGrants, d throttle.Decision, state throttle.State) (grants []uint64) {
		x.Unwrap(d, state, func(parts []throttle.Decision) {
			for _, p := range parts {
				grants = append(grants, p.Grant)
			}
		})
		return grants
	}
	require.Empty(t, follow(&b, d, throttle.Ended), "it is not theirs")
	require.Equal(t, []uint64{7, 8}, follow(&a, d, throttle.Ongoing))
	require.Equal(t, []uint64{7, 8}, follow(&a, d, throttle.Ended))
	require.Empty(t, follow(&a, d, throttle.Ended), "the claim has ended")
	require.Empty(t, follow(&a, throttle.Decision{OK: true}, throttle.Ended))
}

// A claim granted by an Inner ends at its limiter, with the Decision that the limiter
// returned. Only a Decision with a subGrant of its own, such as that of an AllOf, ends
// once.
func TestInner_cancelReachesItsLimiter(t *testing.T) {
	for name, row := range map[string]struct {
		wrap     func(throttle.Limiter) throttle.Limiter
		degraded bool
		want     int // cancels that reach the limiter, of two
	}{
		"plain":    {func(l throttle.Limiter) throttle.Limiter { return l }, false, 2},
		"degraded": {func(l throttle.Limiter) throttle.Limiter { return l }, true, 2},
		"composed": {func(l throttle.Limiter) throttle.Limiter { return throttle.AllOf(l) }, true, 1},
	} {
		var g, others throttle.SubGrants
		s := granting(7, 50)
		l := row.wrap(s)
		in := g.Inner(l, row.degraded)

		d, err := in.Reserve(t.Context(), throttle.Claim{DryRun: true})
		require.NoError(t, err)
		require.False(t, g.Owns(d), "%s: a dry run took nothing", name)
		d, err = in.Reserve(t.Context(), throttle.Claim{})
		require.NoError(t, err)
		require.Equal(t, row.degraded, d.Degraded, name)
		require.True(t, g.Owns(d), name)
		require.False(t, others.Owns(d), name)

		g.Report(t.Context(), throttle.Claim{}, d, throttle.Feedback{State: throttle.Ongoing})
		others.Report(t.Context(), throttle.Claim{}, d, throttle.Feedback{State: throttle.Ongoing})
		require.Equal(t, s.granted, s.observed, name)
		others.Report(t.Context(), throttle.Claim{}, d, throttle.Feedback{State: throttle.Unused})
		require.Empty(t, s.cancelled, name)
		for range 2 {
			g.Report(t.Context(), throttle.Claim{}, d, throttle.Feedback{State: throttle.Unused})
		}
		require.Len(t, s.cancelled, row.want, name)
		require.Equal(t, s.granted[0], s.cancelled[0], name)
	}
}

func TestFixedWindowConfig_windowAgreesWithFixedWindow(t *testing.T) {
	for _, q := range []throttle.FixedWindowConfig{{Count: 1, Per: 7 * time.Minute}, {Count: 1, Align: throttle.EachDay}, {Count: 1, Align: throttle.EachMonth}} {
		now := time.Date(2026, 11, 21, 13, 50, 12, 0, time.UTC)
		from, to := q.Window(now)
		require.False(t, now.Before(from))
		require.True(t, now.Before(to))
		d, err := throttle.NewFixedWindow(q).Reserve(t.Context(), throttle.Claim{Now: now})
		require.NoError(t, err)
		require.Equal(t, to.Sub(now), d.ResetAfter)
		require.Equal(t, to.Sub(from), d.Per)
	}
}
