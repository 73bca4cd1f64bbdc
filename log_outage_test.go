package heed_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/quota"
)

// unavailable is a server that responds with status 503 after 5 ms.
type unavailable struct{ header http.Header }

func (u unavailable) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(5 * time.Millisecond)
	return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: u.header, Body: http.NoBody, Request: req}, nil
}

// outage lets callers call for a time, with a deadline of 1 s each and 100 ms between calls, and
// returns the number of calls.
func outage(ctx context.Context, rt http.RoundTripper, callers int, d time.Duration) (calls int) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for ctx.Err() == nil {
				call(ctx, rt)
				mu.Lock()
				calls++
				mu.Unlock()
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	all.Wait()
	return calls
}

func call(ctx context.Context, rt http.RoundTripper) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.test/", http.NoBody)
	if err != nil {
		panic(err)
	}
	if resp, err := rt.RoundTrip(req); err == nil {
		_ = resp.Body.Close()
	}
}

// TestLogTrace_anOutageIsAtMost100Lines simulates an outage of 10 s with 200 callers.
func TestLogTrace_anOutageIsAtMost100Lines(t *testing.T) {
	for name, tt := range map[string]struct {
		mode   quota.Mode
		header http.Header
	}{
		"default":             {0, http.Header{}},
		"with estimates":      {quota.Full, http.Header{}},
		"with Retry-After: 1": {quota.Full, http.Header{"Retry-After": {"1"}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			tr := &heed.Transport{Base: unavailable{tt.header}, Quota: &quota.Tracker{Mode: tt.mode}, Trace: heed.LogTrace(logger)}
			calls := outage(t.Context(), tr, 200, 10*time.Second)
			time.Sleep(time.Minute) // so that all sums are written
			synctest.Wait()
			lines := bytes.Count(log.Bytes(), []byte("\n"))
			t.Logf("%s: an outage of 10 s with 200 callers: %d calls, %d log lines:\n%s", name, calls, lines, log.Bytes())
			require.Greater(t, calls, 1000, name)
			require.LessOrEqual(t, lines, 100, name)
			require.Contains(t, log.String(), "level=WARN msg=\"gave up", name)
			require.Contains(t, log.String(), " repeated=", name)
		})
	}
}
