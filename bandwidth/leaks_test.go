package bandwidth_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/bandwidth"
	"github.com/heed-go/heed/internal/memhttp"
	"github.com/heed-go/heed/throttle"
)

// counting returns a probe that decides as l.
func counting(ctx context.Context, l throttle.Limiter) *probe {
	return &probe{decide: func(c throttle.Claim) (throttle.Decision, error) { return l.Reserve(ctx, c) }}
}

// TestTransport_leaksNothingWheneverCanceled cancels transfers, and closes bodies, at many
// moments. Every claim ends, and the bubble checks that every goroutine does.
func TestTransport_leaksNothingWheneverCanceled(t *testing.T) {
	for name, end := range map[string]func(cancel func(), body io.Closer){
		"canceled": func(cancel func(), _ io.Closer) { cancel() },
		"closed":   func(_ func(), body io.Closer) { body.Close() },
	} {
		for i := range 60 {
			t.Run(name+" "+strconv.Itoa(i), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					up, down := counting(t.Context(), newBucket(20_000)), counting(t.Context(), newBucket(30_000))
					m := &bandwidth.Middleware{Upload: up, Download: down}
					s := memhttp.NewServer(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						http.NewResponseController(w).EnableFullDuplex()
						// From Go 1.27 on, net/http reads the rest of a closed body behind a blocked Read, unless
						// it is longer than 256 KiB. It waits for a mutex then, and the clock of the bubble stops.
						w.Header().Set("Content-Length", "1000000000")
						go io.Copy(io.Discard, r.Body)
						io.Copy(w, zeros{})
					})))
					rt := &bandwidth.Transport{Base: s.Transport(), Upload: up, Download: down}
					ctx, cancel := context.WithCancel(t.Context())
					req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, zeros{})
					require.NoError(t, err)
					resp, err := rt.RoundTrip(req)
					require.NoError(t, err)
					read := make(chan struct{})
					go func() {
						defer close(read)
						io.Copy(io.Discard, resp.Body)
					}()
					time.Sleep(time.Duration(i*i) * 300 * time.Microsecond)
					begin := time.Now()
					end(cancel, resp.Body)
					<-read
					require.Zero(t, time.Since(begin), "the wait ends immediately")
					cancel()
					resp.Body.Close()
					s.Close()
					synctest.Wait()
					for _, p := range []*probe{up, down} {
						_, open := p.result()
						require.Zero(t, open)
					}
				})
			})
		}
	}
}

// TestBody_panicOfTheLimiterIsThatOfRead checks that a body can be closed after a panic.
func TestBody_panicOfTheLimiterIsThatOfRead(t *testing.T) {
	p := &probe{decide: func(c throttle.Claim) (throttle.Decision, error) {
		if c.DryRun {
			return throttle.Decision{OK: true}, nil
		}
		panic("oops")
	}}
	body := download(t, p, zeros{})
	for range 2 {
		require.PanicsWithValue(t, "oops", func() { body.Read(make([]byte, 10)) })
	}
	require.NoError(t, body.Close())
}
