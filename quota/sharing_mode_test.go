package quota

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A process that estimates nothing obeys the holds of other processes, whether a server stated their ends or not,
// and what a server stated to another process.
func TestSharing_statedOnlyObeysHolds(t *testing.T) {
	envoy := http.Header{"X-Envoy-Ratelimited": {"true"}}
	for name, tt := range map[string]struct {
		status int
		header http.Header
		held   string // the policy that holds the other process; "": none
	}{
		"429 without headers": {429, nil, "api.test: learned rate"},
		"Retry-After":         {429, http.Header{"Retry-After": {"60"}}, "api.test: retry-after"},
		"Envoy's mark":        {503, envoy, "api.test: learned rate"}, // it states no time, so it is a bare rejection
		"nothing left":        {429, http.Header{"Ratelimit": {`"a";r=0;t=60`}, "Ratelimit-Policy": {`"a";q=10;w=60`}}, "api.test: quota"},
	} {
		synctest.Test(t, func(t *testing.T) {
			all := trackers(&bus{delay: time.Millisecond}, 2, 0)
			rejected, other := all[0], all[1]
			other.Mode, other.NeverTest = StatedOnly, true
			req := request(t, users)
			other.Demand(req)
			rejected.Demand(req)
			time.Sleep(time.Second)
			for sent := 0; sent < 8; {
				m := rejected.Demand(req)
				d, err := m.Limiter.Reserve(t.Context(), throttle.Claim{})
				require.NoError(t, err)
				if !d.OK && d.Wait > time.Second/4 {
					break // it is held
				}
				if !d.OK {
					time.Sleep(max(d.Wait, time.Millisecond))
					continue
				}
				sent++
				resp := answer(tt.status)
				if tt.header != nil {
					resp.Header = tt.header
				}
				f := rejected.Feedback(req, m, resp, nil, time.Now(), nil)
				m.Limiter.Report(t.Context(), throttle.Claim{}, d, f)
				time.Sleep(10 * time.Millisecond)
			}
			d, err := other.Demand(req).Limiter.Reserve(t.Context(), throttle.Claim{})
			require.NoError(t, err)
			require.Equal(t, tt.held == "", d.OK, "%s: %v", name, d)
			if tt.held != "" {
				require.Equal(t, tt.held, d.Policy, name)
				require.Equal(t, strings.HasSuffix(tt.held, learnedRate), d.Estimated, name)
			}
			rejected.Close()
			other.Close()
		})
	}
}
