package rules

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

func TestRegistry_measuresEveryAlgorithm(t *testing.T) {
	for name, spec := range specs {
		stats := (&Registry{}).Stats(&Limit{ID: name, Spec: spec})
		require.NotPanics(t, func() { stats.Decided(throttle.Claim{}, throttle.Decision{}) }, name)
		if name != "concurrency" {
			require.NoError(t, stats.Limit.Validate(), name)
			require.EqualValues(t, 10, stats.Limit.Count, name)
		}
	}
}

// What is valid of an algorithm may be no Limit, and must not panic later.
func TestRegistry_skipsUnmeasurableLimits(t *testing.T) {
	slow := throttle.NginxConfig{Rate: 1, Per: 1e12, Burst: 1e12}
	require.NoError(t, slow.Validate())
	require.Zero(t, nominalLimit(slow))
	require.Zero(t, nominalLimit(nil))
}
