package model

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// To a new host any number of requests is sent: nothing delays them without a reason (rule 8).
func TestQuota_aNewHostIsNotDelayed(t *testing.T) {
	q := modelAt(0)
	for range 1000 {
		require.True(t, reserve(q, start).OK)
	}
}

// The deadline of a caller does not end a release earlier: what has waited would be sent together.
func TestQuota_deadlinesDoNotEndAReleaseEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := held(t, 0, bare)
		q.ReleasedElsewhere(at(ms), at(100*s))
		require.True(t, reserve(q, at(100*s)).OK)
		d := ask(q, Claim{Waits: true, Deadline: time.Now().Add(s)}, at(100*s))
		require.False(t, d.OK)
		require.Equal(t, 500*ms, d.Wait)
		require.True(t, q.Ramp.On(at(105*s-1)))

		q = known(0)
		q.openUp(start)
		q.InFlight.Open = 1 << 20
		d = ask(q, Claim{Waits: true, Deadline: time.Now().Add(ms)}, start)
		require.Equal(t, []any{false, 80 * ms, "slow start"}, []any{d.OK, d.Wait, d.Policy}, "an estimate was wrong")
		require.True(t, q.Ramp.On(at(80*ms-1)))
	})
}

// The first requests wait until it is known what other processes know, whether or not the callers wait otherwise.
func TestQuota_waitsForAFetch(t *testing.T) {
	q := modelAt(0)
	q.FetchUntil = at(100 * ms)
	d := reserve(q, at(40*ms))
	require.Equal(t, []any{false, 60 * ms, true, "slow start"}, []any{d.OK, d.Wait, d.ServerImposed, d.Policy})
	require.False(t, ask(q, Claim{}, at(100*ms-1)).OK)
	require.True(t, reserve(q, at(100*ms)).OK)
}
