//go:build !race

package heed

import (
	"io"
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLogTrace_allocatesNothingForAnUneventfulCall sends requests to a host without limits.
func TestLogTrace_allocatesNothingForAnUneventfulCall(t *testing.T) {
	tr := &Transport{
		Base:  &fixedResponse{StatusCode: 200, Header: http.Header{}, Body: http.NoBody},
		Trace: LogTrace(slog.New(slog.NewTextHandler(io.Discard, nil))),
	}
	req := request(t, "GET", "")
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		_, err := tr.RoundTrip(req)
		require.NoError(t, err)
	}))
}
