package heed

import (
	"net/http"
	"time"

	"github.com/heed-go/heed/quota"
)

// Trace is a set of functions that are told what happens to requests, while it
// happens. Nil ones are left out. They run on the goroutine of the request and
// must not keep it waiting, nor read or close bodies.
//
// Every function gets the request as the Transport was given it, except AttemptStart,
// which gets it as it is sent.
type Trace struct {
	WaitStart    func(*http.Request, TraceInfo) // it goes to stand in line; Attempt
	WaitDone     func(*http.Request, TraceInfo) // it leaves the line: granted, or Err; Attempt, Waited, Limit
	AttemptStart func(*http.Request, TraceInfo) // an attempt is sent; Attempt
	AttemptDone  func(*http.Request, TraceInfo) // what came of it; Attempt, Response or Err
	Retry        func(*http.Request, TraceInfo) // it will be sent again; Attempt that failed, Response or Err, Delay
	GiveUp       func(*http.Request, TraceInfo) // it will not, though it failed; Attempt, Response or Err, Reason

	// Hold is called when a quota of a server is held or released, and LimitLearned when
	// a limit of a server was learned, changed or dropped. They concern the Tracker: if
	// several Transports share one, each Trace is called.
	Hold         func(HoldInfo)
	LimitLearned func(LimitLearnedInfo)
}

// HoldInfo describes that a quota of a server is held, or released.
type HoldInfo = quota.HoldInfo

// LimitLearnedInfo describes a limit of a server that was learned, changed or dropped.
type LimitLearnedInfo = quota.LimitLearnedInfo

// A TraceInfo is what is told of one event. Fields that the event does not name are
// zero.
type TraceInfo struct {
	Attempt  int            // counted from 1
	Waited   time.Duration  // in line
	Limit    string         // name of the limit that was waited for
	Response *http.Response // its body is unread
	Err      error
	Delay    time.Duration // pause before the next attempt, beside the time in line
	Reason   error         // why it is not sent again, see GiveUpError
}
