package heed_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
)

// TestTransport_manyCallersMeetAnUnstatedLimit checks that 4,000 callers who begin together are
// not sent to a new host within one round trip: the requests in flight are doubled with each
// one, so that few are rejected by a limit which the server does not state.
func TestTransport_manyCallersMeetAnUnstatedLimit(t *testing.T) {
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		synctest.Test(t, func(t *testing.T) {
			s := &simulatedServer{serve: bucketServer(300, 300, status, false), rtt: 40 * time.Millisecond}
			client := heed.NewClient(&heed.Transport{Base: s})
			failed, elapsed := runJob(t, client, 4000, 4000)
			t.Logf("status %d: %d rejected, %d failed, %v", status, s.wasted, failed, elapsed)
			require.Zero(t, failed, "status %d", status)
			require.LessOrEqual(t, s.wasted, 100, "status %d", status)
		})
	}
}
