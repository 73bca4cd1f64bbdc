package throttle_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
)

// A local limiter enforces an approximate limit while a shared store is unavailable.
func ExampleNewFallback() {
	clk := clock.NewMock()
	l := throttle.NewFallback(throttle.FallbackConfig{
		Primary:   store{},
		Secondary: throttle.WithClock(throttle.NewTokenBucket(throttle.PerSecond(2)), clk),
		OnError:   func(err error) { fmt.Println("primary:", err) },
	})
	d, err := l.Reserve(context.Background(), throttle.Claim{})
	fmt.Println(d.OK, d.Degraded, d.Policy, err)
	// Output:
	// primary: connection refused
	// true true 2 per 1s <nil>
}

type store struct{}

func (store) Reserve(context.Context, throttle.Claim) (throttle.Decision, error) {
	return throttle.Decision{}, errors.New("connection refused")
}
func (store) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {}

// Traits implements throttle.Limiter.
func (store) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }
