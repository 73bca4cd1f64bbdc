package quota

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// After rejections that state only a wait, or for which the API documents one, others wait that long.
func TestTracker_obeysRejectionsThatStateOnlyAWait(t *testing.T) {
	const secondary = `{"message":"You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}`
	for _, c := range []struct {
		name   string
		status int
		header []string
		body   string
		wait   time.Duration
	}{
		{"RateLimit-Reset", 429, []string{"RateLimit-Reset", "30"}, "", 30 * time.Second},
		{"X-RateLimit-Reset-After", 429, []string{"X-RateLimit-Reset-After", "12.5"}, "", 12500 * time.Millisecond},
		{"GitHub's secondary limit", 403, nil, secondary, time.Minute},
		{"an hour", 429, []string{"Retry-After", "3600"}, "", time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			tr := &Tracker{}
			req := request(t, "https://api.test/things")
			for range holdAfter {
				d := tr.Demand(req)
				dec, err := d.Limiter.Reserve(t.Context(), throttle.Claim{})
				require.NoError(t, err)
				require.True(t, dec.OK)
				resp := answer(c.status, c.header...)
				resp.Body = io.NopCloser(strings.NewReader(c.body))
				resp.Header.Set("Content-Type", "application/json")
				f := tr.Feedback(req, d, resp, nil, time.Now(), nil)
				require.Equal(t, throttle.Throttled, f.Outcome, c.name)
				require.Equal(t, c.wait, f.RetryAfter, c.name)
				d.Limiter.Report(t.Context(), throttle.Claim{}, dec, f)
			}
			require.False(t, mayAsk(t, tr, "https://api.test/things"), c.name)
			require.Equal(t, c.wait, heldFor(t, tr, "https://api.test/things"), c.name)
		})
	}
}
