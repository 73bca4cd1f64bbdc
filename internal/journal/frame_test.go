package journal

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzRead damages a journal of three frames, and checks that Read returns each record before
// the damage, and no other than those that were written.
func FuzzRead(f *testing.F) {
	f.Add([]byte("a"), []byte("bb"), []byte{}, uint16(30), byte(1), uint16(0), []byte{})
	f.Add([]byte("a"), frameMagic, []byte("c"), uint16(9), byte(0), uint16(12), []byte("garbage"))
	f.Add(bytes.Repeat(frameMagic, 9), []byte("b"), []byte("c"), uint16(100), byte(255), uint16(0), frameMagic)
	f.Fuzz(func(t *testing.T, a, b, c []byte, position uint16, flip byte, cut uint16, tail []byte) {
		file := []byte(fileMagic)
		var ends []int64
		for _, record := range [][]byte{a, b, c} {
			frame := appendRecord(make([]byte, headerSize), record)
			sealFrame(frame, int64(len(file)))
			file = append(file, frame...)
			ends = append(ends, int64(len(file)))
		}
		damagedAt := int64(len(file))
		if n := int(cut) % (len(file) + 1); n > 0 {
			file = file[:len(file)-n]
			damagedAt = int64(len(file))
		}
		file = append(file, tail...)
		if i := int64(position); i < int64(len(file)) && flip != 0 {
			file[i] ^= flip
			damagedAt = min(damagedAt, i)
		}
		var records [][]byte
		end, err := Read(bytes.NewReader(file), int64(len(file)), func(r []byte) error {
			records = append(records, slices.Clone(r))
			return nil
		})
		var corrupt *CorruptError
		if damagedAt < int64(len(fileMagic)) {
			require.True(t, err == nil && end == 0 || errors.Is(err, ErrNotJournal), err)
			return
		}
		require.True(t, err == nil || errors.As(err, &corrupt), err)
		require.LessOrEqual(t, end, int64(len(file)))
		for i, want := range [][]byte{a, b, c} {
			if ends[i] <= damagedAt {
				require.Greater(t, len(records), i)
				require.True(t, bytes.Equal(want, records[i]))
			}
		}
		if err == nil && !bytes.Contains(tail, frameMagic) { // no record was invented
			require.LessOrEqual(t, len(records), 3)
			for i, r := range records {
				require.True(t, bytes.Equal([][]byte{a, b, c}[i], r))
			}
		}
	})
}

// FuzzRead_anyBytes checks that no input makes Read panic or read beyond the end.
func FuzzRead_anyBytes(f *testing.F) {
	frame := appendRecord(make([]byte, headerSize), []byte("record"))
	sealFrame(frame, 8)
	f.Add(append([]byte(fileMagic), frame...))
	f.Add([]byte(fileMagic))
	f.Fuzz(func(t *testing.T, file []byte) {
		end, err := Read(bytes.NewReader(file), int64(len(file)), func([]byte) error { return nil })
		require.True(t, err != nil || end <= int64(len(file)))
		missing := int64(0)
		aroundErr := ReadAround(bytes.NewReader(file), int64(len(file)), func([]byte) error { return nil }, func(n int64) { missing += n })
		require.Equal(t, err == nil, aroundErr == nil)
		require.LessOrEqual(t, missing, int64(len(file)))
		if err == nil && end > 0 { // what is left can be read again
			again, err := Read(bytes.NewReader(file[:end]), end, func([]byte) error { return nil })
			require.NoError(t, err)
			require.Equal(t, end, again)
		}
	})
}

func TestCheckTail_findsFramesAcrossItsBuffer(t *testing.T) {
	const buffer = 64 << 10
	gaps := []int{30, 200_000}
	for gap := buffer - headerSize - 2; gap <= buffer+1; gap++ { // all that are in the first buffer in part
		gaps = append(gaps, gap)
	}
	for _, gap := range gaps {
		file := append([]byte(fileMagic), bytes.Repeat([]byte{1}, gap)...)
		frame := appendRecord(make([]byte, headerSize), []byte("record"))
		sealFrame(frame, int64(len(file)))
		file = append(file, frame...)
		_, err := Read(bytes.NewReader(file), int64(len(file)), func([]byte) error { return nil })
		var corrupt *CorruptError
		require.ErrorAs(t, err, &corrupt, gap)
	}
}

func TestRead_recordsOfInvalidLengthAreDamage(t *testing.T) {
	frame := append(make([]byte, headerSize), 5, 'a') // states five bytes, has one
	sealFrame(frame, 8)
	file := append([]byte(fileMagic), frame...)
	end, err := Read(bytes.NewReader(file), int64(len(file)), func([]byte) error { return nil })
	require.NoError(t, err)
	require.EqualValues(t, len(fileMagic), end)
}
