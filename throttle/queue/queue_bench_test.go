package queue

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/heed-go/heed/throttle"
)

func BenchmarkReserve(b *testing.B) {
	l, ctx, t := throttle.NewTokenBucket(throttle.Limit{Count: 1e9, Per: time.Second}), context.Background(), new(Ticket)
	t.Add(throttle.Demand{Limiter: l})
	b.Run("limiter", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			l.Reserve(ctx, throttle.Claim{})
		}
	})
	b.Run("ticket", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			t.Reserve(ctx, time.Time{})
			t.endGrant()
		}
	})
	q := new(Queue)
	b.Run("wait", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			q.Wait(ctx, t)
			t.endGrant()
		}
	})
}

// BenchmarkQueueRealTimers lets 1,000 goroutines take 10 units each of 2,000 per second, and
// reports the delay of the last grant and the number of grants out of order.
func BenchmarkQueueRealTimers(b *testing.B) {
	for range b.N {
		q, l := new(Queue), throttle.NewTokenBucket(throttle.Limit{Count: 2000, Per: time.Second, Burst: 1})
		var mu sync.Mutex
		var turns []int64
		var wg sync.WaitGroup
		start := time.Now()
		for range 1000 {
			wg.Go(func() {
				for range 10 {
					t := ticket(l)
					if err := q.Wait(context.Background(), t); err != nil {
						b.Error(err)
					}
					d, _ := t.Decision(0)
					mu.Lock()
					turns = append(turns, t.arrival, int64(d.At.Sub(start)))
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		took, ideal := time.Since(start), 9999*500*time.Microsecond
		b.ReportMetric(100*(took-ideal).Seconds()/ideal.Seconds(), "%late")
		b.ReportMetric(float64(outOfOrder(turns)), "out-of-order")
	}
}

// outOfOrder returns the number of callers that were granted before one that arrived earlier.
func outOfOrder(turnsAndTimes []int64) (n int) {
	pairs := slices.Collect(slices.Chunk(turnsAndTimes, 2))
	slices.SortFunc(pairs, func(a, b []int64) int { return int(a[0] - b[0]) })
	for i := range len(pairs) - 1 {
		if pairs[i][1] > pairs[i+1][1] {
			n++
		}
	}
	return n
}

// BenchmarkQueueHundredThousand lets 100,000 callers wait and grants them one after another,
// then lets 100,000 callers wait and cancels them at the same time.
func BenchmarkQueueHundredThousand(b *testing.B) {
	for range b.N {
		q, g := new(Queue), &holdLimiter{until: time.Now().Add(time.Hour)}
		bytes, cancel := startWaiters(q, g, 100000)
		b.ReportMetric(bytes, "bytes/waiter")

		start := time.Now()
		g.set(time.Now())
		q.Wake()
		awaitEmpty(q)
		b.ReportMetric(float64(time.Since(start).Microseconds())/100000, "us/wake")
		cancel()

		g.set(time.Now().Add(time.Hour))
		before := inUse()
		_, cancel = startWaiters(q, g, 100000)
		start = time.Now()
		cancel()
		awaitEmpty(q)
		b.ReportMetric(float64(time.Since(start).Microseconds())/100000, "us/cancel")
		b.ReportMetric((inUse()-before)/1e6, "MB-kept")
	}
}

// startWaiters starts n waiters. It returns the bytes of heap that each uses in addition to those
// of a goroutine that waits for a channel or its context.
func startWaiters(q *Queue, l throttle.Limiter, n int) (bytes float64, cancel func()) {
	ctx, cancel := context.WithCancel(context.Background())
	idle, stop := context.WithCancel(context.Background())
	never := make(chan int)
	var up sync.WaitGroup
	before := inUse()
	for range n {
		up.Add(1)
		go func() {
			up.Done()
			select {
			case <-never:
			case <-idle.Done():
			}
		}()
	}
	up.Wait()
	runtime.Gosched()
	plain := inUse() - before
	for range n {
		go func() { q.Wait(ctx, ticket(l)) }()
	}
	for int(q.numWaiting.Load()) < n {
		runtime.Gosched()
	}
	bytes = (inUse() - before - 2*plain) / float64(n)
	stop()
	return bytes, cancel
}

func awaitEmpty(q *Queue) {
	for q.numWaiting.Load() > 0 {
		runtime.Gosched()
	}
}

// inUse returns the number of bytes of heap in use.
func inUse() float64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
