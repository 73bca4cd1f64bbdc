package headers

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestInspectsBody_ofFailuresAndOfProvidersWithErrorsInSuccesses(t *testing.T) {
	var r Reader
	json := http.Header{"Content-Type": {"application/json; charset=utf-8"}}
	require.True(t, r.inspectsBody(r.Provider("api.github.com"), 200, json))
	require.False(t, r.inspectsBody(r.Provider("api.github.com"), 200, nil))
	require.False(t, r.inspectsBody(r.Provider("api.example.com"), 200, json))
	require.True(t, r.inspectsBody(r.Provider("api.example.com"), 429, nil))
	require.True(t, r.inspectsBody(r.Provider("api.example.com"), 403, nil))
	require.True(t, r.inspectsBody(r.Provider("api.example.com"), 503, nil))
	require.False(t, r.inspectsBody(r.Provider("api.example.com"), 404, nil))
	for _, stream := range []string{"application/x-ndjson", "text/event-stream", "application/stream+json", "text/html; charset=utf-8", "image/png"} {
		require.False(t, r.inspectsBody(r.Provider("api.github.com"), 200, http.Header{"Content-Type": {stream}}), stream)
		require.False(t, r.inspectsBody(r.Provider("api.github.com"), 403, http.Header{"Content-Type": {stream}}), stream)
	}
}

func TestPeek_restoresBody(t *testing.T) {
	for _, text := range []string{"", "short", strings.Repeat("long ", 10000)} {
		closed := false
		resp := &http.Response{Body: body{iotest.OneByteReader(strings.NewReader(text)), &closed}}
		require.Equal(t, text[:min(len(text), maxPeek)], string(peek(resp, false)))
		all, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, text, string(all))
		require.NoError(t, resp.Body.Close())
		require.True(t, closed)
	}
	broken := errors.New("broken")
	resp := &http.Response{Body: io.NopCloser(io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)))}
	require.Equal(t, "half", string(peek(resp, false)))
	all, err := io.ReadAll(resp.Body)
	require.Equal(t, "half", string(all))
	require.ErrorIs(t, err, broken)
	for _, body := range []io.ReadCloser{nil, http.NoBody} { // Read does not look into these
		resp := &http.Response{StatusCode: 429, Body: body}
		require.Equal(t, "rejected", formatReport(new(Reader).Read(nil, resp, time.Time{}, time.Time{})))
		require.Equal(t, body, resp.Body)
	}
}

// A body that does not arrive, or stops in the middle, does not delay the caller. The
// caller reads what arrives later completely.
func TestPeek_doesNotWaitForSlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		go func() {
			for _, piece := range []string{"one ", "two ", "three"} {
				time.Sleep(70 * time.Millisecond)
				io.WriteString(w, piece)
			}
			w.Close()
		}()
		start := time.Now()
		resp := &http.Response{Body: r}
		require.Equal(t, "one ", string(peek(resp, false)))
		require.Equal(t, peekTimeout, time.Since(start))
		head := make([]byte, 100)
		n, err := resp.Body.Read(head)
		require.NoError(t, err)
		require.Equal(t, "one ", string(head[:n]))
		require.Equal(t, peekTimeout, time.Since(start), "what has come is there at once")
		rest, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, "two three", string(rest))
	})
}

// Closing a body ends reading ahead: no goroutine remains in the bubble.
func TestPeek_stopsWhenBodyIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := io.Pipe()
		resp := &http.Response{Body: r}
		require.Empty(t, peek(resp, false))
		require.NoError(t, resp.Body.Close())
		_, err := io.ReadAll(resp.Body)
		require.Error(t, err)
	})
}

type body struct {
	io.Reader
	closed *bool
}

func (b body) Close() error {
	*b.closed = true
	return nil
}
