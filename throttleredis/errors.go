package throttleredis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/throttle"
)

// ErrUncertain matches the error of a Reserve that may have taken its units: the connection
// was lost or the time ran out when the script had been sent. The units that
// it took are restored by time, or, for a Concurrency limiter, after MaxAge. A client that
// retries by itself may have taken the units once per attempt: set MaxRetries to -1 in its
// options to prevent this.
//
// A claim whose error does not match ErrUncertain has taken no units.
var ErrUncertain = errors.New("throttleredis: the units may have been taken")

// wrapError returns err as an error of this package. A context that ended while the call waited
// for a connection of the pool has not taken units: written is whether the script was written to a
// connection.
func wrapError(err error, written bool) error {
	var reply redis.Error
	var op *net.OpError
	switch {
	case errors.As(err, &reply):
		return fmt.Errorf("throttleredis: the server did not run the script: %w", err)
	case errors.As(err, &op) && op.Op == "dial", errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrClosed),
		!written && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)):
		return fmt.Errorf("throttleredis: no connection to the server: %w", err)
	}
	return fmt.Errorf("%w: %w", ErrUncertain, err)
}

// outOfMemoryWait is the Decision.Wait of a claim that was rejected because Redis has no memory.
const outOfMemoryWait = time.Second

// inFallback is the key of a context value that is set for calls of a Fallback.
type inFallback struct{}

// An outOfMemoryError is the error of a claim of a Fallback for which Redis had no memory. Other
// claims get its rejection.
type outOfMemoryError struct {
	rejection throttle.Decision
	err       error
}

func (e *outOfMemoryError) Error() string { return e.err.Error() }
func (e *outOfMemoryError) Unwrap() error { return e.err }

// afterError returns the result of a claim for which a script failed with err. If Redis is out of
// memory, the claim is rejected: clients can fill the memory with keys, and must not get past a
// limit in this way.
func (l *limit) afterError(ctx context.Context, c throttle.Claim, at time.Time, err error) (throttle.Decision, error) {
	var reply redis.Error
	if !errors.As(err, &reply) || !strings.Contains(reply.Error(), "OOM command not allowed") {
		return throttle.Decision{}, err
	}
	d := throttle.Decision{Degraded: true, Policy: l.policy, At: at, Wait: outOfMemoryWait, Limit: l.capacity, Per: l.per}
	l.boundQueue(&d, c)
	if ctx.Value(inFallback{}) != nil {
		return throttle.Decision{}, &outOfMemoryError{d, err}
	}
	return d, nil
}
