package bandwidth

import (
	"errors"
	"fmt"
	"time"

	"github.com/heed-go/heed/throttle"
)

// ErrNeverGranted is matched by the error of a body whose limiter states that it will never
// grant a single byte, as throttle.DenyAll does.
var ErrNeverGranted = errors.New("bandwidth: the limiter never grants a byte")

// PerSecond returns a Limit of n bytes per second. Its burst is what the rate restores in
// 50 ms, but at least 1 KiB, or n if that is less. A stream that begins can be that much
// ahead of the rate, and a timer that fires late by less than that costs no throughput.
//
// throttle.PerSecond has a burst of one second, which passes short bodies at full speed, as
// limit_rate_after of nginx does.
func PerSecond(n int64) throttle.Limit {
	return throttle.Limit{Count: n, Per: time.Second, Burst: max(n/20, min(n, 1<<10))}
}

const (
	// chunkTime is how long a limit takes to restore a chunk. Streams that share a limit
	// wait for each other's chunks, so it is also their latency.
	chunkTime = 5 * time.Millisecond

	maxChunk = 256 << 10 // bytes
	minChunk = 512       // bytes, for limits of 512 B/s to 100 kB/s; of others, what they restore within 1 s

	// maxChunkTime is how long a slow limit takes at most to restore a chunk.
	maxChunkTime = time.Second

	// firstChunk is the size of the first chunk if the limiter states nothing before the
	// first claim. A remote limiter is not asked before.
	firstChunk = 4 << 10
)

// chunkOf returns the size of the chunks for a limit that can grant burst bytes at one time
// and restores them within per, and the time in which it restores a chunk. Zero means that
// the limiter does not state it.
func chunkOf(burst int64, per time.Duration) (size int64, restored time.Duration) {
	size = maxChunk
	if burst <= 0 {
		return size, 0
	}
	if per > 0 {
		rate := float64(burst) / float64(per) // bytes per nanosecond; products with it can exceed an int64
		size = int64(min(maxChunk, max(rate*float64(chunkTime), min(rate*float64(maxChunkTime), minChunk))))
	}
	size = max(min(size, burst/2), 1) // the other half of the burst accumulates while a timer is late
	return size, time.Duration(float64(per) * float64(size) / float64(burst))
}

// neverGranted returns the error for a limiter that rejected a claim of one byte for good.
func neverGranted(rejected error) error { return fmt.Errorf("%w: %w", ErrNeverGranted, rejected) }
