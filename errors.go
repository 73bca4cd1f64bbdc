package heed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/heed-go/heed/internal/explain"
)

// The reasons for which a request is not sent or not retried. Info.StopReason and
// GiveUpError.Reason match one of them, or are the cause of the context's end, a
// *throttle.RejectedError, or the error of a hook, a limiter or a breaker that prevented it.
var (
	// ErrMaxAttempts means that RetryPolicy.MaxAttempts or RetryPolicy.MaxFailures is reached,
	// or that RetryPolicy.Backoff returned backoff.Stop.
	ErrMaxAttempts = errors.New("heed: no attempts are left")

	// ErrBodyNotReplayable means that the request body cannot be sent a second time. See RetryPolicy.MaxBodyBuffer.
	ErrBodyNotReplayable = errors.New("heed: the body cannot be sent again: set Request.GetBody")

	// ErrMaxWait means that a wait would be longer than RequestOptions.MaxWait or
	// RetryPolicy.MaxServerWait, or that RequestOptions.NoWait is set.
	ErrMaxWait = errors.New("heed: the wait is too long")

	// ErrMaxElapsed means that the retry would begin later than RetryPolicy.MaxElapsed
	// allows, or after longer delays than RetryPolicy.MaxBackoff.
	ErrMaxElapsed = errors.New("heed: the time for retries has elapsed")

	// ErrRetryBudget means that RetryPolicy.Budget allows no further retry now.
	ErrRetryBudget = errors.New("heed: the retry budget is exhausted: see RetryPolicy.Budget")

	// ErrNotIdempotent means that the request may have been processed and is not
	// idempotent. See RequestOptions.Idempotent.
	ErrNotIdempotent = errors.New("heed: request may have been processed and is not idempotent: see heed.RequestOptions")

	// ErrRetryForbidden means that a response header, such as X-Should-Retry, forbids a retry.
	ErrRetryForbidden = errors.New("heed: the server forbids a retry")
)

// A settingError wraps one of the errors above, and names the setting that caused it.
type settingError struct {
	err     error
	setting string
	value   any
}

func (e *settingError) Error() string { return fmt.Sprintf("%v: %s is %v", e.err, e.setting, e.value) }
func (e *settingError) Unwrap() error { return e.err }

// A GiveUpError describes a request that failed after it was sent or while it waited. It is returned in these cases:
//
//   - The request got no response, and it was sent more than once, or it was sent once
//     and Reason is set.
//   - The request was not sent because the wait would have been too long, or because the
//     deadline of the context passed while it waited in the queue.
//   - The last response could not be returned: its body was discarded for a retry that
//     then could not be sent, or RetryPolicy.ShouldRetry or RetryPolicy.BeforeSend
//     returned an error.
//
// Other errors are returned as they are: the error of Base if the request was sent once and is not retried in any case
// (RequestOptions.NoRetry, or an error that is final); the error of the Breaker, the Queue or a limiter, or one that
// wraps the error of Transport.Limits or RetryPolicy.BeforeSend, if the request was not sent; and the cause of the
// context's end if the context was canceled before the request was sent, or its deadline passed before the request
// waited.
//
// A GiveUpError matches, in the sense of errors.Is and errors.As, Err and Reason. It
// matches context.DeadlineExceeded if a deadline is the reason. It implements net.Error.
type GiveUpError struct {
	// Method is the method of the request.
	Method string

	// URL is the URL of the request without its user, query values and fragment.
	URL string

	// Attempts holds the results of all attempts, oldest first.
	Attempts []Attempt

	// QueueWait is the time that the request waited in the queue, over all attempts.
	QueueWait time.Duration

	// BackoffWait is the time that the request was delayed outside the queue, see Info.
	BackoffWait time.Duration

	// LongestWait describes the longest single wait in the queue. Its Waited is zero if there was none.
	LongestWait WaitInfo

	// Reason states why the request was not sent again, or why it was not sent at all. It
	// is nil if Err is an error that is never retried.
	Reason error

	// Err is the error of the last attempt. It is nil if that attempt got a response, or if the request was not sent.
	Err error
}

// Error returns a message with the reason, which names the key of a limit if it has one, the number of attempts, the
// longest wait in the queue, and the result of each attempt. Durations are rounded, and URLs have no user, query and
// fragment. It has no Method and URL, which http.Client adds.
func (e *GiveUpError) Error() string {
	var b strings.Builder
	tried := afterAttempts(len(e.Attempts))
	if w := e.QueueWait + e.BackoffWait; w >= time.Millisecond/2 {
		tried += ", " + explain.Duration(w) + " of waiting"
	}
	if b.WriteString("heed: gave up"); e.Reason != nil && !errors.Is(e.Err, e.Reason) {
		b.WriteString(": " + explain.RoundDurations(explain.Error(e.Reason)) + " (" + tried + ")")
	} else {
		b.WriteString(" " + tried)
	}
	if e.LongestWait.Waited > 0 {
		b.WriteString(": " + e.LongestWait.String())
	}
	for i, a := range e.Attempts {
		b.WriteString(": " + strconv.Itoa(i+1) + ": " + a.String())
	}
	return b.String()
}

// Unwrap returns those of Err and Reason that are not nil.
func (e *GiveUpError) Unwrap() []error {
	return slices.DeleteFunc([]error{e.Err, e.Reason}, func(err error) bool { return err == nil })
}

// Timeout implements net.Error. It reports whether the last attempt timed out, or Reason is an exceeded deadline.
func (e *GiveUpError) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.Is(e.Reason, context.DeadlineExceeded) || errors.As(e.Err, &t) && t.Timeout()
}

// Temporary implements net.Error. It reports whether the error of the last attempt is
// temporary according to its own Temporary method, or Timeout returns true.
func (e *GiveUpError) Temporary() bool {
	var t interface{ Temporary() bool }
	return errors.As(e.Err, &t) && t.Temporary() || e.Timeout()
}

// An Attempt is the result of sending a request once.
type Attempt struct {
	// Status is the status code of the response, or 0 if there was no response.
	Status int

	// Err is the error of the attempt, or nil if there was a response.
	Err error

	// Body holds the first bytes of the response body, at most 256. It is "" if the body was not read.
	Body string
}

// String returns the error, as GiveUpError.Error does, or the status and the body, such as `503 "try later"`.
func (a Attempt) String() string {
	switch {
	case a.Err != nil:
		return explain.Error(a.Err)
	case a.Body != "":
		return strconv.Itoa(a.Status) + " " + strconv.Quote(a.Body)
	}
	return strconv.Itoa(a.Status) + " " + http.StatusText(a.Status)
}

// errAttemptTimeout cancels an attempt that gets no response headers within RetryPolicy.AttemptTimeout.
var errAttemptTimeout error = attemptTimeoutError{}

type attemptTimeoutError struct{}

func (attemptTimeoutError) Error() string {
	return "heed: no response headers within RetryPolicy.AttemptTimeout"
}
func (attemptTimeoutError) Timeout() bool   { return true }
func (attemptTimeoutError) Is(t error) bool { return t == context.DeadlineExceeded }

// errNoResult means that Base returned neither a response nor an error, which http.RoundTripper forbids.
var errNoResult = errors.New("heed: Base returned neither a response nor an error")

// errNotSent is the result of an attempt that a Breaker allowed, and that was not sent.
var errNotSent = fmt.Errorf("heed: the attempt was not sent: %w", context.Canceled)

// An invalidRequestError describes why a request can never be sent as it is.
type invalidRequestError string

func (u invalidRequestError) Error() string { return string(u) }

func invalidRequestf(format string, args ...any) error {
	return invalidRequestError(fmt.Sprintf(format, args...))
}
