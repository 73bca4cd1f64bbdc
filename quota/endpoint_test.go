package quota

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// ask sends one request, if the limit that tr has for it admits it, and reports resp.
func ask(t *testing.T, tr *Tracker, url string, resp *http.Response) throttle.Decision {
	req := request(t, url)
	m := tr.Demand(req)
	d, err := m.Limiter.Reserve(t.Context(), throttle.Claim{})
	require.NoError(t, err)
	if d.OK {
		m.Limiter.Report(t.Context(), throttle.Claim{}, d, tr.Feedback(req, m, resp, nil, time.Now(), nil))
	}
	return d
}

// holdAfter is the number of rejections that begin a hold where none was accepted lately: the first one, and
// four of requests that were sent after it.
const holdAfter = 5

// reject lets tr send requests that are rejected, until others wait.
func reject(t *testing.T, tr *Tracker, url string, header ...string) {
	n := 0
	for ask(t, tr, url, answer(429, header...)).OK {
		n++
		require.LessOrEqual(t, n, 2*holdAfter)
	}
	require.Positive(t, n)
}

func mayAsk(t *testing.T, tr *Tracker, url string) bool {
	d, err := tr.Demand(request(t, url)).Limiter.Reserve(t.Context(), throttle.Claim{DryRun: true})
	require.NoError(t, err)
	return d.OK
}

const (
	users  = "https://api.test/users/17"
	search = "https://api.test/search?q=x"
	issues = "https://api.test/issues"
)

func quotaOf(name, limit, left, reset string) *http.Response {
	return answer(200, "X-RateLimit-Resource", name, "X-RateLimit-Limit", limit, "X-RateLimit-Remaining", left, "X-RateLimit-Reset", reset)
}

// A route that is always rejected, a tenth of all requests, delays no other one, because requests that are sent later are accepted.
func TestEndpoint_rejectionsOfOneRouteDoNotDelayAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		for range 50 {
			for range 9 {
				require.True(t, ask(t, &tr, users, answer(200)).OK)
				time.Sleep(time.Millisecond)
			}
			require.True(t, ask(t, &tr, search, answer(429, "Retry-After", "60")).OK)
		}
		require.True(t, mayAsk(t, &tr, users))
		require.True(t, mayAsk(t, &tr, issues), "a route that was never requested")
	})
}

// Discord states whether a rejection concerns all routes. The header is obeyed only for hosts whose
// Provider names it (issue 12.18): another host cannot stop all routes with it.
func TestEndpoint_rejectionOfAllRoutesHoldsThemAll(t *testing.T) {
	discord, ok := headers.ProviderByName("Discord")
	require.True(t, ok)
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		ask(t, &tr, users, quotaOf("users", "5", "4", "60"))
		ask(t, &tr, search, quotaOf("search", "5", "4", "60"))
		reject(t, &tr, search, "Retry-After", "60", "X-RateLimit-Global", "true")
		require.False(t, mayAsk(t, &tr, search))
		require.True(t, mayAsk(t, &tr, users), "the header of an unknown host")
	})
	synctest.Test(t, func(t *testing.T) {
		tr := Tracker{Reader: &headers.Reader{Hosts: map[string]headers.Provider{"api.test": discord}}}
		ask(t, &tr, users, quotaOf("users", "5", "4", "60"))
		ask(t, &tr, search, quotaOf("search", "5", "4", "60"))
		ask(t, &tr, search, answer(429, "Retry-After", "60", "X-RateLimit-Global", "true"))
		for _, url := range []string{search, users, issues} {
			require.False(t, mayAsk(t, &tr, url), url)
		}
		time.Sleep(62 * time.Second)
		for _, url := range []string{search, users, issues} {
			require.True(t, mayAsk(t, &tr, url), url)
		}
	})
}

func TestEndpoint_quotasOfDifferentSizeAreTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		ask(t, &tr, users, answer(200, "X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", "4999", "X-RateLimit-Reset", "3600"))
		ask(t, &tr, search, answer(200, "X-RateLimit-Limit", "30", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "60"))
		require.False(t, mayAsk(t, &tr, search))
		require.True(t, mayAsk(t, &tr, users))
	})
}

func TestEndpoint_routesThatStateTheSameNumbersShareAQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		ask(t, &tr, users, answer(200, "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "5", "X-RateLimit-Reset", "60"))
		ask(t, &tr, issues, answer(200, "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "4", "X-RateLimit-Reset", "60"))
		require.Same(t, tr.Demand(request(t, users)).Limiter, tr.Demand(request(t, issues)).Limiter)
		ask(t, &tr, issues, answer(200, "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "60"))
		require.False(t, mayAsk(t, &tr, users))
	})
}

func TestEndpoint_sameSizeButMoreLeftIsAnotherQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		ask(t, &tr, users, answer(200, "X-RateLimit-Limit", "900", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "600"))
		ask(t, &tr, issues, answer(200, "X-RateLimit-Limit", "900", "X-RateLimit-Remaining", "899", "X-RateLimit-Reset", "600"))
		require.False(t, mayAsk(t, &tr, users))
		require.True(t, mayAsk(t, &tr, issues))
	})
}

func TestEndpoint_threeRoutesOfOneQuotaMakeItTheQuotaOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		for i, path := range []string{"a", "b", "c"} {
			ask(t, &tr, "https://api.test/"+path, answer(200, "X-RateLimit-Limit", "3", "X-RateLimit-Remaining", string(rune('2'-i)), "X-RateLimit-Reset", "60"))
		}
		require.False(t, mayAsk(t, &tr, "https://api.test/d"))
	})
}

func TestEndpoint_memoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		ep := tr.Demand(request(t, users)).Limiter.(*quota).endpoint
		for i := range 2000 {
			path := "https://api.test/" + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676))
			ask(t, &tr, path, quotaOf(path[len(path)-3:], "10", "9", "60"))
		}
		require.LessOrEqual(t, len(ep.routes), maxRoutes)
		require.LessOrEqual(t, len(ep.quotas), maxQuotas)
		for _, q := range ep.quotas {
			require.LessOrEqual(t, len(q.Estimates), statedlimit.MaxEstimates)
		}
	})
}

// Quotas are not merged, even if there are more than are kept: requests of a quota without remaining
// units are held, and those of the others are admitted.
func TestEndpoint_quotasBeyondTheMaximumAreNotMerged(t *testing.T) {
	for _, quotas := range []int{17, 40, 200} {
		synctest.Test(t, func(t *testing.T) {
			var tr Tracker
			url := func(i int) string {
				return "https://api.test/" + strings.Repeat(string(rune('a'+i%25)), 1+i/25) + "x"
			}
			respond := func(i int, left string) *http.Response { return quotaOf(fmt.Sprint("quota", i), "10", left, "3600") }
			for i := range quotas {
				ask(t, &tr, url(i), respond(i, "9"))
				time.Sleep(time.Second)
			}
			for i := range quotas {
				require.True(t, mayAsk(t, &tr, url(i)), "%d of %d", i, quotas)
			}
			for _, empty := range []int{quotas - 1, 0, quotas / 2} {
				ask(t, &tr, url(empty), respond(empty, "0"))
			}
			for i := range quotas {
				used := i == quotas-1 || i == 0 || i == quotas/2
				require.Equal(t, !used, mayAsk(t, &tr, url(i)), "%d of %d", i, quotas)
			}
		})
	}
}
