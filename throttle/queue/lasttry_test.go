package queue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// An endsWait grants claims whose caller has waited, and no others.
type endsWait struct {
	server, never bool // what rejects is the server; not even those are granted
	asked         []throttle.Claim
	counts        bool
}

// Reserve implements throttle.Limiter.
func (l *endsWait) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	if !c.Waits && !c.DryRun {
		l.asked = append(l.asked, c)
	}
	return throttle.Decision{OK: !l.never && !c.Waits && c.Waited > 0, At: c.Now, Wait: 3 * time.Second, ServerImposed: l.server}, nil
}

// Report implements throttle.Limiter.
func (*endsWait) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {}

// Traits implements throttle.Limiter.
func (l *endsWait) Traits() throttle.Traits {
	return throttle.Traits{NonBlocking: true, CountsRejected: l.counts}
}

// A call whose wait fails is granted if the server imposed the wait and the limiters grant the claim to a caller that does not
// wait any longer. A retry is not, and each limit that counts rejections counts one.
func TestQueue_lastTry(t *testing.T) {
	const latency = time.Second
	for name, tt := range map[string]struct {
		limiter  endsWait
		retry    bool
		deadline time.Duration // of the context; 0: none, but a MaxWait of 5 s
		want     time.Duration // that the caller has waited when it is granted; 0: it is rejected
		asked    int
	}{
		"MaxWait":                  {endsWait{server: true}, false, 0, 5 * time.Second, 1},
		"deadline":                 {endsWait{server: true}, false, 4 * time.Second, 3 * time.Second, 1},
		"a retry":                  {endsWait{server: true}, true, 0, 0, 0},
		"own limit":                {endsWait{}, false, 4 * time.Second, 0, 0},
		"it is rejected":           {endsWait{server: true, never: true}, false, 0, 0, 1},
		"it is rejected, counting": {endsWait{server: true, never: true, counts: true}, false, 0, 0, 1},
		"own limit that counts":    {endsWait{counts: true, never: true}, false, 0, 0, 1},
		"a retry that is counted":  {endsWait{server: true, counts: true, never: true}, true, 0, 0, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := tt.limiter
			q, tk, ctx := &Queue{}, ticket(&l), t.Context()
			if tt.deadline == 0 {
				q.MaxWait = 5 * time.Second
			} else {
				tk.Latency = latency
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tt.deadline)
				defer cancel()
			}
			if tt.retry {
				tk.arrival = 1
			}
			start := time.Now()
			err := q.Wait(ctx, tk)
			require.Len(t, l.asked, tt.asked, name)
			if tt.want == 0 {
				require.ErrorIs(t, err, throttle.ErrRejected, name)
				require.False(t, tk.isGranted(), name)
			} else {
				require.NoError(t, err, name)
				require.True(t, tk.isGranted(), name)
				require.Equal(t, []time.Duration{tt.want, tt.want}, []time.Duration{time.Since(start), l.asked[0].Waited}, name)
				q.Report(ctx, tk, throttle.Feedback{State: throttle.Unused})
			}
			requireEmpty(t, q)
		})
	}
}

// A caller whose context has ended is not granted, and one that does not wait is not asked a second time.
func TestQueue_noLastTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &endsWait{server: true}
		q := new(Queue)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, q.Wait(ctx, ticket(l)), context.DeadlineExceeded)
		require.Empty(t, l.asked)
		require.ErrorIs(t, q.Try(t.Context(), ticket(l)), throttle.ErrRejected)
		require.Len(t, l.asked, 1)
		requireEmpty(t, q)
	})
}
