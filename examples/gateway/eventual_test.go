package main

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
	"github.com/heed-go/heed/throttleredis"
)

// Limits of a rules file may be those of a Store in Mode Eventual. Redis is down, so each of
// two gateways grants half of the limit.
func TestRules_withLimitsInModeEventual(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true, MaxRetries: -1})
	t.Cleanup(func() { client.Close() })
	store := &throttleredis.Store{Client: client, Mode: throttleredis.Eventual, Eventual: throttleredis.EventualOptions{MinHosts: 2}}
	t.Cleanup(func() { require.NoError(t, store.Close(context.Background())) })
	set, err := rules.Parse([]byte("domain: api\ndescriptors:\n- key: user\n  rate_limit: {unit: hour, requests_per_unit: 10, algorithm: token_bucket}\n"), rules.Config{
		Build: func(l *rules.Limit) (throttle.Limiter, error) { return redisLimit(store, l) },
	})
	require.NoError(t, err)
	granted := 0
	for range 10 {
		var ticket queue.Ticket
		set.Add(&ticket, rules.Descriptor{{Key: "user", Value: "ann"}})
		d, err := ticket.Reserve(t.Context(), time.Now())
		require.NoError(t, err)
		if d.OK {
			granted++
		}
	}
	require.Equal(t, 5, granted)
}
