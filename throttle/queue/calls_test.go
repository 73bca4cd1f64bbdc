package queue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/queuelink"
	"github.com/heed-go/heed/throttle"
)

// A scriptedLimiter calls the functions of its script, one for each claim that is not a dry
// run, and then grants all claims.
type scriptedLimiter struct {
	name     string
	blocks   bool
	script   []func(context.Context, throttle.Claim) (throttle.Decision, error)
	returned int // number of claims that were canceled
}

func (l *scriptedLimiter) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	if c.DryRun || len(l.script) == 0 {
		return throttle.Decision{OK: true, Policy: l.name, At: c.Now}, nil
	}
	next := l.script[0]
	l.script = l.script[1:]
	d, err := next(ctx, c)
	if err == nil {
		d.Policy = l.name
	}
	return d, err
}
func (l *scriptedLimiter) Report(_ context.Context, _ throttle.Claim, _ throttle.Decision, f throttle.Feedback) {
	if f.State == throttle.Unused {
		l.returned++
	}
}

// Traits implements throttle.Limiter.
func (l *scriptedLimiter) Traits() throttle.Traits {
	return throttle.Traits{NonBlocking: !l.blocks, EndsAtResponse: true}
}

// rejects returns a step that takes delay and rejects with wait.
func rejects(delay, wait time.Duration) func(context.Context, throttle.Claim) (throttle.Decision, error) {
	return func(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
		time.Sleep(delay)
		return throttle.Decision{At: c.Now, Wait: wait}, nil
	}
}

// grants returns a step that takes delay and grants.
func grants(delay time.Duration) func(context.Context, throttle.Claim) (throttle.Decision, error) {
	return func(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
		time.Sleep(delay)
		return throttle.Decision{OK: true, At: c.Now}, nil
	}
}

// hangs is a step that returns when ctx ends.
func hangs(ctx context.Context, _ throttle.Claim) (throttle.Decision, error) {
	<-ctx.Done()
	return throttle.Decision{}, context.Cause(ctx)
}

type step = func(context.Context, throttle.Claim) (throttle.Decision, error)

// The call to a limiter is under way when MaxWait or the context ends. The caller returns when
// the call has ended, with the result of that call if it is a grant.
func TestQueue_waitEndsDuringALocalCall(t *testing.T) {
	for name, tt := range map[string]struct {
		maxWait, timeout time.Duration
		second           step // from 1 s on
		want             time.Duration
		err              error // nil: granted
	}{
		"MaxWait, rejected":     {2 * time.Second, 0, rejects(3*time.Second, time.Hour), 4 * time.Second, throttle.ErrRejected},
		"MaxWait, granted":      {2 * time.Second, 0, grants(3 * time.Second), 4 * time.Second, nil},
		"context, rejected":     {0, 2 * time.Second, rejects(3*time.Second, time.Hour), 4 * time.Second, context.Canceled},
		"context, granted":      {0, 2 * time.Second, grants(3 * time.Second), 4 * time.Second, context.Canceled},
		"neither, rejected":     {20 * time.Second, 20 * time.Second, rejects(3*time.Second, 4*time.Second), 5 * time.Second, nil},
		"short of both, failed": {20 * time.Second, 20 * time.Second, rejects(3*time.Second, time.Hour), 4 * time.Second, throttle.ErrRejected},
	} {
		synctest.Test(t, func(t *testing.T) {
			q, start := &Queue{MaxWait: tt.maxWait}, time.Now()
			l := &scriptedLimiter{name: "l", script: []step{rejects(0, time.Second), rejects(0, time.Second), tt.second}}
			ctx := t.Context()
			if tt.timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithCancel(ctx)
				time.AfterFunc(tt.timeout, cancel)
			}
			var wg sync.WaitGroup
			wg.Go(func() { // events at each half second, so that deadlines are processed during the call
				for range 10 {
					time.Sleep(time.Second / 2)
					q.Snapshot()
				}
			})
			tk := ticket(l)
			err := q.Wait(ctx, tk)
			require.Equal(t, tt.want, time.Since(start), name)
			if tt.err == nil {
				require.NoError(t, err, name)
			} else {
				require.ErrorIs(t, err, tt.err, name)
			}
			wg.Wait()
			requireEmpty(t, q)
		})
	}
}

// A call to a limiter ends because MaxWait has passed. The error states the last rejection: of
// that call if the limiter returned one, else of the call before it.
func TestQueue_maxWaitDuringARemoteCallNamesTheLimit(t *testing.T) {
	rejectedAnyway := func(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
		<-ctx.Done()
		return throttle.Decision{At: c.Now, Wait: 7 * time.Second}, nil
	}
	for name, tt := range map[string]struct {
		last step
		wait time.Duration
	}{
		"no rejection": {hangs, 0},
		"a rejection":  {rejectedAnyway, 7 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			q, start := &Queue{MaxWait: 3 * time.Second}, time.Now()
			l := &scriptedLimiter{name: "l", blocks: true, script: []step{rejects(0, time.Second), rejects(0, time.Second), tt.last}}
			tk := &Ticket{Demands: []throttle.Demand{{Limiter: l, Key: "key"}}}
			err := q.Wait(t.Context(), tk)
			require.Equal(t, 3*time.Second, time.Since(start), name)
			var rejected *throttle.RejectedError
			require.ErrorAs(t, err, &rejected, name)
			require.Equal(t, "l", rejected.Decision.Policy, name)
			require.Equal(t, "key", rejected.Key, name)
			require.Equal(t, tt.wait, rejected.Decision.Wait, name)
			require.NotZero(t, rejected.Decision.At, name)
			requireEmpty(t, q)
		})
	}
}

// Ticket.Waited counts from the call of Wait, also if the Queue is old or the limiter slow. It
// is zero if the ticket was granted or failed without a wait.
func TestQueue_waitedCountsFromTheCall(t *testing.T) {
	fails := func(context.Context, throttle.Claim) (throttle.Decision, error) {
		time.Sleep(time.Second)
		return throttle.Decision{}, errors.New("down")
	}
	for name, tt := range map[string]struct {
		blocks bool
		script []step
		want   time.Duration
		fails  bool
	}{
		"granted":         {false, []step{grants(0)}, 0, false},
		"granted, slowly": {true, []step{grants(time.Second)}, 0, false},
		"failed":          {true, []step{fails}, 0, true},
		"waited":          {false, []step{rejects(0, 5*time.Second), rejects(0, 5*time.Second)}, 5 * time.Second, false},
		"waited, slowly":  {true, []step{rejects(time.Second, 4*time.Second), rejects(time.Second, 4*time.Second), grants(0)}, 5 * time.Second, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := new(Queue)
			q.Snapshot()
			time.Sleep(time.Hour)
			tk := ticket(&scriptedLimiter{blocks: tt.blocks, script: tt.script})
			start := time.Now()
			require.Equal(t, tt.fails, q.Wait(t.Context(), tk) != nil, name)
			require.Equal(t, tt.want, tk.Waited(), name)
			require.True(t, tt.want == 0 || time.Since(start) == tt.want, name)
		})
	}
}

// While a ticket holds the only slot for a call to another limit, a second ticket is rejected
// for want of a slot, without a time. It is granted as soon as the slot is free again: when the
// other limit has rejected the first ticket, has failed, or has panicked.
func TestQueue_slotsHeldDuringACallWakeOthers(t *testing.T) {
	fails := func(context.Context, throttle.Claim) (throttle.Decision, error) {
		time.Sleep(100 * time.Millisecond)
		return throttle.Decision{}, errGone
	}
	for name, tt := range map[string]struct {
		script []step
		arrive time.Duration // of the second ticket
		want   time.Duration // of its grant
	}{
		"first call":               {[]step{rejects(100*time.Millisecond, time.Hour)}, 50 * time.Millisecond, 100 * time.Millisecond},
		"second call":              {[]step{rejects(0, 0), rejects(0, time.Second), rejects(100*time.Millisecond, time.Hour)}, 1050 * time.Millisecond, 1100 * time.Millisecond},
		"failure":                  {[]step{fails}, 50 * time.Millisecond, 100 * time.Millisecond},
		"failure in a second call": {[]step{rejects(0, 0), rejects(0, time.Second), fails}, 1050 * time.Millisecond, 1100 * time.Millisecond},
		"panic": {[]step{func(context.Context, throttle.Claim) (throttle.Decision, error) {
			time.Sleep(100 * time.Millisecond)
			panic("limiter")
		}}, 50 * time.Millisecond, 100 * time.Millisecond},
		"panic in the second call": {[]step{rejects(0, 0), rejects(0, time.Second), func(context.Context, throttle.Claim) (throttle.Decision, error) {
			time.Sleep(100 * time.Millisecond)
			panic("limiter")
		}}, 1050 * time.Millisecond, 1100 * time.Millisecond},
	} {
		for _, blocks := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				q, start := new(Queue), time.Now()
				script := append(tt.script, slices.Repeat([]step{rejects(0, time.Hour)}, 5)...)
				slots, other := &slotLimiter{free: 1}, &scriptedLimiter{blocks: blocks, script: script}
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				wg.Go(func() {
					defer func() { _ = recover() }()
					assert.Error(t, q.Wait(ctx, ticket(slots, other)))
				})
				var got time.Duration
				wg.Go(func() {
					time.Sleep(tt.arrive)
					if q.Wait(ctx, ticket(slots)) == nil {
						got = time.Since(start)
					}
				})
				time.Sleep(10 * time.Second)
				cancel()
				wg.Wait()
				require.Equal(t, tt.want, got, "%s, blocks %v", name, blocks)
				requireEmpty(t, q)
			})
		}
	}
}

// A ticket needs two limits that have different waits. It is rejected without a wait if either
// of them states one that is too long, and otherwise granted after the longer one.
func TestQueue_checksAllLimitsUpFront(t *testing.T) {
	const timeout = 5 * time.Second
	for _, a := range []time.Duration{0, time.Second, 10 * time.Second} {
		for _, b := range []time.Duration{0, time.Second, 2 * time.Second, 10 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				q, start := new(Queue), time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				err := q.Wait(ctx, ticket(&holdLimiter{until: start.Add(a)}, &holdLimiter{until: start.Add(b)}))
				took := time.Since(start)
				if max(a, b) > timeout {
					require.ErrorIs(t, err, throttle.ErrRejected, "%v, %v", a, b)
					require.Zero(t, took, "%v, %v", a, b)
					return
				}
				require.NoError(t, err)
				require.Equal(t, max(a, b), took, "%v, %v", a, b)
			})
		}
	}
}

// A limiter answers slowly: it has rejected a ticket for want of a slot, and the slot is free
// again when the answer arrives. The ticket asks again immediately.
func TestQueue_outdatedRejectionsDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, start := new(Queue), time.Now()
		at := func(ms time.Duration) time.Duration { return ms * time.Millisecond }
		slots := &slowAnswers{&slotLimiter{free: 1}, at(120)}
		other := &scriptedLimiter{blocks: true, script: append([]step{
			rejects(0, 0), rejects(0, time.Second), // the claims of 0 ms and 120 ms
			rejects(at(40), time.Hour), // from 1240 ms to 1280 ms; the slot was granted at 1120 ms
		}, slices.Repeat([]step{rejects(0, time.Hour)}, 5)...)}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { assert.Error(t, q.Wait(ctx, ticket(slots, other))) })
		var got time.Duration
		wg.Go(func() {
			time.Sleep(at(500))
			if q.Wait(ctx, ticket(&holdLimiter{until: start.Add(at(1200))}, slots)) == nil {
				got = time.Since(start) // rejected by slots from 1200 ms to 1320 ms
			}
		})
		time.Sleep(10 * time.Second)
		cancel()
		wg.Wait()
		require.Equal(t, at(1320+120), got)
		requireEmpty(t, q)
	})
}

// slowAnswers is a limiter whose answers arrive late.
type slowAnswers struct {
	*slotLimiter
	delay time.Duration
}

func (l *slowAnswers) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	d, err := l.slotLimiter.Reserve(ctx, c)
	time.Sleep(l.delay)
	return d, err
}

// Traits implements throttle.Limiter.
func (l *slowAnswers) Traits() throttle.Traits {
	t := l.slotLimiter.Traits()
	t.NonBlocking = false
	return t
}

// A Queue for one waiter admits one. Its Snapshot states no time for a limit that states none.
func TestQueue_ofOneWaiter(t *testing.T) {
	for name, q := range map[string]*Queue{"total": {MaxTotal: 1}, "class": {MaxPerClass: 1}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Minute, cancel)
			l := new(slotLimiter)
			var wg sync.WaitGroup
			wg.Go(func() { assert.ErrorIs(t, q.Wait(ctx, ticket(l)), context.Canceled) })
			synctest.Wait()
			time.Sleep(time.Second)
			full := ticket(l)
			require.Equal(t, &FullError{Waiting: 1, Max: 1}, q.Wait(ctx, full), name)
			require.Zero(t, full.Waited(), name)
			s := q.Snapshot()
			require.Zero(t, s.Limits[0].GrantAfter)
			require.Zero(t, s.Classes[0].GrantAfter)
			cancel()
			wg.Wait()
			requireEmpty(t, q)
		})
	}
}

// TestQueue_tryWakesCallersThatItKeptWaiting checks that a caller that was rejected while a Try
// held units for a moment is granted as soon as the Try has returned them: because another limit
// rejected it, failed or panicked.
func TestQueue_tryWakesCallersThatItKeptWaiting(t *testing.T) {
	for name, last := range map[string]step{
		"rejected": rejects(100*time.Millisecond, time.Hour),
		"failed": func(context.Context, throttle.Claim) (throttle.Decision, error) {
			time.Sleep(100 * time.Millisecond)
			return throttle.Decision{}, errGone
		},
		"panicked": func(context.Context, throttle.Claim) (throttle.Decision, error) {
			time.Sleep(100 * time.Millisecond)
			panic("limiter")
		},
	} {
		for _, blocks := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				q, start := new(Queue), time.Now()
				slots, other := &slotLimiter{free: 1}, &scriptedLimiter{blocks: blocks, script: []step{last}}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				var wg sync.WaitGroup
				wg.Go(func() {
					defer func() { _ = recover() }()
					assert.Error(t, q.Try(ctx, ticket(slots, other)))
				})
				time.Sleep(50 * time.Millisecond)
				require.NoError(t, q.Wait(ctx, ticket(slots)), name)
				require.Equal(t, 100*time.Millisecond, time.Since(start), "%s, blocks %v", name, blocks)
				wg.Wait()
				requireEmpty(t, q)
			})
		}
	}
}

// TestQueue_errorOfACheckUpFront checks that an error of a limiter that is asked without taking
// units reaches the caller, as its other errors do.
func TestQueue_errorOfACheckUpFront(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, start := new(Queue), time.Now()
		require.ErrorIs(t, q.Wait(t.Context(), ticket(&holdLimiter{until: start.Add(time.Minute)}, failsDry{throttle.AllowAll})), errGone)
		require.Zero(t, time.Since(start))
		requireEmpty(t, q)
	})
}

// A failsDry limiter fails if no units are to be taken.
type failsDry struct{ throttle.Limiter }

// Traits implements throttle.Limiter.
func (l failsDry) Traits() throttle.Traits {
	t := l.Limiter.Traits()
	t.NonBlocking = true
	return t
}
func (l failsDry) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	if c.DryRun {
		return throttle.Decision{}, errGone
	}
	return l.Limiter.Reserve(ctx, c)
}

// TestQueue_maxTotalPrecedesItsDefault checks which of the two bounds the number of waiters.
func TestQueue_maxTotalPrecedesItsDefault(t *testing.T) {
	for _, c := range []struct{ maxTotal, byDefault, want int }{
		{0, 0, 5}, {0, 1, 1}, {0, 3, 3}, {0, -1, 5}, {2, 0, 2}, {2, 1, 2}, {2, 3, 2}, {-1, 1, 5},
	} {
		synctest.Test(t, func(t *testing.T) {
			q, l := &Queue{MaxTotal: c.maxTotal}, new(slotLimiter)
			queuelink.SetDefaults(q, 9, 0)
			queuelink.SetDefaults(q, c.byDefault, 0)
			var wg sync.WaitGroup
			for i := range 5 {
				wg.Go(func() {
					err := q.Wait(t.Context(), &Ticket{Tenant: string(rune('a' + i)), Demands: ticket(l).Demands})
					if i < c.want {
						assert.ErrorIs(t, err, ErrClosed)
					} else {
						assert.Equal(t, &FullError{Waiting: c.want, Max: c.want}, err)
					}
				})
				synctest.Wait()
			}
			require.Equal(t, c.want, q.Snapshot().Waiting)
			require.NoError(t, q.Close())
			wg.Wait()
		})
	}
}

// TestQueue_maxWaitPrecedesItsDefault checks which of the two bounds a wait of ten seconds.
func TestQueue_maxWaitPrecedesItsDefault(t *testing.T) {
	for _, c := range []struct{ maxWait, byDefault, want time.Duration }{
		{0, 0, 10}, {0, 3, 3}, {0, -1, 10}, {2, 0, 2}, {2, 3, 2}, {5, 3, 5}, {-1, 3, 10},
	} {
		synctest.Test(t, func(t *testing.T) {
			q, l := &Queue{MaxWait: c.maxWait * time.Second}, new(slotLimiter)
			queuelink.SetDefaults(q, 0, c.byDefault*time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			start := time.Now()
			require.Error(t, q.Wait(ctx, ticket(l)))
			require.Equal(t, c.want*time.Second, time.Since(start), "%+v", c)
		})
	}
}

// TestQueue_endsGrantsOfOthersBeforeItsFirstWait checks that a Queue can be given tickets that it
// did not grant, and that their limiters get the time.
func TestQueue_endsGrantsOfOthersBeforeItsFirstWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		l := &endLog{Limiter: throttle.AllowAll}
		tk := ticket(l)
		_, err := tk.Reserve(t.Context(), time.Now())
		require.NoError(t, err)
		new(Queue).Report(t.Context(), tk, throttle.Feedback{State: throttle.Unused})
		_, err = tk.Reserve(t.Context(), time.Now())
		require.NoError(t, err)
		noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
		(&Queue{Clock: &jumpClock{now: noon}}).Report(t.Context(), tk, throttle.Feedback{})
		require.Len(t, l.at, 2)
		require.True(t, time.Now().Equal(l.at[0]), "%v", l.at)
		require.True(t, noon.Equal(l.at[1]), "%v", l.at)
	})
}

// An endLog records the times at which claims end.
type endLog struct {
	throttle.Limiter
	at []time.Time
}

func (l *endLog) Report(_ context.Context, _ throttle.Claim, _ throttle.Decision, f throttle.Feedback) {
	l.at = append(l.at, f.Now)
}

// Traits implements throttle.Limiter.
func (l *endLog) Traits() throttle.Traits {
	t := l.Limiter.Traits()
	t.NonBlocking = true
	return t
}

// TestQueue_returnsUnitsThatAreGrantedTooLate checks a limiter that grants a claim although the
// wait has ended during the call: because of MaxWait, or because the Queue was closed. The units
// are returned.
func TestQueue_returnsUnitsThatAreGrantedTooLate(t *testing.T) {
	late := func(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
		<-ctx.Done()
		return throttle.Decision{OK: true, At: c.Now}, nil
	}
	for name, tt := range map[string]struct {
		maxWait, closed time.Duration
		want            error
	}{
		"MaxWait": {3 * time.Second, time.Hour, throttle.ErrRejected},
		"Close":   {0, 3 * time.Second, ErrClosed},
	} {
		synctest.Test(t, func(t *testing.T) {
			q, start := &Queue{MaxWait: tt.maxWait}, time.Now()
			stop := time.AfterFunc(tt.closed, func() { q.Close() })
			defer stop.Stop()
			l := &scriptedLimiter{blocks: true, script: []step{rejects(0, time.Second), rejects(0, time.Second), late}}
			tk := ticket(l)
			require.ErrorIs(t, q.Wait(t.Context(), tk), tt.want, name)
			require.Equal(t, 3*time.Second, time.Since(start), name)
			require.Equal(t, 1, l.returned, name)
			require.True(t, tk.grantedAt().IsZero(), name)
			requireEmpty(t, q)
		})
	}
}

// TestQueue_waitedIsThatOfTheLastCall checks that a ticket that has waited, and is used again
// without a wait, states none.
func TestQueue_waitedIsThatOfTheLastCall(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		for name, again := range map[string]func(*Queue, *Ticket) error{
			"Wait": func(q *Queue, tk *Ticket) error { return q.Wait(t.Context(), tk) },
			"Try":  func(q *Queue, tk *Ticket) error { return q.Try(t.Context(), tk) },
		} {
			q, l := new(Queue), wrap(&holdLimiter{until: time.Now().Add(time.Second), serverImposed: true})
			q.Snapshot()
			time.Sleep(500 * time.Millisecond)
			tk := ticket(l)
			require.NoError(t, q.Wait(t.Context(), tk))
			require.Equal(t, 500*time.Millisecond, tk.Waited(), name)
			limit, imposed, _ := tk.WaitedFor()
			require.Equal(t, "hold", limit, name)
			require.True(t, imposed, name)
			q.Report(t.Context(), tk, throttle.Feedback{State: throttle.Unused})
			require.NoError(t, again(q, tk), name)
			require.Zero(t, tk.Waited(), name)
			limit, imposed, _ = tk.WaitedFor()
			require.Empty(t, limit, name)
			require.False(t, imposed, name)
		}
	})
}

// A handClock shows the time that was set. It has no timers.
type handClock struct{ now atomic.Int64 }

func (c *handClock) Now() time.Time                     { return time.Unix(0, c.now.Load()) }
func (*handClock) After(time.Duration) <-chan time.Time { return nil }

// A tickingClock moves on by a microsecond with each reading, as the clock of the system does. It
// has no timers.
type tickingClock struct{ now atomic.Int64 }

func (c *tickingClock) Now() time.Time {
	return time.Unix(0, c.now.Add(int64(time.Microsecond)))
}
func (*tickingClock) After(time.Duration) <-chan time.Time { return nil }

// TestQueue_anImmediateRejectionIsNoWait checks that the time that it takes to ask the limiters
// does not count as a wait of a ticket that is rejected before it begins to wait.
func TestQueue_anImmediateRejectionIsNoWait(t *testing.T) {
	for name, tt := range map[string]struct {
		maxWait, maxServerWait time.Duration
		cost                   int64
	}{
		"longer than MaxWait":       {maxWait: time.Second, cost: 2},
		"longer than MaxServerWait": {maxServerWait: time.Second, cost: 1},
		"never granted":             {cost: 3},
	} {
		clk := new(tickingClock)
		q, l := &Queue{Clock: clk, MaxWait: tt.maxWait}, throttle.WithClock(bucket(time.Minute, 2), clk)
		_, err := l.Reserve(t.Context(), throttle.Claim{})
		require.NoError(t, err)
		tk := &Ticket{MaxServerWait: tt.maxServerWait}
		tk.Add(throttle.Demand{Limiter: l, Cost: tt.cost})
		tk.Add(throttle.Demand{Limiter: &holdLimiter{until: time.Unix(60, 0), serverImposed: true}})
		queued := 0
		err = q.WaitHooks(t.Context(), tk, Hooks{Queued: func(Position) error { queued++; return nil }})
		require.ErrorIs(t, err, throttle.ErrRejected, name)
		require.Zero(t, queued, name)
		require.Zero(t, tk.Waited(), name)
	}
}

// TestQueue_countsNoCallersWhoseTimeIsOver checks that a caller whose MaxWait has passed, and that
// no timer has woken yet, takes no place in a full Queue.
func TestQueue_countsNoCallersWhoseTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clk := new(handClock)
		q, l := &Queue{Clock: clk, MaxWait: time.Second, MaxTotal: 1}, new(slotLimiter)
		var wg sync.WaitGroup
		for i, passed := range []time.Duration{0, time.Second - 1, time.Second, 2*time.Second + 1} {
			clk.now.Store(int64(time.Hour + passed))
			var err error
			wg.Go(func() { err = q.Wait(t.Context(), ticket(l)) })
			synctest.Wait()
			var full *FullError
			require.Equal(t, i == 1, errors.As(err, &full), passed)
			require.Equal(t, 1, q.Snapshot().Waiting)
		}
		require.NoError(t, q.Close())
		wg.Wait()
	})
}

// A watchedContext counts the functions that wait for its end.
type watchedContext struct {
	context.Context
	done     chan struct{} // another one than that of Context, so that AfterFunc is called
	watchers atomic.Int64
}

func (c *watchedContext) Done() <-chan struct{} { return c.done }

func (c *watchedContext) AfterFunc(f func()) (stop func() bool) {
	c.watchers.Add(1)
	stopped := context.AfterFunc(c.Context, f)
	return func() bool {
		c.watchers.Add(-1)
		return stopped()
	}
}

// TestQueue_remoteCallsLeaveNothingBehind checks that no call to a limiter that may block stays
// registered for the end of the Queue after it has ended.
func TestQueue_remoteCallsLeaveNothingBehind(t *testing.T) {
	for _, maxWait := range []time.Duration{0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			q := &Queue{MaxWait: maxWait}
			q.Snapshot()
			watched := &watchedContext{Context: q.closeCtx, done: make(chan struct{})}
			q.closeCtx = watched
			most := int64(0)
			count := func(context.Context, throttle.Claim) (throttle.Decision, error) {
				most = max(most, watched.watchers.Load())
				return throttle.Decision{Wait: time.Second}, nil
			}
			for range 3 {
				require.NoError(t, q.Wait(t.Context(), ticket(&scriptedLimiter{blocks: true, script: []step{count, count}})))
			}
			require.EqualValues(t, 1, most, "during a call")
			require.Zero(t, watched.watchers.Load())
			q.Close()
		})
	}
}

// TestQueue_tryAsksLimitsForWhichNoOneWaits checks that callers that wait for one limit do not reject
// a Try for another one, and that the first rejection of several is returned.
func TestQueue_tryAsksLimitsForWhichNoOneWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, start := new(Queue), time.Now()
		a, b := &holdLimiter{until: start.Add(time.Minute)}, &holdLimiter{until: start.Add(time.Hour)}
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, q.Wait(t.Context(), ticket(a))) })
		synctest.Wait()
		require.NoError(t, q.Try(t.Context(), ticket(throttle.AllowAll)))
		for _, demands := range [][]throttle.Demand{
			{{Limiter: a, Key: "a"}, {Limiter: b, Key: "b"}}, {{}, {Limiter: throttle.AllowAll, Key: "c"}, {Limiter: a, Key: "a"}, {Limiter: b, Key: "b"}},
		} {
			var rejected *throttle.RejectedError
			require.ErrorAs(t, q.Try(t.Context(), &Ticket{Demands: demands}), &rejected)
			require.Equal(t, "a", rejected.Key)
			require.Equal(t, time.Minute, rejected.Decision.Wait)
		}
		wg.Wait()
		requireEmpty(t, q)
	})
}

// TestTicket_errorsTakeNoUnits checks a limiter that returns an error together with a grant: nothing
// was taken, so nothing is returned, except what the limits before it have granted.
func TestTicket_errorsTakeNoUnits(t *testing.T) {
	first, broken := &scriptedLimiter{}, &scriptedLimiter{script: []step{func(context.Context, throttle.Claim) (throttle.Decision, error) {
		return throttle.Decision{OK: true}, errGone
	}}}
	require.ErrorIs(t, new(Queue).Wait(t.Context(), ticket(first, broken)), errGone)
	require.Equal(t, []int{1, 0}, []int{first.returned, broken.returned})
}
