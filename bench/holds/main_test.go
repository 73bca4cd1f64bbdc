package main

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// An hour in GitHub's headers was obeyed from the beginning: nothing is sent until it is
// over, and all calls succeed afterwards.
func TestHold_waitsForGitHub(t *testing.T) {
	for _, h := range holds {
		if h.host != "api.github.com" {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)))
			r := h.run("heed")
			require.Empty(t, r.misses(), "%+v", r)
		})
	}
}

func TestStopped_renewsItsBan(t *testing.T) {
	now := time.Now()
	s := &stopped{hold: hold{until: time.Hour, renew: true, stop: left(429), refuse: left(429)}}
	status := func(after time.Duration) int { return s.decide(now.Add(after)).Status }
	require.Zero(t, status(0))
	s.stopNow = true
	require.Equal(t, http.StatusTooManyRequests, status(0))
	require.Equal(t, http.StatusTooManyRequests, status(59*time.Minute))
	require.Equal(t, http.StatusTooManyRequests, status(118*time.Minute))
	require.Zero(t, status(179*time.Minute))
	require.Equal(t, 2, s.refused)
}

func TestResult_knowsItsGoal(t *testing.T) {
	h := hold{goal: goal{first: time.Minute, refused: 1, back: time.Hour}}
	require.Empty(t, result{First: 60, Refused: 1, Back: 3600, Recovery: 30, hold: h}.misses())
	require.ElementsMatch(t, []string{"first request", "refused", "back", "recovery"}, result{First: 59, Refused: 2, Back: -1, Recovery: -1, hold: h}.misses())
}
