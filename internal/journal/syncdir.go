//go:build !windows

package journal

import "os"

// syncDir waits until the names of the files in dir are on disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
