package main

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestRow_waitsForRetryAfter(t *testing.T) {
	for _, client := range []string{"heed", "retryablehttp"} {
		synctest.Test(t, func(t *testing.T) {
			baseline := row{client: client}.run()
			require.Zero(t, baseline.Failed, client)
			r := row{client, 10, 100}.run()
			require.Zero(t, r.Failed, client)
			require.Greater(t, r.Elapsed, 10.0, client)
			require.Less(t, baseline.Elapsed, 5.0, client)
		})
	}
}

// Fails on b52aeb0 in all eight rows: 60 s became 275 to 709 s.
func TestMeasure_meetsTheGoals(t *testing.T) {
	require.False(t, measure(t, []string{"heed"}, false))
}

func TestResult_knowsItsGoal(t *testing.T) {
	ten := 10
	require.InDelta(t, 13.45, result{RetryAfter: &ten, Baseline: 2}.goal(), 1e-9)
	require.True(t, result{Baseline: 2, Elapsed: 2.4}.meetsGoal())
	require.False(t, result{Baseline: 2, Elapsed: 2.5}.meetsGoal())
	require.False(t, result{Baseline: 2, Elapsed: 2, Failed: 1}.meetsGoal())
}
