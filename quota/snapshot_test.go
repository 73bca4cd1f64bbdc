package quota

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// exchange sends one request and reports its response. If resp is nil, the request stays in flight.
func exchange(t testing.TB, tr *Tracker, req *http.Request, resp *http.Response) {
	d := tr.Demand(req)
	if d.Limiter == nil {
		tr.Feedback(req, d, resp, nil, time.Now(), nil)
		return
	}
	dec, err := d.Limiter.Reserve(t.Context(), throttle.Claim{})
	require.NoError(t, err)
	if resp != nil && dec.OK {
		d.Limiter.Report(t.Context(), throttle.Claim{}, dec, tr.Feedback(req, d, resp, nil, time.Now(), nil))
	}
}

func TestTrackerSnapshot_describesWhatIsKnown(t *testing.T) {
	const window, left = `"default";q=100;w=60`, `"default";r=40;t=30`
	for name, tt := range map[string]struct {
		responses []*http.Response
		want      func(start time.Time) QuotaSnapshot
	}{
		"a request in flight": {
			[]*http.Response{nil},
			func(time.Time) QuotaSnapshot {
				return QuotaSnapshot{Name: "api.test", InFlight: 1}
			},
		},
		"a stated limit, one unit of which is in flight": {
			[]*http.Response{answer(200, "RateLimit-Policy", window, "RateLimit", left), nil},
			func(start time.Time) QuotaSnapshot {
				return QuotaSnapshot{Name: "api.test", InFlight: 1, Limits: []LimitSnapshot{
					{Name: "default", Unit: "requests", Size: 100, Remaining: 39, RemainingKnown: true, Per: time.Minute, Reset: start.Add(30 * time.Second)},
				}}
			},
		},
		"a hold": {
			slices.Repeat([]*http.Response{answer(429, "Retry-After", "7")}, holdAfter),
			func(start time.Time) QuotaSnapshot {
				return QuotaSnapshot{
					Name: "api.test",
					Hold: &HoldSnapshot{Reason: "retry-after", Since: start, Until: start.Add(7 * time.Second)},
				}
			},
		},
		"a quota without remaining units": { // a sliding counter would restore one 0.6 s after the reset
			[]*http.Response{answer(200, "RateLimit-Policy", window, "RateLimit", `"default";r=0;t=30`)},
			func(start time.Time) QuotaSnapshot {
				return QuotaSnapshot{
					Name: "api.test",
					Hold: &HoldSnapshot{Reason: "quota", Since: start, Until: start.Add(30600*time.Millisecond + time.Microsecond)},
					Limits: []LimitSnapshot{
						{Name: "default", Unit: "requests", Size: 100, RemainingKnown: true, Per: time.Minute, Reset: start.Add(30 * time.Second)},
					},
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				tr := &Tracker{Rand: func() float64 { return 0 }}
				for _, resp := range tt.responses {
					exchange(t, tr, request(t, "https://api.test/items"), resp)
				}
				s := tr.Snapshot(0)
				require.Equal(t, start, s.At)
				require.Equal(t, 1, s.Accounts)
				require.Len(t, s.Shown, 1)
				require.Equal(t, "api.test", s.Shown[0].Host)
				require.Equal(t, start, s.Shown[0].LastUsed)
				require.Equal(t, []QuotaSnapshot{tt.want(start)}, s.Shown[0].Quotas)
			})
		})
	}
}

func TestTrackerSnapshot_showsThatAProbeIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &Tracker{Rand: func() float64 { return 0 }}
		req := request(t, "https://api.test/")
		hold := func() *HoldSnapshot { return tr.Snapshot(1).Shown[0].Quotas[0].Hold }
		reject(t, tr, "https://api.test/", "Retry-After", "7")
		require.False(t, hold().Probe)
		time.Sleep(time.Second)
		require.False(t, hold().Probe, "a probe is due")
		exchange(t, tr, req, nil)
		require.True(t, hold().Probe)
	})
}

func TestTrackerSnapshot_describesOtherUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		req := request(t, "https://api.test/")
		d := tr.DemandUnits(req, "tokens", 30)
		dec, err := d.Limiter.Reserve(t.Context(), throttle.Claim{Cost: 30})
		require.NoError(t, err)
		d.Limiter.Report(t.Context(), throttle.Claim{Cost: 30}, dec, throttle.Feedback{
			Now: time.Now(), RemoteLimits: []throttle.RemoteLimit{{Unit: "tokens", Limit: 1000, Remaining: 970, ResetAfter: time.Minute}},
		})
		require.Equal(t, []LimitSnapshot{
			{Unit: "tokens", Size: 1000, Remaining: 970, RemainingKnown: true, Reset: time.Now().Add(time.Minute)},
		}, tr.Snapshot(0).Shown[0].Quotas[0].Limits)
	})
}

func TestTrackerSnapshot_showsNoQuotasOfAHostWithoutLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		for range 200 {
			exchange(t, &tr, request(t, "https://api.test/"), answer(200))
			time.Sleep(time.Millisecond)
		}
		require.Empty(t, tr.Snapshot(0).Shown[0].Quotas)
	})
}

func TestTrackerSnapshot_distinguishesAccountsWithoutCredentials(t *testing.T) {
	var tr Tracker
	for _, scheme := range []string{"https", "http"} {
		exchange(t, &tr, request(t, scheme+"://user-secret:secret@api.test/", "Authorization", "Bearer secret"), answer(200))
		exchange(t, &tr, request(t, scheme+"://api.test/?api_key=secret"), answer(200))
		exchange(t, &tr, request(t, scheme+"://api.test/"), answer(200))
	}
	numbers := map[string]int{}
	for _, a := range tr.Snapshot(0).Shown {
		numbers[a.Account]++
	}
	require.Equal(t, 2, numbers[""], "https and http, without credentials")
	require.Len(t, numbers, 5, numbers)
	require.NotContains(t, fmt.Sprintf("%+v", tr.Snapshot(0)), "secret")
}

func TestTrackerSnapshot_showsWhatMattersMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &Tracker{MaxAccounts: 1 << 20}
		send := func(host string, resp *http.Response) {
			exchange(t, tr, request(t, "https://"+host+"/"), resp)
			time.Sleep(time.Millisecond)
		}
		reject(t, tr, "https://held.test/", "Retry-After", "60")
		for _, left := range []int{50, 5, 90} {
			send(fmt.Sprintf("left%d.test", left), answer(200, "X-RateLimit-Limit", "100", "X-RateLimit-Remaining", strconv.Itoa(left), "X-RateLimit-Reset", "60"))
		}
		for i := range 500 {
			send(fmt.Sprintf("host%d.test", i), answer(200))
		}
		s := tr.Snapshot(6)
		require.Equal(t, 504, s.Accounts)
		var hosts []string
		for _, a := range s.Shown {
			hosts = append(hosts, a.Host)
		}
		require.Equal(t, []string{"held.test", "left5.test", "left50.test", "left90.test", "host499.test", "host498.test"}, hosts)
		require.Len(t, tr.Snapshot(0).Shown, 100)
	})
}

// The race detector reports a Snapshot that reads what a request changes.
func TestTrackerSnapshot_isSafeWhileRequestsAreSent(t *testing.T) {
	var tr Tracker
	var wg sync.WaitGroup
	responses := []*http.Response{answer(200), answer(429), answer(200, "RateLimit", `"default";r=40;t=30`), answer(503)}
	req := []*http.Request{request(t, "https://a.test/"), request(t, "https://b.test/")}
	for i := range 4 {
		wg.Go(func() {
			for k := range 200 {
				d := tr.Demand(req[k%2])
				if d.Limiter == nil {
					continue
				}
				if dec, err := d.Limiter.Reserve(t.Context(), throttle.Claim{}); err == nil && dec.OK {
					d.Limiter.Report(t.Context(), throttle.Claim{}, dec, tr.Feedback(req[k%2], d, responses[i], nil, time.Now(), nil))
				}
			}
		})
	}
	wg.Go(func() {
		for range 200 {
			tr.Snapshot(0)
		}
	})
	wg.Wait()
}

// BenchmarkTracker_Snapshot shows 100 of 10,000 accounts: at most 50 ms.
func BenchmarkTracker_Snapshot(b *testing.B) {
	tr := &Tracker{MaxAccounts: 1 << 20}
	for i := range 10_000 {
		exchange(b, tr, request(b, fmt.Sprintf("https://host%d.test/", i)), answer(200, "X-RateLimit-Limit", "100", "X-RateLimit-Remaining", strconv.Itoa(i%100), "X-RateLimit-Reset", "60"))
	}
	b.ResetTimer()
	for range b.N {
		tr.Snapshot(100)
	}
}
