package debugpage

import (
	"context"
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

// TestPage_anOutageIsAtMost20Decisions simulates outages of 10 s with 200 callers, which call with
// a deadline of 1 s and 100 ms between calls.
func TestPage_anOutageIsAtMost20Decisions(t *testing.T) {
	for name, tt := range map[string]struct {
		mode   quota.Mode
		header http.Header
	}{
		"default":             {0, http.Header{}},
		"with estimates":      {quota.Full, http.Header{}},
		"with Retry-After: 1": {quota.Full, http.Header{"Retry-After": {"1"}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := new(Page)
			transport := &heed.Transport{Base: unavailable{tt.header}, Quota: &quota.Tracker{Mode: tt.mode}, Trace: p.Trace()}
			p.Add("", transport)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			var callers sync.WaitGroup
			for range 200 {
				callers.Go(func() {
					for ctx.Err() == nil {
						call(ctx, transport)
						time.Sleep(100 * time.Millisecond)
					}
				})
			}
			callers.Wait()
			decisions, events := stateOf(t, p).Decisions, 0
			for _, d := range decisions {
				events += d.Count
				t.Logf("%s: %s × %d: %s", name, d.Kind, d.Count, d.Text)
			}
			t.Logf("%s: an outage of 10 s with 200 callers: %d events, %d lines of decisions", name, events, len(decisions))
			require.Greater(t, events, 1000, name)
			require.LessOrEqual(t, len(decisions), 20, name)
		})
	}
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
