package cenkalti_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"
	v4 "github.com/cenkalti/backoff/v4"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/backoff/cenkalti"
)

// A backoff.Exponential is used with Retry of cenkalti/backoff/v4.
func ExampleBackOff() {
	b := &cenkalti.BackOff{Policy: backoff.Constant(time.Millisecond), MaxRetries: 2, Clock: clock.NewMock()}
	tries := 0
	err := v4.Retry(func() error {
		tries++
		return errors.New("still down")
	}, b)
	fmt.Println(tries, err)
	// Output: 3 still down
}

// A BackOff keeps state, so ForCall creates a new one for each call.
func ExamplePolicy() {
	p := cenkalti.Policy(func() v4.BackOff {
		return v4.WithMaxRetries(v4.NewConstantBackOff(time.Second), 2)
	})
	call := backoff.ForCall(p)
	for attempt := 1; ; attempt++ {
		d := call.Delay(attempt, 0)
		if d == backoff.Stop {
			break
		}
		fmt.Println(d)
	}
	// Output:
	// 1s
	// 1s
}
