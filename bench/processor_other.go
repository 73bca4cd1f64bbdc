//go:build !unix

package bench

import "time"

// processorTime is wall time where the system does not say it in the same way.
func processorTime() time.Duration { return wallTime() }
