package heed_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/internal/serverrules"
)

// A firewall bans a client that sends more than 20 requests in a second, with 403s, and each request
// during the ban begins it again. Few calls fail, and the second job is not banned.
func TestTransport_firewallBans(t *testing.T) {
	for _, blocking := range []time.Duration{5 * time.Second, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			rule := serverrules.ModEvasive(20, blocking, http.StatusForbidden)
			s := &simulatedServer{rtt: time.Millisecond, serve: func(now time.Time) (int, http.Header) {
				if r := rule(serverrules.Request{At: now}); !r.OK() {
					return r.Status, r.Header
				}
				return 200, nil
			}}
			client := heed.NewClient(&heed.Transport{Base: s})
			failed, elapsed := runJob(t, client, 300, 30)
			t.Logf("%v: %d failed, %d rejected, %v", blocking, failed, s.wasted, elapsed)
			require.LessOrEqual(t, failed, 8)
			require.LessOrEqual(t, s.wasted, 30)
			require.LessOrEqual(t, elapsed, 80*time.Second)
			time.Sleep(time.Minute)
			s.wasted = 0
			failed, elapsed = runJob(t, client, 300, 30)
			t.Logf("%v: %d failed, %d rejected, %v", blocking, failed, s.wasted, elapsed)
			require.Zero(t, failed)
			require.LessOrEqual(t, s.wasted, 3)
		})
	}
}

// A permission is withdrawn: from then on each request is rejected with a 403. The calls are stopped
// for 17 s at most, and for a minute after that not at all. Each call returns its 403. Only those that
// were probes also wait for their own backoff.
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
			require.LessOrEqual(t, s.wasted, 440, "few are repeated")
			require.LessOrEqual(t, most, 17*time.Second)
			require.LessOrEqual(t, time.Since(withdrawn), 50*time.Second)
			failed, took := runJob(t, client, 400, 30)
			require.Equal(t, 400, failed)
			require.LessOrEqual(t, took, 2*time.Second, "nothing is estimated of 403s for a minute")
		})
	}
}
