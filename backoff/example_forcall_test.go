package backoff_test

import (
	"fmt"
	"time"

	"github.com/heed-go/heed/backoff"
)

// A schedule is a list of delays that ends. It counts its delays itself, so each call needs one
// of its own.
type schedule []time.Duration

// ForCall returns the schedule for one call.
func (s schedule) ForCall() backoff.Policy { return &position{delays: s} }

// Delay returns the first delay for all attempts. It is used where ForCall is not called.
func (s schedule) Delay(int, time.Duration) time.Duration { return s[0] }

type position struct{ delays []time.Duration }

func (p *position) Delay(int, time.Duration) time.Duration {
	if len(p.delays) == 0 {
		return backoff.Stop
	}
	d := p.delays[0]
	p.delays = p.delays[1:]
	return d
}

// A policy that keeps state implements Stateful. Code that retries, as a heed.Transport does,
// calls ForCall once for each call. Other policies are returned as they are.
func ExampleForCall() {
	for _, p := range []backoff.Policy{
		schedule{time.Second, time.Minute},
		backoff.Constant(5 * time.Second),
	} {
		perCall, prev := backoff.ForCall(p), time.Duration(0)
		for attempt := 1; attempt <= 3; attempt++ {
			if prev = perCall.Delay(attempt, prev); prev == backoff.Stop {
				fmt.Println("no further attempt")
				break
			}
			fmt.Println("attempt", attempt, "failed: wait", prev)
		}
	}
	// Output:
	// attempt 1 failed: wait 1s
	// attempt 2 failed: wait 1m0s
	// no further attempt
	// attempt 1 failed: wait 5s
	// attempt 2 failed: wait 5s
	// attempt 3 failed: wait 5s
}
