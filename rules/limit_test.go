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

// TestLimit_outcomeOfRejections claims eight times and compares the decisions: "y" is granted, "o"
// is granted with OverLimit, "n" is rejected.
func TestLimit_outcomeOfRejections(t *testing.T) {
	lends := true
	s := Config{Clock: fixedClock(friday), CanBorrow: map[string]func(throttle.Claim, throttle.Decision) bool{
		"spare": func(throttle.Claim, throttle.Decision) bool { return lends },
	}}
	const two = "rate_limit: {unit: hour, requests_per_unit: 2"
	for words, want := range map[string]string{
		two + "}":                                                           "yynnnnnn",
		"shadow_mode: true, " + two + "}":                                   "yyoooooo",
		two + ", soft: 150%}":                                               "yyooonnn",
		two + ", borrow: spare}":                                            "yyoooonn",
		"shadow_mode: true, " + two + ", soft: 50%}":                        "yyoooooo",
		"rate_limit: {unit: hour, requests_per_unit: 0}":                    "nnnnnnnn",
		"rate_limit: {unlimited: true}":                                     "yyyyyyyy",
		"rate_limit: {unlimited: true, requests_per_unit: 0}":               "yyyyyyyy",
		"shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}": "oooooooo",
		two + ", cost: 2}":                                                  "ynnnnnnn",
	} {
		r, got := oneRule(t, words, s), ""
		for i := range 8 {
			lends = i < 6
			d, err := r.limiter.Reserve(context.Background(), throttle.Claim{Key: "k", Cost: r.limit.Cost, Now: friday})
			require.NoError(t, err)
			switch {
			case d.OverLimit:
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

// TestLimit_bansKeysThatIgnoreRejections claims again and again after a rejection.
func TestLimit_bansKeysThatIgnoreRejections(t *testing.T) {
	g := activeLimitOf(t, "rate_limit: {unit: second, requests_per_unit: 1, ban: {rejections: 3, within: 1m, duration: 10m, name: time-out}}")
	for range 4 {
		reserveAt(t, g, 1, "09:00:00")
	}
	d := reserveAt(t, g, 1, "09:05:00")
	require.False(t, d.OK)
	require.Equal(t, "time-out", d.Policy)
	require.Equal(t, 5*time.Minute, d.Wait)
	d, err := g.Reserve(context.Background(), throttle.Claim{Key: "another", Now: friday.Add(9 * time.Hour)})
	require.NoError(t, err)
	require.True(t, d.OK)
}

// TestFile_pollsForChanges uses a folder without events.
func TestFile_pollsForChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	write("domain: one")
	reloads := make(chan error, 10)
	f := &File{Path: path, PollInterval: time.Millisecond, OnReload: func(err error) { reloads <- err }}
	require.NoError(t, f.Reload())
	w, err := newFileWatcher(filepath.Join(t.TempDir(), "nothing.yaml"))
	require.NoError(t, err)
	f.done = make(chan struct{})
	f.watching.Go(func() { f.watch(w) })
	defer f.Close()

	write("domain: two")
	for f.Set().Domain() != "two" {
		select {
		case <-reloads: // the file may have been empty for a moment
		case <-time.After(30 * time.Second):
			require.Fail(t, "nobody looked")
		}
	}
}
