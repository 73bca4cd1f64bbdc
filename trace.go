package heed

import (
	"net/http"
	"time"

	"github.com/heed-go/heed/quota"
)

// Trace holds functions that are called while a request is processed. Nil functions are
// not called. They are called on the goroutine of the request, so they must not block.
// They must not read or close bodies.
//
// Each function gets the request that was given to the Transport, except AttemptStart,
// which gets the request that is sent to Base. The comment of each function lists the
// TraceInfo fields that are set.
type Trace struct {
	// WaitStart is called when the request enters the queue, once per attempt. TraceInfo:
	// Attempt.
	WaitStart func(*http.Request, TraceInfo)

	// WaitDone is called when the request leaves the queue, because it was granted or
	// with an error. TraceInfo: Attempt, Waited, Limit, and Err if it was not granted.
	WaitDone func(*http.Request, TraceInfo)

	// AttemptStart is called before an attempt is sent. TraceInfo: Attempt.
	AttemptStart func(*http.Request, TraceInfo)

	// AttemptDone is called when an attempt has got a response or has failed. TraceInfo:
	// Attempt, and Response or Err.
	AttemptDone func(*http.Request, TraceInfo)

	// Retry is called when a failed attempt will be retried. TraceInfo: Attempt (the
	// failed one), Response or Err, and Delay.
	Retry func(*http.Request, TraceInfo)

	// GiveUp is called when a request fails while it waits, or when a failed attempt
	// could be retried but is not. TraceInfo: Attempt (0 if none was sent), Response or
	// Err, and Reason.
	GiveUp func(*http.Request, TraceInfo)

	// Hold is called when a quota of a server is held or released. If several Transports
	// share a Tracker, the Hold function of each is called.
	Hold func(HoldInfo)

	// LimitLearned is called when a limit of a server was learned, changed or dropped. If
	// several Transports share a Tracker, the LimitLearned function of each is called.
	LimitLearned func(LimitLearnedInfo)
}

// HoldInfo describes a quota of a server that was held or released.
type HoldInfo = quota.HoldInfo

// LimitLearnedInfo describes a limit of a server that was learned, changed or dropped.
type LimitLearnedInfo = quota.LimitLearnedInfo

// A TraceInfo describes one event of a Trace. Fields that the event does not set are
// zero.
type TraceInfo struct {
	// Attempt is the number of the attempt, starting at 1.
	Attempt int

	// Waited is the time that the request waited in the queue before this attempt.
	Waited time.Duration

	// Limit is the name of the limit that caused the wait.
	Limit string

	// Response is the response of the attempt. Its body must not be read.
	Response *http.Response

	// Err is the error of the attempt or of the wait.
	Err error

	// Delay is the time until the retry enters the queue.
	Delay time.Duration

	// Reason states why the request is not retried. See GiveUpError.Reason.
	Reason error
}
