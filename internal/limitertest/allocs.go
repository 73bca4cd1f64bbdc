// Package limitertest holds what the tests of packages throttle, throttle/keyed and sketch have in
// common. Only tests import it.
package limitertest

import (
	"testing"
	"time"

	"github.com/heed-go/heed/throttle"
)

// RequireNoAllocs checks that claims of l that are unused or end allocate nothing. The name of
// the limiter is for the error.
func RequireNoAllocs(t *testing.T, name string, l throttle.Limiter) {
	t.Helper()
	ctx := t.Context()
	for _, c := range []throttle.Claim{{Key: "api.example.com", Cost: 2}, {Now: time.Now()}, {DryRun: true}} {
		requireNoAllocs(t, name+": a claim that is unused", func() {
			d, _ := l.Reserve(ctx, c)
			l.Report(ctx, c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
		})
		requireNoAllocs(t, name+": a claim that ends", func() {
			d, _ := l.Reserve(ctx, c)
			l.Report(ctx, c, d, throttle.Feedback{State: throttle.Ongoing})
			l.Report(ctx, c, d, throttle.Feedback{Cost: 1})
		})
	}
}

func requireNoAllocs(t *testing.T, what string, f func()) {
	t.Helper()
	if n := testing.AllocsPerRun(200, f); n != 0 {
		t.Errorf("%s: %v allocations", what, n)
	}
}
