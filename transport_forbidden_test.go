package heed_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
)

// A permission is withdrawn: from then on each request is rejected with a 403. No call is delayed or repeated.
func TestTransport_missingPermissionIsNoBan(t *testing.T) {
	for _, successes := range []int{30, 300} { // a new host, and a known one
		synctest.Test(t, func(t *testing.T) {
			answered, withdrawn, most := 0, time.Time{}, time.Duration(0)
			s := &simulatedServer{rtt: time.Millisecond, serve: func(now time.Time) (int, http.Header) {
				if answered++; answered <= successes {
					return 200, nil
				}
				if withdrawn.IsZero() {
					withdrawn = now
				}
				if answered == successes+400 {
					most = now.Sub(withdrawn)
				}
				return http.StatusForbidden, nil
			}}
			client := heed.NewClient(&heed.Transport{Base: s})
			failed, _ := runJob(t, client, successes+400, 30)
			t.Logf("after %d: %d failed, %d rejected, 400 of them within %v, all within %v", successes, failed, s.wasted, most, time.Since(withdrawn))
			require.Equal(t, 400, failed)
			require.Equal(t, 400, s.wasted, "none is repeated")
			require.LessOrEqual(t, most, time.Second)
			require.LessOrEqual(t, time.Since(withdrawn), time.Second)
			failed, took := runJob(t, client, 400, 30)
			require.Equal(t, 400, failed)
			require.LessOrEqual(t, took, time.Second)
		})
	}
}
