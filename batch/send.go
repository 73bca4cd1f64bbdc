package batch

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/internal/httpbody"
	"github.com/heed-go/heed/throttle"
)

// run sends the requests until the Outbox is closed.
func (o *Outbox) run() {
	defer close(o.ended)
	failures := failures{policy: o.c.Backoff}
	for {
		e := o.first()
		if e == nil {
			return
		}
		r := o.try(e)
		if r.final && o.leave(e, &r) {
			failures.reset()
		}
		r.close()
		if o.store != nil {
			_ = o.store.rewriteIfLong(o.State().Bytes, o.snapshot) // the file is valid if it fails
		}
		if !r.final && (o.ctx.Err() != nil || !o.delay(r, &failures)) {
			return
		}
	}
}

// first waits for a request and returns the first one. It returns nil when the Outbox is
// closed.
func (o *Outbox) first() *entry {
	for {
		o.mu.Lock()
		var e *entry
		if len(o.entries) > 0 {
			e = o.entries[0]
		}
		closed, changed := o.isClosed, o.changed
		o.mu.Unlock()
		switch {
		case closed:
			return nil
		case e != nil:
			return e
		}
		select {
		case <-changed:
		case <-o.closed:
		}
	}
}

// A tryResult is the result of trying to send a request.
type tryResult struct {
	final  bool // the request leaves the Outbox
	resp   *http.Response
	cancel context.CancelCauseFunc // ends the context of resp
	err    error                   // why the request is kept, or Delivery.Err

	until    time.Time // if the request is kept: when the server accepts it again; zero means unknown
	wakeable bool      // if the request is kept: Wake ends the delay
}

// What is left of a response is read to its end, so that its connection can be used again,
// unless it is long or arrives slowly.
const (
	maxDrain     = 64 << 10 // bytes
	drainTimeout = 100 * time.Millisecond
)

// close discards the response.
func (r *tryResult) close() {
	if r.resp == nil {
		return
	}
	defer r.cancel(nil)
	defer r.resp.Body.Close()
	if httpbody.HasBody(r.resp) {
		timer := time.AfterFunc(drainTimeout, func() {
			r.cancel(nil)
			r.resp.Body.Close() // ends a Read of a body that ignores the context
		})
		defer timer.Stop()
		_, _ = io.CopyN(io.Discard, r.resp.Body, maxDrain)
	}
}

// try sends e once, with the retries of the Transport.
func (o *Outbox) try(e *entry) tryResult {
	select {
	case <-o.wake: // it came before the failure that it should end
	default:
	}
	if o.c.MaxAge > 0 && time.Since(time.UnixMilli(e.Submitted)) >= o.c.MaxAge {
		return tryResult{final: true, err: ErrExpired}
	}
	if !o.mayRepeat(e) {
		return tryResult{final: true, err: ErrInterrupted}
	}
	ctx, cancel := context.WithCancelCause(o.ctx)
	var unrecorded error
	w := &watch{key: e.Key, record: func(kind sent) bool {
		err := o.recordSend(e, kind)
		if err != nil {
			unrecorded = fileError("outbox", err)
			cancel(unrecorded)
		}
		return err == nil
	}}
	req, err := e.request(w.context(ctx))
	if err != nil {
		cancel(nil)
		return tryResult{final: true, err: fmt.Errorf("%w: %w", ErrInvalidRequest, err)}
	}
	before := e.sent
	r := o.do(ctx, req, w)
	if unrecorded != nil && r.resp == nil { // it was not sent, because its context had ended
		cancel(nil)
		o.mu.Lock()
		e.sent = before
		o.mu.Unlock()
		return tryResult{err: unrecorded}
	}
	o.classify(e, w, before, &r)
	if r.cancel = cancel; r.resp == nil {
		cancel(nil)
	}
	return r
}

// do sends req. If the Transport does not report attempts, w is as if there was one.
func (o *Outbox) do(ctx context.Context, req *http.Request, w *watch) (r tryResult) {
	if !o.viaHeed {
		w.attemptStart(req, heed.AttemptInfo{})
		defer func() { w.assumeDone(req, r.resp, r.err) }()
	}
	if r.err = context.Cause(ctx); r.err == nil {
		r.resp, r.err = o.c.Client.Do(req)
	}
	return r
}

// mayRepeat reports whether e may be sent although it may have been processed.
func (o *Outbox) mayRepeat(e *entry) bool {
	switch e.sent {
	case sentIdempotent:
		return true
	case sentUnsafe:
		return false
	}
	return remembersKey(e.sentAt, o.c.KeyLifetime)
}

// recordSend records that e will be sent.
func (o *Outbox) recordSend(e *entry, kind sent) error {
	if kind <= e.sent {
		return nil
	}
	at := e.sentAt
	if e.sent == sentIdempotent {
		at = time.Now().UnixMilli()
	}
	o.mu.Lock()
	e.sent, e.sentAt = kind, at
	o.mu.Unlock()
	if o.store == nil {
		return nil
	}
	o.store.begin()
	defer o.store.end()
	return o.store.send(e, kind, at)
}

// classify decides whether e leaves the Outbox. before is what had been sent of e before
// this try.
func (o *Outbox) classify(e *entry, w *watch, before sent, r *tryResult) {
	if before == sentIdempotent && e.sent != sentIdempotent && !w.doubtful() {
		o.note(e, recordUnsent)
	}
	tooLong, until := w.pause(r.err)
	throttled, openAt := w.throttling()
	switch {
	case o.ctx.Err() != nil && r.err != nil: // Close
	case tooLong:
		r.until, r.err = until, keepReason(r)
	case r.resp != nil && throttled:
		r.until, r.err = openAt, keepReason(r)
	case r.resp != nil && r.err == nil && r.resp.StatusCode < 400:
		r.final = true
	case e.sent == sentUnsafe: // it is in doubt, as otherwise recordUnsent was noted
		r.final, r.err = true, fmt.Errorf("%w: %w", ErrInterrupted, keepReason(r))
	case r.err != nil:
		r.wakeable = true
		if !isNetworkError(r.err) || r.resp != nil {
			o.countAttempt(e, r)
		}
	default:
		o.classifyStatus(e, before, r)
	}
}

// classifyStatus decides by the status of a response that is an error and not throttled.
func (o *Outbox) classifyStatus(e *entry, before sent, r *tryResult) {
	switch s := r.resp.StatusCode; {
	case s == http.StatusRequestTimeout, s == http.StatusTooEarly, s == http.StatusBadGateway, s == http.StatusServiceUnavailable,
		s == http.StatusGatewayTimeout, s >= 520 && s <= 524:
		r.err, r.wakeable = keepReason(r), true
	case s >= 500, s == http.StatusConflict && before == sentKeyed: // an earlier attempt may still be in progress
		r.err = keepReason(r)
		o.countAttempt(e, r)
	case s < 500 && o.c.RejectionPasses(r.resp):
		r.err, r.wakeable = keepReason(r), true
	default:
		r.final, r.err = true, fmt.Errorf("%w: %s", ErrRejected, r.resp.Status)
	}
}

// keepReason returns the error that describes a result.
func keepReason(r *tryResult) error {
	if r.err != nil {
		return r.err
	}
	return fmt.Errorf("batch: the server responded %s", r.resp.Status)
}

// countAttempt counts a response for MaxAttempts. e leaves the Outbox with the last one.
func (o *Outbox) countAttempt(e *entry, r *tryResult) {
	o.note(e, recordAttempted)
	if e.attempts >= o.c.MaxAttempts {
		r.final, r.err = true, fmt.Errorf("%w: OutboxConfig.MaxAttempts is %d: %w", ErrRejected, o.c.MaxAttempts, r.err)
	}
}

// note records a change of e. An error of the file is ignored: without the record, what is
// known of e is less certain, and e is treated with more care after a restart.
func (o *Outbox) note(e *entry, kind byte) {
	if o.store != nil {
		o.store.begin()
		defer o.store.end()
		// On disk, so that a power failure does not make a request count as sent that was not.
		_ = o.store.note(kind, e, kind == recordUnsent)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch kind {
	case recordUnsent:
		e.sent, e.sentAt = sentIdempotent, 0
	case recordAttempted:
		e.attempts++
	}
}

// leave calls OutboxConfig.Done and removes e, unless it must be kept: then r is no longer final,
// and leave returns false. The caller closes the response.
func (o *Outbox) leave(e *entry, r *tryResult) bool {
	action := Leave
	if o.c.Done != nil {
		action = o.c.Done(Delivery{QueuedRequest: e.queued(), Response: r.resp, Err: r.err})
	}
	switch {
	case r.err == nil || action == Discard:
	case action == Keep:
		r.final, r.wakeable = false, true
		if errors.Is(r.err, ErrInterrupted) {
			o.note(e, recordUnsent)
		}
		return false
	case o.c.DeadLetters != "":
		if err := giveUp(o.c.DeadLetters, e, r.err, o.c.MaxBytes); err != nil {
			r.final, r.wakeable, r.err = false, true, fileError("dead letters", err)
			return false
		}
	}
	o.remove(e, r.err)
	return true
}

// remove removes e from the file and from the entries. If the file cannot be written, e is
// sent again after a restart, with its Idempotency-Key. The outcome is Delivery.Err.
func (o *Outbox) remove(e *entry, outcome error) {
	var err error
	if o.store != nil {
		o.store.begin()
		defer o.store.end()
		err = o.store.note(recordLeft, e, e.sent == sentUnsafe)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if i := slices.Index(o.entries, e); i >= 0 {
		o.entries = slices.Delete(o.entries, i, i+1)
	}
	o.bytes -= e.size
	o.delivered.count(outcome, time.Now(), len(o.entries))
	o.state = OutboxState{LastError: fileError("outbox", err)}
	o.signal()
}

// maxStatedDelay is the longest delay that a server can impose. A later end may be a mistake:
// the request is then tried again, and a heed.Transport decides whether it is sent.
const maxStatedDelay = 24 * time.Hour

// delay waits before the first request is sent again. It returns false when the Outbox is
// closed.
func (o *Outbox) delay(r tryResult, f *failures) bool {
	until := r.until
	now := time.Now()
	if latest := now.Add(maxStatedDelay); until.After(latest) {
		until = latest
	}
	if !until.After(now) {
		until = now.Add(f.next())
	}
	o.mu.Lock()
	o.state = OutboxState{NextTry: until, LastError: r.err}
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		o.state.NextTry = time.Time{}
		o.mu.Unlock()
	}()
	timer := time.NewTimer(until.Sub(now))
	defer timer.Stop()
	wake := o.wake
	if !r.wakeable {
		wake = nil
	}
	select {
	case <-timer.C:
	case <-wake:
	case <-o.closed:
		return false
	}
	return true
}

// failures counts the failures since a request last left the Outbox.
type failures struct {
	policy  backoff.Policy
	forCall backoff.Policy // nil before the first failure
	n       int
	last    time.Duration
}

func (f *failures) reset() { f.forCall, f.n, f.last = nil, 0, 0 }

// next returns the delay after a failure. A policy that allows no further attempt has no
// effect: the last delay applies again, or a minute.
func (f *failures) next() time.Duration {
	if f.forCall == nil {
		f.forCall = backoff.ForCall(f.policy)
	}
	f.n++
	d := f.forCall.Delay(f.n, f.last)
	if d == backoff.Stop {
		if f.last > 0 {
			return f.last
		}
		return time.Minute
	}
	f.last = d
	return d
}

// isNetworkError reports whether err is a failure of the network or of a limit, as opposed
// to one of the request.
func isNetworkError(err error) bool {
	var (
		op       *net.OpError
		dns      *net.DNSError
		cert     *tls.CertificateVerificationError
		rejected *throttle.RejectedError
		timeout  interface{ Timeout() bool }
	)
	switch {
	case errors.As(err, &rejected) && rejected.Decision.Wait >= throttle.Forever:
		return false // the limit can never admit the request
	case errors.As(err, &op), errors.As(err, &dns), errors.As(err, &cert), errors.Is(err, throttle.ErrRejected):
		return true
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return true
	}
	return errors.As(err, &timeout) && timeout.Timeout()
}
