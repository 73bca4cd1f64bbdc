package throttle

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A panicky limiter panics while it is armed, in the methods that it is armed for.
type panicky struct {
	Limiter
	reserve, cancel, observe bool
}

func (p *panicky) Reserve(ctx context.Context, c Claim) (Decision, error) {
	if p.reserve {
		panic("limiter")
	}
	return p.Limiter.Reserve(ctx, c)
}
func (p *panicky) Cancel(ctx context.Context, c Claim, d Decision) {
	if p.cancel {
		panic("limiter")
	}
	p.Limiter.Cancel(ctx, c, d)
}
func (p *panicky) Observe(ctx context.Context, c Claim, d Decision, f Feedback) {
	if p.observe {
		panic("limiter")
	}
	Observe(ctx, p.Limiter, c, d, f)
}
func (*panicky) NonBlocking() bool { return true }

func TestKeyedLimiter_staysUsableAfterPanics(t *testing.T) {
	p := &panicky{Limiter: NewTokenBucket(PerSecond(10), nil)}
	var fail bool
	k := &KeyedLimiter{Max: 1, New: func(string) Limiter {
		if fail {
			panic("New")
		}
		return p
	}}
	ask := func(key string) Decision {
		d, err := k.Reserve(t.Context(), Claim{Key: key, Now: time.Now()})
		require.NoError(t, err)
		return d
	}
	fail = true
	require.Panics(t, func() { ask("a") })
	require.Zero(t, k.Len())
	fail = false
	ask("a")
	p.reserve = true
	require.Panics(t, func() { ask("a") })
	p.reserve = false
	require.Zero(t, k.stateOf(Claim{Key: "a"}).activeCalls.Add(-1), "the limiter can be forgotten")
	p.reserve = true // to be asked whether it is idle
	require.Panics(t, func() { ask("b") })
	p.reserve = false
	ask("b")
	ask("a")
}

// TestKeyedLimiter_newMayCallTheLimiter has New ask the Keyed for another key.
func TestKeyedLimiter_newMayCallTheLimiter(t *testing.T) {
	var k *KeyedLimiter
	k = &KeyedLimiter{Max: 8, New: func(key string) Limiter {
		if len(key) < 4 {
			_, err := k.Reserve(t.Context(), Claim{Key: key + "x"})
			require.NoError(t, err)
		}
		return NewTokenBucket(PerSecond(10), nil)
	}}
	_, err := k.Reserve(t.Context(), Claim{Key: "x"})
	require.NoError(t, err)
	require.Equal(t, 4, k.Len())
}

// TestAllOf_limitersMayEndTheClaimReentrantly has a limiter that, as it hears of the end of a
// claim, ends the claim once more.
func TestAllOf_limitersMayEndTheClaimReentrantly(t *testing.T) {
	e := &reentrantLimiter{Limiter: NewConcurrency(ConcurrencyConfig{Count: 1}, nil)}
	e.all = AllOf(e)
	d, err := e.all.Reserve(t.Context(), Claim{})
	require.NoError(t, err)
	e.d = d
	e.all.Cancel(t.Context(), Claim{}, d)
	require.Equal(t, 1, e.ends)
}

type reentrantLimiter struct {
	Limiter
	all  Limiter
	d    Decision
	ends int
}

func (e *reentrantLimiter) Cancel(ctx context.Context, c Claim, d Decision) {
	e.ends++
	e.all.Cancel(ctx, c, e.d)
}
