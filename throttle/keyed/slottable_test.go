package keyed

import (
	"fmt"
	"testing"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

// A slow goroutine that has found the slot of a key must not charge the key to which the
// slot has been reassigned.
func TestSlotTable_staleSlotDoesNotChargeTheNextKey(t *testing.T) {
	for _, exact := range []bool{false, true} {
		clk := fixedClock(time.Unix(0, 0))
		k := throttle.WithClock(NewBuckets(BucketsConfig{Limit: throttle.PerSecond(10), Max: 1, Exact: exact}), clk)
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

// insert returns the slot of a key that has one, also if it is the first of the table.
func TestSlotTable_insertFindsTheFirstSlot(t *testing.T) {
	for i := range 10_000 { // the seed of the hash is random
		k := throttle.WithClock(NewBuckets(BucketsConfig{Limit: throttle.PerSecond(10), Max: 1, Exact: true}), fixedClock(time.Unix(0, 0)))
		r, key := &k.tables[0], fmt.Sprint(i)
		h := k.hash(key)
		if r.insert(h, key, 5, 0) != 0 {
			continue
		}
		r.slots[0].tat.Store(1 << 20) // in use
		require.Equal(t, 0, r.insert(h, key, 5, 5))
		require.Equal(t, 0, r.find(h, key))
		return
	}
	t.Fatal("no key has got the first slot")
}
