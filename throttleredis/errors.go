package throttleredis

import (
	"errors"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"
)

// ErrUncertain matches the error of a Reserve that may have taken its units all the same:
// the connection was lost, or time was up, when the script may have been sent already. What
// it took comes back as time gives it back, or, from an Concurrency, after MaxAge. A client
// that sends again by itself may have taken them once for each time: let MaxRetries be -1
// in its options where that is too much.
//
// An error that does not match it has taken nothing.
var ErrUncertain = errors.New("throttleredis: the units may have been taken")

// wrapError returns err as an error of ours.
func wrapError(err error) error {
	var reply redis.Error
	var op *net.OpError
	switch {
	case errors.As(err, &reply):
		return fmt.Errorf("throttleredis: the server did not run the script: %w", err)
	case errors.As(err, &op) && op.Op == "dial", errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("throttleredis: no connection to the server: %w", err)
	}
	return fmt.Errorf("%w: %w", ErrUncertain, err)
}
