package heed_test

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/heedtest"
)

// No call to a healthy server without a limit fails because its latency is more than half of the deadline.
func TestTransport_latencyNearTheDeadline(t *testing.T) {
	for _, tt := range []struct{ latency, deadline time.Duration }{
		{250 * time.Millisecond, 300 * time.Millisecond}, {250 * time.Millisecond, 400 * time.Millisecond}, {600 * time.Millisecond, time.Second}, {4 * time.Second, 5 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &heedtest.Server{Respond: func(heedtest.Request) heedtest.Response { return heedtest.Response{Delay: tt.latency} }}
			s.StartInMemory()
			defer s.Close()
			tr := &heed.Transport{Base: s.Transport()}
			c := heed.NewClient(tr)
			var failed atomic.Int64
			var calls sync.WaitGroup
			for range 600 {
				calls.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), tt.deadline)
					defer cancel()
					req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
					if err == nil {
						var resp *http.Response
						if resp, err = c.Do(req); err == nil {
							_, err = io.Copy(io.Discard, resp.Body)
							resp.Body.Close()
						}
					}
					if err != nil {
						failed.Add(1)
					}
				})
				time.Sleep(20 * time.Millisecond)
			}
			calls.Wait()
			require.Zero(t, failed.Load(), "%v of %v", tt.latency, tt.deadline)
			tr.CloseIdleConnections()
		})
	}
}

// A healthy HTTP/2 server that ends its connection (GOAWAY) with each 40th response costs no call.
func TestTransport_connectionsThatEnd(t *testing.T) {
	var n atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1)%40 == 0 {
			w.Header().Set("Connection", "close")
		}
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	base := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true} //nolint:gosec // the server of the test
	defer base.CloseIdleConnections()
	c := heed.NewClient(&heed.Transport{Base: base})
	var failed, next atomic.Int64
	var workers sync.WaitGroup
	for range 10 {
		workers.Go(func() {
			for next.Add(1) <= 600 {
				resp, err := c.Get(s.URL)
				if err != nil {
					failed.Add(1)
					t.Log(err)
					continue
				}
				resp.Body.Close()
			}
		})
	}
	workers.Wait()
	require.Zero(t, failed.Load())
}
