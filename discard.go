package heed

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"
)

// An answer that is not final is read to its end, so that the connection can be
// used again, but only if the end comes soon: a longer body costs more than a new
// connection.
const (
	maxDrain     = 64 << 10               // bytes
	drainTimeout = 100 * time.Millisecond // on the system clock, as the network is
)

// A drained is what was read of an answer that is not final. If it is all there was,
// the answer can still be handed out.
type drained struct {
	data     []byte
	complete bool
	err      error // what ended it, if it was not its end
}

// drain reads and closes the body of resp.
//
// The reader has a goroutine of its own, since nothing else can bound the time of
// a Read that hangs: Close unblocks it in net/http, and if another Base does not
// do so, it is that goroutine that hangs and not the caller.
func drain(ctx context.Context, resp *http.Response) drained {
	if !hasBody(resp) {
		return drained{complete: true}
	}
	defer resp.Body.Close()
	if resp.ContentLength > maxDrain {
		return drained{}
	}
	done := make(chan drained, 1)
	go func() {
		data, err := io.ReadAll(io.LimitReader(resp.Body, maxDrain+1))
		done <- drained{data, len(data) <= maxDrain, err}
	}()
	timer := time.NewTimer(drainTimeout)
	defer timer.Stop()
	select {
	case r := <-done:
		return r
	case <-timer.C:
	case <-ctx.Done():
	}
	return drained{}
}

// reader returns a body that reads as the original would have.
func (r drained) reader() io.ReadCloser {
	if r.err == nil {
		return io.NopCloser(bytes.NewReader(r.data))
	}
	return io.NopCloser(io.MultiReader(bytes.NewReader(r.data), errReader{r.err}))
}

// snippet returns the beginning of r.
func (r drained) snippet() string { return string(r.data[:min(len(r.data), maxSnippet)]) }

// errReader fails every Read.
type errReader struct{ err error }

func (b errReader) Read([]byte) (int, error) { return 0, b.err }

// hasBody reports whether resp has a body with an end to wait for. The body of 101
// is a connection, for the caller alone.
func hasBody(resp *http.Response) bool {
	return resp != nil && resp.Body != nil && resp.Body != http.NoBody && resp.StatusCode != http.StatusSwitchingProtocols
}
