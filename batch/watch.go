package batch

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

// A watch observes the requests that are sent with one context: whether one was sent that
// is not safe to repeat, and whether the latest one ended because a wait was too long.
type watch struct {
	key      string               // requests whose Idempotency-Key begins with it are safe to repeat
	observe  func()               // is called when the first request reaches the Transport; nil means none
	record   func(sent sent) bool // is called before the first request of each kind is sent, which ends the context if it returns false; nil means none
	maySend  func() bool          // is called before a request is sent that must not be repeated, and ends the context if it returns false; nil means true
	deadline time.Time            // of the job; zero means none

	recording sync.Mutex // held while observe or record runs, so that no other request overtakes them
	recorded  sent       // the last argument of record; guarded by recording

	mu        sync.Mutex
	observed  bool                   // a request of the present call has reached the Transport
	attempts  int                    // all attempts in flight
	starts    int                    // attempts that began since there was none in flight
	dials     int                    // how often a connection was asked for since then
	fields    int                    // header fields that were written since then
	unsent    map[*http.Request]bool // attempts in flight that are not sent, because record or maySend returned false
	inFlight  int                    // attempts in flight that are not safe to repeat
	doubt     sent                   // the kind of the attempts that may have been processed, the least safe one
	tooLong   bool                   // the latest request ended because the wait for a limit was too long
	until     time.Time              // when its wait would end; zero means unknown
	late      bool                   // the latest request was not sent, or not sent again, because of deadline
	throttled bool                   // the latest attempt was throttled
	openAt    time.Time              // when the server accepts requests again by the latest attempt; zero means unknown
}

// sent states which requests were sent for an item.
type sent uint8

const (
	sentIdempotent sent = iota // only idempotent ones, or none
	sentKeyed                  // at least one that is repeated with the same Idempotency-Key
	sentUnsafe                 // at least one that must not be repeated
)

// context returns ctx with the watch as its trace.
func (w *watch) context(ctx context.Context) context.Context {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { w.count(&w.dials) },
		// It is called before anything is sent with which a server can begin, by HTTP/1 and HTTP/2.
		WroteHeaderField: func(string, []string) { w.count(&w.fields) },
	})
	return heed.WithTrace(ctx, &heed.Trace{WaitStart: w.waitStart, AttemptStart: w.attemptStart, AttemptDone: w.attemptDone, Done: w.done})
}

// count increments n, which mu guards.
func (w *watch) count(n *int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*n++
}

// begin begins a call of the function: none of its requests was observed. What was sent before
// stays in doubt.
func (w *watch) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.observed, w.tooLong, w.late, w.throttled = false, false, false, false
	w.until, w.openAt = time.Time{}, time.Time{}
}

// waitStart observes that a request has reached the Transport and was not sent yet.
func (w *watch) waitStart(*http.Request, heed.WaitInfo) {
	w.recording.Lock()
	defer w.recording.Unlock()
	w.mu.Lock()
	first := !w.observed
	w.observed = true
	w.mu.Unlock()
	if first && w.observe != nil {
		w.observe()
	}
}

// kindOf returns the kind of req.
func (w *watch) kindOf(req *http.Request) sent {
	switch {
	case isIdempotent(req):
		return sentIdempotent
	case w.key != "" && (strings.HasPrefix(req.Header.Get("Idempotency-Key"), w.key) || strings.HasPrefix(req.Header.Get("X-Idempotency-Key"), w.key)):
		return sentKeyed
	}
	return sentUnsafe
}

// isIdempotent reports whether req is idempotent by its method or its options. A key is not
// considered: it may be a new one each time.
func isIdempotent(req *http.Request) bool {
	options := heed.RequestOptions{Idempotent: heed.OptionsFrom(req.Context()).Idempotent}
	bare := (&http.Request{Method: req.Method}).WithContext(heed.WithOptions(context.Background(), options))
	return heed.Retryable(bare, nil, errUnknownOutcome)
}

// errUnknownOutcome is an error after which heed.Retryable allows idempotent requests only.
var errUnknownOutcome = errors.New("batch: unknown outcome")

// notIdempotent is a request that heed.Retryable allows only if it was not processed.
var notIdempotent = &http.Request{Method: http.MethodPost}

// mayBeProcessed reports whether the server may have processed an attempt with this result.
func mayBeProcessed(resp *http.Response, err error) bool {
	if err != nil {
		var (
			op     *net.OpError
			dns    *net.DNSError
			cert   *tls.CertificateVerificationError
			record tls.RecordHeaderError
		)
		connecting := errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect")
		failed := errors.As(err, &dns) || errors.As(err, &cert) || errors.As(err, &record)
		return !connecting && !failed && !heed.Retryable(notIdempotent, nil, err)
	}
	rejected := resp.StatusCode >= 400 && resp.StatusCode < 500 && resp.StatusCode != http.StatusRequestTimeout
	return !rejected && !heed.Retryable(notIdempotent, resp, nil)
}

func (w *watch) attemptStart(req *http.Request, _ heed.AttemptInfo) {
	kind := w.kindOf(req)
	w.mu.Lock()
	if w.attempts == 0 {
		w.starts, w.dials, w.fields = 0, 0, 0
	}
	w.attempts++
	w.starts++
	if kind == sentUnsafe {
		w.inFlight++
	}
	w.mu.Unlock()
	if kind == sentIdempotent || w.mayBegin(kind) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unsent == nil {
		w.unsent = map[*http.Request]bool{}
	}
	w.unsent[req] = true
}

// mayBegin records that a request will be sent, and reports whether it may be. Otherwise its context
// has ended.
func (w *watch) mayBegin(kind sent) bool {
	w.recording.Lock()
	defer w.recording.Unlock()
	if kind > w.recorded && w.record != nil {
		if !w.record(kind) {
			return false
		}
		w.recorded = kind
	}
	return kind != sentUnsafe || w.maySend == nil || w.maySend()
}

func (w *watch) attemptDone(req *http.Request, i heed.AttemptInfo) {
	now := time.Now()
	openAt := time.Time{}
	if i.Outcome == throttle.Throttled {
		openAt = openTime(i, now)
	}
	kind := w.kindOf(req)
	processed := kind != sentIdempotent && mayBeProcessed(i.Response, i.Err)
	w.mu.Lock()
	defer w.mu.Unlock()
	// A Base that asks for connections reports what it writes. Attempts at the same time are not distinguished.
	unsent := i.Err != nil && (w.unsent[req] || w.starts <= w.dials && w.fields == 0)
	delete(w.unsent, req)
	w.attempts--
	w.throttled, w.openAt = i.Outcome == throttle.Throttled, openAt
	if kind == sentUnsafe {
		w.inFlight--
	}
	if processed && !unsent {
		w.doubt = max(w.doubt, kind)
	}
}

// openTime returns when the server accepts requests again according to a throttled
// response. It is zero if the response does not state it.
func openTime(i heed.AttemptInfo, now time.Time) time.Time {
	wait := i.RetryAfter
	if wait <= 0 && i.Response != nil {
		var r headers.Reader
		report := r.Parse("", i.Response.StatusCode, i.Response.Header, now)
		for _, l := range report.Limits {
			if l.HasReset && (!l.HasRemaining || l.Remaining <= 0) {
				wait = max(wait, l.ResetAfter)
			}
		}
	}
	if wait <= 0 {
		return time.Time{}
	}
	return now.Add(wait)
}

func (w *watch) done(req *http.Request, i heed.DoneInfo) {
	deadline, hasDeadline := req.Context().Deadline()
	w.mu.Lock()
	defer w.mu.Unlock()
	// i.Err is not asked: an attempt that takes too long also matches DeadlineExceeded.
	w.late = hasDeadline && deadline.Equal(w.deadline) && errors.Is(i.StopReason, context.DeadlineExceeded)
	w.tooLong, w.until = waitOf(errors.Join(i.StopReason, i.Err))
	if w.throttled && (i.Err != nil || i.StopReason != nil) { // no attempt was left, or no time
		w.tooLong = true
	}
	if w.tooLong && w.until.Before(w.openAt) {
		w.until = w.openAt
	}
}

// waitOf reports whether err means that a wait was longer than allowed, and when the wait
// would end. That time is zero if err does not state it.
func waitOf(err error) (tooLong bool, until time.Time) {
	var rejected *throttle.RejectedError
	isRejected := errors.As(err, &rejected)
	switch {
	case isRejected && rejected.Decision.Wait >= throttle.Forever:
		return false, until // a later request would be rejected, too
	case !errors.Is(err, heed.ErrMaxWait) && !(isRejected && errors.Is(err, heed.ErrMaxElapsed)):
		return false, until
	case isRejected && rejected.Decision.Wait > 0:
		until = time.Now().Add(rejected.Decision.Wait)
	}
	return true, until
}

// pause reports whether the latest request ended because its wait was too long, and when
// the wait would end. err is the error of the item, for requests that were not observed.
func (w *watch) pause(err error) (tooLong bool, until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tooLong {
		return true, w.until
	}
	return waitOf(err)
}

// isLate reports whether the latest request failed because the deadline of the job is near.
func (w *watch) isLate() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.late
}

// repeatable reports whether the effects of the present call are known, because it used the
// Transport, and everything that was sent may be sent again.
func (w *watch) repeatable() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.observed && w.doubt < sentUnsafe && w.inFlight == 0
}

// sentUnsafe reports whether it was recorded that a request will be sent that must not be
// repeated.
func (w *watch) sentUnsafe() bool {
	w.recording.Lock()
	defer w.recording.Unlock()
	return w.recorded == sentUnsafe
}

// doubtful reports whether something that is not idempotent was sent and may have been
// processed.
func (w *watch) doubtful() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.doubt != sentIdempotent || w.inFlight > 0
}

// throttling reports whether the latest attempt was throttled, and when the server accepts
// requests again; zero means unknown.
func (w *watch) throttling() (throttled bool, openAt time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.throttled, w.openAt
}

// assumeDone records the result of a request of a client that does not report attempts.
func (w *watch) assumeDone(req *http.Request, resp *http.Response, err error) {
	i := heed.AttemptInfo{Response: resp, Err: err, Outcome: throttle.Failed}
	if resp != nil {
		var r headers.Reader
		report := r.Parse(req.URL.Host, resp.StatusCode, resp.Header, time.Now())
		if report.Throttled {
			i.Outcome, i.RetryAfter = throttle.Throttled, report.RetryAfter
		}
	}
	w.mu.Lock()
	w.dials = 0 // it may send other requests, too, so that connections prove nothing
	w.mu.Unlock()
	w.attemptDone(req, i)
}
