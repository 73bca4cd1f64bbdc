// Package simulation runs HTTP clients against servers in memory and in virtual
// time: a wait takes no time, and two minutes of traffic take about a second.
//
//	func main() {
//		flag.Parse()
//		simulation.Main(func(t *testing.T) int {
//			simulation.Each(t, len(rows), func(i int) result { return rows[i].run() }, show)
//			return 0
//		})
//	}
//
// Both ends are net/http; only the network is replaced, by internal/memhttp.
package simulation

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Main calls f in a test, because virtual time is available to tests only, and exits
// with the code that f returns. The program must have parsed its flags.
func Main(f func(t *testing.T) int) {
	matchAll := func(_, _ string) (bool, error) { return true, nil }
	test := testing.InternalTest{Name: "simulation", F: func(t *testing.T) { os.Exit(f(t)) }}
	testing.Main(matchAll, []testing.InternalTest{test}, nil, nil)
}

// start is the beginning of virtual time. synctest begins in 2000; Unix times of that year
// have nine digits, and clients may take them for delays.
var start = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// Each calls run with 0 to n-1, each in virtual time of its own and as many in parallel as
// there are processors. It calls show with the results, in the order of their numbers
// and as soon as they are known.
func Each[R any](t *testing.T, n int, run func(i int) R, show func(R)) {
	var next atomic.Int64
	var mu sync.Mutex
	finished, shown := make(map[int]R), 0
	finish := func(i int, r R) {
		mu.Lock()
		defer mu.Unlock()
		finished[i] = r
		for r, ok := finished[shown]; ok; r, ok = finished[shown] {
			show(r)
			delete(finished, shown)
			shown++
		}
	}
	t.Run("each", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("worker", func(t *testing.T) {
				t.Parallel()
				for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
					var r R
					synctest.Test(t, func(*testing.T) {
						time.Sleep(time.Until(start))
						r = run(i)
					})
					finish(i, r)
				}
			})
		}
	})
	if t.Failed() {
		t.FailNow()
	}
}
