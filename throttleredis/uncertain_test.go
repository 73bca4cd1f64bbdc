package throttleredis

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A claim whose context ends while it waits for a connection of the pool has taken no units.
func TestLimiter_aWaitForAConnectionIsCertain(t *testing.T) {
	o := *client(t).Options()
	o.PoolSize, o.MaxRetries, o.PoolTimeout = 1, -1, time.Minute
	c := redis.NewClient(&o)
	defer c.Close()
	s := newTestStore(t)
	s.Client = c
	l := s.TokenBucket(throttle.PerHour(10))
	held := c.Conn()
	require.NoError(t, held.Ping(t.Context()).Err())
	for _, end := range []func(context.Context) (context.Context, context.CancelFunc){
		func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 10*time.Millisecond)
		},
		func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(10*time.Millisecond, cancel)
			return ctx, cancel
		},
	} {
		ctx, cancel := end(t.Context())
		_, err := l.Reserve(ctx, throttle.Claim{})
		cancel()
		require.Error(t, err)
		require.NotErrorIs(t, err, ErrUncertain)
	}
	require.NoError(t, held.Close())
	require.EqualValues(t, 9, take(t, l, "").Remaining)
}
