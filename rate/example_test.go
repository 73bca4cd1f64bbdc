package rate_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"
	xrate "golang.org/x/time/rate"

	"github.com/heed-go/heed/rate"
)

// The same calls with this package and with golang.org/x/time/rate, where the results differ: a
// reservation is canceled twice, time goes backward, and a claim is larger than the burst.
func ExampleLimiter() {
	clk := clock.NewMock()
	now := clk.Now()
	theirs := func() *xrate.Limiter { return xrate.NewLimiter(10, 5) }
	ours := func() *rate.Limiter {
		l := rate.NewLimiter(10, 5)
		l.Clock = clk
		return l
	}

	l, v := theirs(), ours()
	l.AllowN(now, 5)
	v.AllowN(now, 5)
	a, b := l.ReserveN(now, 3), v.ReserveN(now, 3)
	fmt.Println("booked for:  ", a.DelayFrom(now), b.DelayFrom(now))
	for range 2 {
		a.CancelAt(now)
		b.CancelAt(now)
	}
	fmt.Println("given twice: ", l.AllowN(now, 3), v.AllowN(now, 3))

	l, v = theirs(), ours()
	counts := [2]int{}
	for i := range 20 {
		at := now.Add(time.Duration(i%2) * 100 * time.Millisecond)
		if l.AllowN(at, 1) {
			counts[0]++
		}
		if v.AllowN(at, 1) {
			counts[1]++
		}
	}
	fmt.Println("in 100 ms:   ", counts[0], counts[1])

	ctx := context.Background()
	fmt.Println("theirs says: ", l.WaitN(ctx, 6))
	fmt.Println("ours says:   ", v.WaitN(ctx, 6))
	// Output:
	// booked for:   300ms 300ms
	// given twice:  true false
	// in 100 ms:    10 6
	// theirs says:  rate: Wait(n=6) exceeds limiter's burst 5
	// ours says:    throttle: rejected by limit "10 per second, burst 5": it can never grant this claim; at most 5 units can be granted together
}
