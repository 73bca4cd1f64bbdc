package adaptive

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

func TestAdmissionControl_doesNotCountWaitingClaims(t *testing.T) {
	draw := 0.0
	l := NewAdmissionControl(AdmissionControlConfig{Rand: func() float64 { return draw }})
	c := throttle.Claim{Waits: true}
	for range 3 {
		draw = 1
		d, err := l.Reserve(t.Context(), c)
		require.NoError(t, err)
		require.True(t, d.OK)
		l.Observe(t.Context(), c, d, throttle.Feedback{Outcome: throttle.Failed})
	}
	draw = 0
	for range 10 {
		d, err := l.Reserve(t.Context(), c)
		require.NoError(t, err)
		require.False(t, d.OK)
	}
	require.Equal(t, requestCounts{requests: 3}, l.sum)
}
