package quota

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

func TestDbg(t *testing.T) {
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			tr, s := &Tracker{}, haproxy(50, 2*time.Second, "")
			start := time.Now()
			req, _ := http.NewRequest("GET", "http://api.test/", nil)
			b := tr.Demand(req).Limiter.(*bucket)
			n := 0
			ws := func(now time.Time) (int, http.Header) {
				st, h := s(now)
				n++
				if st != 200 || n%25 == 0 {
					b.mu.Lock()
					fmt.Printf("%7.3f #%d %d rate %.2f goal %.2f ok %d strikes %d until %.2f\n", now.Sub(start).Seconds(), n, st, b.pace.rate, b.pace.goal, b.pace.span.ok, b.gate.strikes, b.gate.until.Sub(start).Seconds())
					b.mu.Unlock()
				}
				return st, h
			}
			j := play(t, tr, ws, 300, 30, time.Millisecond)
			fmt.Println(j)
		})
	}
}
