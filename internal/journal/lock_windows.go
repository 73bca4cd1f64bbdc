package journal

import (
	"errors"
	"os"
	"syscall"
	"unsafe"
)

var procLockFileEx = syscall.NewLazyDLL("kernel32.dll").NewProc("LockFileEx")

const (
	lockfileFailImmediately = 1
	lockfileExclusiveLock   = 2
	errorLockViolation      = syscall.Errno(33)
)

// tryLock locks f for this process, or returns ErrLocked. The system unlocks it when f is
// closed or the process ends.
func tryLock(f *os.File) error {
	overlapped := syscall.Overlapped{OffsetHigh: 1 << 30} // beyond the end, so that the file can be read
	ok, _, err := procLockFileEx.Call(f.Fd(), lockfileExclusiveLock|lockfileFailImmediately, 0, 1, 0, uintptr(unsafe.Pointer(&overlapped)))
	switch {
	case ok != 0:
		return nil
	case errors.Is(err, errorLockViolation), errors.Is(err, syscall.ERROR_IO_PENDING):
		return ErrLocked
	}
	return err
}
