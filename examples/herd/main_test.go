package main

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHerd_jitterAndHeedLowerThePeaks checks what README.md states of the table, with fewer
// clients. With the race detector it only runs the simulation.
func TestHerd_jitterAndHeedLowerThePeaks(t *testing.T) {
	if racing {
		for _, r := range simulate(t, 10) {
			require.NotEmpty(t, r.arrivals)
		}
		return
	}
	const clients = 200
	byName := map[string]map[string]result{}
	results := simulate(t, clients)
	for _, r := range results {
		if byName[r.scenario.name] == nil {
			byName[r.scenario.name] = map[string]result{}
		}
		byName[r.scenario.name][r.strategy] = r
	}
	for name, all := range byName {
		require.Len(t, all, len(strategies))
		none, obeys, heed, spread := all["no jitter"], all["Retry-After, no jitter"], all["heed"], all["heed, StartJitter"]

		// Without jitter the clients come back together, and few calls are served.
		require.Greater(t, none.laterPeak(), none.firstWave()*9/10, name)
		require.Greater(t, none.failed, clients*callsPerClient/2, name)
		require.Greater(t, obeys.laterPeak(), obeys.firstWave()*9/10, name)

		// With heed all calls are served, with fewer requests and lower peaks.
		for _, r := range []result{heed, spread} {
			require.Zero(t, r.failed, name)
			require.Less(t, r.laterPeak(), none.laterPeak()*2/3, name)
			require.Less(t, len(r.arrivals), len(obeys.arrivals)/2, name)
		}

		// StartJitter removes the first wave.
		require.GreaterOrEqual(t, heed.firstWave(), clients*callsPerClient, name)
		require.Less(t, spread.firstWave(), heed.firstWave()/20, name)
		require.Less(t, spread.laterPeak(), none.laterPeak()/10, name)
	}
	require.Less(t, len(byName["noon"]["heed, StartJitter"].arrivals), clients*callsPerClient*5/4, "few are rejected at noon")

	// All calls are served sooner with heed than with full jitter, because it obeys Retry-After.
	for name, all := range byName {
		heed, _ := all["heed"].servedAfter(1)
		full, _ := all["full jitter"].servedAfter(0.999) // the last calls of some runs are not served in time
		require.Less(t, heed, full, name)
	}

	var out strings.Builder
	folder := t.TempDir()
	require.NoError(t, show(results, &out, folder))
	require.Contains(t, out.String(), "200 clients, 400 calls; the server serves 20 per second, 10 at the same time.")
	for _, s := range strategies {
		require.Len(t, regexp.MustCompile(`(?m)^ *`+s.name+`  `).FindAllString(out.String(), -1), len(scenarios), s.name)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.svg"))
	require.NoError(t, err)
	require.Len(t, files, len(scenarios)*len(themes))
	for _, file := range files {
		svg, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, xml.Unmarshal(svg, new(struct {
			XMLName xml.Name `xml:"svg"`
		})))
		for _, s := range strategies {
			require.Contains(t, string(svg), s.name+": ")
		}
	}
}

func TestResult_countsPeaksAndTimes(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	r := result{
		scenario: scenario{downtime: 2 * time.Second}, clients: 2,
		arrivals: []arrival{{ms(0), false}, {ms(50), false}, {ms(99), false}, {ms(100), false}, {ms(2000), true}, {ms(2090), true}, {ms(2150), false}, {ms(2185), true}, {ms(3000), true}},
	}
	require.Equal(t, 3, r.firstWave())
	require.Equal(t, 3, r.laterPeak())
	for part, want := range map[float64]time.Duration{0.5: ms(90), 0.75: ms(185), 1: ms(1000)} {
		after, ok := r.servedAfter(part)
		require.True(t, ok)
		require.Equal(t, want, after)
	}
	r.clients = 3
	_, ok := r.servedAfter(1)
	require.False(t, ok)
}
