package throttle_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
)

// The decisions of nginx for
//
//	limit_req_zone $binary_remote_addr zone=api:10m rate=2r/s;
//	limit_req zone=api burst=2;
//
// The excess requests are delayed, as in nginx: ReserveAhead states for how long.
func ExampleNewNginx() {
	clk := clock.NewMock()
	l := throttle.WithClock(throttle.NewNginx(throttle.NginxConfig{Name: "api", Rate: 2, Per: time.Second, Burst: 2}), clk)
	for range 4 {
		d, _ := throttle.ReserveAhead(context.Background(), l, throttle.Claim{}, time.Minute)
		if d.OK {
			fmt.Println("start in", d.Wait)
		} else {
			fmt.Println("rejected, ask again in", d.Wait)
		}
	}
	// Output:
	// start in 0s
	// start in 500ms
	// start in 1s
	// rejected, ask again in 500ms
}

// With NoDelay, the requests of the burst start immediately.
func ExampleNginxConfig_noDelay() {
	clk := clock.NewMock()
	l := throttle.WithClock(throttle.NewNginx(throttle.NginxConfig{Rate: 2, Per: time.Second, Burst: 2, NoDelay: true}), clk)
	for range 4 {
		d, _ := l.Reserve(context.Background(), throttle.Claim{})
		fmt.Printf("%-5v again in %v\n", d.OK, d.Wait)
	}
	// Output:
	// true  again in 0s
	// true  again in 0s
	// true  again in 0s
	// false again in 500ms
}
