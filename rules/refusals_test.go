package rules

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// TestLimit_whatBecomesOfItsRefusals asks eight times, and writes down what it gets: "y"
// is granted, "o" granted although it is over, "n" refused.
func TestLimit_whatBecomesOfItsRefusals(t *testing.T) {
	lends := true
	s := Setting{Clock: still(friday), Spare: map[string]func(throttle.Claim, throttle.Decision) bool{
		"spare": func(throttle.Claim, throttle.Decision) bool { return lends },
	}}
	const two = "rate_limit: {unit: hour, requests_per_unit: 2"
	for words, want := range map[string]string{
		two + "}":                                                           "yynnnnnn",
		"shadow_mode: true, " + two + "}":                                   "yyoooooo",
		two + ", soft: 150%}":                                               "yyooonnn",
		two + ", elastic: spare}":                                           "yyoooonn",
		"shadow_mode: true, " + two + ", soft: 50%}":                        "yyoooooo",
		"rate_limit: {unit: hour, requests_per_unit: 0}":                    "nnnnnnnn",
		"rate_limit: {unlimited: true}":                                     "yyyyyyyy",
		"shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}": "oooooooo",
		two + ", cost: 2}":                                                  "ynnnnnnn",
	} {
		r, got := oneRule(t, words, s), ""
		for i := range 8 {
			lends = i < 6
			d, err := r.gate.Reserve(context.Background(), throttle.Claim{Key: "k", Cost: r.limit.Cost, Now: friday})
			require.NoError(t, err)
			switch {
			case d.Over:
				got += "o"
			case d.OK:
				got += "y"
			default:
				got += "n"
			}
		}
		require.Equal(t, want, got, words)
	}
}

// TestLimit_punishesWhoDoesNotHeed refuses somebody, who goes on asking.
func TestLimit_punishesWhoDoesNotHeed(t *testing.T) {
	g := gateOn(t, "rate_limit: {unit: second, requests_per_unit: 1, penalty: {after: 3, within: 1m, for: 10m, name: time-out}}")
	for range 4 {
		claimed(t, g, 1, "09:00:00")
	}
	d := claimed(t, g, 1, "09:05:00")
	require.False(t, d.OK)
	require.Equal(t, "time-out", d.Policy)
	require.Equal(t, 5*time.Minute, d.Wait)
	d, err := g.Reserve(context.Background(), throttle.Claim{Key: "another", Now: friday.Add(9 * time.Hour)})
	require.NoError(t, err)
	require.True(t, d.OK)
}

// TestFile_looksWhenNothingTellsItTo watches a folder in which nothing happens.
func TestFile_looksWhenNothingTellsItTo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	write("domain: one")
	told := make(chan error, 10)
	f := &File{Path: path, Poll: time.Millisecond, OnReload: func(err error) { told <- err }}
	require.NoError(t, f.Reload())
	w, err := newWatch(filepath.Join(t.TempDir(), "nothing.yaml"))
	require.NoError(t, err)
	f.done = make(chan struct{})
	f.over.Go(func() { f.follow(w) })
	defer f.Close()

	write("domain: two")
	for f.Set().Domain() != "two" {
		select {
		case <-told: // it may have been empty for a moment
		case <-time.After(30 * time.Second):
			require.Fail(t, "nobody looked")
		}
	}
}
