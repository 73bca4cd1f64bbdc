package throttlehttp_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/throttlehttp"
	"github.com/stretchr/testify/require"
)

// TestMiddleware_shortDeadlinesDoNotBypassIt checks that a client cannot bypass a limit
// with a deadline that no store can meet. Clients can choose the deadline if an outer
// middleware reads it from a header.
func TestMiddleware_shortDeadlinesDoNotBypassIt(t *testing.T) {
	timeout := fmt.Errorf("store: %w", context.DeadlineExceeded)
	network := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	rejected := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for name, tt := range map[string]struct {
		err  error
		left time.Duration // 0 means no deadline
		want int
	}{
		"timeout, short":     {timeout, time.Second - 1, http.StatusServiceUnavailable},
		"network, short":     {network, time.Millisecond, http.StatusServiceUnavailable},
		"timeout, long":      {timeout, time.Second, http.StatusOK},
		"network, long":      {network, time.Minute, http.StatusOK},
		"timeout, unlimited": {timeout, 0, http.StatusOK},
		"rejected, short":    {rejected, time.Millisecond, http.StatusOK},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			if tt.left > 0 {
				bounded, cancel := context.WithTimeout(ctx, tt.left)
				defer cancel()
				ctx = bounded
			}
			w := httptest.NewRecorder()
			h := (&throttlehttp.Middleware{Limiter: fixedDecision{err: tt.err}}).Handler(ok)
			h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			require.Equal(t, tt.want, w.Code, name)
		})
	}
}
