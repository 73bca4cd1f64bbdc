package queue

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// moveTo returns the hook that replaces the first demand of tk by one of l, when it is called again.
func moveTo(tk *Ticket, l throttle.Limiter) func() error {
	again := false
	return func() error {
		if !again {
			again = true
			return nil
		}
		tk.Demands[0] = throttle.Demand{Limiter: l}
		return nil
	}
}

func TestQueue_renewLetsCallersAskForAnotherLimiter(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q := new(Queue)
		require.NoError(t, q.Wait(t.Context(), ticket(new(holdLimiter))))
		time.Sleep(time.Second)
		log := newEventLog()
		old, next, other := wrap(&slotLimiter{}), wrap(bucket(time.Second, 1)), new(slotLimiter)
		var wg sync.WaitGroup
		wait := func(name string, tk *Ticket, renew func() error) {
			wg.Go(func() {
				if err := q.WaitHooks(t.Context(), tk, Hooks{Renew: renew}); err != nil {
					name = err.Error()
				}
				log.record(name)
			})
			synctest.Wait()
		}
		tickets := []*Ticket{ticket(old), ticket(old), ticket(old)}
		for i, name := range []string{"a", "b", "c"} {
			wait(name, tickets[i], moveTo(tickets[i], next))
		}
		others := 0
		wait("other", ticket(other), func() error { others++; return nil })
		time.Sleep(time.Minute)
		require.NoError(t, q.Wait(t.Context(), ticket(next)))
		q.Renew(old)
		q.Renew(nil)
		time.Sleep(time.Minute)
		other.end()
		q.Wake()
		wg.Wait()
		require.Equal(t, []string{"a", "b", "c", "other"}, log.order, "they keep their order")
		for i, name := range []string{"a", "b", "c"} {
			granted := time.Minute + time.Duration(i+1)*time.Second
			require.Equal(t, []time.Duration{granted}, log.times[name])
			require.Equal(t, granted, tickets[i].Waited(), "the wait before Renew counts")
		}
		require.Equal(t, 1, others, "it waits for a limiter that is not renewed")
		require.Zero(t, q.Snapshot().Failed)
		requireEmpty(t, q)
	})
}

func TestQueue_renewedWaitEnds(t *testing.T) {
	errGone := errors.New("gone")
	tests := []struct {
		name    string
		maxWait time.Duration
		renew   func(q *Queue, cancel context.CancelFunc) error
		want    error
		at      time.Duration
	}{
		{"with the error of the hook", 0, func(*Queue, context.CancelFunc) error { return errGone }, errGone, 10 * time.Second},
		{"at MaxWait, which counts from the beginning", 15 * time.Second, func(*Queue, context.CancelFunc) error { return nil }, throttle.ErrRejected, 15 * time.Second},
		{"when the hook closes the Queue", 0, func(q *Queue, _ context.CancelFunc) error { return q.Close() }, ErrClosed, 10 * time.Second},
		{"when the context ends in the hook", 0, func(_ *Queue, cancel context.CancelFunc) error { cancel(); return nil }, context.Canceled, 10 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				q := &Queue{MaxWait: tt.maxWait}
				require.NoError(t, q.Wait(t.Context(), ticket(new(holdLimiter))))
				time.Sleep(time.Second)
				start := time.Now()
				old, next := new(slotLimiter), new(slotLimiter)
				tk := ticket(old)
				move, again := moveTo(tk, next), false
				renew := func() (err error) {
					if again {
						err = tt.renew(q, cancel)
					}
					again = true
					return errors.Join(err, move())
				}
				var err error
				var wg sync.WaitGroup
				wg.Go(func() { err = q.WaitHooks(ctx, tk, Hooks{Renew: renew}) })
				time.Sleep(10 * time.Second)
				q.Renew(old)
				wg.Wait()
				require.ErrorIs(t, err, tt.want)
				require.Equal(t, tt.at, time.Since(start))
				requireEmpty(t, q)
			})
		})
	}
}

func TestQueue_renewWithoutHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l := new(Queue), bucket(time.Second, 1)
		require.NoError(t, q.Wait(t.Context(), ticket(l)))
		var wg sync.WaitGroup
		var got positions
		for range 3 {
			wg.Go(func() { q.WaitHooks(t.Context(), ticket(l), Hooks{Queued: got.add}) })
			synctest.Wait()
		}
		start := time.Now()
		q.Renew(l)
		wg.Wait()
		require.Equal(t, 3*time.Second, time.Since(start), "they wait as before")
		require.Len(t, got.all, 3, "Queued is called once")
		requireEmpty(t, q)
	})
}

func TestQueue_renewToNoLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l := new(Queue), &slotLimiter{}
		tk := ticket(l)
		var wg sync.WaitGroup
		wg.Go(func() {
			if q.WaitHooks(t.Context(), tk, Hooks{Renew: moveTo(tk, nil)}) != nil || tk.Waited() != time.Second || waitedFor(tk) != "slots" {
				t.Error("not granted as it should be")
			}
		})
		time.Sleep(time.Second)
		q.Renew(l)
		wg.Wait()
		requireEmpty(t, q)
	})
}

// A caller whose demands change between its hook and the beginning of its wait asks again.
func TestQueue_renewBeforeTheWaitBegins(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, start := new(Queue), time.Now()
		old, next := wrap(new(slotLimiter)), wrap(&holdLimiter{until: start.Add(time.Second)})
		tk, calls := ticket(old), 0
		err := q.WaitHooks(t.Context(), tk, Hooks{Renew: func() error {
			if calls++; calls == 1 {
				q.Renew(old) // t does not wait yet
			} else {
				tk.Demands[0].Limiter = next
			}
			return nil
		}})
		require.NoError(t, err)
		require.Equal(t, 2, calls)
		require.Equal(t, time.Second, time.Since(start))
		requireEmpty(t, q)
	})
}

// A caller that is renewed keeps its place in a Queue that is full.
func TestQueue_renewedInAFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		q, old, next := &Queue{MaxTotal: 1}, new(slotLimiter), &holdLimiter{until: start.Add(2 * time.Second)}
		tk := ticket(old)
		var wg sync.WaitGroup
		var err error
		wg.Go(func() { err = q.WaitHooks(t.Context(), tk, Hooks{Renew: moveTo(tk, next)}) })
		time.Sleep(time.Second)
		var full *FullError
		require.ErrorAs(t, q.Wait(t.Context(), ticket(old)), &full)
		q.Renew(old)
		wg.Wait()
		require.NoError(t, err)
		require.Equal(t, 2*time.Second, time.Since(start))
		requireEmpty(t, q)
	})
}

func TestQueue_renewedAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l := new(Queue), &holdLimiter{until: time.Now().Add(time.Second)}
		require.NoError(t, q.WaitHooks(t.Context(), ticket(l), Hooks{Renew: func() error { q.Renew(l); return nil }}))
		require.EqualValues(t, maxRenewals+1, q.renewals.Load())
	})
}

// TestQueue_renewedCallersThatLeave checks that a caller which is renewed, and then leaves because its
// context has ended or a trace function panics, is not counted any longer.
func TestQueue_renewedCallersThatLeave(t *testing.T) {
	for _, blocks := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			q := new(Queue)
			ctx, cancel := context.WithCancel(t.Context())
			l := &scriptedLimiter{blocks: blocks}
			l.script = []step{rejects(0, time.Hour), func(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
				q.Renew(l)
				cancel()
				return throttle.Decision{At: c.Now, Wait: time.Hour}, nil
			}}
			require.Equal(t, context.Canceled, q.Wait(ctx, ticket(l)))
			require.Empty(t, l.script)
			requireEmpty(t, q)
		})
		synctest.Test(t, func(t *testing.T) {
			q, l := new(Queue), &scriptedLimiter{blocks: blocks, script: []step{rejects(0, time.Hour), rejects(0, time.Hour), rejects(0, time.Hour)}}
			q.Trace = &Trace{Queued: func(*Ticket, ClassSnapshot) {
				q.Renew(l)
				panic("trace")
			}}
			require.PanicsWithValue(t, "trace", func() { _ = q.Wait(t.Context(), ticket(l)) })
			requireEmpty(t, q)
		})
	}
}
