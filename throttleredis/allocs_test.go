package throttleredis

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

func TestReserve_allocatesLittle(t *testing.T) {
	if racing {
		t.Skip("the race detector allocates")
	}
	l := newTestStore(t).TokenBucket(throttle.PerSecond(1_000_000))
	ctx := t.Context()
	take(t, l, "k")
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		_, _ = l.Reserve(ctx, throttle.Claim{Key: "k"})
	}), 9.)
}
