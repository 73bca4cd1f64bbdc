package throttle

import (
	"context"
	"time"
)

// ReserveAhead is l.Reserve for a caller that accepts a Decision.Wait of up to maxWait. The units
// are taken now, and the work may start Decision.Wait after Decision.At. Zero or a negative
// maxWait means that the work must be able to start now, Forever that any wait is acceptable. A
// rejection states in Decision.Wait when an equal claim with the same maxWait will be granted. If
// l does not have Traits.BooksAhead, ReserveAhead is l.Reserve.
//
// Book ahead only if this limit alone decides when the work starts. Where other conditions
// apply, such as another limit or a response with Retry-After, wait with a queue.Queue,
// which takes no units before the work may start.
func ReserveAhead(ctx context.Context, l Limiter, c Claim, maxWait time.Duration) (Decision, error) {
	if c.Ahead = 0; maxWait > 0 && l.Traits().BooksAhead {
		c.Ahead = maxWait
	}
	return l.Reserve(ctx, c)
}
