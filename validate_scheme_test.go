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

// TestTransport_passesRegisteredProtocols checks that requests with a scheme that was
// added with RegisterProtocol are sent with limits and retries, and that others are sent
// once.
func TestTransport_passesRegisteredProtocols(t *testing.T) {
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
	resp, err := NewClient(&Transport{Base: newScript(200)}).Get("http+unix://docker/containers/json")
	require.NoError(t, err, "another Base knows its schemes itself")
	require.Equal(t, "answer 1", text(t, resp))
}

// TestTransport_doesNotSeekInAFileSentOnce checks that an *os.File as request body is
// passed to Base unchanged, so that the kernel can send it, if it is sent once or opened
// again for each attempt.
func TestTransport_doesNotSeekInAFileSentOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte("hello"), 0o600))
	for name, tt := range map[string]struct {
		retry  *RetryPolicy
		opts   RequestOptions
		header string
	}{
		"Attempts is 1":        {&RetryPolicy{MaxAttempts: 1}, RequestOptions{}, ""},
		"and there is a timer": {&RetryPolicy{MaxAttempts: 1, AttemptTimeout: time.Minute}, RequestOptions{}, ""},
		"NoRetry":              {nil, RequestOptions{NoRetry: true}, ""},
		"the caller retries":   {nil, RequestOptions{}, "2"},
		"there is a GetBody":   {nil, RequestOptions{}, "GetBody"},
	} {
		f, err := os.Open(path)
		require.NoError(t, err)
		req := put(t, f, 5)
		if tt.header == "GetBody" {
			req.GetBody = openFile(path)
		} else if tt.header != "" {
			req.Header.Set("X-Stainless-Retry-Count", tt.header)
		}
		_, err = (&Transport{Retry: tt.retry, Base: baseFunc(func(r *http.Request) (*http.Response, error) {
			assert.IsType(t, f, r.Body, name)
			return newResponse(200, ""), nil
		})}).RoundTrip(req.WithContext(WithOptions(t.Context(), tt.opts)))
		require.NoError(t, err, name)
	}
}

func openFile(path string) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return os.Open(path) }
}
