package heed_test

import (
	"bytes"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/internal/outagetest"
)

// TestLogTrace_anOutageIsAtMost100Lines simulates outages of 10 s with 200 callers.
func TestLogTrace_anOutageIsAtMost100Lines(t *testing.T) {
	for name, outage := range outagetest.Outages() {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			callers := 200
			if testing.Short() {
				callers = 80
			}
			calls := outagetest.Run(t.Context(), outage.Transport(heed.LogTrace(logger)), callers)
			time.Sleep(time.Minute) // so that all sums are written
			synctest.Wait()
			lines := bytes.Count(log.Bytes(), []byte("\n"))
			t.Logf("%s: an outage of 10 s with %d callers: %d calls, %d log lines:\n%s", name, callers, calls, lines, log.Bytes())
			require.Greater(t, calls, int64(1000), name)
			require.LessOrEqual(t, lines, 100, name)
			require.Contains(t, log.String(), "level=WARN msg=\"gave up", name)
			require.Contains(t, log.String(), " repeated=", name)
		})
	}
}
