package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// open opens the journal at path and returns its records.
func open(t *testing.T, path string) (*Log, []string) {
	l, records, err := tryOpen(path)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l, records
}

func tryOpen(path string) (*Log, []string, error) {
	var records []string
	l, err := Open(path, func(r []byte) error {
		records = append(records, string(r))
		return nil
	})
	return l, records, err
}

// write creates a journal with records, each in a frame of its own, and returns the lengths
// of the file after each.
func write(t *testing.T, path string, records ...string) (ends []int64) {
	l, _ := open(t, path)
	for _, r := range records {
		require.NoError(t, l.AppendSync([]byte(r)))
		ends = append(ends, l.Size())
	}
	require.NoError(t, l.Close())
	return ends
}

func TestLog_returnsWhatWasAppended(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, records := open(t, path)
	require.Empty(t, records)
	require.NoError(t, l.Append([]byte("a")))
	require.NoError(t, l.AppendSync(nil))
	require.NoError(t, l.Append(make([]byte, 100_000)))
	require.NoError(t, l.Close())
	require.Error(t, l.Append([]byte("b")))
	require.NoError(t, l.Close())

	l, records = open(t, path)
	require.Equal(t, []string{"a", "", string(make([]byte, 100_000))}, records)
	require.NoError(t, l.Append([]byte("c")))
	require.NoError(t, l.Close())
	_, records = open(t, path)
	require.Equal(t, "c", records[3])
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestLog_truncatedAnywhereKeepsCompleteRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	ends := write(t, path, "first", "second", "third")
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for n := range len(whole) + 1 {
		require.NoError(t, os.WriteFile(path, whole[:n], 0o600))
		complete := 0
		for _, end := range ends {
			if end <= int64(n) {
				complete++
			}
		}
		l, records, err := tryOpen(path)
		require.NoError(t, err, n)
		require.Equal(t, []string{"first", "second", "third"}[:complete], append([]string{}, records...), n)
		require.NoError(t, l.AppendSync([]byte("later")))
		require.NoError(t, l.Close())
		l, records, err = tryOpen(path)
		require.NoError(t, err, n)
		require.Len(t, records, complete+1)
		require.Equal(t, "later", records[complete])
		require.NoError(t, l.Close())
	}
}

func TestLog_damageBeforeRecordsOnDiskIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	ends := write(t, path, "first", "second", "third")
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for i := range whole {
		damaged := slices.Clone(whole)
		damaged[i] ^= 1 << (i % 8)
		require.NoError(t, os.WriteFile(path, damaged, 0o600))
		l, records, err := tryOpen(path)
		switch {
		case i < len(fileMagic):
			require.ErrorIs(t, err, ErrNotJournal)
		case int64(i) < ends[1]:
			var corrupt *CorruptError
			require.ErrorAs(t, err, &corrupt, i)
			require.LessOrEqual(t, corrupt.Offset, int64(i))
		default: // the last record: nothing proves that it was on disk
			require.NoError(t, err)
			require.Equal(t, []string{"first", "second"}, records)
			require.NoError(t, l.Close())
			continue
		}
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, damaged, after, "the file was modified")
	}
}

func TestLog_unsyncedRecordsMayBeStoredInAnyOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, _ := open(t, path)
	require.NoError(t, l.AppendSync([]byte("synced")))
	end := l.Size()
	require.NoError(t, l.Append([]byte("lost")))
	require.NoError(t, l.Append([]byte("stored")))
	l.file.Close() // as if the power had failed
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	clear(content[end : end+headerSize])
	require.NoError(t, os.WriteFile(path, content, 0o600))
	_, records := open(t, path)
	require.Equal(t, []string{"synced"}, records)
}

func TestLog_foreignFilesAreNotModified(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for _, content := range []string{"x", "some text that is not a journal", "heedlog\x02"} {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		_, _, err := tryOpen(path)
		require.ErrorIs(t, err, ErrNotJournal)
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, content, string(after))
	}
	_, _, err := tryOpen(t.TempDir())
	require.Error(t, err)
}

func TestLog_isLockedWhileItIsOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, _ := open(t, path)
	_, _, err := tryOpen(path)
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, l.Rewrite(slices.Values([][]byte{})))
	_, _, err = tryOpen(path)
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, l.Close())
	open(t, path)
}

// TestLog_noOtherFileUnlocksIt removes what is beside the file, as an operator may do with a lock
// file that seems to be left over.
func TestLog_noOtherFileUnlocksIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, _ := open(t, path)
	for range 2 {
		entries, err := os.ReadDir(filepath.Dir(path))
		require.NoError(t, err)
		require.Len(t, entries, 1, "there is only the file itself")
		_ = os.Remove(path + ".lock")
		_, _, err = tryOpen(path)
		require.ErrorIs(t, err, ErrLocked)
		require.NoError(t, l.Rewrite(slices.Values([][]byte{})))
	}
	if link := path + ".link"; os.Link(path, link) == nil {
		_, _, err := tryOpen(link)
		require.ErrorIs(t, err, ErrLocked, "it has one lock by all its names")
	}
}

// TestLog_aFileThatWasRemoved checks that no record is acknowledged that cannot be found later.
func TestLog_aFileThatWasRemoved(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file cannot be removed")
	}
	path := filepath.Join(t.TempDir(), "log")
	l, _ := open(t, path)
	require.NoError(t, os.Remove(path))
	require.ErrorIs(t, l.AppendSync([]byte("a")), errRemoved)
	other, records := open(t, path)
	require.Empty(t, records)
	require.NoError(t, other.AppendSync([]byte("b")))
	require.ErrorIs(t, l.Append([]byte("c")), errRemoved)
	require.ErrorIs(t, l.Rewrite(slices.Values([][]byte{})), errRemoved)
	require.ErrorIs(t, l.Close(), errRemoved)
	require.NoError(t, other.Close())
	_, records = open(t, path)
	require.Equal(t, []string{"b"}, records)
}

// A file has one lock and one content, whatever its name.
func TestOpen_followsSymbolicLinks(t *testing.T) {
	path, link := filepath.Join(t.TempDir(), "log"), filepath.Join(t.TempDir(), "link")
	write(t, path, "first")
	if err := os.Symlink(path, link); err != nil {
		t.Skip(err)
	}
	l, _ := open(t, link)
	_, _, err := tryOpen(path)
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, l.Rewrite(slices.Values([][]byte{[]byte("second")})))
	require.NoError(t, l.Close())
	_, records := open(t, path)
	require.Equal(t, []string{"second"}, records)
}

// The file is where it was opened, also if the process changes its working directory.
func TestRewrite_afterAChangeOfTheWorkingDirectory(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	l, _ := open(t, "log")
	require.NoError(t, l.AppendSync([]byte("first")))
	t.Chdir(t.TempDir())
	require.NoError(t, l.Rewrite(slices.Values([][]byte{[]byte("second")})))
	require.NoError(t, l.Close())
	require.NoFileExists(t, "log")
	_, records := open(t, filepath.Join(dir, "log"))
	require.Equal(t, []string{"second"}, records)
}

func TestOpen_anErrorOfApplyModifiesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	write(t, path, "first")
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	content = append(content, "torn"...)
	require.NoError(t, os.WriteFile(path, content, 0o600))
	fault := errors.New("fault")
	_, err = Open(path, func([]byte) error { return fault })
	require.ErrorIs(t, err, fault)
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, content, after)
	open(t, path) // it is not locked
}

// A faultyFile fails as its fields state.
type faultyFile struct {
	file
	writeErr, truncateErr, syncErr error
	syncs                          atomic.Int64
	syncing                        chan struct{} // each Sync receives from it twice, when it begins and before it ends; nil means none
}

func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	if f.writeErr != nil {
		n, _ := f.file.WriteAt(p[:len(p)/2], off)
		return n, f.writeErr
	}
	return f.file.WriteAt(p, off)
}

func (f *faultyFile) Truncate(size int64) error {
	if f.truncateErr != nil {
		return f.truncateErr
	}
	return f.file.Truncate(size)
}

func (f *faultyFile) Sync() error {
	f.syncs.Add(1)
	if f.syncing != nil {
		<-f.syncing
		<-f.syncing
	}
	if f.syncErr != nil {
		return f.syncErr
	}
	return f.file.Sync()
}

func TestLog_continuesAfterAFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, _ := open(t, path)
	f := &faultyFile{file: l.file}
	l.file = f
	require.NoError(t, l.Append([]byte("before")))
	size := l.Size()
	f.writeErr = syscall.ENOSPC
	require.ErrorIs(t, l.Append([]byte("rejected")), syscall.ENOSPC)
	require.ErrorIs(t, l.AppendSync([]byte("rejected")), syscall.ENOSPC)
	require.Equal(t, size, l.Size())
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, size, info.Size())
	f.writeErr = nil
	require.NoError(t, l.AppendSync([]byte("after")))
	require.NoError(t, l.Close())
	_, records := open(t, path)
	require.Equal(t, []string{"before", "after"}, records)
}

func TestLog_failsForGoodIfItsStateIsUnknown(t *testing.T) {
	for name, f := range map[string]*faultyFile{
		"sync":     {syncErr: syscall.EIO},
		"truncate": {writeErr: syscall.ENOSPC, truncateErr: syscall.EIO},
	} {
		l, _ := open(t, filepath.Join(t.TempDir(), "log"))
		f.file, l.file = l.file, f
		require.Error(t, l.AppendSync([]byte("a")), name)
		f.syncErr, f.writeErr, f.truncateErr = nil, nil, nil
		require.ErrorIs(t, l.Append([]byte("b")), syscall.EIO, name)
		require.ErrorIs(t, l.Rewrite(slices.Values([][]byte{})), syscall.EIO, name)
		require.ErrorIs(t, l.Close(), syscall.EIO, name)
	}
}

// TestLog_callsShareASync blocks the first Sync until all other records wait for the next.
func TestLog_callsShareASync(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, _ := open(t, path)
	f := &faultyFile{file: l.file, syncing: make(chan struct{})}
	l.file = f
	var calls sync.WaitGroup
	results := make(chan error, 101)
	appendSync := func(r string) { calls.Go(func() { results <- l.AppendSync([]byte(r)) }) }
	appendSync("first")
	f.syncing <- struct{}{} // the Sync has begun
	for i := range 100 {
		b, err := l.enqueue(fmt.Append(nil, i), i < 99, 0) // one that need not be synced does not change the others
		require.NoError(t, err)
		calls.Go(func() {
			<-b.durable
			results <- b.syncErr
		})
	}
	close(f.syncing)
	calls.Wait()
	for range 101 {
		require.NoError(t, <-results)
	}
	require.EqualValues(t, 2, f.syncs.Load())
	require.NoError(t, l.Close())
	_, records := open(t, path)
	require.Len(t, records, 101)
}

func TestRewrite_replacesTheContent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, _ := open(t, path)
	for range 1000 {
		require.NoError(t, l.Append(make([]byte, 100)))
	}
	size := l.Size()
	var kept [][]byte
	for i := range 2000 {
		kept = append(kept, fmt.Append(nil, "kept ", i))
	}
	require.NoError(t, l.Rewrite(slices.Values(kept)))
	require.Less(t, l.Size(), size)
	require.NoError(t, l.AppendSync([]byte("later")))
	require.NoError(t, l.Close())
	_, records := open(t, path)
	require.Len(t, records, 2001)
	require.Equal(t, "kept 0", records[0])
	require.Equal(t, "later", records[2000])
}

// A frame of a file that was rewritten proves that those before it were on disk.
func TestRewrite_damageInTheMiddleIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, _ := open(t, path)
	require.NoError(t, l.Rewrite(slices.Values([][]byte{make([]byte, 70_000), make([]byte, 70_000)})))
	require.NoError(t, l.Close())
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	content[1000] ^= 1
	require.NoError(t, os.WriteFile(path, content, 0o600))
	_, _, err = tryOpen(path)
	var corrupt *CorruptError
	require.ErrorAs(t, err, &corrupt)
	require.EqualValues(t, len(fileMagic), corrupt.Offset)
}

func TestRewrite_keepsTheOldContentIfItFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, _ := open(t, path)
	require.NoError(t, l.Append([]byte("old")))
	require.NoError(t, os.Mkdir(path+".tmp", 0o700)) // the new file cannot be created
	require.Error(t, l.Rewrite(slices.Values([][]byte{[]byte("new")})))
	require.NoError(t, os.RemoveAll(path+".tmp"))
	require.ErrorIs(t, l.Rewrite(slices.Values([][]byte{make([]byte, MaxRecord+1)})), ErrTooLong)
	require.NoError(t, l.AppendSync([]byte("later")))
	require.NoError(t, l.Close())
	_, records := open(t, path)
	require.Equal(t, []string{"old", "later"}, records)
}

func TestOpen_removesTheFileOfAnInterruptedRewrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	write(t, path, "old")
	require.NoError(t, os.WriteFile(path+".tmp", []byte(fileMagic+"half"), 0o600))
	_, records := open(t, path)
	require.Equal(t, []string{"old"}, records)
	require.NoFileExists(t, path+".tmp")
}

// Whatever copies of the file a crash leaves while it is rewritten, one is complete.
func TestRewrite_eachStateOnDiskIsComplete(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, _ := open(t, path)
	require.NoError(t, l.AppendSync([]byte("old")))
	state := func() []string { // what another process would read now
		copied := filepath.Join(t.TempDir(), "copy")
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(copied, content, 0o600))
		_, records := open(t, copied)
		return records
	}
	require.NoError(t, l.Rewrite(func(yield func([]byte) bool) {
		for i := range 10_000 {
			if i%1000 == 0 {
				require.Equal(t, []string{"old"}, state())
			}
			yield(make([]byte, 100))
		}
	}))
	require.Len(t, state(), 10_000)
}

func TestAppend_rejectsLongRecords(t *testing.T) {
	l, _ := open(t, filepath.Join(t.TempDir(), "log"))
	require.ErrorIs(t, l.Append(make([]byte, MaxRecord+1)), ErrTooLong)
	require.NoError(t, l.Append([]byte("a")))
}
