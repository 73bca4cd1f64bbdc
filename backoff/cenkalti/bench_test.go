package cenkalti

import (
	"testing"
	"time"

	v4 "github.com/cenkalti/backoff/v4"
)

// sinkDelay receives results, so that the compiler cannot remove the computation.
var sinkDelay time.Duration

// BenchmarkExponentialBackOff measures the ExponentialBackOff of cenkalti/backoff/v4, for
// comparison with BenchmarkExponential of package backoff.
func BenchmarkExponentialBackOff(b *testing.B) {
	e := v4.NewExponentialBackOff()
	for range b.N {
		sinkDelay += e.NextBackOff()
	}
}
