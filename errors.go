package heed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/heed-go/heed/throttle"
)

// Why a request was not sent again. A GiveUpError matches one of them, or what
// ended the context, or a *throttle.RefusedError; Info.StopReason is one.
var (
	ErrMaxAttempts       = errors.New("heed: no attempts are left")
	ErrBodyNotReplayable = errors.New("heed: the body cannot be sent again: set Request.GetBody")
	ErrMaxWait           = errors.New("heed: the wait is too long")
	ErrMaxElapsed        = errors.New("heed: the time for retries has elapsed")
	ErrRetryBudget       = errors.New("heed: the retry budget is exhausted: see RetryPolicy.Budget")
	ErrNotIdempotent     = errors.New("heed: request may have been processed and is not idempotent: see heed.RequestOptions")
	ErrRetryForbidden    = errors.New("heed: the server forbids a retry")
)

// withSetting returns err, one of the errors above, with the setting that ran out.
func withSetting(err error, setting string, value any) error {
	return &settingError{err, setting, value}
}

type settingError struct {
	err     error
	setting string
	value   any
}

func (e *settingError) Error() string { return fmt.Sprintf("%v: %s is %v", e.err, e.setting, e.value) }
func (e *settingError) Unwrap() error { return e.err }

// A GiveUpError is returned for a request that got no response, if it was sent more
// than once, or was sent once and Reason says why not again; and for a request that
// was not sent because of the wait that it would have taken. Nothing else is wrapped:
// a request that was sent once and is not retried in any case (RequestOptions.NoRetry, or
// a failure that is final) fails with the error of Base, one that was not sent for
// another reason (Breaker, Queue.Close, a full line, Limits) with that reason, and
// one whose context ends before it is sent with the cause of that.
//
// It matches, in the sense of errors.Is and errors.As, what the last attempt
// failed with, Reason, and context.DeadlineExceeded if a deadline is why. It is a
// net.Error.
type GiveUpError struct {
	Method      string
	URL         string        // without password, values of the query, and fragment
	Attempts    []Attempt     // those that were sent, oldest first
	QueueWait   time.Duration // time in line, all attempts
	BackoffWait time.Duration // time between attempts
	Reason      error         // why it was not sent again
	Err         error         // what the last attempt failed with; nil if it was answered, or none was sent
}

// Error says what was tried, what came of each attempt, and why there was no other.
// Method and URL are not in it: http.Client puts them before it.
func (e *GiveUpError) Error() string {
	var b strings.Builder
	b.WriteString("heed: gave up")
	switch n := len(e.Attempts); n {
	case 0:
		b.WriteString(" before it was sent")
	case 1:
		b.WriteString(" after 1 attempt")
	default:
		b.WriteString(" after " + strconv.Itoa(n) + " attempts")
	}
	if w := e.QueueWait + e.BackoffWait; w > 0 {
		b.WriteString(" and " + w.Round(time.Millisecond).String() + " of waiting")
	}
	for i, a := range e.Attempts {
		b.WriteString(": " + strconv.Itoa(i+1) + ": " + a.String())
	}
	if e.Reason != nil && !errors.Is(e.Err, e.Reason) {
		b.WriteString(": " + e.Reason.Error())
	}
	return b.String()
}

// Unwrap returns Err and Reason, those that are there.
func (e *GiveUpError) Unwrap() []error {
	var errs []error
	for _, err := range []error{e.Err, e.Reason} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// Timeout implements net.Error: it reports whether the last attempt timed out, or a
// deadline is why there was no other.
func (e *GiveUpError) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.Is(e.Reason, context.DeadlineExceeded) || errors.As(e.Err, &t) && t.Timeout()
}

// Temporary implements net.Error: it reports whether the last attempt failed with an
// error that calls itself temporary, or Timeout.
func (e *GiveUpError) Temporary() bool {
	var t interface{ Temporary() bool }
	return errors.As(e.Err, &t) && t.Temporary() || e.Timeout()
}

// An Attempt is what came of sending a request once.
type Attempt struct {
	Status int    // of the answer; 0: there was none
	Err    error  // nil if there was an answer
	Body   string // beginning of the answer's body, at most 256 bytes; "" if it was not read
}

// String returns what was said, such as `503 "try later"`.
func (a Attempt) String() string {
	switch {
	case a.Err != nil:
		return a.Err.Error()
	case a.Body != "":
		return strconv.Itoa(a.Status) + " " + strconv.Quote(a.Body)
	}
	return strconv.Itoa(a.Status) + " " + http.StatusText(a.Status)
}

// isWaitError reports whether err says that a wait would have been too long.
func isWaitError(err error) bool {
	var r *throttle.RefusedError
	return errors.As(err, &r) || errors.Is(err, ErrMaxWait) || errors.Is(err, context.DeadlineExceeded)
}

// statusError is a failing answer as a Breaker hears of it.
type statusError int

func (s statusError) Error() string {
	return "heed: server responded " + strconv.Itoa(int(s)) + " " + http.StatusText(int(s))
}

// errAttemptTimeout ends an attempt that has had no answer within RetryPolicy.AttemptTimeout.
var errAttemptTimeout error = attemptTimeoutError{}

type attemptTimeoutError struct{}

func (attemptTimeoutError) Error() string {
	return "heed: no response headers within RetryPolicy.AttemptTimeout"
}
func (attemptTimeoutError) Timeout() bool   { return true }
func (attemptTimeoutError) Is(t error) bool { return t == context.DeadlineExceeded }

// errCanceled is returned for a request that Request.Cancel or CancelRequest ended
// while it waited.
var errCanceled error = canceledError{}

type canceledError struct{}

func (canceledError) Error() string   { return "heed: request canceled" }
func (canceledError) Is(t error) bool { return t == context.Canceled }

// errNoResult is a broken Base: http.RoundTripper forbids it.
var errNoResult = errors.New("heed: Base returned neither a response nor an error")
