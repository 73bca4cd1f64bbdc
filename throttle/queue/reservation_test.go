package queue

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A ticket that needs the limits a and b is rejected by a, then by b, and so reserves a while it
// waits for b, for at most maxReservation. Earlier rejections do not count for another
// reservation after that.
func TestQueue_reservationsEndAfterASecond(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, start := new(Queue), time.Now()
		at := func(ms time.Duration) time.Time { return start.Add(ms * time.Millisecond) }
		ga, gb := &holdLimiter{until: at(100)}, &holdLimiter{until: at(200)}
		a, b := wrap(ga), wrap(gb)
		took := map[string]time.Duration{}
		var mu sync.Mutex
		var wg sync.WaitGroup
		wait := func(name string, tk *Ticket) {
			wg.Go(func() {
				assert.NoError(t, q.Wait(t.Context(), tk))
				mu.Lock()
				defer mu.Unlock()
				took[name] = time.Since(start)
			})
			synctest.Wait()
		}
		wait("both", ticket(a, b))
		time.Sleep(time.Until(at(150)))
		gb.set(at(1000))
		time.Sleep(time.Until(at(500)))
		wait("a alone", ticket(a))
		time.Sleep(time.Until(at(900)))
		gb.set(at(1200))
		time.Sleep(time.Until(at(1100)))
		ga.set(at(1500))
		time.Sleep(time.Until(at(1300)))
		wait("b alone", ticket(b))
		wg.Wait()
		require.Equal(t, map[string]time.Duration{
			"a alone": 1000 * time.Millisecond, // b states a time after maxReservation
			"b alone": 1300 * time.Millisecond, // b is not reserved while the ticket waits for a
			"both":    1500 * time.Millisecond,
		}, took)
		requireEmpty(t, q)
	})
}
