package heed

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWaitContext checks how the context of a wait ends: at the end of the longest wait that
// the rules allow, with the context of the request, by CancelRequest, and after the wait.
// Contexts that a limiter derives from it must end in the same way, with the same cause.
func TestWaitContext(t *testing.T) {
	tooLong, gone := errors.New("too long"), errors.New("gone")
	type keyType struct{}
	for name, tt := range map[string]struct {
		limit, deadline time.Duration // 0: none
		end             func(rt *roundTrip, w *waitContext, cancel context.CancelCauseFunc)
		at              time.Duration
		err, cause      error
	}{
		"limit":                     {limit: 3 * time.Second, at: 3 * time.Second, err: context.DeadlineExceeded, cause: tooLong},
		"limit before the deadline": {limit: 3 * time.Second, deadline: time.Minute, at: 3 * time.Second, err: context.DeadlineExceeded, cause: tooLong},
		"deadline before the limit": {limit: time.Minute, deadline: 3 * time.Second, at: 3 * time.Second, err: context.DeadlineExceeded, cause: context.DeadlineExceeded},
		"deadline":                  {deadline: 3 * time.Second, at: 3 * time.Second, err: context.DeadlineExceeded, cause: context.DeadlineExceeded},
		"the request is canceled":   {limit: time.Minute, end: func(_ *roundTrip, _ *waitContext, cancel context.CancelCauseFunc) { cancel(gone) }, at: time.Second, err: context.Canceled, cause: gone},
		"CancelRequest":             {limit: time.Minute, end: func(rt *roundTrip, _ *waitContext, _ context.CancelCauseFunc) { rt.t.CancelRequest(rt.req) }, at: time.Second, err: context.Canceled, cause: errCanceled},
		"the wait is over":          {limit: time.Minute, end: func(_ *roundTrip, w *waitContext, _ context.CancelCauseFunc) { w.end() }, at: time.Second, err: context.Canceled, cause: context.Canceled},
		"the wait without a limit":  {end: func(_ *roundTrip, w *waitContext, _ context.CancelCauseFunc) { w.end() }, at: time.Second, err: context.Canceled, cause: context.Canceled},
		"canceled without a limit":  {end: func(_ *roundTrip, _ *waitContext, cancel context.CancelCauseFunc) { cancel(gone) }, at: time.Second, err: context.Canceled, cause: gone},
		"CancelRequest, no limit":   {end: func(rt *roundTrip, _ *waitContext, _ context.CancelCauseFunc) { rt.t.CancelRequest(rt.req) }, at: time.Second, err: context.Canceled, cause: errCanceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), keyType{}, "value"))
				defer cancel(nil)
				want := time.Duration(0)
				if tt.deadline > 0 {
					want = tt.deadline
					var stop context.CancelFunc
					ctx, stop = context.WithTimeout(ctx, tt.deadline)
					defer stop()
				}
				tr := new(Transport)
				tr.resolve()
				rt := &roundTrip{t: tr, req: request(t, "GET", "").WithContext(ctx), attemptResources: &attemptResources{ctx: ctx}}
				w := &waitContext{Context: ctx, roundTrip: rt}
				if tt.limit > 0 {
					w.deadline, w.reason = start.Add(tt.limit), func(*roundTrip) error { return tooLong }
					if want == 0 || tt.limit < want {
						want = tt.limit
					}
				}
				deadline, ok := w.Deadline()
				require.Equal(t, want > 0, ok)
				require.True(t, !ok || deadline.Equal(start.Add(want)))
				require.NoError(t, w.Err())
				child, stop := context.WithCancel(w)
				defer stop()
				if tt.end != nil {
					time.AfterFunc(time.Second, func() { tt.end(rt, w, cancel) })
				}
				<-child.Done()
				require.Equal(t, tt.at, time.Since(start))
				for _, c := range []context.Context{w, child} {
					require.ErrorIs(t, c.Err(), tt.err)
					require.ErrorIs(t, context.Cause(c), tt.cause)
					require.Equal(t, "value", c.Value(keyType{}))
				}
				if w.roundTrip != nil {
					w.end()
				}
				synctest.Wait()
			})
		})
	}
}

// TestWaitContext_afterTheWait checks that a context that a limiter kept has ended, although
// nothing asked for its Done during the wait.
func TestWaitContext_afterTheWait(t *testing.T) {
	tr := new(Transport)
	req := request(t, "GET", "")
	rt := &roundTrip{t: tr, req: req, attemptResources: &attemptResources{ctx: req.Context()}}
	w := &waitContext{Context: req.Context(), roundTrip: rt, deadline: time.Now().Add(time.Hour), reason: (*roundTrip).errMaxWait}
	w.end()
	select {
	case <-w.Done():
	default:
		t.Fatal("it has not ended")
	}
	require.ErrorIs(t, w.Err(), context.Canceled)
	require.Zero(t, tr.cancellations.len(), "the request of a later call must not be canceled by it")
}
