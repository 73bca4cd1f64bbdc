package throttle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A clockOutsideLock fails the test if it is read while a base is locked.
type clockOutsideLock struct {
	t    *testing.T
	name string
	base *base
	read int
}

func (c *clockOutsideLock) Now() time.Time {
	c.read++
	require.True(c.t, c.base.mu.TryLock(), "%s: the clock is read with the lock held", c.name)
	c.base.mu.Unlock()
	return time.Now()
}

func (c *clockOutsideLock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// A Clock is code of the program, so limiters call it without a lock.
func TestClock_isReadWithoutTheLock(t *testing.T) {
	limit := PerSecond(10)
	for name, l := range map[string]Limiter{
		"fixed window":    NewFixedWindow(FixedWindowConfig{Count: 10, Per: time.Second}),
		"sliding log":     NewSlidingLog(SlidingLogConfig{Limit: limit}),
		"sliding counter": NewSlidingCounter(SlidingCounterConfig{Limit: limit}),
		"refill bucket":   NewRefillBucket(RefillBucketConfig{Limit: limit}),
		"nginx":           NewNginx(NginxConfig{Rate: 10, Per: time.Second, Burst: 50, NoDelay: true}),
		"tick queue":      NewTickQueue(TickQueueConfig{Limit: limit, Queue: 10}),
		"concurrency":     NewConcurrency(ConcurrencyConfig{Count: 10, MaxAge: time.Minute}),
	} {
		clk := &clockOutsideLock{t: t, name: name, base: baseOf(l)}
		WithClock(l, clk)
		ctx := t.Context()
		c := Claim{Cost: 2, Ahead: Forever}
		for _, f := range []Feedback{{}, {Cost: 1}, {Cost: 3}, {State: Unused}} {
			d, err := l.Reserve(ctx, c)
			require.NoError(t, err, name)
			require.True(t, d.OK, name)
			l.Report(ctx, c, d, f)
		}
		if a, ok := l.(Adjustable); ok && name != "concurrency" {
			require.NoError(t, a.SetLimit(Limit{Count: 20, Per: 2 * time.Second}), name)
		}
		require.Positive(t, clk.read, name)
	}
}

func baseOf(l Limiter) *base {
	switch l := l.(type) {
	case *fixedWindow:
		return &l.base
	case *slidingLog:
		return &l.base
	case *slidingCounter:
		return &l.base
	case *refillBucket:
		return &l.base
	case *nginxRate:
		return &l.base
	case *tickQueue:
		return &l.base
	case *concurrency:
		return &l.base
	}
	return nil
}
