package throttle

import (
	"context"
	"time"
)

// A Booker is a Limiter that can grant a claim for later: the units are taken now, and the
// work may start Decision.Wait after Decision.At. Reserve of a Booker grants only what may
// start now.
//
// Book ahead only if this limit alone decides when the work starts. Where other conditions
// apply, such as another limit or a response with Retry-After, wait with a queue.Queue,
// which takes no units before the work may start.
type Booker interface {
	// ReserveAhead is Reserve for a caller that accepts a Decision.Wait of up to maxWait. Zero
	// or a negative maxWait means that the claim must be granted now, Forever that any wait is
	// acceptable. A rejection states in Decision.Wait when an equal claim with the same
	// maxWait will be granted.
	ReserveAhead(ctx context.Context, c Claim, maxWait time.Duration) (Decision, error)
}

// ReserveAhead calls ReserveAhead of l if l is a Booker, and else Reserve.
func ReserveAhead(ctx context.Context, l Limiter, c Claim, maxWait time.Duration) (Decision, error) {
	if b, ok := l.(Booker); ok && maxWait > 0 {
		return b.ReserveAhead(ctx, c, maxWait)
	}
	return l.Reserve(ctx, c)
}
