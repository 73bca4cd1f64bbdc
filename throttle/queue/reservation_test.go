package queue

import (
	"context"
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

// TestQueue_reservationBegins rejects the head of a class by the limits a and b in turn, and
// checks after each rejection how long the class keeps a reservation.
func TestQueue_reservationBegins(t *testing.T) {
	type rejection struct {
		at, wait int64 // milliseconds
		limit    int
		newHead  bool
		want     int64 // end of the reservation; 0: none
	}
	const a, b = 0, 1
	for name, rejections := range map[string][]rejection{
		"two limits":                 {{0, 100, a, true, 0}, {5, 100, b, false, 1005}},
		"a shorter wait":             {{0, 100, a, true, 0}, {5, 99, b, false, 1005}},
		"a longer wait":              {{0, 100, a, true, 0}, {5, 101, b, false, 0}},
		"a longer wait, alternating": {{0, 100, a, true, 0}, {5, 200, b, false, 0}, {10, 900, a, false, 1010}},
		"one limit":                  {{0, 100, a, true, 0}, {5, 50, a, false, 0}, {10, 10, a, false, 0}, {15, 10, b, false, 1015}},
		"again at the second":        {{0, 100, a, true, 0}, {5, 200, b, false, 0}, {10, 50, b, false, 0}, {15, 60, a, false, 1015}},
		"longest wait":               {{0, 2000, a, true, 0}, {5, 1000, b, false, 1005}},
		"too long a wait":            {{0, 2000, a, true, 0}, {5, 1001, b, false, 0}, {10, 1000, a, false, 1010}},
		"another head":               {{0, 100, a, true, 0}, {5, 100, b, true, 0}, {10, 100, a, false, 1010}},
		"another head at a limit":    {{0, 100, a, true, 0}, {5, 100, a, true, 0}, {10, 100, b, false, 1010}},
		"it lasts to its end":        {{0, 100, a, true, 0}, {0, 100, b, false, 1000}, {100, 900, b, false, 1000}, {200, 801, b, false, 0}},
		"it begins again":            {{0, 100, a, true, 0}, {0, 100, b, false, 1000}, {200, 801, b, false, 0}, {300, 801, a, false, 1300}},
		"it begins again later":      {{0, 100, a, true, 0}, {0, 100, b, false, 1000}, {200, 801, b, false, 0}, {300, 802, a, false, 0}, {400, 900, b, false, 1400}},
	} {
		q, c := new(Queue), &class{entries: make([]queueEntry, 2)}
		for i, r := range rejections {
			q.now = r.at * int64(time.Millisecond)
			c.newHead = c.newHead || r.newHead
			e := &c.entries[r.limit]
			q.updateReservation(c, e, q.now+r.wait*int64(time.Millisecond))
			c.blockedAt = e
			require.Equal(t, r.want, c.reservedUntil/int64(time.Millisecond), "%s, rejection %d", name, i)
		}
	}
}

// TestQueue_brokenLimitIsAskedLess counts the claims at a limit that rejects each claim with a wait
// of a nanosecond.
func TestQueue_brokenLimitIsAskedLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l := new(Queue), &countedLimiter{wait: 1}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		require.Error(t, q.Wait(ctx, ticket(l)))
		require.InDelta(t, 110, l.claims, 4)
		requireEmpty(t, q)
	})
}

// A countedLimiter rejects all claims and counts them.
type countedLimiter struct {
	wait   time.Duration
	claims int
}

func (l *countedLimiter) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	if !c.DryRun {
		l.claims++
	}
	return throttle.Decision{At: c.Now, Wait: l.wait}, nil
}
func (*countedLimiter) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {
}

// Traits implements throttle.Limiter.
func (*countedLimiter) Traits() throttle.Traits {
	return throttle.Traits{NonBlocking: true, EndsAtResponse: true}
}
