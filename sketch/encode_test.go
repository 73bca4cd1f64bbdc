package sketch_test

import (
	"encoding"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/heed-go/heed/sketch"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"
)

type codec interface {
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

// sampleSketches returns one small sketch of each kind, and empty ones to decode into.
func sampleSketches() (full, empty map[string]codec) {
	b := sketch.NewBloom(sketch.BloomConfig{Keys: 10, Seed: 42})
	c := sketch.NewCountMin(sketch.CountMinConfig{Bytes: 256, Seed: 42})
	top := sketch.NewTopK(3)
	for i, k := range []string{"a", "b", "c", "d"} {
		b.Add(k)
		c.Add(k, int64(10-i))
		top.Add(k, int64(10-i))
	}
	return map[string]codec{"Bloom": b, "CountMin": c, "Top": top},
		map[string]codec{"Bloom": new(sketch.Bloom), "CountMin": new(sketch.CountMin), "Top": new(sketch.TopK)}
}

func encoded(t testing.TB, c codec) []byte {
	data, err := c.MarshalBinary()
	require.NoError(t, err)
	return data
}

func TestEncoding_isReadElsewhere(t *testing.T) {
	full, empty := sampleSketches()
	for name, c := range full {
		data := encoded(t, c)
		require.NoError(t, empty[name].UnmarshalBinary(data), name)
		require.Equal(t, data, encoded(t, empty[name]), name)
	}
	require.True(t, empty["Bloom"].(*sketch.Bloom).Test("d"))
	require.EqualValues(t, 7, empty["CountMin"].(*sketch.CountMin).Add("d", 0))
	require.Equal(t, full["Top"].(*sketch.TopK).First(3), empty["Top"].(*sketch.TopK).First(3))
	require.Equal(t, full["Top"].(*sketch.TopK).Add("e", 1), empty["Top"].(*sketch.TopK).Add("e", 1))
}

// TestEncoding_staysAsItIs checks that the encoding of version 1 does not change, because it must
// remain readable.
func TestEncoding_staysAsItIs(t *testing.T) {
	full, _ := sampleSketches()
	for name, want := range map[string]string{
		"Bloom":    "f1f975fedc35ea24",
		"CountMin": "d845b024b0cfc667",
		"Top":      "26b9d648b9c4e0fb",
	} {
		require.Equal(t, want, fmt.Sprintf("%x", xxh3.Hash(encoded(t, full[name]))), name)
	}
}

func TestDecoding_saysWhatIsWrong(t *testing.T) {
	full, _ := sampleSketches()
	change := func(name string, i int, to byte) []byte {
		data := encoded(t, full[name])
		data[i] = to
		return resealed(data)
	}
	withoutBody := func(name string) []byte { // its header states a size of 0
		data := encoded(t, full[name])[:40]
		clear(data[24:32])
		return resealed(data)
	}
	for _, tt := range []struct {
		into string
		data []byte
		want string
	}{
		{"Bloom", nil, "this is no sketch"},
		{"Bloom", []byte("heed"), "this is no sketch"},
		{"Bloom", change("Bloom", 0, 'H'), "this is no sketch"},
		{"Bloom", change("Bloom", 5, 2), "it has version 2, and only 1 is known"},
		{"Bloom", encoded(t, full["Top"]), "it is of kind 3: want 1"},
		{"Top", encoded(t, full["CountMin"]), "it is of kind 2: want 3"},
		{"Bloom", change("Bloom", 16, 0), "its number of bits cannot be"},
		{"Bloom", change("Bloom", 16, 5), "its number of bits cannot be"},
		{"Bloom", change("Bloom", 24, 9), "its size cannot be"},
		{"Bloom", resealed(encoded(t, full["Bloom"])[:40]), "its size cannot be"},
		{"Bloom", resealed(append(encoded(t, full["Bloom"]), 0)), "its size cannot be"},
		{"Bloom", withoutBody("Bloom"), "its size cannot be"},
		{"CountMin", withoutBody("CountMin"), "its size cannot be"},
		{"CountMin", resealed(append(encoded(t, full["CountMin"]), 0)), "its size cannot be"},
		{"CountMin", change("CountMin", 16, 0), "its number of counters cannot be"},
		{"CountMin", change("CountMin", 30, 1), "its size cannot be"},
		{"Top", change("Top", 16, 2), "its number of counters cannot be"},
		{"Top", change("Top", 24, 1), "its size cannot be"},
		{"Top", change("Top", 34, 200), "its list of keys cannot be"},
		{"Top", change("Top", 39, 'd'), "its list of keys cannot be"},
	} {
		_, empty := sampleSketches()
		err := empty[tt.into].UnmarshalBinary(tt.data)
		require.ErrorIs(t, err, sketch.ErrEncoding, tt.want)
		require.ErrorContains(t, err, tt.want)
	}
}

// resealed replaces the checksum of data by the correct one.
func resealed(data []byte) []byte {
	end := len(data) - 8
	sum := xxh3.Hash(data[:end])
	for i := range 8 {
		data[end+i] = byte(sum >> (8 * i))
	}
	return data
}

func TestDecoding_seesDamage(t *testing.T) {
	full, _ := sampleSketches()
	for name, c := range full {
		data := encoded(t, c)
		for i := range data {
			data[i] ^= 4
			require.ErrorIs(t, c.UnmarshalBinary(data), sketch.ErrEncoding, "%s, byte %d", name, i)
			data[i] ^= 4
		}
		require.Equal(t, hex.EncodeToString(data), hex.EncodeToString(encoded(t, c)), "%s was changed by a failure", name)
	}
}

func TestMerge_joinsWhatWasAdded(t *testing.T) {
	size := sketch.BloomConfig{Keys: 1000, Seed: 1}
	a, b := sketch.NewBloom(size), sketch.NewBloom(size)
	p := sketch.CountMinConfig{Epsilon: 0.01, Seed: 1}
	c, d := sketch.NewCountMin(p), sketch.NewCountMin(p)
	for i := range 500 {
		a.Add(key('a', i))
		b.Add(key('b', i))
		c.Add(key('a', i), 2)
		d.Add(key('a', i), 3)
	}
	require.NoError(t, a.Merge(b))
	require.NoError(t, c.Merge(d))
	for i := range 500 {
		require.True(t, a.Test(key('a', i)) && a.Test(key('b', i)))
		require.GreaterOrEqual(t, c.Count(key('a', i)), int64(5))
	}
	size.Keys *= 2
	require.ErrorIs(t, a.Merge(sketch.NewBloom(size)), sketch.ErrMerge)
	p.Seed = 2
	require.ErrorIs(t, c.Merge(sketch.NewCountMin(p)), sketch.ErrMerge)
}

func TestMerge_losesNothingWhileOthersAdd(t *testing.T) {
	p := sketch.CountMinConfig{Bytes: 1, Seed: 1}
	c := sketch.NewCountMin(p)
	concurrently(func(id int) {
		for range 2000 {
			if id > 1 {
				c.Add("k", 1)
				continue
			}
			other := sketch.NewCountMin(p)
			other.Add("k", 1)
			assert.NoError(t, c.Merge(other))
		}
	})
	require.EqualValues(t, 16_000, c.Count("k"))
}

// FuzzDecode passes data with a correct checksum to the decoders, so that they read the body.
func FuzzDecode(f *testing.F) {
	full, _ := sampleSketches()
	for _, c := range full {
		f.Add(encoded(f, c))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 40 {
			return
		}
		data = resealed(data)
		_, empty := sampleSketches()
		for name, c := range empty {
			if err := c.UnmarshalBinary(data); err != nil {
				require.ErrorIs(t, err, sketch.ErrEncoding)
				continue
			}
			again := new(sketch.TopK)
			switch c := c.(type) {
			case *sketch.Bloom:
				c.Add("k")
				require.True(t, c.Test("k"), name)
			case *sketch.CountMin:
				require.GreaterOrEqual(t, c.Add("k", 3), int64(3), name)
			case *sketch.TopK:
				require.NoError(t, again.UnmarshalBinary(encoded(t, c)))
				require.Positive(t, c.Add("k", 3), name)
			}
		}
	})
}
