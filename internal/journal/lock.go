package journal

import (
	"fmt"
	"os"
)

// openLocked opens or creates the file at path and locks it. The lock ends when the file is
// closed, or with the process.
func openLocked(path string) (*os.File, error) {
	for range 10 {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err := tryLock(f); err != nil {
			f.Close()
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if isAt(f, path) {
			return f, nil
		}
		f.Close() // Rewrite of another process has replaced it before it was locked
	}
	return nil, fmt.Errorf("%s: %w", path, ErrLocked) // another process replaces it again and again
}

// isAt reports whether path is the path of f.
func isAt(f interface{ Stat() (os.FileInfo, error) }, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	found, err := os.Stat(path)
	return err == nil && os.SameFile(open, found)
}
