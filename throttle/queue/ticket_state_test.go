package queue

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A clockedLimiter grants everything, and records the readings of its claims. A claim without a
// reading is decided at own.
type clockedLimiter struct {
	own    time.Time
	read   []time.Time
	remote bool
}

func (l *clockedLimiter) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	if l.read = append(l.read, c.Now); c.Now.IsZero() {
		c.Now = l.own
	}
	return throttle.Decision{OK: true, At: c.Now}, nil
}
func (*clockedLimiter) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {
}

// Traits implements throttle.Limiter.
func (l *clockedLimiter) Traits() throttle.Traits {
	return throttle.Traits{NonBlocking: !l.remote, EndsAtResponse: true}
}

// TestTicket_reserveReadsOneClock reserves without a time, and with one.
func TestTicket_reserveReadsOneClock(t *testing.T) {
	first, second := time.Unix(1000, 0), time.Unix(2000, 0)
	for _, remote := range []bool{false, true} {
		for _, now := range []time.Time{{}, time.Unix(3000, 0)} {
			a, b := &clockedLimiter{own: first}, &clockedLimiter{own: second, remote: remote}
			tk := ticket(a, b)
			d, err := tk.Reserve(t.Context(), now)
			require.NoError(t, err)
			want := now
			if now.IsZero() {
				want = first
			}
			require.Equal(t, throttle.Decision{OK: true, At: want}, d)
			require.Equal(t, want, tk.grantedAt())
			require.Equal(t, [][]time.Time{{now}, {want}}, [][]time.Time{a.read, b.read})
			tk.Report(t.Context(), throttle.Feedback{Now: want, State: throttle.Unused})
		}
	}
}

// TestTicket_grantedAtWhileGranted checks grantedAt before, during and after a grant, and of a
// copy.
func TestTicket_grantedAtWhileGranted(t *testing.T) {
	for name, end := range map[string]func(*Ticket){
		"Cancel": func(tk *Ticket) {
			tk.Report(context.Background(), throttle.Feedback{Now: time.Unix(1000, 0), State: throttle.Unused})
		},
		"Observe": func(tk *Ticket) { tk.Report(context.Background(), throttle.Feedback{}) },
	} {
		now, l := time.Unix(1000, 0), bucket(time.Hour, 1)
		tk := ticket(l)
		require.Zero(t, tk.grantedAt(), name)
		_, err := tk.Reserve(t.Context(), now)
		require.NoError(t, err)
		require.Equal(t, now, tk.grantedAt(), name)
		other := *tk
		require.Zero(t, other.grantedAt(), name)
		tk.Report(t.Context(), throttle.Feedback{State: throttle.Ongoing})
		require.Equal(t, now, tk.grantedAt(), "partial feedback does not end the grant")
		end(tk)
		require.Zero(t, tk.grantedAt(), name)
		d, err := tk.Reserve(t.Context(), now)
		require.NoError(t, err, "it may be used again")
		require.Equal(t, name == "Cancel", d.OK, name)
	}
}

// TestQueue_traceOfWaitAndTry checks the calls of each hook, and of a Trace without hooks.
func TestQueue_traceOfWaitAndTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		all := &Trace{
			Queued: func(_ *Ticket, s ClassSnapshot) { got = append(got, fmt.Sprint("queued ", s.Limit, " ", s.Waiting)) },
			Granted: func(tk *Ticket) {
				got = append(got, fmt.Sprint("granted after ", tk.Waited(), " for ", waitedFor(tk)))
			},
			Failed: func(tk *Ticket, _ error) { got = append(got, fmt.Sprint("failed after ", tk.Waited())) },
		}
		l := bucket(time.Second, 1)
		for _, trace := range []*Trace{all, {}, nil} {
			got = nil
			q := &Queue{Trace: trace, MaxTotal: 1}
			require.NoError(t, q.Try(t.Context(), ticket(l)))
			require.Error(t, q.Try(t.Context(), ticket(l)))
			require.NoError(t, q.Wait(t.Context(), ticket(l)))
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			require.Error(t, q.Wait(ctx, ticket(l)), "the deadline is too early")
			cancel()
			time.Sleep(time.Second)
			require.NoError(t, q.Wait(t.Context(), ticket(l)))
			time.Sleep(time.Second)
			if trace == all {
				require.Equal(t, []string{
					"granted after 0s for ",
					"failed after 0s",
					"queued 1s 1", "granted after 1s for 1s",
					"failed after 0s",
					"granted after 0s for ",
				}, got)
			}
			require.Equal(t, []uint64{1, 2}, []uint64{q.Snapshot().Granted, q.Snapshot().Rejected})
		}
	})
}

// TestQueue_fullQueueDoesNotWait checks a ticket that a full Queue rejects, and one that is
// canceled.
func TestQueue_fullQueueDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l := &Queue{MaxTotal: 1}, bucket(10*time.Second, 1)
		require.NoError(t, q.Wait(t.Context(), ticket(l)))
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, q.Wait(t.Context(), ticket(l))) })
		synctest.Wait()
		time.Sleep(time.Second)
		tk := ticket(l)
		var full *FullError
		require.ErrorAs(t, q.Wait(t.Context(), tk), &full)
		require.Equal(t, FullError{Waiting: 1, Max: 1}, *full)
		require.Zero(t, tk.Waited())
		require.Empty(t, waitedFor(tk))
		wg.Wait()

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, cancel)
		require.ErrorIs(t, q.Wait(ctx, tk), context.Canceled)
		require.Equal(t, 3*time.Second, tk.Waited())
		require.Equal(t, "10s", waitedFor(tk))
		requireEmpty(t, q)
	})
}

// TestQueue_snapshotOfTwoClasses checks the figures of classes that wait for the same limit.
func TestQueue_snapshotOfTwoClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l := new(Queue), bucket(time.Minute, 1)
		require.NoError(t, q.Wait(t.Context(), ticket(l)))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		join := func(tenant string, cost int64) {
			tk := &Ticket{Tenant: tenant, Demands: []throttle.Demand{{Limiter: l, Cost: cost}}}
			wg.Go(func() { assert.Error(t, q.Wait(ctx, tk)) })
			synctest.Wait()
			time.Sleep(time.Second)
		}
		join("a", 1)
		join("a", 1)
		join("b", 1)
		s := q.Snapshot()
		require.Len(t, s.Limits, 1)
		s.Limits[0].Since = time.Time{}
		require.Equal(t, LimitSnapshot{Name: "1m0s", Waiting: 3, Units: 3, Blocked: 3, Tenants: 2, LongestWait: 3 * time.Second, GrantAfter: 57 * time.Second}, s.Limits[0])
		require.Len(t, s.Classes, 2)
		require.Equal(t, []any{"a", 2, 3 * time.Second, 57 * time.Second, false}, []any{s.Classes[0].Tenant, s.Classes[0].Waiting, s.Classes[0].HeadWaited, s.Classes[0].GrantAfter, s.Classes[0].BehindOther})
		require.Equal(t, []any{"b", 1, time.Second, time.Duration(0), true}, []any{s.Classes[1].Tenant, s.Classes[1].Waiting, s.Classes[1].HeadWaited, s.Classes[1].GrantAfter, s.Classes[1].BehindOther})
		cancel()
		wg.Wait()
		require.Empty(t, q.Snapshot().Limits)
		requireEmpty(t, q)
	})
}
