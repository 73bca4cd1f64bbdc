package keyed

import (
	"testing"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

// Who has found the slot of a key and is slow must not charge who moved in since.
func TestSlotTable_staleSlotDoesNotChargeTheNextKey(t *testing.T) {
	for _, exact := range []bool{false, true} {
		clk := fixedClock(time.Unix(0, 0))
		k := NewBuckets(BucketsConfig{Limit: throttle.PerSecond(10), Max: 1, Exact: exact}, clk)
		r, h := &k.tables[0], k.hash("slow")
		i := r.insert(h, "slow", 0, 0)
		require.Equal(t, i, r.insert(h, "slow", 5, 5), "a key moves in once")
		require.Equal(t, i, r.insert(k.hash("next"), "next", 7, 7), "slow is full again, and goes")

		_, done := k.decide(r, i, h, throttle.Claim{Key: "slow"}, 1, 7)
		require.False(t, done)
		require.False(t, k.adjustSlot(r, i, h, "slow", -1, 7))
		require.EqualValues(t, 7, r.slots[i].tat.Load())
		require.Equal(t, -1, r.find(h, "slow"))
	}
}

type fixedClock time.Time

func (c fixedClock) Now() time.Time                       { return time.Time(c) }
func (c fixedClock) After(time.Duration) <-chan time.Time { return nil }
