package journal

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

var errDiskFull = errors.New("disk full")

// A smallDisk is a file that cannot become longer than size. What it has can be overwritten.
type smallDisk struct {
	file
	size int64
}

func (d *smallDisk) WriteAt(p []byte, off int64) (int, error) {
	if n := d.size - off; int64(len(p)) > n {
		n, err := d.file.WriteAt(p[:max(n, 0)], off)
		return n, errors.Join(errDiskFull, err)
	}
	return d.file.WriteAt(p, off)
}

// TestAppendWithReserve_theReserveRemainsOnAFullDisk fills disks of all sizes: whenever a record with a
// reserve was accepted, records that fit into the reserve are accepted, too, and all accepted ones are
// read, whether the process ends with Close or is killed.
func TestAppendWithReserve_theReserveRemainsOnAFullDisk(t *testing.T) {
	const reserve = 500
	last := make([]byte, reserve-headerSize-2)
	for size := int64(0); size < 60_000; size += 397 {
		dir := t.TempDir()
		l, _ := open(t, filepath.Join(dir, "log"))
		l.file = &smallDisk{l.file, size}
		n := 0
		for ; n < 1000; n++ {
			if err := l.AppendWithReserve(make([]byte, 100), n%10 == 0, reserve); err != nil {
				require.ErrorIs(t, err, errDiskFull)
				break
			}
		}
		require.Less(t, n, 1000)
		require.ErrorIs(t, l.Append(make([]byte, 1<<20)), errDiskFull, "it takes no reserve from the others")
		require.EqualValues(t, 8+n*(headerSize+101), l.Size())
		if n > 0 {
			require.NoError(t, l.Append(last), size)
			n++
		}
		killed := filepath.Join(dir, "killed")
		content, err := os.ReadFile(l.path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(killed, content, 0o600))
		end := l.Size()
		require.NoError(t, l.Close())
		for _, path := range []string{l.path, killed} {
			again, records := open(t, path)
			require.Len(t, records, n)
			require.NoError(t, again.Close())
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.Equal(t, end, info.Size(), "the reserve is removed")
		}
	}
}
