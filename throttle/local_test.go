package throttle

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// store is a limiter far away. It counts the questions that are asked at a time.
type store struct {
	Limiter
	takes     time.Duration
	now, most atomic.Int64
	asked     atomic.Int64
}

type callerKey struct{}

func (s *store) Reserve(ctx context.Context, c Claim) (Decision, error) {
	if ctx.Value(callerKey{}) == nil {
		panic("not the caller's context")
	}
	s.asked.Add(1)
	n := s.now.Add(1)
	defer s.now.Add(-1)
	for m := s.most.Load(); n > m && !s.most.CompareAndSwap(m, n); m = s.most.Load() {
	}
	select {
	case <-time.After(s.takes):
		return s.Limiter.Reserve(ctx, c)
	case <-ctx.Done():
		return Decision{}, ctx.Err()
	}
}

func callerContext(t *testing.T) context.Context {
	return context.WithValue(t.Context(), callerKey{}, true)
}

func TestWaiter_asksFarLimitersOneQuestionPerLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, near := new(Waiter), bucket(100*time.Millisecond, 1)
		far := &store{Limiter: bucket(time.Second, 1), takes: 200 * time.Millisecond}
		ctx := callerContext(t)
		var wg sync.WaitGroup
		for range 2 { // the second has to wait, and so have all others
			require.NoError(t, w.Wait(ctx, ticket(near)))
			wg.Go(func() { assert.NoError(t, w.Wait(ctx, ticket(far))) })
		}
		time.Sleep(700 * time.Millisecond)
		d := newDiary()
		far.most.Store(0)
		for range 20 {
			for name, l := range map[string]Limiter{"far": far, "near": near} {
				wg.Go(func() {
					assert.NoError(t, w.Wait(ctx, ticket(l)))
					d.note(name)
				})
			}
		}
		wg.Wait()
		require.Equal(t, 1900*time.Millisecond, d.last("near"), "nobody waits for the I/O of another line")
		require.EqualValues(t, 1, far.most.Load())
		idle(t, w)
	})
}

func TestTicket_givesBackNoMoreThanIsDueAfterASlowRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near := bucket(100*time.Millisecond, 10)
		far := &store{Limiter: &gateLimiter{until: time.Now().Add(time.Hour)}, takes: 300 * time.Millisecond}
		ctx := callerContext(t)
		_, err := near.Reserve(ctx, Claim{Cost: 5})
		require.NoError(t, err)
		tk := ticket(far, near) // near is asked first all the same
		tk.Demands[1].Cost = 5
		d, err := tk.Reserve(ctx, time.Time{})
		require.NoError(t, err)
		require.False(t, d.OK)
		left, _ := near.Reserve(ctx, Claim{DryRun: true})
		require.EqualValues(t, 5, left.Remaining, "3 came back by themselves, 2 were given back")
	})
}

// A far slots limiter answers a while after it has decided.
type late struct {
	*slots
	fail atomic.Bool
}

func (l *late) Local() bool { return false }
func (l *late) Reserve(ctx context.Context, c Claim) (Decision, error) {
	d, err := l.slots.Reserve(ctx, c)
	time.Sleep(200 * time.Millisecond)
	if l.fail.Load() {
		return Decision{}, errGone
	}
	return d, err
}

func TestWaiter_whoCameWhileTheFirstWasAskingIsNotForgotten(t *testing.T) {
	for name, tt := range map[string]struct{ early, fail bool }{
		"granted":       {early: true},
		"refused":       {},
		"limiter fails": {fail: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, l, d := new(Waiter), &late{slots: new(slots)}, newDiary()
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					if w.Wait(t.Context(), ticket(l)) == nil {
						d.note("granted")
					} else {
						d.note("failed")
					}
				})
				time.Sleep(50 * time.Millisecond)
			}
			if tt.early {
				l.end()
				l.end()
			}
			time.Sleep(160 * time.Millisecond) // both are in line, and the first asks once more
			if !tt.early {
				l.end()
				l.end()
				w.Wake()
			}
			l.fail.Store(tt.fail)
			time.Sleep(200 * time.Millisecond)
			l.fail.Store(false)
			wg.Wait()
			require.LessOrEqual(t, d.last("granted"), 900*time.Millisecond, "%s: news is heard while a question is out", name)
			require.Equal(t, tt.fail, len(d.notes["failed"]) == 1, name)
			idle(t, w)
		})
	}
}

func TestWaiter_cancelledAsItIsCalled(t *testing.T) {
	everyWay(t, func(t *testing.T, as func(Limiter) Limiter) {
		for range 50 {
			w, l := new(Waiter), as(bucket(time.Second, 1))
			require.NoError(t, w.Wait(t.Context(), ticket(l)))
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			var wg sync.WaitGroup
			wg.Go(func() { w.Wait(ctx, ticket(l)) })
			synctest.Wait()
			wg.Go(func() { assert.NoError(t, w.Wait(t.Context(), ticket(l))) })
			wg.Wait()
			idle(t, w)
		}
	})
}

func TestWaiter_endsWhileAFarLimiterIsAsked(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(*Waiter, context.CancelCauseFunc)
		want error
	}{
		"cancel": {func(_ *Waiter, cancel context.CancelCauseFunc) { cancel(errGone) }, errGone},
		"close":  {func(w *Waiter, _ context.CancelCauseFunc) { w.Close() }, ErrClosed},
	} {
		synctest.Test(t, func(t *testing.T) {
			shut := &gateLimiter{until: time.Now().Add(1500 * time.Millisecond)}
			w, far := new(Waiter), &store{Limiter: shut, takes: time.Second}
			ctx, cancel := context.WithCancelCause(callerContext(t))
			var wg sync.WaitGroup
			for range 5 {
				wg.Go(func() { assert.ErrorIs(t, w.Wait(ctx, ticket(far)), tt.want, name) })
			}
			time.Sleep(2500 * time.Millisecond) // the first is asking, for it was told to come back
			shut.set(time.Now().Add(time.Hour))
			tt.end(w, cancel)
			wg.Wait()
			cancel(nil)
			idle(t, w)
		})
	}
}

var errGone = errors.New("gone")

func TestWaiter_errorOfALimiterIsItsCallersAlone(t *testing.T) {
	everyWay(t, func(t *testing.T, as func(Limiter) Limiter) {
		w, l := new(Waiter), &moody{Limiter: bucket(time.Second, 1), local: as(Unlimited) == Unlimited}
		require.NoError(t, w.Wait(t.Context(), ticket(l)))
		var wg sync.WaitGroup
		var failed atomic.Int64
		for range 5 {
			wg.Go(func() {
				if err := w.Wait(t.Context(), ticket(l)); err != nil {
					assert.Equal(t, errGone, err)
					failed.Add(1)
				}
			})
		}
		synctest.Wait()
		l.fail.Store(2)
		wg.Wait()
		require.EqualValues(t, 2, failed.Load())
		idle(t, w)
	})
}

// moody is a limiter that fails when told to.
type moody struct {
	Limiter
	local bool
	fail  atomic.Int64
}

func (l *moody) Local() bool { return l.local }
func (l *moody) Reserve(ctx context.Context, c Claim) (Decision, error) {
	if l.fail.Add(-1) >= 0 {
		return Decision{}, errGone
	}
	return l.Limiter.Reserve(ctx, c)
}

func TestLocal_isLostByWrappersOfWhatIsNot(t *testing.T) {
	near, far := bucket(time.Second, 1), &far{Limiter: Unlimited}
	for _, tt := range []struct {
		l    Limiter
		want bool
	}{
		{near, true}, {Unlimited, true}, {Blocked, true}, {far, false}, {struct{ Limiter }{near}, false},
		{AllOf(near, Unlimited), true}, {AllOf(near, far), false}, {AllOf(), true},
		{&Fallback{Primary: near, Secondary: Unlimited}, true}, {&Fallback{Primary: far, Secondary: near}, false},
	} {
		require.Equal(t, tt.want, isLocal(tt.l), "%T", tt.l)
	}
}

// moodier is a far limiter that panics, once told to.
type moodier struct {
	Limiter
	panics atomic.Bool
}

func (l *moodier) Reserve(ctx context.Context, c Claim) (Decision, error) {
	if l.panics.Swap(false) {
		panic("the limiter is broken")
	}
	return l.Limiter.Reserve(ctx, c)
}

func TestWaiter_whoseLimiterPanicsLeavesTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l, d := new(Waiter), &moodier{Limiter: bucket(time.Second, 1)}, newDiary()
		require.NoError(t, w.Wait(t.Context(), ticket(l)))
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				defer func() {
					if recover() != nil {
						d.note("panic")
					}
				}()
				assert.NoError(t, w.Wait(t.Context(), ticket(l)))
				d.note("granted")
			})
			synctest.Wait()
		}
		l.panics.Store(true)
		wg.Wait()
		require.Equal(t, []string{"panic", "granted", "granted"}, d.order)
		require.Equal(t, 2*time.Second, d.last("granted"), "nobody behind it waits longer")
		idle(t, w)
	})
}
