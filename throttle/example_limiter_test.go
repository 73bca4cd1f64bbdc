package throttle_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
)

// nightOnly grants work at night, from 22:00 to 06:00. It counts no units, so Report does
// nothing.
type nightOnly struct{ clock throttle.Clock }

func (n nightOnly) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	if _, err := c.Units(); err != nil {
		return throttle.Decision{}, err
	}
	if c.Now.IsZero() {
		c.Now = n.clock.Now()
	}
	d := throttle.Decision{Policy: "nights", At: c.Now}
	y, m, day := c.Now.Date()
	if h := c.Now.Hour(); h < 6 || h >= 22 {
		d.OK = true
	} else {
		d.Wait = time.Date(y, m, day, 22, 0, 0, 0, c.Now.Location()).Sub(c.Now)
	}
	return d, nil
}

func (nightOnly) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {}

// Traits implements throttle.Limiter.
func (nightOnly) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }

// A custom limiter can be combined with all others.
func ExampleLimiter() {
	clk := clock.NewMock()
	clk.Set(time.Date(2026, 11, 21, 21, 30, 0, 0, time.UTC))
	l := throttle.AllOf(nightOnly{clk}, throttle.WithClock(throttle.NewTokenBucket(throttle.Limit{Name: "once", Count: 1, Per: time.Hour}), clk))
	for range 3 {
		d, _ := l.Reserve(context.Background(), throttle.Claim{})
		fmt.Printf("%s  %-5v  by %q, again in %v\n", clk.Now().Format("15:04"), d.OK, d.Policy, d.Wait)
		clk.Add(30 * time.Minute)
	}
	// Output:
	// 21:30  false  by "nights", again in 30m0s
	// 22:00  true   by "once", again in 0s
	// 22:30  false  by "once", again in 30m0s
}
