package throttleredis

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"
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
