package heed

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Schemes that Base has by RegisterProtocol pass, with limits, retries and all. Others
// are tried once.
func TestTransport_passesTheProtocolsOfItsBase(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "greeting"), []byte("hello"), 0o600))
	b := &http.Transport{}
	b.RegisterProtocol("file", http.NewFileTransport(http.Dir(dir)))
	var sent atomic.Int64
	b.RegisterProtocol("unix", script(&sent, 503, 200))
	synctest.Test(t, func(t *testing.T) {
		c := NewClient(&Transport{Base: b})
		resp, err := c.Get("file:///greeting")
		require.NoError(t, err)
		require.Equal(t, "hello", text(t, resp))
		resp, err = c.Get("unix://socket/path")
		require.NoError(t, err)
		require.Equal(t, "answer 2", text(t, resp))

		start := time.Now()
		_, err = c.Get("ftp://127.0.0.1/")
		require.ErrorContains(t, err, "unsupported protocol scheme")
		require.Zero(t, time.Since(start))
	})
	_, err := NewClient(&Transport{Base: plays(200)}).Get("file:///greeting")
	require.ErrorContains(t, err, "unsupported protocol scheme", "another Base has no protocols that we know of")
}

// A file reaches Base as it is, so that the kernel can send it, where it is sent once
// or opened anew for each attempt.
func TestTransport_leavesAFileAloneThatIsSentOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte("hello"), 0o600))
	for name, tt := range map[string]struct {
		retry  *Retry
		opts   Request
		header string
	}{
		"Attempts is 1":        {&Retry{Attempts: 1}, Request{}, ""},
		"and there is a timer": {&Retry{Attempts: 1, PerAttempt: time.Minute}, Request{}, ""},
		"NoRetry":              {nil, Request{NoRetry: true}, ""},
		"the caller retries":   {nil, Request{}, "2"},
		"there is a GetBody":   {nil, Request{}, "GetBody"},
	} {
		f, err := os.Open(path)
		require.NoError(t, err)
		req := put(t, f, 5)
		if tt.header == "GetBody" {
			req.GetBody = opens(path)
		} else if tt.header != "" {
			req.Header.Set("X-Stainless-Retry-Count", tt.header)
		}
		_, err = (&Transport{Retry: tt.retry, Base: base(func(r *http.Request) (*http.Response, error) {
			assert.IsType(t, f, r.Body, name)
			return says(200, ""), nil
		})}).RoundTrip(req.WithContext(With(t.Context(), tt.opts)))
		require.NoError(t, err, name)
	}
}

func opens(path string) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return os.Open(path) }
}
