package heed

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/heed-go/heed/internal/explain"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
)

// Trace holds functions that are called while a request is processed, for metrics, logs
// and spans. Nil functions are not called.
//
// The functions are called without a lock, on the goroutine of the request; Hold and
// LimitLearned also on the goroutine that reports the event to the Tracker, for each
// Transport that shares it. They must not block, must not modify the request and must not
// read or close bodies. The request is that of the caller; AttemptStart and AttemptDone get
// the one that is sent to Base, whose context is that of the attempt, see AttemptFrom.
//
// For each attempt the order is WaitStart, WaitDone, AttemptStart, AttemptDone, and Retry if
// another one follows. Done is the last call. AttemptStart is not called if WaitDone has an
// error, or if RetryPolicy.BeforeSend or the Breaker returns one. WaitStart and WaitDone are
// called again for an attempt whose units were returned during a slow BeforeSend.
//
// The String methods of the Info types describe the event in a sentence without secrets:
// URLs in it have no user, query and fragment, and limits no key.
type Trace struct {
	// WaitStart is called once per call of WaitDone: when the request begins to wait in the
	// queue, or immediately before WaitDone if it does not wait.
	WaitStart func(*http.Request, WaitInfo)

	// WaitDone is called when the request leaves the queue, granted or with an error.
	WaitDone func(*http.Request, WaitInfo)

	// AttemptStart is called before an attempt is sent.
	AttemptStart func(*http.Request, AttemptInfo)

	// AttemptDone is called when an attempt has got response headers or has failed.
	AttemptDone func(*http.Request, AttemptInfo)

	// Retry is called when a failed attempt will be retried, before the delay.
	Retry func(*http.Request, RetryInfo)

	// Done is called when RoundTrip returns. It is not called for an invalid request.
	Done func(*http.Request, DoneInfo)

	// Hold is called when a quota of a server is held or released.
	Hold func(quota.HoldInfo)

	// LimitLearned is called when a limit of a server was learned, changed or dropped.
	LimitLearned func(quota.LimitLearnedInfo)
}

// A WaitInfo describes a wait in the queue, in WaitStart its beginning.
type WaitInfo struct {
	// Attempt is the number of the attempt that waits, starting at 1.
	Attempt int

	// Cost is the number of units that the attempt takes from Transport.Limiter. They are
	// not taken if Err is set.
	Cost int64

	// At is the time at which the wait began, on the clock of the Queue. Zero means that the
	// request did not wait; Ahead, ExpectedEnd and Waited are then zero.
	At time.Time

	// StartLimit is the name of the limit that the request waited for at the beginning. Empty means
	// that the limit was just asked for the first time, for another request.
	StartLimit string

	// Ahead is the number of callers that waited for StartLimit at the beginning and went before the
	// request, by priority and arrival. See queue.Position.
	Ahead int

	// ExpectedEnd estimates, at the beginning, when the request is granted. Zero means unknown.
	ExpectedEnd time.Time

	// Waited is the time that the request waited, at least 1 ns if it did; zero in WaitStart.
	Waited time.Duration

	// Limit is the name of the limit that caused the wait: the one that the request waited for
	// longest, or the one that rejected it; in WaitStart, StartLimit. Empty means that there was no wait, or
	// that it is not known.
	Limit string

	// Reason is the reason for which a limit of the server rejects requests: "quota",
	// "retry-after", "learned rate", "slow start", "overload", or "quota of" and a
	// unit. Empty means that Limit is a limit of the program, or not known.
	Reason string

	// ServerImposed is set if Limit is a limit of the server, stated or estimated.
	ServerImposed bool

	// Estimated is set if the server did not state Limit.
	Estimated bool

	// Err states why the request was not granted. Nil means that it was granted, or still waits.
	Err error
}

// String returns a sentence such as "waits for quota api.example.com (retry-after), 3 ahead,
// expected to end in 1.2 s", or "waited 1.2 s for quota api.example.com (retry-after), 3
// ahead".
func (i WaitInfo) String() string {
	switch {
	case i.Waited > 0:
		return explain.Wait(i.Waited, i.Limit, i.Ahead)
	case i.Err != nil && i.Limit == "":
		return "was not granted: " + errorText(i.Err)
	case i.Err != nil:
		return "was rejected by " + explain.Limit(i.Limit)
	case i.At.IsZero():
		return "did not wait"
	}
	s := "waits for " + explain.Limit(i.Limit) + explain.Ahead(i.Ahead)
	if !i.ExpectedEnd.IsZero() {
		s += ", expected to end in " + explain.Duration(i.ExpectedEnd.Sub(i.At))
	}
	return s
}

// An AttemptInfo describes an attempt. In AttemptStart only Attempt and Sent are set.
type AttemptInfo struct {
	// Attempt is the number of the attempt, starting at 1.
	Attempt int

	// Sent is the time at which Base gets the request, on Transport.Clock.
	Sent time.Time

	// Duration is the time from Sent to the headers of the response or to the error.
	Duration time.Duration

	// Status is the status code of the response. Zero means that there was none.
	Status int

	// Response is the response. Its body must not be read. Nil means that there was none.
	Response *http.Response

	// Err is the error of the attempt. Nil means that there was a response.
	Err error

	// Outcome is how the attempt counts for the limits: throttle.Throttled means that a
	// limit of the server rejected it.
	Outcome throttle.Outcome

	// RetryAfter is the wait that the response states, in a header or its body. Zero means that it
	// states none, or a wait of zero; in AttemptDone also that the response is not a rejection.
	RetryAfter time.Duration
}

// A RetryInfo describes a failed attempt that will be retried.
type RetryInfo struct {
	AttemptInfo

	// Delay is the time until the retry enters the queue. Zero means that it enters the
	// queue immediately, where it may wait for a limit that the server stated.
	Delay time.Duration
}

// String returns a sentence such as "attempt 1 failed with status 503: retry in 1.2 s".
func (i RetryInfo) String() string {
	s := "attempt " + strconv.Itoa(i.Attempt) + " failed" + result(i.Status, i.Err) + ": retry "
	switch {
	case i.Delay > 0:
		return s + "in " + explain.Duration(i.Delay)
	case i.RetryAfter > 0:
		return s + "when the server permits, in " + explain.Duration(i.RetryAfter)
	}
	return s + "now"
}

// result describes the result of an attempt: " with status 503", ": " and the error, or "" if
// there was no attempt.
func result(status int, err error) string {
	switch {
	case err != nil:
		return ": " + errorText(err)
	case status != 0:
		return " with status " + strconv.Itoa(status)
	}
	return ""
}

// errorText returns the text of err as explain.Error does, without the keys of limits and with
// rounded durations.
func errorText(err error) string {
	return explain.RoundDurations(explain.ErrorWithoutKeys(err, keyOf))
}

// keyOf returns the key of the limit that rejected a request: a part of the text of err.
func keyOf(err error) string {
	if r, ok := err.(*throttle.RejectedError); ok {
		return r.Key
	}
	return ""
}

// afterAttempts returns "before the first attempt", "after 1 attempt" or "after 2 attempts".
func afterAttempts(n int) string {
	switch n {
	case 0:
		return "before the first attempt"
	case 1:
		return "after 1 attempt"
	}
	return "after " + strconv.Itoa(n) + " attempts"
}

// A DoneInfo describes a call of RoundTrip that returns. Limits is not set.
type DoneInfo struct {
	Info

	// Duration is the time from the call of RoundTrip to its return.
	Duration time.Duration

	// RetryDelay is the part of QueueWait and BackoffWait after the first attempt.
	RetryDelay time.Duration

	// Status is the status code of the response. Zero means that an error is returned.
	Status int

	// Response is the response that is returned. Nil means that an error is returned.
	Response *http.Response

	// Err is the error that is returned. Nil means that a response is returned.
	Err error
}

// String returns a sentence such as "gave up: heed: no attempts are left:
// RetryPolicy.MaxAttempts is 4 (after 4 attempts, the last with status 503)", or "ended after 2 attempts, the last with
// status 200".
func (i DoneInfo) String() string {
	sent := afterAttempts(i.Attempts)
	if i.Attempts > 0 {
		sent += ", the last" + result(i.last())
	}
	if i.StopReason == nil {
		return "ended " + sent
	}
	return "gave up: " + errorText(i.StopReason) + " (" + sent + ")"
}

// last returns the result of the last attempt.
func (i DoneInfo) last() (status int, err error) {
	var g *GiveUpError
	if errors.As(i.Err, &g) && len(g.Attempts) > 0 {
		a := g.Attempts[len(g.Attempts)-1]
		return a.Status, a.Err
	}
	return i.Status, i.Err
}

// WithTrace returns a context that adds t to the traces of its requests. The functions of
// Transport.Trace are called first, then those of traces that ctx already carries, then
// those of t. Hold and LimitLearned of t are not called, because they do not belong to a
// request. If t is nil, WithTrace returns ctx.
func WithTrace(ctx context.Context, t *Trace) context.Context {
	if t == nil {
		return ctx
	}
	v := settingsFrom(ctx)
	v.trace = JoinTraces(v.trace, t)
	return context.WithValue(ctx, settingsKey{}, &v)
}

// JoinTraces returns a Trace that calls the functions of all traces, in their order. Nil
// traces are ignored. A function of the result is nil if all traces have a nil one. The
// result is nil if all traces are nil. The traces must not be changed afterwards.
func JoinTraces(traces ...*Trace) *Trace {
	var all *Trace
	for _, t := range traces {
		switch {
		case t == nil:
		case all == nil:
			all = t
		default:
			all = all.join(t)
		}
	}
	return all
}

// join returns a Trace that calls the functions of t and then those of next.
func (t *Trace) join(next *Trace) *Trace {
	return &Trace{
		WaitStart:    joinRequestHooks(t.WaitStart, next.WaitStart),
		WaitDone:     joinRequestHooks(t.WaitDone, next.WaitDone),
		AttemptStart: joinRequestHooks(t.AttemptStart, next.AttemptStart),
		AttemptDone:  joinRequestHooks(t.AttemptDone, next.AttemptDone),
		Retry:        joinRequestHooks(t.Retry, next.Retry),
		Done:         joinRequestHooks(t.Done, next.Done),
		Hold:         joinHooks(t.Hold, next.Hold),
		LimitLearned: joinHooks(t.LimitLearned, next.LimitLearned),
	}
}

// joinRequestHooks returns a function that calls f and then g, which may be nil.
func joinRequestHooks[I any](f, g func(*http.Request, I)) func(*http.Request, I) {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(req *http.Request, info I) {
		f(req, info)
		g(req, info)
	}
}

// joinHooks is joinRequestHooks for functions without a request.
func joinHooks[I any](f, g func(I)) func(I) {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(info I) {
		f(info)
		g(info)
	}
}

func statusOf(resp *http.Response) int {
	if resp == nil {
		return 0
	}
	return resp.StatusCode
}

// waitDoneInfo describes the wait that has just ended with err.
func (rt *roundTrip) waitDoneInfo(err error) WaitInfo {
	i, t := rt.attempt.wait, &rt.attempt.ticket
	i.Limit, i.ServerImposed, i.Estimated = t.WaitedFor()
	if !i.At.IsZero() {
		i.Waited = max(t.Waited(), 1)
	}
	if i.Err = err; err != nil {
		i.addRejection(err)
	}
	_, i.Reason = explain.SplitLimit(i.Limit)
	return i
}

// addRejection sets the limit that rejected the request with err, if one did. It allocates.
func (i *WaitInfo) addRejection(err error) {
	var rejected *throttle.RejectedError
	if errors.As(err, &rejected) && rejected.Decision.Policy != "" {
		d := &rejected.Decision
		i.Limit, i.ServerImposed, i.Estimated = d.Policy, d.ServerImposed, d.Estimated
	}
}

// attemptDoneInfo describes the attempt that has just ended.
func (rt *roundTrip) attemptDoneInfo() AttemptInfo {
	a := rt.attempt
	return AttemptInfo{
		Attempt: rt.info.Attempts, Sent: a.tracedAt, Duration: max(a.resultAt().Sub(a.tracedAt), 0),
		Status: statusOf(a.resp), Response: a.resp, Err: a.err, Outcome: a.outcome, RetryAfter: a.retryAfter,
	}
}

func (rt *roundTrip) doneInfo(resp *http.Response, err error) DoneInfo {
	return DoneInfo{
		Info: rt.info, Duration: max(rt.t.resolved.clock.Now().Sub(rt.startedAt), 0), RetryDelay: rt.betweenAttempts,
		Status: statusOf(resp), Response: resp, Err: err,
	}
}
