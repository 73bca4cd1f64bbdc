package heed_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/internal/turns"
)

// A pausingServer is a server that responds as soon as its function returns.
type pausingServer func(ctx context.Context)

func (s pausingServer) RoundTrip(req *http.Request) (*http.Response, error) {
	s(req.Context())
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: req, ProtoMajor: 1, ProtoMinor: 1}, nil
}

// A new server that responds within 10 ms pauses once. No call whose deadline is later than the end of
// the pause fails.
func TestTransport_noCallFailsWhenAServerPauses(t *testing.T) {
	for _, workers := range []int{20, 30, 50} {
		for _, pause := range []time.Duration{200 * time.Millisecond, 500 * time.Millisecond} {
			for _, before := range []int{24, 40, 50, 80} {
				synctest.Test(t, func(t *testing.T) {
					var mu sync.Mutex // guards the variables below
					n, end := 0, time.Time{}
					failed, last := 0, error(nil)
					client := heed.NewClient(&heed.Transport{Base: pausingServer(func(ctx context.Context) {
						mu.Lock()
						if n++; n == before {
							end = time.Now().Add(pause)
						}
						took := max(time.Until(end), 0) + 10*time.Millisecond
						mu.Unlock()
						turns.Sleep(ctx, took)
					})})
					turns.Run(t.Context(), 1, workers, func(ctx context.Context, _ int) {
						for range 400 / workers {
							limited, cancel := context.WithTimeout(ctx, time.Second)
							req, err := http.NewRequestWithContext(limited, http.MethodGet, "http://api.test/items", nil)
							if err != nil {
								panic(err)
							}
							resp, err := client.Do(req)
							if err == nil {
								resp.Body.Close()
							} else {
								mu.Lock()
								failed, last = failed+1, err
								mu.Unlock()
							}
							cancel()
						}
					})
					require.Zero(t, failed, "%d workers, %v after %d: %v", workers, pause, before, last)
				})
			}
		}
	}
}

// A new server pauses for longer than its callers wait. That they give up shows no limit: the calls
// that begin after the pause succeed, and few fail that a plain client would not let fail.
func TestTransport_aPauseThatOutlastsDeadlinesIsNoLimit(t *testing.T) {
	job := func(t *testing.T, pause time.Duration, wrap func(http.RoundTripper) http.RoundTripper) (failed, after int) {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex // guards n, end and the results
			n, end := 0, time.Time{}
			client := &http.Client{Transport: wrap(pausingServer(func(ctx context.Context) {
				mu.Lock()
				if n++; n == 50 {
					end = time.Now().Add(pause)
				}
				took := max(time.Until(end), 0) + 10*time.Millisecond
				mu.Unlock()
				if deadline, ok := ctx.Deadline(); ok {
					took = min(took, time.Until(deadline))
				}
				turns.Sleep(ctx, took)
			}))}
			start := time.Now()
			turns.Run(t.Context(), 1, 50, func(ctx context.Context, _ int) {
				for time.Since(start) < 12*time.Second {
					begun := time.Now()
					limited, cancel := context.WithTimeout(ctx, time.Second)
					req, err := http.NewRequestWithContext(limited, http.MethodGet, "http://api.test/items", nil)
					if err != nil {
						panic(err)
					}
					resp, err := client.Do(req)
					mu.Lock()
					if err == nil {
						resp.Body.Close()
					} else if failed++; !end.IsZero() && begun.After(end.Add(time.Second)) {
						after++
					}
					mu.Unlock()
					cancel()
					turns.Sleep(ctx, 50*time.Millisecond)
				}
			})
		})
		return failed, after
	}
	for _, pause := range []time.Duration{1200 * time.Millisecond, 5 * time.Second} {
		plain, _ := job(t, pause, func(base http.RoundTripper) http.RoundTripper { return base })
		failed, after := job(t, pause, func(base http.RoundTripper) http.RoundTripper { return &heed.Transport{Base: base} })
		t.Logf("pause of %v: %d of a plain client fail, %d here, %d of these began a second or more after it", pause, plain, failed, after)
		require.LessOrEqual(t, failed, plain+100)
		require.Zero(t, after)
	}
}
