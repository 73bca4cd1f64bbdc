package adaptive_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/adaptive"
)

// With a K of 2, a server that accepts 100 requests per second gets 200 while 1,000 are
// made, and all of them when it has recovered.
func TestAdmissionControl_sendsTwiceTheAcceptedRate(t *testing.T) {
	if testing.Short() {
		t.Skip("only make test-long runs it")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	l := adaptive.NewAdmissionControl(adaptive.AdmissionControlConfig{Rand: rng.Float64})
	now := time.Now()
	second := func(accepts int) (sent int) {
		for range 1000 {
			now = now.Add(time.Millisecond)
			d := reserve(t, l, throttle.Claim{Now: now})
			if !d.OK {
				require.Zero(t, d.Wait)
				continue
			}
			f := throttle.Feedback{Now: now}
			if sent++; sent > accepts {
				f.Outcome = throttle.Throttled
			}
			l.Report(t.Context(), throttle.Claim{}, d, throttle.Feedback{Now: now, Outcome: f.Outcome, State: throttle.Ongoing})
			l.Report(t.Context(), throttle.Claim{}, d, f)
		}
		return sent
	}
	require.Equal(t, 1000, second(1000), "nothing is rejected while all is accepted")
	for range 240 {
		second(100)
	}
	sent := 0
	for range 60 {
		sent += second(100)
	}
	require.InDelta(t, 200, float64(sent)/60, 10)
	for range 180 {
		second(1000)
	}
	require.Equal(t, 1000, second(1000), "after some minutes it is forgotten")
}

func TestAdmissionControl_forgetsAfterPer(t *testing.T) {
	draw := 0.
	l := adaptive.NewAdmissionControl(adaptive.AdmissionControlConfig{Rand: func() float64 { return draw }})
	now := time.Now()
	for range 10 {
		l.Report(t.Context(), throttle.Claim{}, throttle.Decision{OK: true}, throttle.Feedback{Now: now, Outcome: throttle.Failed})
	}
	for range 1000 {
		require.False(t, reserve(t, l, throttle.Claim{Now: now, DryRun: true}).OK)
	}
	draw = .92 // of 10 requests none was accepted: 10/11 are rejected
	require.True(t, reserve(t, l, throttle.Claim{Now: now, DryRun: true}).OK, "dry runs do not count")
	draw = 0
	require.False(t, reserve(t, l, throttle.Claim{Now: now.Add(time.Minute), DryRun: true}).OK)
	require.True(t, reserve(t, l, throttle.Claim{Now: now.Add(3 * time.Minute)}).OK)
	require.False(t, reserve(t, l, throttle.Claim{Now: now}).OK, "who was ahead of the others has moved nothing")
}

func TestAdmissionControlConfig_validate(t *testing.T) {
	for _, a := range []adaptive.AdmissionControlConfig{{K: .5}, {K: math.NaN()}, {Per: -1}} {
		require.Error(t, a.Validate())
		require.Panics(t, func() { adaptive.NewAdmissionControl(a) })
	}
}

func reserve(t *testing.T, l throttle.Limiter, c throttle.Claim) throttle.Decision {
	d, err := l.Reserve(t.Context(), c)
	if err != nil {
		t.Helper()
		require.NoError(t, err)
	}
	return d
}
