package throttle

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAllOf_limitersMayEndTheClaimReentrantly has a limiter that ends the claim again
// while its own Report is called.
func TestAllOf_limitersMayEndTheClaimReentrantly(t *testing.T) {
	e := &reentrantLimiter{Limiter: NewConcurrency(ConcurrencyConfig{Count: 1})}
	e.all = AllOf(e)
	d, err := e.all.Reserve(t.Context(), Claim{})
	require.NoError(t, err)
	e.d = d
	e.all.Report(t.Context(), Claim{}, d, Feedback{State: Unused})
	require.Equal(t, 1, e.ends)
}

type reentrantLimiter struct {
	Limiter
	all  Limiter
	d    Decision
	ends int
}

func (e *reentrantLimiter) Report(ctx context.Context, c Claim, d Decision, f Feedback) {
	if f.State == Unused {
		e.ends++
		e.all.Report(ctx, c, e.d, Feedback{Now: c.Now, State: Unused})
		return
	}
	e.Limiter.Report(ctx, c, d, f)
}
