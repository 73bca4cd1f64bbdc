package rules

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

func TestLedger_measuresEveryAlgorithm(t *testing.T) {
	for name, spec := range specs {
		tally := (&Ledger{}).Tally(&Limit{Place: name, Spec: spec})
		require.NotPanics(t, func() { tally.Decided(throttle.Claim{}, throttle.Decision{}) }, name)
		if name != "in_flight" {
			require.NoError(t, tally.Limit.Validate(), name)
			require.EqualValues(t, 10, tally.Limit.Count, name)
		}
	}
}

// What is valid of an algorithm may be no Limit, and must not panic later.
func TestLedger_leavesOutWhatNothingCanBeMeasuredBy(t *testing.T) {
	slow := throttle.LimitReq{Rate: 1, Per: 1e12, Burst: 1e12}
	require.NoError(t, slow.Validate())
	require.Zero(t, measured(slow))
	require.Zero(t, measured(nil))
}
