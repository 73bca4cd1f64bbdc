package journal

import (
	"fmt"
	"os"
)

// lockFile opens and locks the file at path. The lock ends when the file is closed, or with
// the process. The file stays: removing it could let two processes lock different files.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := tryLock(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}
