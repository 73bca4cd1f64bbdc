package sketch_test

import (
	"testing"
	"time"

	"github.com/heed-go/heed/sketch"
	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"
)

// TestBloomConfig_bytes checks the memory for a number of keys and an error rate.
func TestBloomConfig_bytes(t *testing.T) {
	for _, tt := range []struct {
		keys           int64
		rate           float64
		bloom, sliding int64
	}{
		{1, 0.5, 64, 128}, {1000, 0.5, 320, 1280}, {100_000, 0.5, 28_096, 126_208},
		{1000, 0.3, 384, 1536}, {100_000, 0.3, 38_080, 150_144},
		{1000, 0.1, 640, 2048}, {100_000, 0.1, 62_080, 206_720},
		{1, 0, 64, 128}, {1000, 0, 1280, 3456}, {100_000, 0, 127_552, 335_872},
		{1000, 1e-3, 2048, 5376}, {100_000, 1e-3, 199_296, 557_056},
		{1000, 1e-5, 3968, 9728}, {100_000, 1e-5, 390_464, 983_040},
		{1, 1e-9, 64, 128}, {1000, 1e-9, 12_096, 28_288}, {100_000, 1e-9, 1_205_824, 2_719_744},
	} {
		s := sketch.BloomConfig{Keys: tt.keys, ErrorRate: tt.rate}
		require.Equal(t, tt.bloom, sketch.NewBloom(s).Bytes(), "%+v", tt)
		require.Equal(t, tt.sliding, sketch.NewSlidingBloom(s, time.Minute).Bytes(), "%+v", tt)
	}
}

// TestLimiterConfig_bytes checks that a limit of 32,768 uses counters of 32 bits, because a
// counter of 16 bits cannot hold twice as much.
func TestLimiterConfig_bytes(t *testing.T) {
	for _, tt := range []struct {
		count, clients int64
		rate           float64
		bytes          int64
	}{
		{32_767, 100, 0.1, 1024}, {32_767, 10_000, 0, 133_120}, {32_767, 10_000, 1e-4, 649_600},
		{32_768, 100, 0.1, 2048}, {32_768, 10_000, 0, 337_920}, {32_768, 10_000, 1e-4, 3_534_720},
		{65_535, 100, 0.1, 2048}, {65_535, 10_000, 0, 337_920}, {65_535, 10_000, 1e-4, 3_534_720},
	} {
		p := sketch.LimiterConfig{Limit: throttle.PerMinute(tt.count), Clients: tt.clients, ErrorRate: tt.rate}
		require.Equal(t, tt.bytes, sketch.NewLimiter(p).Bytes(), "%+v", tt)
	}
}

// TestLimiter_countsAtTheEndOfACounter checks limits near the maximum of a counter of 16 bits:
// they are granted, a cost of up to twice the limit is recorded, and further claims are rejected.
func TestLimiter_countsAtTheEndOfACounter(t *testing.T) {
	for _, count := range []int64{32_767, 32_768, 65_535, 65_536} {
		l := sketch.NewLimiter(sketch.LimiterConfig{Limit: throttle.PerMinute(count), Clients: 100, Seed: 1})
		d := reserve(t, l, "ann", count, noon)
		require.True(t, d.OK, count)
		require.Zero(t, d.Remaining, count)
		require.False(t, reserve(t, l, "ann", 1, noon).OK, count)
		l.Report(t.Context(), throttle.Claim{Key: "ann", Cost: count}, d, throttle.Feedback{Cost: 2 * count})
		// After one minute all of the debt counts, half a minute later half of it.
		require.False(t, reserve(t, l, "ann", 1, noon.Add(time.Minute)).OK, count)
		half := reserve(t, l, "ann", 1, noon.Add(90*time.Second))
		require.False(t, half.OK, "%d: half of twice the limit is all of it", count)
		require.True(t, reserve(t, l, "ann", 1, noon.Add(91*time.Second)).OK, count)
	}
}

// reseal replaces the checksum of an encoded sketch by the correct one.
func reseal(data []byte) []byte {
	end := len(data) - 8
	sum := xxh3.Hash(data[:end])
	for i := range 8 {
		data[end+i] = byte(sum >> (8 * i))
	}
	return data
}

// TestTopK_encodingWithAWrongNumberOfCounters checks that the number of counters of an encoded
// TopK must be positive and at least the number of its items.
func TestTopK_encodingWithAWrongNumberOfCounters(t *testing.T) {
	const capacity, held = 16, 24 // offsets
	top := sketch.NewTopK(3)
	top.Add("a", 1)
	top.Add("b", 1)
	for _, tt := range []struct {
		capacity, held uint64
		want           string
	}{
		{3, 2, ""}, {2, 2, ""}, {1<<31 - 1, 2, ""},
		{0, 0, "number of counters"}, {0, 2, "number of counters"}, {1, 2, "number of counters"},
		{1 << 31, 2, "number of counters"}, {1 << 63, 2, "number of counters"},
		{3, 1, "size"}, {3, 3, "list of keys"}, {1<<64 - 1, 1<<64 - 1, "number of counters"},
	} {
		data := encoded(t, top)
		for i := range 8 {
			data[capacity+i], data[held+i] = byte(tt.capacity>>(8*i)), byte(tt.held>>(8*i))
		}
		err := new(sketch.TopK).UnmarshalBinary(reseal(data))
		if tt.want == "" {
			require.NoError(t, err, "%+v", tt)
			continue
		}
		require.ErrorIs(t, err, sketch.ErrEncoding, "%+v", tt)
		require.ErrorContains(t, err, tt.want, "%+v", tt)
	}
	empty := encoded(t, sketch.NewTopK(1))
	empty[capacity] = 0
	require.ErrorContains(t, new(sketch.TopK).UnmarshalBinary(reseal(empty)), "number of counters")
}

// TestBloom_setsAsManyBitsAsErrLeast checks that with a given memory a key sets the number of bits
// with the lowest error rate: four per group with few keys, and one with many.
func TestBloom_setsAsManyBitsAsErrLeast(t *testing.T) {
	for keys, rate := range map[int64]float64{50: 3.88e-12, 200: 1.599e-7, 1000: 0.00942, 3000: 0.2295, 5000: 0.5437} {
		b := sketch.NewBloom(sketch.BloomConfig{Keys: keys, Bytes: 1280})
		require.InEpsilon(t, rate, b.ErrorRate(keys), 1e-3, "%d keys", keys)
	}
}
