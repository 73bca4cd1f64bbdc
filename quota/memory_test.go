//go:build !race

package quota

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// The state of a host that states new limits of new units on new routes with every response takes
// at most 16 KiB.
func TestTracker_memoryOfAHostileHostIsBounded(t *testing.T) {
	t.Log("endpoint", unsafe.Sizeof(endpoint{}), "quota", unsafe.Sizeof(quota{}), "estimate", unsafe.Sizeof(statedlimit.Estimate{}), "unitQuota", unsafe.Sizeof(unitQuota{}))
	for name, state := range map[string]func(route, i int) (state, policy string){
		"limits of many names": func(route, i int) (string, string) {
			n := fmt.Sprintf(`"%s%d-%d"`, strings.Repeat("n", 80), route, i)
			return n + ";r=1000000;t=31536000", n + ";q=1000000;w=31536000"
		},
		"limits of many units": func(route, i int) (string, string) {
			n := fmt.Sprintf(`"%s%d-%d"`, strings.Repeat("n", 80), route, i)
			return n + ";r=1000000;t=31536000", fmt.Sprintf(`%s;q=1000000;w=31536000;qu="unit%d"`, n, i)
		},
		"limits of many partitions": func(route, i int) (string, string) {
			return fmt.Sprintf(`"a";r=1000000;t=31536000;pk=%s%d-%d`, strings.Repeat("k", 80), route, i), `"b";q=1`
		},
	} {
		const hosts = 32
		tr := &Tracker{}
		before := heap()
		for h := range hosts {
			for route := range 600 {
				url := fmt.Sprintf("https://h%c%c.test/%s%c%c", 'a'+h/26, 'a'+h%26, strings.Repeat(string(rune('a'+route%26)), 1+route/26%20), 'a'+route%25, 'a'+route/25)
				req := request(t, url)
				d := tr.Demand(req)
				resp := answer(200)
				var states, policies []string
				for i := range 8 {
					s, p := state(route, i)
					states, policies = append(states, s), append(policies, p)
				}
				resp.Header["Ratelimit"] = []string{strings.Join(states, ", ")}
				resp.Header["Ratelimit-Policy"] = []string{strings.Join(policies, ", ")}
				if d.Limiter == nil {
					tr.Feedback(req, d, resp, nil, time.Now(), nil)
					continue
				}
				dec, err := d.Limiter.Reserve(t.Context(), throttle.Claim{})
				require.NoError(t, err)
				if f := tr.Feedback(req, d, resp, nil, time.Now(), nil); dec.OK {
					d.Limiter.Report(t.Context(), throttle.Claim{}, dec, f)
				}
			}
		}
		each := (heap() - before) / hosts
		t.Logf("%s: %d bytes a host", name, each)
		require.LessOrEqual(t, each, int64(16<<10), name)
		runtime.KeepAlive(tr)
	}
}

// heap returns the bytes of all live objects. It is signed, because what other tests have left may be
// freed between two calls.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
