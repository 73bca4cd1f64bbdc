package batch_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/batch"
	"github.com/heed-go/heed/heedtest"
)

// A wrapper is a http.RoundTripper around another one. It may drop the values of the context.
type wrapper struct {
	next  http.RoundTripper
	strip bool
}

func (w wrapper) RoundTrip(req *http.Request) (*http.Response, error) {
	if w.strip {
		req = req.WithContext(context.WithoutCancel(context.Background()))
	}
	return w.next.RoundTrip(req)
}

// TestOutbox_sendsOnceWithAnyClient sends requests without a key by clients that report attempts
// and by clients that do not. A request is not sent again after the server may have processed it.
func TestOutbox_sendsOnceWithAnyClient(t *testing.T) {
	for name, client := range map[string]func(http.RoundTripper) http.RoundTripper{
		"heed":                   func(base http.RoundTripper) http.RoundTripper { return &heed.Transport{Base: base} },
		"wrapped":                func(base http.RoundTripper) http.RoundTripper { return wrapper{&heed.Transport{Base: base}, false} },
		"without its context":    func(base http.RoundTripper) http.RoundTripper { return wrapper{&heed.Transport{Base: base}, true} },
		"not a heed.Transport":   func(base http.RoundTripper) http.RoundTripper { return base },
		"below a heed.Transport": func(base http.RoundTripper) http.RoundTripper { return &heed.Transport{Base: wrapper{base, true}} },
	} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			effects := map[string]int{}
			r := newRig(t, func(req heedtest.Request) heedtest.Response {
				faults := map[string][]heedtest.Response{
					"/429":       {{Status: 429}},
					"/drop":      {{Fault: heedtest.Drop}},
					"/429,drop":  {{Status: 429}, {Fault: heedtest.Drop}},
					"/500":       {{Status: 500}},
					"/processed": {},
				}[req.URL]
				mu.Lock()
				defer mu.Unlock()
				response := heedtest.Response{}
				n := effects[req.URL+" requests"]
				effects[req.URL+" requests"]++
				if n < len(faults) {
					response = faults[n]
				}
				if response.Status != 429 {
					effects[req.URL]++
				}
				return response
			})
			r.client = &http.Client{Transport: client(r.Transport())}
			defer r.client.CloseIdleConnections()
			unknown := map[string]bool{}
			o := r.open(t, batch.OutboxConfig{
				Path: filepath.Join(t.TempDir(), "outbox"), Backoff: backoff.Constant(time.Second),
				IdempotencyKey: func(*http.Request) string { return "" },
				Done: func(d batch.Delivery) batch.Action {
					unknown[d.Request.URL.Path] = errors.Is(d.Err, batch.ErrInterrupted)
					return batch.Leave
				},
			})
			all := []string{"/429", "/drop", "/429,drop", "/500", "/processed"}
			for _, path := range all {
				r.submit(t, o, "POST", path)
			}
			require.NoError(t, o.Drain(t.Context()))
			for _, path := range all {
				require.Equal(t, 1, effects[path], "%s: %s: %v", name, path, effects)
				require.Equal(t, strings.Contains(path, "drop") || path == "/500", unknown[path], fmt.Sprint(name, path))
			}
		})
	}
}
