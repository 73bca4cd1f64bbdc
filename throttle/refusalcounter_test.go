package throttle

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAdmissionControl_doesNotCountWaitingClaims(t *testing.T) {
	draw := 0.0
	l := NewAdmissionControl(AdmissionControlConfig{Rand: func() float64 { return draw }})
	c := Claim{Waits: true}
	for range 3 {
		draw = 1
		d, err := l.Reserve(t.Context(), c)
		require.NoError(t, err)
		require.True(t, d.OK)
		l.Observe(t.Context(), c, d, Feedback{Outcome: Failed})
	}
	draw = 0
	for range 10 {
		d, err := l.Reserve(t.Context(), c)
		require.NoError(t, err)
		require.False(t, d.OK)
	}
	require.Equal(t, requestCounts{requests: 3}, l.sum)
}
