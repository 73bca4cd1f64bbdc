package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRows_haveAllClients(t *testing.T) {
	require.Len(t, rows(), 2*3*3*(2+3+3))
	require.Len(t, matching(rows(), "own,learned", "heed"), 2*3*3*2)
}

// Fails on 2c0f7f4: 4 % of the units of an own limit end in time with random latencies, and no call fails early.
func TestRow_heedUsesItsOwnLimit(t *testing.T) {
	for _, noise := range []float64{0, .5} {
		synctest.Test(t, func(t *testing.T) {
			r := row{"own", 100, 100 * time.Millisecond, noise, "heed"}.run(1, time.Minute)
			require.True(t, r.meetsGoal(), "%+v", r)
			require.Greater(t, r.Early, .95)
			require.Equal(t, 6000, r.Calls)
			require.LessOrEqual(t, r.Sent, 610+10)
		})
	}
}

// Fails on 9d1ebde0: 71 to 80 % of the units end in time, because callers leave the queue when less time is left than
// three of four responses take. Of two minutes the first seconds weigh more than of the ten for which the goal is meant.
func TestRow_heedUsesAStatedLimit(t *testing.T) {
	for _, demand := range []int{20, 100} {
		for _, noise := range []float64{0, .5} {
			synctest.Test(t, func(t *testing.T) {
				r := row{"stated", demand, 100 * time.Millisecond, noise, "heed"}.run(1, 2*time.Minute)
				require.Greater(t, r.Share, .86, "%+v", r)
			})
		}
	}
}

// The default Mode learns no rate from rejections alone: 10 times as many requests are rejected with it.
func TestRow_heedLearnsALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := row{"learned", 20, 10 * time.Millisecond, 0, "heed"}.run(1, 2*time.Minute)
		require.True(t, r.meetsGoal(), "%+v", r)
		require.Less(t, r.Rejected, 200)
	})
}

func TestRow_serversEnforceTheirLimits(t *testing.T) {
	for _, limit := range []string{"stated", "learned"} {
		synctest.Test(t, func(t *testing.T) {
			r := row{limit, 20, 10 * time.Millisecond, 0, "plain"}.run(1, 30*time.Second)
			require.Equal(t, 600, r.Sent)
			require.Equal(t, r.Rejected, r.Failed)
			require.InDelta(t, 1.03, r.Share, .02)
		})
	}
}
