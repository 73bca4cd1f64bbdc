package cenkalti

import (
	"testing"
	"time"

	v4 "github.com/cenkalti/backoff/v4"
)

// The results go here, so that the compiler cannot drop the work.
var sinkDelay time.Duration

// BenchmarkExponentialBackOff measures v4's own policy, to compare with BenchmarkExponential
// of package backoff.
func BenchmarkExponentialBackOff(b *testing.B) {
	e := v4.NewExponentialBackOff()
	for range b.N {
		sinkDelay += e.NextBackOff()
	}
}
