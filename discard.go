package heed

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"

	"github.com/heed-go/heed/internal/httpbody"
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
	if !httpbody.HasBody(resp) {
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
	return io.NopCloser(io.MultiReader(bytes.NewReader(r.data), httpbody.ErrReader{Err: r.err}))
}

// snippet returns the beginning of r.
func (r drained) snippet() string { return httpbody.Snippet(r.data) }
