// Package journal is an append-only log of records in one file, which survives the end of
// the process at any moment. The checkpoint of batch.Run and batch.Outbox use it.
//
// A file begins with fileMagic. Frames follow, each with the records that were written
// together:
//
//	offset  bytes  content
//	0       4      frameMagic
//	4       4      length of the payload
//	8       8      length of the file up to which it was on disk when the frame was written
//	16      4      CRC-32C of the payload
//	20      4      CRC-32C of the 20 bytes before
//	24             payload: for each record its length as a uvarint, and its bytes
//
// All integers are little-endian. The bytes after the last intact frame were never
// acknowledged, unless a later intact frame states that they were on disk: then Open
// returns a CorruptError. Otherwise Open removes them.
package journal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"sync"
)

// MaxRecord is the maximum length of a record in bytes.
const MaxRecord = 64 << 20

var (
	// ErrLocked means that the file is open already, in this process or in another one.
	ErrLocked = errors.New("the file is in use by another process, or open already")

	// ErrNotJournal means that a file exists and was not written by this package.
	ErrNotJournal = errors.New("the file is not a journal")

	// ErrTooLong means that a record is longer than MaxRecord, or that too many records wait
	// to be written.
	ErrTooLong = errors.New("journal: the record is too long")

	errRemoved = errors.New("journal: the file was removed or replaced while it was open")
	errClosed  = errors.New("journal: the log is closed")
)

// A CorruptError means that a part of the file that was on disk has changed. The file was
// not modified.
type CorruptError struct {
	// Offset is the position of the first damaged byte, or a position before it.
	Offset int64
}

// Error returns a message with the offset.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("the file is damaged at offset %d, and later records are intact", e.Offset)
}

// A file is what a Log needs of an *os.File. Tests replace it.
type file interface {
	io.WriterAt
	Stat() (os.FileInfo, error)
	Truncate(size int64) error
	Sync() error
	Close() error
}

// A Log appends records to a file. It is safe for concurrent use.
type Log struct {
	path string
	cut  int64 // bytes that Open has removed

	mu       sync.Mutex
	idle     sync.Cond // signaled when flushing becomes false; its L is mu
	pending  []*batch  // records that wait for the present write, in order; each with another reserve
	flushing bool      // a goroutine writes, or Rewrite or Close runs
	err      error     // why the Log cannot be used any longer; nil means that it can
	size     int64     // length of the intact file; changed only by the goroutine that set flushing

	// The goroutine that set flushing uses the fields below.
	file      file
	durable   int64 // length of the file that is on disk
	allocated int64 // length of the file with the zeros that follow its intact part
}

// A batch holds the records that one write appends.
type batch struct {
	frame    []byte // with space for the header
	reserve  int64  // bytes that must be allocated after the frame
	sync     bool   // a call waits for durable
	written  chan struct{}
	writeErr error // set before written is closed
	durable  chan struct{}
	syncErr  error // set before durable is closed
}

// Open opens or creates the file at path, calls apply with each record, in order, and
// removes an incomplete end. It locks the file until Close. If apply returns an error, Open returns it and does not modify the file. A record must not be retained after
// apply returns. A symbolic link and the file that it leads to are one file.
//
// The error wraps ErrLocked, ErrNotJournal or a *CorruptError, or is that of apply or of the
// file system.
func Open(path string, apply func(record []byte) error) (*Log, error) {
	path, err := resolve(path)
	if err != nil {
		return nil, err
	}
	f, err := openLocked(path)
	if err != nil {
		return nil, err
	}
	l := &Log{path: path, file: f}
	l.idle.L = &l.mu
	if err := l.open(f, apply); err != nil {
		f.Close()
		return nil, err
	}
	return l, nil
}

// ReadFile is ReadAround for the file at path, which may be open.
func ReadFile(path string, apply func(record []byte) error, damaged func(bytes int64)) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := ReadAround(f, info.Size(), apply, damaged); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// resolve returns the absolute path of the file, without symbolic links: Rewrite replaces the
// file at the same path later, even if the working directory was changed, and all names of the file
// must have one lock.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	target, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) {
		return path, nil
	}
	return target, err
}

// open calls apply for each record of f, which is locked, and repairs f.
func (l *Log) open(f *os.File, apply func([]byte) error) error {
	if err := os.Remove(l.tempPath()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err // a Rewrite was interrupted, and its file cannot be removed
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: %w", l.path, ErrNotJournal)
	}
	end, err := Read(f, info.Size(), apply)
	if err != nil {
		return fmt.Errorf("%s: %w", l.path, err)
	}
	content, err := contentEnd(f, end, info.Size())
	if err != nil {
		return err
	}
	l.cut = content - end
	if err := repair(f, end, info.Size()); err != nil {
		return err
	}
	l.size = max(end, int64(len(fileMagic)))
	l.durable, l.allocated = l.size, l.size
	return syncDir(filepath.Dir(l.path))
}

// repair removes what follows the intact part of f, writes the magic into a new file, and
// waits until the result is on disk.
func repair(f *os.File, end, size int64) error {
	if end < size {
		if err := f.Truncate(end); err != nil {
			return err
		}
	}
	if end == 0 {
		if _, err := f.WriteAt([]byte(fileMagic), 0); err != nil {
			return err
		}
	}
	return f.Sync()
}

// Append writes record and returns when the operating system has it, so that the end of the
// process does not lose it. After an error the record is not in the file, and a later Append
// may succeed.
func (l *Log) Append(record []byte) error {
	b, err := l.enqueue(record, false, 0)
	if err != nil {
		return err
	}
	<-b.written
	return b.writeErr
}

// AppendSync is like Append, and returns when the record is on disk, so that a power failure
// does not lose it. Concurrent calls share a write to disk. If the disk fails, all later
// calls return its error, because the state of the file is then unknown.
func (l *Log) AppendSync(record []byte) error {
	b, err := l.enqueue(record, true, 0)
	if err != nil {
		return err
	}
	<-b.durable
	return b.syncErr
}

// AppendWithReserve is like AppendSync if durable is set, or else like Append, and fails unless
// the file then has a reserve of so many bytes on the disk for later records of Append and AppendSync. These can
// be written if the disk is full, unless the file system stores a changed block elsewhere. The
// reserve consists of zeros after the last record, which Close and Open remove.
func (l *Log) AppendWithReserve(record []byte, durable bool, reserve int64) error {
	b, err := l.enqueue(record, durable, reserve)
	if err != nil {
		return err
	}
	if durable {
		<-b.durable
		return b.syncErr
	}
	<-b.written
	return b.writeErr
}

// enqueue adds record to the batch with a reserve, and starts to write unless a goroutine does
// already. Batches with different reserves are separate, because one of them may not fit.
func (l *Log) enqueue(record []byte, durable bool, reserve int64) (*batch, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	var b *batch
	for _, p := range l.pending {
		if p.reserve == reserve {
			b = p
		}
	}
	if b == nil {
		b = &batch{reserve: reserve, frame: make([]byte, headerSize, headerSize+len(record)+16), written: make(chan struct{}), durable: make(chan struct{})}
		l.pending = append(l.pending, b)
	}
	if len(record) > MaxRecord || len(b.frame)+len(record) > maxFrame {
		return nil, ErrTooLong
	}
	b.frame = appendRecord(b.frame, record)
	b.sync = b.sync || durable
	if !l.flushing {
		l.flushing = true
		go l.flush()
	}
	return b, nil
}

// flush writes batches until none is left. Its caller has set flushing.
func (l *Log) flush() {
	for b := l.takeBatch(); b != nil; b = l.takeBatch() {
		b.writeErr = l.write(b.frame, b.reserve)
		b.syncErr = b.writeErr
		close(b.written)
		if b.sync && b.syncErr == nil {
			b.syncErr = l.sync()
		}
		close(b.durable)
	}
}

// takeBatch returns the batch to write. If there is none it returns nil and ends flushing.
func (l *Log) takeBatch() *batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) == 0 {
		l.flushing = false
		l.idle.Broadcast()
		return nil
	}
	b := l.pending[0]
	l.pending = l.pending[1:]
	return b
}

// write appends a frame with a reserve after it. If it fails, the bytes that were written are
// removed, so that a full disk does no harm.
func (l *Log) write(frame []byte, reserve int64) error {
	if err := l.failure(); err != nil {
		return err
	}
	if end := l.size + int64(len(frame)) + reserve; end > l.allocated && (reserve > 0 || l.allocated > l.size) {
		if err := l.allocate(end); err != nil {
			return err
		}
	}
	sealFrame(frame, l.durable)
	if _, err := l.file.WriteAt(frame, l.size); err != nil {
		l.truncate(l.size)
		return err
	}
	l.allocated = max(l.allocated, l.size+int64(len(frame)))
	l.mu.Lock()
	l.size += int64(len(frame))
	l.mu.Unlock()
	return nil
}

// allocate writes zeros, which cannot be taken for a frame, up to end and further.
func (l *Log) allocate(end int64) error {
	zeros := make([]byte, (end-l.allocated+allocationSize-1)/allocationSize*allocationSize)
	if _, err := l.file.WriteAt(zeros, l.allocated); err != nil {
		l.truncate(l.allocated)
		return err
	}
	l.allocated += int64(len(zeros))
	return nil
}

// truncate removes what follows size, which may be a part of a frame.
func (l *Log) truncate(size int64) {
	if err := l.file.Truncate(size); err != nil {
		l.fail(err)
	}
	l.allocated = size
}

// sync waits until the file is on disk. The system may forget data that it failed to write,
// so an error is final, as is that of a file that cannot be found any more.
func (l *Log) sync() error {
	err := l.file.Sync()
	if err == nil && !isAt(l.file, l.path) {
		err = errRemoved
	}
	if err != nil {
		l.fail(err)
		return err
	}
	l.durable = l.size
	return nil
}

// Rewrite replaces the content of the file by records. Whenever the process ends, the file
// has either the old content or the new one. No other method may be called meanwhile. If
// Rewrite fails before the replacement, the Log continues with the old content.
func (l *Log) Rewrite(records iter.Seq[[]byte]) error {
	err := l.begin()
	if err == errClosed {
		return err
	}
	defer l.flush()
	if err != nil {
		return err
	}
	f, size, err := l.writeTemp(records)
	if err == nil {
		err = l.replace(f)
	}
	if err != nil {
		os.Remove(l.tempPath())
		return err
	}
	if err := syncDir(filepath.Dir(l.path)); err != nil {
		l.fail(err)
		return err
	}
	l.mu.Lock()
	l.size, l.durable, l.allocated = size, size, size
	l.mu.Unlock()
	return nil
}

// writeTemp writes records to a new file, which it locks, and waits until it is on disk.
func (l *Log) writeTemp(records iter.Seq[[]byte]) (f *os.File, size int64, err error) {
	f, err = os.OpenFile(l.tempPath(), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, 0, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if err := tryLock(f); err != nil {
		return nil, 0, err
	}
	w := frameWriter{w: bufio.NewWriterSize(f, bufferSize)}
	w.write([]byte(fileMagic))
	for r := range records {
		if len(r) > MaxRecord {
			return nil, 0, ErrTooLong
		}
		w.add(r)
	}
	if err := w.finish(); err != nil {
		return nil, 0, err
	}
	return f, w.size, f.Sync()
}

// replace puts f, which is at tempPath and locked, in the place of the file.
func (l *Log) replace(f *os.File) error {
	if !isAt(l.file, l.path) { // another process may use the one that is there now
		f.Close()
		l.fail(errRemoved)
		return errRemoved
	}
	if runtime.GOOS == "windows" {
		return l.replaceClosed(f)
	}
	if err := os.Rename(l.tempPath(), l.path); err != nil {
		f.Close()
		return err
	}
	_ = l.file.Close() // its content is not needed any longer
	l.file = f
	return nil
}

// replaceClosed is replace for Windows, which does not replace a file that is open. If another
// process opens it meanwhile, the Log cannot be used any longer.
func (l *Log) replaceClosed(f *os.File) error {
	err := errors.Join(f.Close(), l.file.Close())
	if err == nil {
		err = os.Rename(l.tempPath(), l.path)
	}
	again, openErr := openLocked(l.path)
	if openErr != nil {
		l.fail(openErr)
		return errors.Join(err, openErr)
	}
	l.file = again
	return err
}

// Cut returns the number of bytes that Open has removed from the end: of a record that was not
// acknowledged, or of the last one if it was damaged.
func (l *Log) Cut() int64 { return l.cut }

// Size returns the length of the file in bytes.
func (l *Log) Size() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// Close waits for the calls that write, waits until the file is on disk, and unlocks it.
// Later calls return an error.
func (l *Log) Close() error {
	err := l.begin()
	if err == errClosed {
		return nil
	}
	if err == nil {
		if l.allocated > l.size {
			l.truncate(l.size)
		}
		err = l.sync()
	}
	l.fail(errClosed)
	if closeErr := l.file.Close(); err == nil {
		err = closeErr
	}
	l.flush() // calls that were made meanwhile fail
	return err
}

// begin waits until no goroutine writes, and sets flushing. The caller must call flush. It
// returns the error of a Log that cannot be used; flushing is then set unless the error is
// errClosed.
func (l *Log) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.flushing {
		l.idle.Wait()
	}
	if l.err == errClosed {
		return l.err
	}
	l.flushing = true
	return l.err
}

// fail makes all later calls return err. The first error stays, unless the Log is closed.
func (l *Log) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil || err == errClosed {
		l.err = err
	}
}

// failure returns why the Log cannot be used, or nil.
func (l *Log) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *Log) tempPath() string { return l.path + ".tmp" }
