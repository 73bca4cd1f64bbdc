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

// A key has one slot, also the first of the table, and insert returns it again.
func TestSlotTable_insertFindsEverySlot(t *testing.T) {
	k := NewBuckets(BucketsConfig{Limit: throttle.PerSecond(10), Max: 1000, Exact: true}, fixedClock(time.Unix(0, 0)))
	slots := map[*slotTable]map[int]bool{}
	for i := range 500 {
		key := fmt.Sprint(i)
		h := k.hash(key)
		r := &k.tables[0]
		if len(k.tables) > 1 {
			t.Fatal("the test needs one table")
		}
		slot := r.insert(h, key, 5, 0)
		require.GreaterOrEqual(t, slot, 0)
		r.slots[slot].tat.Store(1 << 20) // in use
		require.Equal(t, slot, r.insert(h, key, 5, 5), key)
		require.Equal(t, slot, r.find(h, key))
		if slots[r] == nil {
			slots[r] = map[int]bool{}
		}
		require.False(t, slots[r][slot], "one key a slot")
		slots[r][slot] = true
	}
	require.True(t, slots[&k.tables[0]][0], "the first slot is used")
}
