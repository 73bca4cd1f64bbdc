package main

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestRun_sendsNoMoreThanTheLimitAdmits(t *testing.T) {
	for i, m := range constructors {
		synctest.Test(t, func(t *testing.T) {
			r := run(i)
			require.Equal(t, 6000, r.Offered, m.name)
			require.LessOrEqual(t, r.Sent, possible+perSecond*int(deadline.Seconds())+1, m.name)
			require.Positive(t, r.InTime, m.name)
		})
	}
}

// Fails on b52aeb0: 158 of 3,089 responses arrived in time.
func TestRun_answersInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(0)
		require.Equal(t, "heed", r.Client)
		require.True(t, r.meetsGoal(), "%+v", r)
	})
}
