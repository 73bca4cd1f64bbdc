package journal

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLog_formatStaysAsItIs checks the bytes of a file, because later versions must read it.
func TestLog_formatStaysAsItIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	write(t, path, "a", "bc")
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "686565646c6f6701"+ // heedlog, 1
		"f76864fe"+"02000000"+"0800000000000000"+"c4ff6e71"+"26fbb9b3"+"0161"+ // on disk up to 8; a
		"f76864fe"+"03000000"+"2200000000000000"+"098444fa"+"7c2f1b6c"+"026263", // up to 34; bc
		hex.EncodeToString(content))
}

var errFault = errors.New("fault")

// A failingReader fails for all bytes from an offset on.
type failingReader struct {
	content string
	from    int64
}

func (r failingReader) ReadAt(p []byte, off int64) (int, error) {
	n, err := strings.NewReader(r.content).ReadAt(p, off)
	if off+int64(n) > r.from {
		return int(max(r.from-off, 0)), errFault
	}
	return n, err
}

// TestRead_returnsErrorsOfTheReader checks that a part that cannot be read is not taken for one
// that is not there, both in an intact file and in one that is damaged at the start.
func TestRead_returnsErrorsOfTheReader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	ends := write(t, path, "first", "second", strings.Repeat("third", 1000))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	size := int64(len(content))
	for from := range size {
		end, err := Read(failingReader{string(content), from}, size, func([]byte) error { return nil })
		require.ErrorIs(t, err, errFault, from)
		require.LessOrEqual(t, end, from)
		require.True(t, end == 0 || end == int64(len(fileMagic)) || slices.Contains(ends, end), end)
	}
	content[len(fileMagic)+5] ^= 1 // the length of the first frame
	for _, from := range []int64{size - 1, ends[1] + 30, ends[1] + 1} {
		_, err = Read(failingReader{string(content), from}, size, func([]byte) error { return nil })
		require.Error(t, err, from)
	}
	_, err = Read(failingReader{string(content), size}, size, func([]byte) error { return nil })
	var corrupt *CorruptError
	require.ErrorAs(t, err, &corrupt)
	require.EqualValues(t, len(fileMagic), corrupt.Offset)
	require.Equal(t, "the file is damaged at offset 8, and later records are intact", err.Error())
}

// TestReadFrame_boundaries checks frames that end with the file, and those that do not.
func TestReadFrame_boundaries(t *testing.T) {
	frame := func(records ...string) []byte {
		f := make([]byte, headerSize)
		for _, r := range records {
			f = appendRecord(f, []byte(r))
		}
		sealFrame(f, 77)
		return f
	}
	for _, tt := range []struct {
		frame   []byte
		missing int64 // bytes
		ok      bool
	}{
		{frame(), 0, true},
		{frame(), 1, false},
		{frame(""), 0, true},
		{frame("a", "bc"), 0, true},
		{frame("a", "bc"), 1, false},
		{frame("a", "bc"), 5, false},
	} {
		size := int64(len(tt.frame)) - tt.missing
		h, payload, err := readFrame(bytes.NewReader(tt.frame), size)
		if !tt.ok {
			require.ErrorIs(t, err, errInvalid)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, tt.frame[headerSize:], append([]byte{}, payload...))
		require.Equal(t, header{length: size - headerSize, durable: 77, crc: h.crc}, h)
	}
	for payload, want := range map[string]bool{"": true, "\x00": true, "\x01a": true, "\x01": false, "\x02a": false, "\x01a\x01b": true, "\x01a\x80": false, "\x80\x00": true} {
		require.Equal(t, want, hasRecords([]byte(payload)), "%q", payload)
	}
}

// TestFrameWriter_framesAreAbout64KiB checks where frames end, and that each states the length
// of the file before it.
func TestFrameWriter_framesAreAbout64KiB(t *testing.T) {
	const frame = 64 << 10
	for _, tt := range []struct {
		records []int   // lengths
		frames  []int64 // lengths with header
	}{
		{nil, nil},
		{[]int{0}, []int64{headerSize + 1}},
		{[]int{frame - headerSize - 4}, []int64{frame - 1}},
		{[]int{frame - headerSize - 4, 5}, []int64{frame - 1 + 6}},
		{[]int{frame - headerSize - 3, 5}, []int64{frame, headerSize + 6}},
		{[]int{3 * frame, 5, 6}, []int64{headerSize + 3 + 3*frame, headerSize + 6 + 7}},
	} {
		var out bytes.Buffer
		w := frameWriter{w: bufio.NewWriter(&out)}
		for _, n := range tt.records {
			w.add(make([]byte, n))
		}
		require.NoError(t, w.finish())
		require.EqualValues(t, out.Len(), w.size)
		var frames []int64
		for at := int64(0); out.Len() > 0; {
			h, _, err := readFrame(&out, int64(out.Len()))
			require.NoError(t, err)
			require.Equal(t, at, h.durable)
			frames = append(frames, headerSize+h.length)
			at += headerSize + h.length
		}
		require.Equal(t, tt.frames, frames)
	}
	w := frameWriter{w: bufio.NewWriter(failingWriter{})}
	w.add(make([]byte, 100_000))
	w.add(make([]byte, 10))
	require.ErrorIs(t, w.finish(), errFault)
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errFault }

// TestOpen_failures checks paths that cannot be opened, and that they are not locked afterwards.
func TestOpen_failures(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "folder")
	require.NoError(t, os.Mkdir(folder, 0o700))
	_, _, err := tryOpen(folder)
	require.Error(t, err)
	_, _, err = tryOpen(filepath.Join(dir, "no", "log"))
	require.ErrorIs(t, err, os.ErrNotExist)

	path := filepath.Join(dir, "log")
	require.NoError(t, os.MkdirAll(filepath.Join(path+".tmp", "not empty"), 0o700))
	for range 2 {
		_, _, err = tryOpen(path)
		require.Error(t, err)
		require.NotErrorIs(t, err, ErrLocked)
	}
	require.NoError(t, os.RemoveAll(path+".tmp"))
	l, records := open(t, path)
	require.Empty(t, records)
	require.EqualValues(t, len(fileMagic), l.Size())
	require.NoError(t, l.Append([]byte("a")))
	require.EqualValues(t, len(fileMagic)+headerSize+2, l.Size())
}

// A closingFile fails to close.
type closingFile struct{ file }

func (f closingFile) Close() error {
	f.file.Close()
	return errFault
}

func TestRewrite_failures(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, _ := open(t, path)
	require.NoError(t, l.Append([]byte("a")))
	require.ErrorIs(t, l.Rewrite(slices.Values([][]byte{make([]byte, MaxRecord+1)})), ErrTooLong)
	require.NoFileExists(t, l.tempPath())
	require.NoError(t, l.Append([]byte("b")), "it continues with the old content")

	require.NoError(t, os.MkdirAll(filepath.Join(l.tempPath(), "not empty"), 0o700))
	require.Error(t, l.Rewrite(slices.Values([][]byte{[]byte("c")})))
	require.NoError(t, os.RemoveAll(l.tempPath()))
	require.NoError(t, l.Append([]byte("d")))

	l.file = closingFile{l.file} // the file that is replaced while it is open: nothing of it is needed
	require.NoError(t, l.Rewrite(slices.Values([][]byte{[]byte("e")})))
	require.NoError(t, l.Append([]byte("f")))
	require.NoError(t, l.Close())
	require.NoError(t, l.Close())
	require.ErrorIs(t, l.Rewrite(slices.Values([][]byte{[]byte("h")})), errClosed)
	_, records := open(t, path)
	require.Equal(t, []string{"e", "f"}, records)
}

// TestRewrite_failsForGoodIfTheFileIsGone puts a directory in the place of the file, so that it
// cannot be opened again.
func TestRewrite_failsForGoodIfTheFileIsGone(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file cannot be removed")
	}
	path := filepath.Join(t.TempDir(), "log")
	l, _ := open(t, path)
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.MkdirAll(filepath.Join(path, "not empty"), 0o700))
	err := l.Rewrite(slices.Values([][]byte{[]byte("a")}))
	require.Error(t, err)
	require.ErrorIs(t, l.Append([]byte("b")), err)
	require.ErrorIs(t, l.AppendSync([]byte("c")), err)
}

// TestLog_framesStateWhatIsOnDisk checks the length in the header of each frame: it is what the
// file was when it was opened, last rewritten, or last synced.
func TestLog_framesStateWhatIsOnDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	var want []int64
	add := func(appendTo func([]byte) error, onDisk int64) {
		want = append(want, onDisk)
		require.NoError(t, appendTo([]byte("record")))
	}
	l, _ := open(t, path)
	opened := l.Size()
	add(l.Append, opened)
	add(l.Append, opened)
	add(l.AppendSync, opened)
	synced := l.Size()
	add(l.Append, synced)
	require.NoError(t, l.Close())
	l, _ = open(t, path)
	opened = l.Size()
	add(l.Append, opened)
	add(l.Append, opened)
	require.Equal(t, want, durables(t, path))

	want = []int64{int64(len(fileMagic))} // of the frame of Rewrite
	require.NoError(t, l.Rewrite(slices.Values([][]byte{[]byte("a"), []byte("b")})))
	rewritten := l.Size()
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, info.Size(), rewritten)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	add(l.Append, rewritten)
	require.Equal(t, want, durables(t, path))
}

// durables returns the length in the header of each frame.
func durables(t *testing.T, path string) (all []int64) {
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	for content = content[len(fileMagic):]; len(content) > 0; {
		h, payload, err := readFrame(bytes.NewReader(content), int64(len(content)))
		require.NoError(t, err)
		all = append(all, h.durable)
		content = content[headerSize+len(payload):]
	}
	return all
}

// TestLog_whenItSyncs checks that Append does not wait for the disk, and that AppendSync and
// Close do.
func TestLog_whenItSyncs(t *testing.T) {
	l, _ := open(t, filepath.Join(t.TempDir(), "log"))
	f := &faultyFile{file: l.file}
	l.file = f
	require.NoError(t, l.Append([]byte("a")))
	require.EqualValues(t, 0, f.syncs.Load())
	require.NoError(t, l.AppendSync([]byte("b")))
	require.EqualValues(t, 1, f.syncs.Load())
	require.NoError(t, l.Append([]byte("c")))
	require.NoError(t, l.Close())
	require.EqualValues(t, 2, f.syncs.Load())

	l, _ = open(t, filepath.Join(t.TempDir(), "log"))
	l.file = &faultyFile{file: l.file, syncErr: errFault}
	require.ErrorIs(t, l.Close(), errFault)
}

// TestLog_longestRecord checks records of 64 MiB, and of one byte more.
func TestLog_longestRecord(t *testing.T) {
	if testing.Short() {
		t.Skip("only make test-long runs it")
	}
	path := filepath.Join(t.TempDir(), "log")
	l, _ := open(t, path)
	record := make([]byte, 64<<20+1)
	require.ErrorIs(t, l.Append(record), ErrTooLong)
	require.ErrorIs(t, l.Rewrite(slices.Values([][]byte{record})), ErrTooLong)
	require.NoError(t, l.Append(record[1:]))
	require.NoError(t, l.Rewrite(slices.Values([][]byte{record[1:]})))
	require.NoError(t, l.Close())
	_, records := open(t, path)
	require.Len(t, records, 1)
	require.Len(t, records[0], 64<<20)
}

func TestRead_ofOtherFiles(t *testing.T) {
	for content, want := range map[string]error{"": nil, "heedlog": nil, "heedlog\x02": ErrNotJournal, "x": ErrNotJournal, "another file": ErrNotJournal} {
		end, err := Read(strings.NewReader(content), int64(len(content)), nil)
		require.Equal(t, want, err, "%q", content)
		require.Zero(t, end)
	}
}

func TestClose_returnsTheErrorOfTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, _ := open(t, path)
	l.file = closingFile{l.file}
	require.ErrorIs(t, l.Close(), errFault)
	open(t, path) // it is not locked
}
