package rules_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttle"
)

// TestSet_anyNumberOfLimitsInATransport sends three requests to which several limits of a file
// apply. The last of them admits one request a minute: it rejects the second request, which must
// take nothing from the other limits, and delays the third.
func TestSet_anyNumberOfLimitsInATransport(t *testing.T) {
	for _, tt := range []struct {
		limits int
		own    bool // Transport.Limiter is set
		units  int  // of RequestOptions.Costs
	}{
		{1, true, 1}, {2, true, 0}, {2, false, 1}, {3, false, 0}, {3, true, 0}, {4, false, 0}, {4, true, 0}, {4, true, 1}, {9, true, 1}, {40, false, 2},
	} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				text := "domain: d\nlimits:\n"
				for i := range tt.limits - 1 {
					text += fmt.Sprintf("- {name: l%d, rate_limit: {unit: day, requests_per_unit: 10, algorithm: token_bucket}}\n", i)
				}
				text += "- {name: last, rate_limit: {unit: minute, requests_per_unit: 1, algorithm: token_bucket}}\n"
				var others []throttle.Limiter
				set, err := rules.Parse([]byte(text), rules.Config{Build: func(l *rules.Limit) (throttle.Limiter, error) {
					made := throttle.NewTokenBucket(l.Spec.(throttle.Limit))
					if l.Name != "last" {
						others = append(others, made)
					}
					return made, nil
				}})
				require.NoError(t, err)
				sent := 0
				base := roundTripFunc(func(r *http.Request) (*http.Response, error) {
					sent++
					return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
				})
				tr := &heed.Transport{Base: base, Limits: set.Limits}
				if tt.own {
					tr.Limiter = throttle.NewTokenBucket(throttle.PerHour(10))
					others = append(others, tr.Limiter)
				}
				options := heed.RequestOptions{Costs: map[string]int64{}}
				for i := range tt.units {
					options.Costs[fmt.Sprint("unit", i)] = 1
				}
				left := func() []int64 {
					n := make([]int64, 0, len(others))
					for _, l := range others {
						d, err := l.Reserve(t.Context(), throttle.Claim{DryRun: true})
						require.NoError(t, err)
						n = append(n, d.Remaining)
					}
					return n
				}
				start := time.Now()
				for _, step := range []struct {
					noWait bool
					sent   int
					took   time.Duration
				}{{false, 1, 0}, {true, 1, 0}, {false, 2, time.Minute}} {
					options.NoWait = step.noWait
					req, err := http.NewRequestWithContext(heed.WithOptions(t.Context(), options), http.MethodGet, "https://api.test/", http.NoBody)
					require.NoError(t, err)
					resp, err := tr.RoundTrip(req)
					if step.noWait {
						require.ErrorIs(t, err, heed.ErrMaxWait)
						require.ErrorContains(t, err, `"last"`)
					} else {
						require.NoError(t, err)
						require.NoError(t, resp.Body.Close())
					}
					require.Equal(t, step.sent, sent)
					require.Equal(t, step.took, time.Since(start))
					require.Equal(t, slices.Repeat([]int64{10 - int64(step.sent)}, len(others)), left())
				}
			})
		})
	}
}

// TestSet_combinedLimitsWaitInOrder alternates requests that need a limit alone with requests
// that need it combined with others. They are sent in the order of arrival.
func TestSet_combinedLimitsWaitInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := "domain: d\nlimits:\n"
		for i := range 3 {
			text += fmt.Sprintf("- {name: l%d, match: /many, key: user, rate_limit: {unit: day, requests_per_unit: 1000, algorithm: token_bucket}}\n", i)
		}
		text += "- {name: last, match: '/{page}', key: user, rate_limit: {unit: minute, requests_per_unit: 1, algorithm: token_bucket}}\nvalues: {user: {header: X-User}}\n"
		set, err := rules.Parse([]byte(text), rules.Config{})
		require.NoError(t, err)
		var sent []string
		start := time.Now()
		tr := &heed.Transport{Limits: set.Limits, Base: roundTripFunc(func(r *http.Request) (*http.Response, error) {
			sent = append(sent, fmt.Sprint(r.URL.Path, " ", time.Since(start)))
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
		})}
		var want []string
		var all sync.WaitGroup
		for i := range 12 {
			path := []string{"/many", "/one", "/one", "/many"}[i%4]
			r := request(t, "ann", "https://api.test"+path)
			all.Go(func() { _, _ = tr.RoundTrip(r) })
			synctest.Wait()
			want = append(want, fmt.Sprint(path, " ", time.Duration(i)*time.Minute))
		}
		all.Wait()
		require.Equal(t, want, sent)
	})
}
