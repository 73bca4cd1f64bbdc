package heed_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/internal/turns"
)

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
					n, end := 0, time.Time{}
					client := heed.NewClient(&heed.Transport{Base: pausingServer(func(ctx context.Context) {
						if n++; n == before {
							end = time.Now().Add(pause)
						}
						turns.Sleep(ctx, max(time.Until(end), 0)+10*time.Millisecond)
					})})
					calls, failed, last := 400, 0, error(nil)
					turns.Run(t.Context(), 1, workers, func(ctx context.Context, _ int) {
						for calls > 0 {
							calls--
							limited, cancel := context.WithTimeout(ctx, time.Second)
							req, err := http.NewRequestWithContext(limited, http.MethodGet, "http://api.test/items", nil)
							if err != nil {
								panic(err)
							}
							resp, err := client.Do(req)
							if err == nil {
								resp.Body.Close()
							} else {
								failed, last = failed+1, err
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
