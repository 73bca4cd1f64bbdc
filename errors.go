package heed

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Why a request was not sent again. A GiveUpError matches one of them, or what
// ended the context, or a *throttle.RefusedError; Info.GaveUp is one.
var (
	ErrAttempts   = errors.New("heed: attempts used up: raise Retry.Attempts to try more often")
	ErrBody       = errors.New("heed: the body cannot be sent again: set Request.GetBody")
	ErrMaxWait    = errors.New("heed: the wait is longer than MaxWait")
	ErrMaxElapsed = errors.New("heed: Retry.MaxElapsed is over")
	ErrBudget     = errors.New("heed: the retry budget is spent")
	ErrUnsafe     = errors.New("heed: it may have been done already, and is not known to be idempotent: see heed.Request")
	ErrServer     = errors.New("heed: the server forbids it")
)

// A GiveUpError is returned for a request that got no answer after more than one
// attempt, or that could not be sent in time.
//
// It matches, in the sense of errors.Is and errors.As, what the last attempt
// failed with, Reason, and context.DeadlineExceeded if a deadline is why.
type GiveUpError struct {
	Method   string
	URL      string        // without password, values of the query, and fragment
	Attempts []Attempt     // those that were sent, oldest first
	InLine   time.Duration // time in line, all attempts
	Paused   time.Duration // time between attempts
	Reason   error         // why it was not sent again
	Err      error         // what the last attempt failed with; nil if it was answered, or none was sent
}

// An Attempt is what came of sending a request once.
type Attempt struct {
	Status int    // of the answer; 0: there was none
	Err    error  // nil if there was an answer
	Body   string // beginning of the answer's body, at most 256 bytes; "" if it was not read
}

// maxSnippet bounds Attempt.Body.
const maxSnippet = 256

// Error says what was tried, what each attempt said, and why it ended.
func (e *GiveUpError) Error() string {
	var b strings.Builder
	b.WriteString("heed: gave up on " + e.Method + " " + e.URL)
	switch n := len(e.Attempts); n {
	case 0:
		b.WriteString(" before it was sent")
	case 1:
		b.WriteString(" after 1 attempt")
	default:
		b.WriteString(" after " + strconv.Itoa(n) + " attempts")
	}
	if w := e.InLine + e.Paused; w > 0 {
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

// Timeout reports whether time ran out, as net.Error and url.Error understand it.
func (e *GiveUpError) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.Is(e.Reason, context.DeadlineExceeded) || errors.As(e.Err, &t) && t.Timeout()
}

// public returns u without what may be secret: the password, the values of the
// query, whose names do not tell which of them are keys, and the fragment.
func public(u *url.URL) string {
	if u == nil {
		return ""
	}
	v := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath, Opaque: u.Opaque, User: u.User}
	if u.RawQuery == "" {
		return v.Redacted()
	}
	parts := strings.Split(u.RawQuery, "&")
	for i, p := range parts {
		if name, _, ok := strings.Cut(p, "="); ok {
			parts[i] = name + "=xxxxx"
		} else {
			parts[i] = "xxxxx"
		}
	}
	v.RawQuery = strings.Join(parts, "&")
	return v.Redacted()
}
