package turns

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// course records which goroutine ran when, in a Group of n that sleep for the same times.
func course(t *testing.T, seed uint64, n int) (order []int, at []time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		Run(t.Context(), seed, n, func(ctx context.Context, i int) {
			for range 3 {
				order, at = append(order, i), append(at, time.Since(start)) // one goroutine runs at a time
				Sleep(ctx, time.Duration(1+i%2)*time.Second)
			}
		})
		order, at = append(order, -1), append(at, time.Since(start))
	})
	return order, at
}

func TestGroup_isRepeatable(t *testing.T) {
	first, at := course(t, 1, 20)
	for range 20 {
		order, same := course(t, 1, 20)
		require.Equal(t, first, order)
		require.Equal(t, at, same)
	}
	other, _ := course(t, 2, 20)
	require.NotEqual(t, first, other, "the seed decides the order")
	require.ElementsMatch(t, first, other)
	require.Equal(t, 6*time.Second, at[len(at)-1], "the longest sleep three times")
}

// A goroutine that waits for something else does not delay the others, and continues with it.
func TestGroup_goroutinesMayWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		opened := make(chan struct{})
		var events []string
		add := func(s string) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, s)
		}
		start := time.Now()
		g := New(1)
		g.Go(t.Context(), func(ctx context.Context) {
			<-opened
			add("opened at " + time.Since(start).String())
			Sleep(ctx, time.Second)
			add("ended at " + time.Since(start).String())
		})
		g.Go(t.Context(), func(ctx context.Context) {
			Sleep(ctx, 2*time.Second)
			close(opened)
			Sleep(ctx, 5*time.Second)
			add("ended at " + time.Since(start).String())
		})
		g.Wait()
		require.Equal(t, []string{"opened at 2s", "ended at 3s", "ended at 7s"}, events)
	})
}

// A timer of the bubble that fires earlier than the next goroutine continues is not delayed.
func TestGroup_timersFireInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		fired, at := make(chan time.Duration, 1), time.Duration(0)
		time.AfterFunc(time.Second, func() { fired <- time.Since(start) })
		Run(t.Context(), 1, 2, func(ctx context.Context, i int) {
			if i == 0 {
				at = <-fired
			}
			Sleep(ctx, 2*time.Second)
		})
		require.Equal(t, time.Second, at)
		require.Equal(t, 3*time.Second, time.Since(start))
		Sleep(context.Background(), time.Second)
		require.Equal(t, 4*time.Second, time.Since(start), "without a Group")
	})
}
