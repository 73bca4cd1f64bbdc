package worlds

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
)

// The memory of a tracker is judged by what it holds: bytes that are reserved without a reason, claims that were not ended and more
// accounts than permitted are violations.
func TestMemory_findsWhatRemains(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(m *memory, w *World)
		want   int // problems, at least
	}{
		"nothing":        {func(*memory, *World) {}, 0},
		"bytes":          {func(m *memory, _ *World) { reserve(m, 1) }, 3},
		"too many bytes": {func(m *memory, _ *World) { reserve(m, budget+1) }, 6},
		"a claim": {func(m *memory, w *World) {
			_, _ = m.tracker.Demand(w.request(0)).Limiter.Reserve(t.Context(), throttle.Claim{})
		}, 1},
		"more accounts": {func(m *memory, _ *World) { m.maxAccounts = 1 }, 1},
		"a unit in use": {func(m *memory, w *World) { m.own = fullLimiter(t, w) }, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := Of(World{Seed: 7, Latency: Latency{Kind: Constant, Median: ms}, Load: Load{Kind: Open, Calls: 40, Duration: time.Second, Routes: 3, Tenants: 2, Carrier: Authorization}})
			m := &memory{tracker: &quota.Tracker{Mode: quota.Full}}
			for i := range w.calls {
				m.accepted(w.request(i), nil)
			}
			tt.change(m, w)
			kept := m.end(w)
			require.GreaterOrEqual(t, len(kept.Problems), tt.want, name)
			require.Equal(t, tt.want > 0, len(kept.Problems) > 0, "%s: %v", name, kept.Problems)
			require.Equal(t, 2, kept.Accounts, name)
		})
	}
}

// reserve reserves bytes of an account.
func reserve(m *memory, bytes int64) {
	(*atomic.Int64)(unsafe.Pointer(accountsOf(m.tracker)[0].FieldByName("Memory").FieldByName("Int64").UnsafeAddr())).Add(bytes)
}

// fullLimiter returns an own limit of w with a unit in use.
func fullLimiter(t *testing.T, w *World) throttle.Limiter {
	c := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: w.ownInFlight()})
	d, err := c.Reserve(t.Context(), throttle.Claim{})
	require.NoError(t, err)
	require.True(t, d.OK)
	return c
}
