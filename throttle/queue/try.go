package queue

import (
	"context"
	"errors"
	"time"

	"github.com/heed-go/heed/throttle"
)

// Try is like Wait, but does not wait. It returns nil if all demands of t are granted now, and a
// *throttle.RejectedError if one of them is not, or if other callers wait for its limits. Other errors are those of
// Wait. A limiter that may block is asked with ctx. After an error t holds no units.
func (q *Queue) Try(ctx context.Context, t *Ticket) error {
	now, asked, err := q.tryNow(ctx, t, false)
	switch {
	case err != nil || t.grant != nil:
	case q.numWaiting.Load() >= closedBit:
		err = ErrClosed
	default:
		err = findRejection(ctx, t, q.time.At(now))
		if !asked { // the claims of t without Claim.Waits have not been counted
			q.countRejection(ctx, t, err)
		}
	}
	q.finish(ctx, t, err)
	return err
}

// tryNow begins a call of Wait or Try for t. It asks the limiters, unless other callers wait for them, and returns the
// time of that. waits reports whether the caller waits if they reject t, and asked whether they were asked.
func (q *Queue) tryNow(ctx context.Context, t *Ticket, waits bool) (now int64, asked bool, err error) {
	switch {
	case ctx.Err() != nil:
		return 0, false, context.Cause(ctx)
	case t.isGranted():
		return 0, false, errAlreadyGranted
	case q.Aging < 0:
		return 0, false, q.Validate()
	}
	q.initOnce.Do(q.init)
	now = q.time.Read(time.Time{})
	t.grant, t.waited, t.longestWait = nil, 0, nil
	if q.numWaiting.Load() > 0 && !q.canBypass(t) {
		return now, false, nil
	}
	if err = q.ask(ctx, t, throttle.Claim{Now: q.time.At(now), Waits: waits}); t.grant != nil && t.arrival == 0 {
		t.arrival = max(now, 1) // a retry of t keeps this arrival; tickets of the same instant are equal
	}
	return now, true, err
}

// ask asks the limiters of t with c, outside the queue.
func (q *Queue) ask(ctx context.Context, t *Ticket, c throttle.Claim) (err error) {
	defer func() { // also if a limiter panics
		if t.grant == nil {
			q.wakeLimits(t) // other tickets may have been rejected while t held units for a moment
		}
	}()
	c.Deadline, _ = ctx.Deadline()
	if t.isNonBlocking() {
		var rejection throttle.Decision
		_, err = t.reserve(ctx, c, &rejection)
		return err
	}
	r := q.reserveBounded(ctx, t, c, q.maxWait())
	switch {
	case r.err == nil || r.aborted == nil:
		return r.err
	case r.aborted == errWaitExpired:
		return &throttle.RejectedError{Decision: throttle.Decision{At: c.Now}}
	}
	return r.aborted
}

// lastTry repeats the claims of t without Claim.Waits if err, with which its wait has ended, is a rejection imposed
// by the server, and returns err, or nil if all are granted: a limiter may grant what it would not grant to a caller
// that waits. For other rejections, and a retry, see countRejection. The wait began at began.
func (q *Queue) lastTry(ctx context.Context, t *Ticket, err error, retry bool, began time.Duration) error {
	rejected, ok := err.(*throttle.RejectedError)
	if !ok || retry || !rejected.Decision.ServerImposed || ctx.Err() != nil {
		q.countRejection(ctx, t, err)
		return err
	}
	now := q.time.Read(time.Time{})
	_ = q.ask(ctx, t, throttle.Claim{Now: q.time.At(now), Waited: max(time.Duration(now)-began, 1)}) // err is why the call fails
	if t.grant != nil {
		return nil
	}
	return err
}

// countRejection repeats the claims of t without Claim.Waits if err, with which its wait has ended, is a
// rejection, so that limits that count rejections count this one.
func (q *Queue) countRejection(ctx context.Context, t *Ticket, err error) {
	if _, rejected := err.(*throttle.RejectedError); !rejected {
		return
	}
	for i := range t.Demands {
		m := &t.Demands[i]
		if m.Limiter == nil || !m.Limiter.Traits().CountsRejected {
			continue
		}
		c := throttle.Claim{Key: m.Key, Cost: m.Cost, Now: q.time.At(q.time.Read(time.Time{}))}
		if d, err := m.Limiter.Reserve(ctx, c); err == nil && d.OK { // another limit has rejected t
			m.Limiter.Report(withoutCancel(ctx, m.Limiter), c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
		}
	}
}

// findRejection returns the rejection of the first demand of t that is rejected. It takes no units.
func findRejection(ctx context.Context, t *Ticket, now time.Time) error {
	e := &throttle.RejectedError{Decision: throttle.Decision{At: now}}
	for i := range t.Demands {
		m := &t.Demands[i]
		if m.Limiter == nil {
			continue
		}
		d, err := m.Limiter.Reserve(ctx, throttle.Claim{Key: m.Key, Cost: m.Cost, Now: now, DryRun: true})
		if err != nil {
			return err
		}
		if e.Key, e.Decision.Policy = m.Key, d.Policy; !d.OK {
			e.Decision = d
			break
		}
	}
	return e
}

// finish counts err, with which a call of Wait or Try for t ends, and traces the end. If that panics,
// t is canceled, because its caller does not learn that it was granted.
func (q *Queue) finish(ctx context.Context, t *Ticket, err error) {
	switch {
	case err == nil:
	case errors.Is(err, throttle.ErrRejected):
		q.numRejected.Add(1)
	default:
		q.numFailed.Add(1)
	}
	if q.Trace == nil {
		return
	}
	traced := false
	defer func() {
		if !traced && err == nil {
			q.Report(ctx, t, throttle.Feedback{State: throttle.Unused})
		}
	}()
	switch tr := q.Trace; {
	case err != nil && tr.Failed != nil:
		tr.Failed(t, err)
	case err == nil && tr.Granted != nil:
		tr.Granted(t)
	}
	traced = true
}
