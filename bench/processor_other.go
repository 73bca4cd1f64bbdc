//go:build !unix

package bench

import "time"

// ProcessorTime is wall time where the system does not say it in the same way.
func ProcessorTime() time.Duration { return wallTime() }
