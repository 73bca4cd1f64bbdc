//go:build !race

package quota

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// The state of a host with slugs in all path segments and many named limits takes at most 16 KiB,
// patterns included.
func TestPatterns_memoryOfAHostileHostIsBounded(t *testing.T) {
	const hosts = 32
	tr := &Tracker{}
	before := heap()
	for h := range hosts {
		for i := range 600 {
			url := fmt.Sprintf("https://h%c%c.test/%s%s/%s", 'a'+h/26, 'a'+h%26, strings.Repeat("dir/", i%7), slug(i/5), slug(i))
			req := request(t, url)
			d := tr.Demand(req)
			resp := answer(200)
			name := strings.Repeat("n", 80) + strconv.Itoa(i/6)
			resp.Header["Ratelimit"] = []string{fmt.Sprintf(`"%s";r=%d;t=31536000`, name, 1000-i)}
			resp.Header["Ratelimit-Policy"] = []string{fmt.Sprintf(`"%s";q=1000;w=31536000`, name)}
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
	t.Logf("%d bytes a host", each)
	require.LessOrEqual(t, each, int64(16<<10))
	runtime.KeepAlive(tr)
}

// Demand does not allocate for routes of a pattern, and for routes that match none.
func TestPatterns_noAllocs(t *testing.T) {
	tr := seeded(1)
	ask(t, tr, issues, stating(500, 499))
	askPages(t, tr, 0, 3)
	for _, url := range []string{pages + "new", issues, "https://api.test/users/new"} {
		req := request(t, url)
		require.Zero(t, testing.AllocsPerRun(100, func() { tr.Demand(req) }), url)
	}
}

func BenchmarkPatterns_demand(b *testing.B) {
	for name, n := range map[string]int{"no pattern": 1, "pattern": 3} {
		b.Run(name, func(b *testing.B) {
			tr := seeded(1)
			for i := range n {
				req := request(b, pages+slug(i))
				d := tr.Demand(req)
				dec, _ := d.Limiter.Reserve(b.Context(), throttle.Claim{})
				d.Limiter.Report(b.Context(), throttle.Claim{}, dec, tr.Feedback(req, d, stating(100, 99-i), nil, time.Now(), nil))
			}
			req := request(b, pages+"new")
			b.ReportAllocs()
			for b.Loop() {
				tr.Demand(req)
			}
		})
	}
}
