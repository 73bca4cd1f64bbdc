//go:build unix

package bench

import (
	"syscall"
	"time"
)

// ProcessorTime returns the CPU time used by this process.
func ProcessorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return wallTime()
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
