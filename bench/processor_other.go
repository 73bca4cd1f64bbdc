//go:build !unix

package bench

import "time"

// ProcessorTime returns the wall time, because the system does not provide CPU time as Unix
// does.
func ProcessorTime() time.Duration { return wallTime() }
