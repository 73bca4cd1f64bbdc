package throttle_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/replay"
)

// Every limiter makes the decisions of the reference traces.
func TestLimiters_agreeWithReferenceTraces(t *testing.T) {
	for file, want := range map[string]replay.Report{
		"algorithms.jsonl": {Scenarios: 61, Ops: 2648},
		"nginx.jsonl":      {Scenarios: 30, Ops: 1499, Waived: 3},
		"rolling.jsonl":    {Scenarios: 25, Ops: 665},
		"rate.jsonl":       {Scenarios: 61, Ops: 1254, Waived: 44}, // 4 of them after a reservation that x/time/rate grants with an infinite delay
		"rate_wait.jsonl":  {Scenarios: 31, Ops: 206},
	} {
		t.Run(file, func(t *testing.T) {
			got, known, err := replay.File(filepath.Join("testdata", file))
			require.NoError(t, err)
			require.True(t, known)
			require.Empty(t, got.Differences)
			want.File, got.Differences = file, nil
			require.Equal(t, want, got)
		})
	}
}
