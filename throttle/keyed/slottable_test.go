package keyed

import (
	"fmt"
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/gcra"
	"github.com/heed-go/heed/throttle"
)

// A slow goroutine that has found the slot of a key must not charge the key to which the
// slot has been reassigned.
func TestSlotTable_staleSlotDoesNotChargeTheNextKey(t *testing.T) {
	for _, exact := range []bool{false, true} {
		clk := fixedClock(time.Unix(0, 0))
		k := throttle.WithClock(NewBuckets(BucketsConfig{Limit: throttle.PerSecond(10), Max: 1, Exact: exact}), clk).(*bucketTable)
		r, h := &k.tables[0], k.hash("slow")
		i := r.insert(newKey{hash: h, key: "slow", now: 0, asOf: 0})
		require.Equal(t, i, r.insert(newKey{hash: h, key: "slow", now: 5, asOf: 5}), "a key moves in once")
		for j := range r.slots[:r.empty()] { // all others have keys that are full again since later
			if j != i {
				r.slots[j].id.Store(7)
				r.slots[j].tat.Store(6)
			}
		}
		require.Equal(t, i, r.insert(newKey{hash: k.hash("next"), key: "next", now: 7, asOf: 7}), "slow is full again, and goes")

		_, _, done := k.decide(r, &r.slots[i], i, h, throttle.Claim{Key: "slow"}, 1, 7)
		require.False(t, done)
		require.False(t, k.adjustSlot(r, &r.slots[i], i, h, "slow", -1, 7))
		require.EqualValues(t, 7, r.slots[i].tat.Load())
		require.Equal(t, -1, r.find(h, "slow"))
	}
}

// oneNetwork is the Addr of keys that are all of one network.
func oneNetwork(string) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, 7}) }

type fixedClock time.Time

func (c fixedClock) Now() time.Time                       { return time.Time(c) }
func (c fixedClock) After(time.Duration) <-chan time.Time { return nil }

// insert returns the slot of a key that has one, also if it is the first of the table.
func TestSlotTable_insertFindsTheFirstSlot(t *testing.T) {
	for i := range 10_000 { // the seed of the hash is random
		k := throttle.WithClock(NewBuckets(BucketsConfig{Limit: throttle.PerSecond(10), Max: 1, Exact: true}), fixedClock(time.Unix(0, 0))).(*bucketTable)
		r, key := &k.tables[0], fmt.Sprint(i)
		h := k.hash(key)
		if r.insert(newKey{hash: h, key: key, now: 5, asOf: 0}) != 0 {
			continue
		}
		r.slots[0].tat.Store(1 << 20) // in use
		require.Equal(t, 0, r.insert(newKey{hash: h, key: key, now: 5, asOf: 5}))
		require.Equal(t, 0, r.find(h, key))
		return
	}
	t.Fatal("no key has got the first slot")
}

// TestSlotTable_findFree checks which slot a key gets: one of its first bucket if fewer than four are in use there, or
// else of the bucket with more free slots; there an unused one, or else the one that is full again for the longest time.
func TestSlotTable_findFree(t *testing.T) {
	const now = 100
	const first, second = 8, 24
	h := uint64(1)<<62 | 3<<38 // 1/4 and 3/4 of the buckets
	for _, tt := range []struct {
		first, second string // x: in use, f: full again before now, o: before that, n: full again at now, ·: unused
		want          int
	}{
		{"········", "········", first},
		{"x·······", "········", first + 1},
		{"xxx·····", "········", first + 3},
		{"···xxx··", "········", first},
		{"xxxx····", "········", second},
		{"xxxx····", "xxx·····", second + 3},
		{"xxxx····", "xxxx····", first + 4},
		{"xxxx····", "xxxxx···", first + 4},
		{"xxxxxxxx", "xxxxxxxx", -1},
		{"xxxxxxxx", "xxxxxxx·", second + 7},
		{"xxxxxxx·", "xxxxxxxx", first + 7},
		{"nnnnnnnn", "nnnnnnnn", -1},
		{"nnnnnnnf", "nnnnnnnn", first + 7},
		{"nnnnnnnn", "fnnnnnnn", second},
		{"xxxffxxf", "xxxxxx··", first + 3},
		{"ffff··ff", "········", first + 4},
		{"fffffoff", "········", first + 5},
		{"oooof·oo", "········", first + 5},
		{"xxxxffff", "xxxfffo·", second + 7},
		{"xxxxffff", "xxxfffof", second + 6},
	} {
		r := new(slotTable)
		r.init(4, false)
		a, b := r.buckets(h)
		require.Equal(t, []int{first, second}, []int{a, b})
		for at, slots := range map[int]string{first: tt.first, second: tt.second} {
			for i, c := range []rune(slots) {
				s := &r.slots[at+i]
				s.id.Store(7)
				switch c {
				case 'x':
					s.tat.Store(now + 50)
				case 'n':
					s.tat.Store(now)
				case 'f':
					s.tat.Store(now - 1)
				case 'o':
					s.tat.Store(now - 2)
				default:
					s.id.Store(0)
					s.tat.Store(now + 50) // as of an insertion that was not completed
				}
			}
		}
		require.Equal(t, tt.want, r.findFree(h, now), "%+v", tt)
	}
}

// TestSlotTable_buckets checks that every hash has two buckets within the table.
func TestSlotTable_buckets(t *testing.T) {
	r := new(slotTable)
	r.init(3, false)
	for h, want := range map[uint64][2]int{
		0:                   {0, 0},
		math.MaxUint64:      {16, 16},
		0x55555555_00000000: {0, 0}, // just below a third; the bits from 8 to 39 are 0x55000000
		0x55555556_00000000: {8, 8},
		0xaaaaaaab_00000000: {16, 16},
		0x00000000_000000ff: {0, 0},
		0x00000055_55555500: {0, 0},
		0x00000055_55555600: {0, 8},
		0x000000aa_aaaaab00: {0, 16},
	} {
		a, b := r.buckets(h)
		require.Equal(t, want, [2]int{a, b}, "%x", h)
	}
	require.Len(t, r.slots, 25)
	require.Equal(t, 24, r.empty())
}

// TestSlotTable_insert checks the state of a new slot: the bucket is full as of the insertion, but
// not before the latest time as of which another key was evicted.
func TestSlotTable_insert(t *testing.T) {
	r := new(slotTable)
	r.init(1, true)
	for i := range 8 {
		require.Equal(t, i, r.insert(newKey{hash: uint64(10 + i), key: string(rune('a' + i)), now: int64(20 + i), asOf: 0}))
		require.EqualValues(t, 20+i, r.slots[i].tat.Load())
	}
	require.Equal(t, -1, r.insert(newKey{hash: 30, key: "z", now: 20, asOf: 20}), "none was full before 20")
	require.Equal(t, 0, r.insert(newKey{hash: 30, key: "z", now: 5, asOf: 21}), "the first was full at 20")
	require.EqualValues(t, 21, r.slots[0].tat.Load(), "not before the eviction")
	require.Equal(t, -1, r.find(10, "a"))
	require.Equal(t, 0, r.find(30, "z"))
	require.Equal(t, -1, r.find(30, "y"), "another key with the same hash")
	belongsTo := func(i int, h uint64, key string) bool {
		_, ok := r.load(&r.slots[i], i, h, key)
		return ok
	}
	require.True(t, belongsTo(0, 30, "z"))
	require.False(t, belongsTo(0, 30, "y"))
	require.False(t, belongsTo(0, 31, "z"))
	require.True(t, belongsTo(r.empty(), 30, "z"))
	require.Equal(t, 0, r.insert(newKey{hash: 31, key: "y", now: 50, asOf: 22}))
	require.EqualValues(t, 50, r.slots[0].tat.Load())
}

// TestNewBuckets_sizes checks the number of tables and of slots in each.
func TestNewBuckets_sizes(t *testing.T) {
	for limit, want := range map[int][2]int{ // tables, slots of each without those for no key
		1: {1, 8}, 5: {1, 16}, 10: {1, 24}, 4096: {1, 6560}, 8191: {1, 13112}, 8192: {2, 6560},
		0: {16, 6560}, 1 << 16: {16, 6560}, 1 << 20: {256, 6560}, 1 << 21: {256, 13112},
	} {
		k := NewBuckets(BucketsConfig{Limit: throttle.PerSecond(10), Max: limit}).(*bucketTable)
		require.Equal(t, want, [2]int{len(k.tables), len(k.tables[0].slots) - 1}, limit)
		seen := map[*slotTable]bool{}
		for i := range 20 * len(k.tables) {
			seen[k.tableOf(uint64(i))] = true
		}
		require.Len(t, seen, len(k.tables))
	}
}

// TestBuckets_timeIsBounded checks readings that are more than 18 years away.
func TestBuckets_timeIsBounded(t *testing.T) {
	k := NewBuckets(BucketsConfig{Limit: throttle.PerSecond(10)}).(*bucketTable)
	require.Equal(t, int64(latestTick), k.tick(math.MaxInt64))
	require.Equal(t, -int64(latestTick), k.tick(math.MinInt64))
	require.Equal(t, 7*k.params.Scale, k.tick(7))
}

// TestBuckets_waitsForAnInsertion checks that nothing is decided by a slot to which a key is being
// assigned.
func TestBuckets_waitsForAnInsertion(t *testing.T) {
	k := throttle.WithClock(NewBuckets(BucketsConfig{Limit: throttle.PerSecond(10), Max: 1}), fixedClock(time.Unix(0, 0))).(*bucketTable)
	r, h := &k.tables[0], k.hash("a")
	i := r.insert(newKey{hash: h, key: "a", now: 0, asOf: 0})
	r.slots[i].tat.Store(gcra.Closed)
	_, _, done := k.decide(r, &r.slots[i], i, h, throttle.Claim{Key: "a"}, 1, 7)
	require.False(t, done)
	require.False(t, k.adjustSlot(r, &r.slots[i], i, h, "a", -1, 7))
	require.True(t, r.mu.TryLock())
	r.mu.Unlock()
}

// TestBuckets_settlesEverySlot takes and returns units of as many keys as a table of one bucket
// has slots, and of a key of the same network that has no slot and shares a bucket.
func TestBuckets_settlesEverySlot(t *testing.T) {
	k := throttle.WithClock(NewBuckets(BucketsConfig{Limit: throttle.PerHour(10), Max: 1, Addr: oneNetwork}), fixedClock(time.Unix(0, 0))).(*bucketTable)
	require.Panics(t, func() { NewBuckets(BucketsConfig{}) })
	left := func(key string) int64 {
		d, err := k.Reserve(t.Context(), throttle.Claim{Key: key, DryRun: true})
		require.NoError(t, err)
		return d.Remaining
	}
	for i := range slotsPerBucket + 1 {
		key := fmt.Sprint(i)
		c := throttle.Claim{Key: key, Cost: 5}
		d, err := k.Reserve(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, i == slotsPerBucket, d.Degraded)
		require.EqualValues(t, 5, left(key))
		k.Report(t.Context(), c, d, throttle.Feedback{Cost: 7})
		require.EqualValues(t, 3, left(key), i)
		k.Report(t.Context(), c, d, throttle.Feedback{Cost: 5})
		require.EqualValues(t, 3, left(key), "nothing to correct")
		k.Report(t.Context(), c, throttle.Decision{At: d.At, Degraded: d.Degraded}, throttle.Feedback{Now: c.Now, State: throttle.Unused})
		require.EqualValues(t, 3, left(key), "not granted")
		k.Report(t.Context(), c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
		require.EqualValues(t, 8, left(key), i)
	}
}
