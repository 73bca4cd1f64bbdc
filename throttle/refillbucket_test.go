package throttle

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRefillBucket_ticksDoNotDrift(t *testing.T) {
	l := WithClock(NewRefillBucket(RefillBucketConfig{Limit: Limit{Count: 1, Per: time.Millisecond, Burst: 5}, InitialDeficit: 5}), at(0))
	const us = time.Microsecond
	playSteps(t, l, time.Unix(0, 0), []step{
		{at: 1500 * us, cost: 1, ok: true},
		{at: 1999 * us, cost: 1, wait: us},
		{at: 2000 * us, cost: 1, ok: true},
		{at: 2999 * us, cost: 1, wait: us},
		{at: 10999 * us, cost: 5, ok: true},
	})
}

func TestRefillBucket_cancelRefundsLessWhatTicksRefilled(t *testing.T) {
	clk := at(0)
	l := WithClock(NewRefillBucket(RefillBucketConfig{Limit: Limit{Count: 2, Per: time.Second, Burst: 10}}), clk)
	d := ask(l, 7, 0)
	ask(l, 3, 0)
	clk.now = clk.now.Add(2 * time.Second)
	require.EqualValues(t, 4, remaining(l))
	l.Report(t.Context(), Claim{Cost: 7}, d, Feedback{State: Unused})
	require.EqualValues(t, 7, remaining(l), "7 less the 4 that came")
	clk.now = clk.now.Add(time.Hour)
	l.Report(t.Context(), Claim{Cost: 7}, d, Feedback{State: Unused})
	require.EqualValues(t, 10, remaining(l))
}

func TestRefillBucket_settlesACost(t *testing.T) {
	clk := at(0)
	l := WithClock(NewRefillBucket(RefillBucketConfig{Limit: Limit{Count: 2, Per: time.Second, Burst: 10}}), clk)
	d := ask(l, 6, 0)
	l.Report(t.Context(), Claim{Cost: 6}, d, Feedback{Cost: 13})
	require.Zero(t, remaining(l))
	require.Equal(t, 2*time.Second, ask(l, 1, 0).Wait, "3 more than there were: they come out of two ticks")
	l.Report(t.Context(), Claim{Cost: 6}, d, Feedback{Cost: 1})
	require.EqualValues(t, 2, remaining(l))
}

func TestRefillBucket_setLimitKeepsUnits(t *testing.T) {
	clk := at(0)
	l := WithClock(NewRefillBucket(RefillBucketConfig{Limit: Limit{Count: 1, Per: time.Second, Burst: 10}}), clk)
	d := ask(l, 4, 0)
	require.NoError(t, l.SetLimit(Limit{Count: 5, Per: time.Second, Burst: 20}))
	require.EqualValues(t, 6, remaining(l), "a larger burst is no gift")
	clk.now = clk.now.Add(time.Second)
	l.Report(t.Context(), Claim{Cost: 4}, d, Feedback{State: Unused})
	require.EqualValues(t, 11, remaining(l), "a tick has brought 5, more than the claim took")
	require.NoError(t, l.SetLimit(Limit{Count: 5, Per: time.Second, Burst: 3}))
	require.EqualValues(t, 3, remaining(l))
	require.Error(t, l.SetLimit(Limit{}))
}

// Ticks may add more units than can be counted. Then no units are returned.
func TestRefillBucket_extremeRatesAddNoUnits(t *testing.T) {
	clk := at(0)
	l := WithClock(NewRefillBucket(RefillBucketConfig{Limit: Limit{Count: 1 << 40, Per: 1, Burst: 1 << 50}}), clk)
	clk.now = clk.now.Add(time.Second)
	d := ask(l, 1<<50, 0)
	clk.now = clk.now.Add(1 << 9)
	ask(l, 1<<49, 0)
	l.Report(t.Context(), Claim{Cost: 1 << 50}, d, Feedback{State: Unused})
	require.Zero(t, remaining(l))
	require.Equal(t, Forever, ask(l, math.MaxInt64, 0).Wait)
}
