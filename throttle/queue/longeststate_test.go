package queue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A phaseLimiter rejects claims until its phases are over, each for a reason of its own.
type phaseLimiter struct {
	start  time.Time
	phases []phase
}

type phase struct {
	name  string
	lasts time.Duration
}

func (l *phaseLimiter) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	end := l.start
	for _, p := range l.phases {
		if end = end.Add(p.lasts); c.Now.Before(end) {
			return throttle.Decision{Policy: p.name, At: c.Now, Wait: end.Sub(c.Now)}, nil
		}
	}
	return throttle.Decision{OK: true, At: c.Now}, nil
}
func (*phaseLimiter) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {}

// Traits implements throttle.Limiter.
func (*phaseLimiter) Traits() throttle.Traits {
	return throttle.Traits{NonBlocking: true, EndsAtResponse: true}
}

// What delays a request may change while it waits: the name is that of the reason which delayed it for longest.
func TestQueue_waitedForTheLongestReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := new(Queue)
		l := &phaseLimiter{time.Now(), []phase{{name: "quota", lasts: 2 * time.Second}, {name: "retry-after", lasts: 5 * time.Second}, {name: "slow start", lasts: time.Second}}}
		longest := func() string {
			tk := &Ticket{Demands: []throttle.Demand{{Limiter: l}}}
			require.NoError(t, q.Wait(t.Context(), tk))
			return waitedFor(tk)
		}
		early, late := make(chan string, 1), make(chan string, 1)
		go func() { early <- longest() }()
		time.Sleep(6500 * time.Millisecond)
		go func() { late <- longest() }()
		require.Equal(t, "retry-after", <-early)
		require.Equal(t, "slow start", <-late)
		l.start = time.Now()
		l.phases = []phase{{name: "quota", lasts: 100 * time.Millisecond}, {name: "slow start", lasts: 10 * time.Millisecond}}
		require.Equal(t, "quota", longest(), "states of before do not count")
	})
}
