package batch_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/batch"
)

// All failures of a job can be listed, also those beyond the 1,000 of the Report, and run again.
func TestFailures_listsAllOfAJob(t *testing.T) {
	o := batch.Options{Checkpoint: checkpointIn(t), Job: "job", Repeat: batch.RepeatAlways}
	fail := func(_ context.Context, i int) error {
		if i%2 == 1 {
			return fmt.Errorf("fault %d", i)
		}
		return nil
	}
	report, err := batch.Run(t.Context(), upTo(5000), fail, o)
	require.ErrorIs(t, err, batch.ErrItems)
	require.Len(t, report.Errors, 1000)
	failures, err := batch.Failures(o.Checkpoint)
	require.NoError(t, err)
	require.Len(t, failures, 2500)
	for n, f := range failures {
		require.Equal(t, 2*n+1, f.Index)
		require.EqualError(t, f, fmt.Sprintf("item %[1]d: fault %[1]d", f.Index))
	}

	again := 0
	report, err = batch.Run(t.Context(), upTo(5000), func(context.Context, int) error {
		again++
		return nil
	}, batch.Options{Checkpoint: o.Checkpoint, Job: "job", Repeat: batch.RepeatAlways, Workers: 1})
	require.NoError(t, err)
	require.Equal(t, 2500, again)
	require.Equal(t, 2500, report.Repeated)
	failures, err = batch.Failures(o.Checkpoint)
	require.NoError(t, err)
	require.Empty(t, failures)
}

// Items that were begun and not finished are among the failures, also while the job runs.
func TestFailures_ofAJobThatRuns(t *testing.T) {
	o := batch.Options{Checkpoint: checkpointIn(t), Workers: 1}
	_, err := batch.Run(t.Context(), upTo(3), func(_ context.Context, i int) error {
		failures, err := batch.Failures(o.Checkpoint)
		require.NoError(t, err)
		require.Len(t, failures, 1)
		require.Equal(t, i, failures[0].Index)
		require.ErrorIs(t, failures[0], batch.ErrInterrupted)
		return nil
	}, o)
	require.NoError(t, err)

	_, err = batch.Failures(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	other := filepath.Join(t.TempDir(), "other")
	require.NoError(t, os.WriteFile(other, []byte("my thesis"), 0o600))
	_, err = batch.Failures(other)
	require.ErrorIs(t, err, batch.ErrDamaged)
}
