// Package limitertest holds what the tests of packages throttle and throttle/keyed have in
// common.
package limitertest

import (
	"testing"
	"time"

	"github.com/heed-go/heed/throttle"
)

// RequireNoAllocs checks that claims of l that are cancelled or end allocate nothing. The name of
// the limiter is for the error.
func RequireNoAllocs(t *testing.T, name string, l throttle.Limiter) {
	t.Helper()
	ctx := t.Context()
	for _, c := range []throttle.Claim{{Key: "api.example.com", Cost: 2}, {Now: time.Now()}, {DryRun: true}} {
		requireNoAllocs(t, name+": Reserve and Cancel", func() {
			d, _ := l.Reserve(ctx, c)
			l.Cancel(ctx, c, d)
		})
		requireNoAllocs(t, name+": Reserve and Observe", func() {
			d, _ := l.Reserve(ctx, c)
			throttle.Observe(ctx, l, c, d, throttle.Feedback{Partial: true})
			throttle.Observe(ctx, l, c, d, throttle.Feedback{Cost: 1})
		})
	}
}

func requireNoAllocs(t *testing.T, what string, f func()) {
	t.Helper()
	if n := testing.AllocsPerRun(200, f); n != 0 {
		t.Errorf("%s: %v allocations", what, n)
	}
}
