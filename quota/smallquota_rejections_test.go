package quota

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// manyQuotas returns a Tracker of a host with 40 named quotas of 5,000 requests an hour, the last of which are small
// ones, and the URL and a response of each.
func manyQuotas(t *testing.T) (tr *Tracker, url func(i int) string, respond func(i, status, left int) *http.Response) {
	tr = seeded(1)
	name := func(i int) string { return fmt.Sprintf("%c%ctype", 'a'+i/10, 'a'+i%10) }
	url = func(i int) string { return "https://api.test/" + name(i) + "/list" }
	respond = func(i, status, left int) *http.Response {
		return answer(status, "X-RateLimit-Bucket", name(i), "X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", fmt.Sprint(left), "X-RateLimit-Reset", "3600")
	}
	for round := range 3 {
		for i := range 40 {
			require.True(t, ask(t, tr, url(i), respond(i, 200, 5000-round)).OK)
			time.Sleep(time.Second)
		}
	}
	require.IsType(t, &smallQuota{}, tr.Demand(request(t, url(35))).Limiter)
	return tr, url, respond
}

// One rejection does not close a small quota until the reset of its window, although the server has stated that
// thousands of units are left.
func TestSmallQuota_isNotClosedByOneRejection(t *testing.T) {
	for name, header := range map[string][]string{"bare 429": nil, "429 with Retry-After: 1": {"Retry-After", "1"}} {
		synctest.Test(t, func(t *testing.T) {
			tr, url, respond := manyQuotas(t)
			require.True(t, ask(t, tr, url(35), answer(429, header...)).OK, name)
			require.True(t, ask(t, tr, url(35), respond(35, 200, 4990)).OK, name)
		})
	}
}

// A small quota whose limit the server does not state any more admits any number of requests.
func TestSmallQuota_forgetsALimitThatIsNotStatedAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, url, respond := manyQuotas(t)
		require.True(t, ask(t, tr, url(35), respond(35, 200, 0)).OK)
		time.Sleep(2 * time.Hour)
		for i := range 200 {
			require.True(t, ask(t, tr, url(35), answer(200)).OK, i)
		}
		for i := range 20 {
			d, err := tr.Demand(request(t, url(35))).Limiter.Reserve(t.Context(), throttle.Claim{})
			require.NoError(t, err)
			require.True(t, d.OK, "%d are in flight", i)
		}
	})
}
