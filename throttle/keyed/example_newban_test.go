package keyed_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// A key with repeated login attempts is banned, for twice as long each time.
func ExampleNewBan() {
	clk := clock.NewMock()
	logins := &keyed.Limiter{Clock: clk, New: func(string) throttle.Limiter {
		return throttle.WithClock(throttle.NewTokenBucket(throttle.Limit{Name: "logins", Count: 1, Per: time.Second, Burst: 2}), clk)
	}}
	l := throttle.WithClock(keyed.NewBan(logins, keyed.BanConfig{Rejections: 2, Within: time.Minute, Duration: time.Minute, MaxDuration: time.Hour}), clk)
	for range 8 {
		d, _ := l.Reserve(context.Background(), throttle.Claim{Key: "eve"})
		fmt.Printf("%-5v %s: again in %v\n", d.OK, d.Policy, d.Wait)
		if d.Policy == "ban" {
			clk.Add(d.Wait)
		}
	}
	// Output:
	// true  logins: again in 0s
	// true  logins: again in 0s
	// false logins: again in 1s
	// false ban: again in 1m0s
	// true  logins: again in 0s
	// true  logins: again in 0s
	// false logins: again in 1s
	// false ban: again in 2m0s
}
