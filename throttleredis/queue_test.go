package throttleredis

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// A queue.Queue lets as many callers wait for a limit in Redis as for the same limit in memory:
// of nine callers at the same time one is served and three wait.
func TestLimiters_boundTheirQueue(t *testing.T) {
	hourly := throttle.Limit{Name: t.Name(), Count: 1, Per: time.Hour, Burst: 1}
	for name, l := range map[string]func(*Store) throttle.Limiter{
		"LeakyBucket": func(s *Store) throttle.Limiter {
			return s.LeakyBucket(throttle.LeakyBucketConfig{Limit: hourly, Queue: 3})
		},
		"Nginx": func(s *Store) throttle.Limiter {
			return s.Nginx(throttle.NginxConfig{Rate: 1, Per: time.Minute, Burst: 3})
		},
		"AllOf": func(s *Store) throttle.Limiter {
			return AllOf(s.TokenBucket(throttle.PerSecond(1000)), s.LeakyBucket(throttle.LeakyBucketConfig{Limit: hourly, Queue: 3}))
		},
		"Fallback": func(s *Store) throttle.Limiter {
			return &Fallback{Limiter: s.LeakyBucket(throttle.LeakyBucketConfig{Limit: hourly, Queue: 3}), Processes: 1}
		},
		"Fallback of a file": func(s *Store) throttle.Limiter { // as a program makes the limits of a rules file
			text := "domain: a\nlimits:\n  - name: n\n    rate_limit: {algorithm: leaky_bucket, unit: hour, requests_per_unit: 1, burst: 1, queue: 3}"
			set, err := rules.Parse([]byte(text), rules.Config{Build: func(l *rules.Limit) (throttle.Limiter, error) {
				limiter, err := s.Limiter(l.ID, l.Spec)
				return &Fallback{Limiter: limiter, Processes: 1}, err
			}})
			require.NoError(t, err)
			var ticket queue.Ticket
			require.NoError(t, set.Limits(httptest.NewRequest(http.MethodGet, "/", nil), &ticket))
			return ticket.Demands[0].Limiter
		},
	} {
		t.Run(name, func(t *testing.T) {
			limiter, q := l(newTestStore(t)), &queue.Queue{}
			ctx, cancel := context.WithCancel(t.Context())
			var callers sync.WaitGroup
			results := make(chan error, 9)
			for range 9 {
				callers.Go(func() {
					var ticket queue.Ticket
					ticket.Add(throttle.Demand{Limiter: limiter})
					results <- q.Wait(ctx, &ticket)
				})
			}
			served := 0
			for range 6 {
				err := <-results
				if err == nil {
					served++
					continue
				}
				require.ErrorIs(t, err, throttle.ErrRejected)
			}
			require.Equal(t, 1, served)
			cancel()
			callers.Wait()
			for range 3 {
				require.ErrorIs(t, <-results, context.Canceled)
			}
		})
	}
}

// A TickQueue in Redis grants callers that wait at its ticks, in a queue.Queue or in a loop.
func TestTickQueue_grantsCallersThatWait(t *testing.T) {
	var ticket queue.Ticket
	ticket.Add(throttle.Demand{Limiter: newTestStore(t).TickQueue(throttle.TickQueueConfig{Limit: throttle.PerSecond(100), Queue: 2})})
	require.NoError(t, new(queue.Queue).Wait(t.Context(), &ticket))

	clk := &manualClock{now: began.Add(time.Second)}
	s := newTestStore(t)
	s.useLocalClock, s.Clock = true, clk
	l := s.TickQueue(throttle.TickQueueConfig{Limit: throttle.Limit{Count: 1, Per: time.Minute}, Queue: 3})
	first := throttle.Claim{Key: "k", Waits: true, Waited: time.Second}
	d, err := l.Reserve(t.Context(), first)
	require.NoError(t, err)
	require.False(t, d.OK)
	require.Equal(t, time.Minute-time.Second, d.Wait)
	clk.now = began.Add(time.Minute)
	first.Waited += d.Wait
	d, err = l.Reserve(t.Context(), first)
	require.NoError(t, err)
	require.True(t, d.OK)
	require.Zero(t, d.Wait)
	second, err := l.Reserve(t.Context(), first)
	require.NoError(t, err)
	require.False(t, second.OK, "the tick is used")
	require.Equal(t, time.Minute, second.Wait)
	l.Report(t.Context(), first, d, throttle.Feedback{Now: first.Now, State: throttle.Unused})
	second, err = l.Reserve(t.Context(), first)
	require.NoError(t, err)
	require.False(t, second.OK, "a tick that has passed is not returned")
}

// What a TickQueue has granted is kept as long as it matters for callers that wait.
func TestTickQueue_keepsBookedTicks(t *testing.T) {
	s := newTestStore(t)
	l := s.TickQueue(throttle.TickQueueConfig{Limit: throttle.Limit{Count: 1, Per: time.Hour}, Queue: 2})
	d, err := l.Reserve(t.Context(), throttle.Claim{Key: "k", Waits: true, Waited: 2 * time.Hour})
	require.NoError(t, err)
	require.True(t, d.OK)
	ttl, err := client(t).PTTL(t.Context(), l.redisKey("k")).Result()
	require.NoError(t, err)
	require.Greater(t, ttl, time.Hour)
	require.LessOrEqual(t, ttl, 2*time.Hour+time.Second)
}
