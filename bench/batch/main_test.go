package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMain runs this binary as the process that is killed if it has the arguments of one.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-child") {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestJob_isDoneOnceAfterKills(t *testing.T) {
	c := jobConfig{Items: 1000, Workers: 20, Kills: 2, Rate: 1000} // one request in a hundred fails
	r, err := measureJob(c, filepath.Join(t.TempDir(), "job"), rand.New(rand.NewPCG(1, 0)))
	require.NoError(t, err)
	job := r.(jobResult)
	require.Equal(t, 1000, job.Once, job)
	require.Zero(t, job.Twice+job.Missing, job)
	require.Positive(t, job.Faults)
}

func TestOutbox_isDeliveredOnceAfterKills(t *testing.T) {
	r, err := measureOutbox(outboxConfig{Kills: 6}, filepath.Join(t.TempDir(), "outbox"), rand.New(rand.NewPCG(1, 0)))
	require.NoError(t, err)
	outbox := r.(outboxResult)
	require.False(t, outbox.missed(), outbox)
	require.Positive(t, outbox.Accepted)
	require.Positive(t, outbox.Unkeyed)
	require.Positive(t, outbox.Faults)
}

// Jobs that are killed in each mode, and one that is stopped, do no item twice and lose none.
func TestEnds_loseNothingAndDoNothingTwice(t *testing.T) {
	stops, kills := 4, 3
	if testing.Short() {
		stops, kills = 2, 2
	}
	configs := []endsConfig{{"unkeyed", stops, true}}
	for _, mode := range modes {
		configs = append(configs, endsConfig{mode, kills, false})
	}
	for _, c := range configs {
		r, err := measureEnds(c, filepath.Join(t.TempDir(), "job"), rand.New(rand.NewPCG(1, 0)))
		require.NoError(t, err, c)
		require.False(t, r.missed(), r)
		require.Positive(t, r.(endsResult).Once, r)
	}
}

// A measurement that finds a fault misses its goal.
func TestResults_missTheirGoals(t *testing.T) {
	require.False(t, jobResult{Items: 5, Once: 5, Ratio: 1.1}.missed())
	require.True(t, jobResult{Items: 5, Once: 4, Ratio: 1}.missed())
	require.True(t, jobResult{Items: 5, Once: 5, Ratio: 1.2}.missed())
	require.False(t, outboxResult{Accepted: 5, Unknown: 5, Repeated: 5}.missed())
	require.False(t, endsResult{Measured: "kills", Once: 5, Unknown: 1, UnknownNotSent: 1}.missed())
	require.True(t, endsResult{Measured: "stops", UnknownNotSent: 1}.missed())
	require.True(t, endsResult{Twice: 1}.missed())
	require.True(t, endsResult{Lost: 1}.missed())
	require.True(t, outboxResult{Lost: 1}.missed())
	require.True(t, outboxResult{UnkeyedTwice: 1}.missed())
	require.True(t, outboxResult{Twice: 1}.missed())
}
