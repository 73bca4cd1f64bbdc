package batchjob

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/batch"
	"github.com/heed-go/heed/examples/uses/internal/scenario"
	"github.com/heed-go/heed/heedtest"
)

func TestBar_isFullAtTheEnd(t *testing.T) {
	require.Equal(t, "[....................]", bar(batch.Progress{}))
	require.Equal(t, "[##########..........]", bar(batch.Progress{Done: 49, Failed: 1, Total: 100}))
	require.Equal(t, "[####################]", bar(batch.Progress{Done: 100, Total: 100}))
}

// TestBill_showsTheProgress checks the last line, and that a job that has ended is not done
// again.
func TestBill_showsTheProgress(t *testing.T) {
	s := scenario.Scenario{API: func(c *scenario.Counts) func(heedtest.Request) heedtest.Response { return newAPI(c).respond }}
	checkpoint := filepath.Join(t.TempDir(), "checkpoint")
	for _, sent := range []int{30, 0} {
		synctest.Test(t, func(t *testing.T) {
			r := s.Measure(t.Context(), func(ctx context.Context, base http.RoundTripper) int {
				var out strings.Builder
				report, err := Bill(ctx, NewClient(base), strings.Split(strings.Repeat("x", 30), ""), checkpoint, &out)
				require.NoError(t, err)
				require.Equal(t, 30, report.Done)
				require.Contains(t, out.String(), "\r[####################] 30 of 30 done")
				return 0
			})
			require.Equal(t, sent, r.Sent)
		})
	}
}
