package bandwidth_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/bandwidth"
)

// TestStream_allocatesNothingPerChunk counts the allocations of a Read and a Write that do not
// wait.
func TestStream_allocatesNothingPerChunk(t *testing.T) {
	if racing {
		t.Skip("the race detector allocates")
	}
	limit, buf := newBucket(1e15), make([]byte, 32<<10)
	body := download(t, limit, zeros{})
	require.Zero(t, testing.AllocsPerRun(1000, func() { body.Read(buf) }))
	m := &bandwidth.Middleware{Download: limit}
	m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		require.Zero(t, testing.AllocsPerRun(1000, func() { w.Write(buf) }))
		require.Zero(t, testing.AllocsPerRun(1000, func() { io.WriteString(w, "x") }))
	})).ServeHTTP(discarder{}, newRequest(http.MethodGet))
}

// A discarder is a ResponseWriter that keeps nothing.
type discarder struct{}

func (discarder) Header() http.Header               { return nil }
func (discarder) Write(p []byte) (int, error)       { return len(p), nil }
func (discarder) WriteString(s string) (int, error) { return len(s), nil }
func (discarder) WriteHeader(int)                   {}
