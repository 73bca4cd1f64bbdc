package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/bench/internal/simulation"
)

// Fails on b52aeb0 in eight of nine rows: a hold of a year was either kept to its end or
// ignored, and after every hold the rate was that of the calls before it. Before QUOTA section 2 rule 3, one
// rejection held all requests for 15 minutes.
func TestHolds_meetTheirGoals(t *testing.T) {
	if testing.Short() {
		t.Skip("only make test-long runs it")
	}
	simulation.Each(t, len(holds), func(i int) result { return holds[i].run("heed") }, func(r result) {
		assert.Empty(t, r.misses(), "%s: first request %s, %d rejected, first success after %s, full speed after %s", r.Hold, after(r.First), r.Rejected, after(r.FirstSuccess), after(r.Recovery))
	})
}

func TestHoldServer_renewsItsBan(t *testing.T) {
	now := time.Now()
	s := &holdServer{hold: hold{until: time.Hour, renew: true, stop: retryAfterLeft(429), reject: retryAfterLeft(429)}}
	status := func(after time.Duration) int { return s.decide(now.Add(after)).Status }
	require.Zero(t, status(0))
	s.stopNow = true
	require.Equal(t, http.StatusTooManyRequests, status(0))
	require.Equal(t, http.StatusTooManyRequests, status(59*time.Minute))
	require.Equal(t, http.StatusTooManyRequests, status(118*time.Minute))
	require.Zero(t, status(179*time.Minute))
	require.Equal(t, 2, s.rejected)
}

func TestResult_knowsItsGoal(t *testing.T) {
	h := hold{goal: goal{first: time.Minute, rejected: 1, firstSuccess: time.Hour}}
	require.Empty(t, result{First: 60, Rejected: 1, FirstSuccess: 3600, Recovery: 30, hold: h}.misses())
	require.ElementsMatch(t, []string{"first request", "rejected", "first success", "recovery"}, result{First: 61, Rejected: 2, FirstSuccess: -1, Recovery: -1, hold: h}.misses())
	require.ElementsMatch(t, []string{"first request", "first success", "recovery"}, result{First: -1, Rejected: 1, FirstSuccess: 3601, Recovery: 31, hold: h}.misses())
}
