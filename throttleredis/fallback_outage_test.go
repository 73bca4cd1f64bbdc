package throttleredis_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis"
	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

// A claimLoad is a number of goroutines that repeatedly make claims on one Fallback.
type claimLoad struct {
	fallback *throttleredis.Fallback
	breaker  throttleredis.Breaker

	opened, closed    atomic.Int64
	byRedis, degraded atomic.Int64 // numbers of decisions
	errors            atomic.Int64

	stop context.CancelFunc
	wg   sync.WaitGroup
}

// startLoad runs 16 goroutines on a limit stored by client, until end is called.
func startLoad(t *testing.T, client redis.Scripter) *claimLoad {
	l := new(claimLoad)
	l.breaker.Trace = &throttleredis.BreakerTrace{
		Opened: func(error) { l.opened.Add(1) },
		Closed: func(time.Duration) { l.closed.Add(1) },
	}
	store := &throttleredis.Store{Client: client}
	l.fallback = &throttleredis.Fallback{Limiter: store.TokenBucket(throttle.PerSecond(1000)), Processes: 2, Breaker: &l.breaker}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	for range 16 {
		l.wg.Go(func() { l.work(ctx) })
	}
	t.Cleanup(l.end)
	return l
}

func (l *claimLoad) work(ctx context.Context) {
	for pause := time.NewTicker(time.Millisecond); ; {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		switch d, err := l.fallback.Reserve(context.Background(), throttle.Claim{}); {
		case err != nil:
			l.errors.Add(1)
		case d.Degraded:
			l.degraded.Add(1)
		default:
			l.byRedis.Add(1)
		}
	}
}

// end stops the load, and returns when all decisions were made.
func (l *claimLoad) end() {
	l.stop()
	l.wg.Wait()
}

// awaitMore returns when n has increased by a hundred.
func awaitMore(t *testing.T, what string, n *atomic.Int64) {
	from := n.Load()
	redistest.Await(t, what, func() bool { return n.Load() >= from+100 })
}

// clients returns both kinds of clients: one that supports deadlines, and one with the
// defaults of go-redis.
func clients(t *testing.T, addr string) map[string]*redis.Client {
	all := map[string]*redis.Client{
		"heeds deadlines": redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1}),
		"as by default":   redis.NewClient(&redis.Options{Addr: addr}),
	}
	for _, c := range all {
		t.Cleanup(func() { _ = c.Close() })
	}
	return all
}

// requireNoLeaks runs f and fails the test if goroutines of f remain.
func requireNoLeaks(t *testing.T, f func()) {
	before := runtime.NumGoroutine()
	f()
	redistest.Await(t, "the last goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}

func TestFallback_survivesKilledServers(t *testing.T) {
	s := redistest.Start(t)
	for name, c := range clients(t, s.Addr) {
		t.Run(name, func(t *testing.T) {
			requireNoLeaks(t, func() {
				l := startLoad(t, c)
				for range 3 {
					awaitMore(t, "decisions of Redis", &l.byRedis)
					s.Kill()
					awaitMore(t, "decisions without Redis", &l.degraded)
					redistest.Await(t, "the breaker to open", l.breaker.Open)
					s.Restart()
				}
				awaitMore(t, "decisions of Redis", &l.byRedis)
				l.end()
				require.Zero(t, l.errors.Load())
				require.GreaterOrEqual(t, l.opened.Load(), int64(3))
				require.NoError(t, c.Close())
			})
		})
	}
}

func TestFallback_survivesFaultsOnTheWay(t *testing.T) {
	s := redistest.Start(t)
	for _, tt := range []struct {
		name   string
		faults []redistest.Fault
	}{
		{"slow", []redistest.Fault{redistest.Slow}},
		{"resets and refused connections", []redistest.Fault{redistest.Reset, redistest.Refuse}},
		{"silence", []redistest.Fault{redistest.BlackHole, redistest.NoReplies}},
	} {
		p := redistest.StartProxy(t, s.Addr)
		for name, c := range clients(t, p.Addr) {
			t.Run(tt.name+", "+name, func(t *testing.T) {
				l := startLoad(t, c)
				for _, fault := range tt.faults {
					awaitMore(t, "decisions of Redis", &l.byRedis)
					p.Set(fault)
					awaitMore(t, "decisions without Redis", &l.degraded)
					redistest.Await(t, "the breaker to open", l.breaker.Open)
					p.Set(redistest.Pass)
				}
				awaitMore(t, "decisions of Redis", &l.byRedis)
				l.end()
				require.Zero(t, l.errors.Load())
			})
		}
	}
}
