package sketch_test

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/heed-go/heed/sketch"
	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

// TestValidate_boundaries checks the extreme values of each field that are accepted, and the
// first ones that are not.
func TestValidate_boundaries(t *testing.T) {
	if math.MaxInt == math.MaxInt32 {
		t.Skip("these are the boundaries where an int has 64 bits")
	}
	const most = 1 << 40 // bytes
	limiter := func(change func(*sketch.LimiterConfig)) sketch.LimiterConfig {
		c := sketch.LimiterConfig{Limit: throttle.PerSecond(1), Clients: 10}
		change(&c)
		return c
	}
	for _, tt := range []struct {
		config interface{ Validate() error }
		want   string // part of the error; "": valid
	}{
		{sketch.BloomConfig{Keys: 1}, ""},
		{sketch.BloomConfig{Keys: 0}, "Keys is 0"},
		{sketch.BloomConfig{Keys: 1, Bytes: 1}, ""},
		{sketch.BloomConfig{Keys: 1, Bytes: most}, ""},
		{sketch.BloomConfig{Keys: 1, Bytes: most + 1}, "Bytes is 1099511627777"},
		{sketch.BloomConfig{Keys: 1, Bytes: -1}, "Bytes is -1"},
		{sketch.BloomConfig{Keys: 1, ErrorRate: 1e-9}, ""},
		{sketch.BloomConfig{Keys: 1, ErrorRate: math.Nextafter(1e-9, 0)}, "ErrorRate is"},
		{sketch.BloomConfig{Keys: 1, ErrorRate: math.Nextafter(1, 0)}, ""},
		{sketch.BloomConfig{Keys: 1, ErrorRate: 1}, "ErrorRate is 1:"},
		{sketch.BloomConfig{Keys: 1, ErrorRate: -1}, "ErrorRate is -1:"},
		{sketch.BloomConfig{Keys: 1, ErrorRate: math.NaN()}, "ErrorRate is NaN"},
		{sketch.BloomConfig{Keys: 8e11}, ""},
		{sketch.BloomConfig{Keys: 9e11}, "900000000000 keys need more than"},
		{sketch.BloomConfig{Keys: 9e11, Bytes: 1}, ""},

		{sketch.CountMinConfig{}, ""},
		{sketch.CountMinConfig{Epsilon: math.Nextafter(1, 0)}, ""},
		{sketch.CountMinConfig{Epsilon: 1}, "Epsilon is 1:"},
		{sketch.CountMinConfig{Epsilon: 1e-12, Bytes: 1}, ""},
		{sketch.CountMinConfig{Epsilon: math.Nextafter(1e-12, 0), Bytes: 1}, "Epsilon is"},
		{sketch.CountMinConfig{Epsilon: -1}, "Epsilon is -1:"},
		{sketch.CountMinConfig{Epsilon: math.NaN()}, "Epsilon is NaN"},
		{sketch.CountMinConfig{Delta: 1}, "CountMinConfig: Delta is 1:"},
		{sketch.CountMinConfig{Bytes: most}, ""},
		{sketch.CountMinConfig{Bytes: most + 1}, "Bytes is 1099511627777"},
		{sketch.CountMinConfig{Bytes: -1}, "Bytes is -1"},
		{sketch.CountMinConfig{Epsilon: 1.04e-10}, ""},
		{sketch.CountMinConfig{Epsilon: 1.02e-10}, "an Epsilon of 1.02e-10 needs more than"},

		{limiter(func(c *sketch.LimiterConfig) {}), ""},
		{limiter(func(c *sketch.LimiterConfig) { c.Limit.Per = 0 }), "Per is 0s"},
		{limiter(func(c *sketch.LimiterConfig) { c.Limit.Count = 1 << 30 }), ""},
		{limiter(func(c *sketch.LimiterConfig) { c.Limit.Count = 1<<30 + 1 }), "Count is 1073741825"},
		{limiter(func(c *sketch.LimiterConfig) { c.Limit.Burst = 1 }), ""},
		{limiter(func(c *sketch.LimiterConfig) { c.Limit.Burst = 2 }), "Burst is 2"},
		{limiter(func(c *sketch.LimiterConfig) { c.Clients = 1 }), ""},
		{limiter(func(c *sketch.LimiterConfig) { c.Clients = 0 }), "Clients is 0"},
		{limiter(func(c *sketch.LimiterConfig) { c.Returning = 10 }), ""},
		{limiter(func(c *sketch.LimiterConfig) { c.Returning = 11 }), "Returning is 11"},
		{limiter(func(c *sketch.LimiterConfig) { c.Returning = -1 }), "Returning is -1"},
		{limiter(func(c *sketch.LimiterConfig) { c.Bytes = most }), ""},
		{limiter(func(c *sketch.LimiterConfig) { c.Bytes = most + 1 }), "Bytes is 1099511627777"},
		{limiter(func(c *sketch.LimiterConfig) { c.Bytes = -1 }), "Bytes is -1"},
		{limiter(func(c *sketch.LimiterConfig) { c.ErrorRate = 1 }), "LimiterConfig: ErrorRate is 1:"},
		{limiter(func(c *sketch.LimiterConfig) { c.Clients = 1 << 60 }), "more memory than there can be"},
		{limiter(func(c *sketch.LimiterConfig) { c.Clients, c.Bytes = 1<<60, 1 }), ""},
	} {
		if err := tt.config.Validate(); tt.want == "" {
			require.NoError(t, err, "%+v", tt.config)
		} else {
			require.ErrorContains(t, err, tt.want, "%+v", tt.config)
		}
	}
	require.Panics(t, func() { sketch.NewSlidingBloom(sketch.BloomConfig{Keys: 1}, 0) })
	require.NotPanics(t, func() { sketch.NewSlidingBloom(sketch.BloomConfig{Keys: 1}, 1) })
	require.NotPanics(t, func() { sketch.NewTopK(1) })
}

// TestCountMinConfig_bytes checks the memory for an error and a share of keys, and the error for
// which it then suffices.
func TestCountMinConfig_bytes(t *testing.T) {
	for _, tt := range []struct {
		epsilon, delta          float64
		bytes, sliding          int64
		reached, slidingReached float64 // errors with the probability delta
	}{
		{0, 0.01, 1130112, 2818048, 9.99929102e-05, 9.95136635e-05},
		{0.5, 0.01, 256, 768, 0.441418702, 0.365148802},
		{0.01, 0.01, 11392, 29184, 0.00991952139, 0.00960917901},
		{0.001, 0.5, 29184, 69632, 0.000997365356, 0.000988673532},
		{0.001, 0.1, 49024, 121856, 0.000998025056, 0.000964089346},
		{0.001, 0.001, 310784, 815104, 0.000999815551, 0.00099985338},
		{1e-05, 0.01, 11300352, 28049408, 9.99997059e-06, 9.99786806e-06},
	} {
		p := sketch.CountMinConfig{Epsilon: tt.epsilon, Delta: tt.delta}
		c, s := sketch.NewCountMin(p), sketch.NewSlidingCountMin(p, time.Minute)
		require.Equal(t, tt.bytes, c.Bytes(), "%+v", tt)
		require.Equal(t, tt.sliding, s.Bytes(), "%+v", tt)
		require.InEpsilon(t, tt.reached, c.Epsilon(tt.delta), 1e-6, "%+v", tt)
		require.InEpsilon(t, tt.slidingReached, s.Epsilon(tt.delta), 1e-6, "%+v", tt)
	}
	standard := sketch.CountMinConfig{Epsilon: 0.0001, Delta: 0.01}
	require.Equal(t, sketch.NewCountMin(standard).Bytes(), sketch.NewCountMin(sketch.CountMinConfig{}).Bytes())
	require.InEpsilon(t, 1./(700*8192), sketch.NewCountMin(sketch.CountMinConfig{Bytes: 1 << 20}).Epsilon(1), 1e-4, "a bound that may be exceeded always is as low as can be")
	one := sketch.CountMinConfig{Bytes: 1}
	require.EqualValues(t, 1, sketch.NewCountMin(one).Epsilon(1e-9), "an error is at most the sum for all keys")
	require.EqualValues(t, 1, sketch.NewSlidingCountMin(one, time.Minute).Epsilon(1e-9))
}

// TestBytes_areRoundedDown checks the memory of sketches with a given number of bytes.
func TestBytes_areRoundedDown(t *testing.T) {
	for _, tt := range []struct {
		bytes, bloom, sliding, counts, slidingCounts, limiter int64
	}{
		{1, 64, 128, 128, 256, 384},
		{127, 64, 128, 128, 256, 384},
		{128, 128, 128, 128, 256, 384},
		{255, 192, 128, 128, 256, 384},
		{256, 256, 256, 256, 256, 384},
		{511, 448, 384, 384, 256, 384},
		{512, 512, 512, 512, 512, 384},
		{4095, 4032, 3968, 3968, 3840, 3968},
		{4096, 4096, 4096, 4096, 4096, 3968},
		{10000, 9984, 9728, 9984, 9728, 9728},
		{1148576, 1148544, 1146880, 1148544, 1114112, 1147392},
	} {
		require.Equal(t, tt.bloom, sketch.NewBloom(sketch.BloomConfig{Keys: 100, Bytes: tt.bytes}).Bytes(), tt.bytes)
		require.Equal(t, tt.sliding, sketch.NewSlidingBloom(sketch.BloomConfig{Keys: 100, Bytes: tt.bytes}, time.Minute).Bytes(), tt.bytes)
		require.Equal(t, tt.counts, sketch.NewCountMin(sketch.CountMinConfig{Bytes: tt.bytes}).Bytes(), tt.bytes)
		require.Equal(t, tt.slidingCounts, sketch.NewSlidingCountMin(sketch.CountMinConfig{Bytes: tt.bytes}, time.Minute).Bytes(), tt.bytes)
		require.Equal(t, tt.limiter, sketch.NewLimiter(sketch.LimiterConfig{Limit: throttle.PerMinute(10), Clients: 1000, Bytes: tt.bytes}).Bytes(), tt.bytes)
	}
}

// TestLimiter_errorRates checks the error rate for numbers of clients and of those that return.
func TestLimiter_errorRates(t *testing.T) {
	for _, tt := range []struct {
		config             sketch.LimiterConfig
		clients, returning int64
		rate               float64
	}{
		{sketch.LimiterConfig{Clients: 1000}, 1000, 100, 0.00930599773},
		{sketch.LimiterConfig{Clients: 1000}, 1000, 1000, 1},
		{sketch.LimiterConfig{Clients: 1000}, 5000, 100, 1},
		{sketch.LimiterConfig{Clients: 1000}, 1, 0, 6.04124153e-14},
		{sketch.LimiterConfig{Clients: 1000, Returning: 1000}, 1000, 1000, 0.00955744754},
		{sketch.LimiterConfig{Clients: 1000, Returning: 1}, 1000, 100, 1},
		{sketch.LimiterConfig{Clients: 1001, ErrorRate: 1e-4}, 1000, 100, 9.206567e-05},
		{sketch.LimiterConfig{Clients: 1000, Bytes: 1000}, 1000, 100, 1},
		{sketch.LimiterConfig{Clients: 1000, Bytes: 4000}, 1000, 100, 1},
		{sketch.LimiterConfig{Clients: 1000, Bytes: 40_000}, 1000, 100, 0.00031514659},
	} {
		tt.config.Limit = throttle.PerMinute(10)
		l := sketch.NewLimiter(tt.config)
		require.InEpsilon(t, tt.rate, l.ErrorRate(tt.clients, tt.returning), 1e-6, "%+v", tt)
	}
}

// TestLimiter_keepsItsErrorRate checks that a limiter with as many clients as configured stays
// below its ErrorRate: the numbers of blocks and lines are rounded up.
func TestLimiter_keepsItsErrorRate(t *testing.T) {
	for _, count := range []int64{1, 40_000} { // counters of 16 and of 32 bits
		for _, clients := range []int64{1, 2, 3, 10, 16, 17, 33, 159, 160, 161, 1000, 12_345} {
			if testing.Short() && clients == 1000 {
				continue
			}
			for _, returning := range []int64{0, 1, clients / 2, clients} {
				for _, rate := range []float64{0, 0.5, 0.1, 0.01, 1e-5} {
					if testing.Short() && rate == 0.1 {
						continue
					}
					p := sketch.LimiterConfig{Limit: throttle.PerMinute(count), Clients: clients, Returning: returning, ErrorRate: rate}
					limit, active := cmp.Or(rate, 0.01), cmp.Or(returning, (clients+9)/10)
					require.LessOrEqual(t, sketch.NewLimiter(p).ErrorRate(clients, active), limit, "%+v", p)
				}
			}
		}
	}
}

// TestDecoding_boundaries checks the extreme values of an encoded TopK with one key, and the
// first ones that are not accepted.
func TestDecoding_boundaries(t *testing.T) {
	const most = 1 << 62
	empty := encoded(t, sketch.NewTopK(3))
	for _, tt := range []struct {
		count, maxError, length uint64
		key, want               string
	}{
		{1, 0, 3, "key", ""},
		{0, 0, 0, "", ""},
		{most, most, 3, "key", ""},
		{most + 1, 0, 3, "key", "list of keys"},
		{5, 5, 3, "key", ""},
		{5, 6, 3, "key", "list of keys"},
		{5, 5, 4, "key", "list of keys"},
		{5, 5, math.MaxUint64, "key", "list of keys"},
		{5, 5, 2, "key", "size"},
	} {
		data := append([]byte{}, empty[:32]...)
		data[24] = 1
		for _, v := range []uint64{tt.count, tt.maxError, tt.length} {
			data = binary.AppendUvarint(data, v)
		}
		data = reseal(append(append(data, tt.key...), make([]byte, 8)...))
		top := new(sketch.TopK)
		err := top.UnmarshalBinary(data)
		if tt.want != "" {
			require.ErrorIs(t, err, sketch.ErrEncoding, "%+v", tt)
			require.ErrorContains(t, err, tt.want, "%+v", tt)
			continue
		}
		require.NoError(t, err, "%+v", tt)
		require.Equal(t, []sketch.Item{{Key: tt.key, Count: int64(tt.count), MaxError: int64(tt.maxError)}}, top.First(3))
	}
	data := encoded(t, sketch.NewBloom(sketch.BloomConfig{Keys: 1, Bytes: 64}))
	for bits, ok := range []bool{false, true, true, true, true, false} {
		data[16] = byte(bits)
		require.Equal(t, ok, new(sketch.Bloom).UnmarshalBinary(reseal(data)) == nil, bits)
	}
	require.ErrorContains(t, new(sketch.Bloom).UnmarshalBinary(reseal(data[:39])), "no sketch")
}

// TestTopK_decodesItemsInAnyOrder checks that new keys take over the lowest counts, whatever the
// order of the items in the encoding.
func TestTopK_decodesItemsInAnyOrder(t *testing.T) {
	const items = 12
	empty := encoded(t, sketch.NewTopK(items))
	for seed := range uint64(30) {
		data := append([]byte{}, empty[:32]...)
		data[24] = items
		order := rand.New(rand.NewPCG(seed, 0)).Perm(items)
		if seed == 0 { // the highest count first
			slices.SortFunc(order, func(a, b int) int { return b - a })
		}
		for _, i := range order {
			data = binary.AppendUvarint(data, uint64(10*i+10))
			data = append(data, 0, 16)
			data = append(data, key('k', i)...)
		}
		top := new(sketch.TopK)
		require.NoError(t, top.UnmarshalBinary(reseal(append(data, make([]byte, 8)...))))
		for i := range items - 1 {
			require.EqualValues(t, 10*i+10, top.Count("other"))
			require.EqualValues(t, 10*i+1010, top.Add(key('n', i), 1000))
		}
		require.Equal(t, sketch.Item{Key: key('k', items-1), Count: 10 * items}, top.First(items)[items-1])
	}
}

// TestTopK_isConsistent checks after each of many random changes that the count of each key is
// that of its item, and that the keys without a counter have the lowest count.
func TestTopK_isConsistent(t *testing.T) {
	for _, counters := range []int{1, 2, 3, 7, 20} {
		top := sketch.NewTopK(counters)
		sum := int64(0)
		for i, k := range zipf(uint64(counters), 500) {
			n := int64(1 + i%5)
			sum += n
			held, before := top.First(counters), top.Count(key('k', k))
			require.Equal(t, before+n, top.Add(key('k', k), n))
			items := top.First(counters)
			total, lowest := int64(0), int64(math.MaxInt64)
			for _, item := range items {
				require.Equal(t, item.Count, top.Count(item.Key))
				total, lowest = total+item.Count, min(lowest, item.Count)
				if item.Key == key('k', k) && before == 0 {
					require.Zero(t, item.MaxError)
				}
			}
			require.Equal(t, sum, total)
			if len(items) < counters {
				lowest = 0
			} else if len(held) == counters {
				require.GreaterOrEqual(t, lowest, held[counters-1].Count)
			}
			require.Equal(t, lowest, top.Count("none"))
		}
	}
}
