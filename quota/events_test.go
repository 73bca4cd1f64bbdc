package quota_test

import (
	"net/http"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
)

// exchange sends one request, if its limit admits it, and reports the response.
func exchange(t *testing.T, tr *quota.Tracker, status int, header http.Header) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.test/items", nil)
	require.NoError(t, err)
	m := tr.Demand(req)
	d, err := m.Limiter.Reserve(t.Context(), throttle.Claim{})
	require.NoError(t, err)
	f := tr.Feedback(req, m, &http.Response{StatusCode: status, Header: header}, nil, time.Now(), nil)
	m.Limiter.Report(t.Context(), throttle.Claim{}, d, f)
}

// stating returns the header of a response with two limits.
func stating(limit, left string) http.Header {
	return http.Header{"Ratelimit": {`"a";r=` + left + `;t=60, "b";r=9;t=3600`}, "Ratelimit-Policy": {`"a";q=` + limit + `;w=60, "b";q=10;w=3600`}}
}

func TestEvents_reportWhatHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &quota.Tracker{Rand: func() float64 { return 0 }}
		var got []any
		events := &quota.Events{
			Hold:         func(h quota.HoldInfo) { got = append(got, h) },
			LimitLearned: func(l quota.LimitLearnedInfo) { got = append(got, l) },
		}
		tr.Listen(events)
		expect := func(want ...any) {
			t.Helper()
			require.Equal(t, want, got)
			got = nil
		}
		limit := func(name string, size int64, per time.Duration, c quota.Change) quota.LimitLearnedInfo {
			return quota.LimitLearnedInfo{Host: "api.test", Limit: "api.test: quota", Change: c, Name: name, Size: size, Per: per}
		}
		hold := quota.HoldInfo{Host: "api.test", Limit: "api.test: retry-after", Held: true, For: 7 * time.Second}
		exchange(t, tr, 200, stating("100", "50"))
		expect(limit("a", 100, time.Minute, quota.Learned), limit("b", 10, time.Hour, quota.Learned))
		exchange(t, tr, 200, stating("100", "49"))
		expect()
		exchange(t, tr, 200, stating("80", "40"))
		expect(limit("a", 80, time.Minute, quota.Changed))
		for range 4 {
			exchange(t, tr, 429, http.Header{"Retry-After": {"7"}})
			expect()
		}
		exchange(t, tr, 429, http.Header{"Retry-After": {"7"}})
		expect(hold)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.test/items", nil)
		require.NoError(t, err)
		tr.Forget(req)
		hold.Held, hold.For = false, 0
		expect(hold, limit("a", 80, time.Minute, quota.Dropped), limit("b", 10, time.Hour, quota.Dropped))
		runtime.KeepAlive(events) // the Tracker refers to it weakly
	})
}

// The race detector reports a registration that is not safe while requests are sent.
func TestTracker_registersWhileRequestsAreSent(t *testing.T) {
	var tr quota.Tracker
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				tr.Listen(&quota.Events{})
				tr.Notify(&waker{})
				if err := tr.Declare("other.test", throttle.Limit{Count: 10, Per: time.Second}); err != nil {
					t.Error(err)
				}
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.test/items", nil)
				if err != nil {
					t.Error(err)
					return
				}
				tr.Feedback(req, tr.Demand(req), &http.Response{StatusCode: 429, Header: stating("100", "0")}, nil, time.Now(), nil)
				tr.Forget(req)
			}
		})
	}
	wg.Wait()
}

type waker struct{ _ int }

func (*waker) Wake() {}
